//! Invariants for any script. Shared by the fuzz target and the corpus.

use std::time::Duration;

use egret_clock::Random;
use egret_http1::{HeadLimits, RequestHead, is_token};
use egret_message::Changes;
use egret_script::{Decision, Limits, Rules, Script, ScriptSide};

const RULES: Rules = Rules {
    field_problem: |name| (!is_token(name.as_bytes()) || name == "host").then(|| "not valid".to_owned()),
    is_path: |path| {
        path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'/')
    },
};

const LIMITS: Limits = Limits { memory: 2 << 20, time: Duration::from_millis(2) };

const HEAD: &[u8] =
    b"POST /a HTTP/1.1\r\nHost: one.example\r\nX-A: 1\r\nX-A: \xff\r\nContent-Length: 9\r\n\r\n";

/// Checks a script: nothing panics or aborts, and what it sets is valid in a message. A text without a
/// function is run as statements of one. Returns `true` if it was compiled and its call did not fail.
pub fn script(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let text = if text.contains("onRequest") {
        text.to_owned()
    } else {
        format!("function onRequest(request) {{ {text} }}")
    };
    let Ok(script) = Script::compile(&text, LIMITS, Vec::new(), RULES) else { return false };
    let Ok(instance) = script.instance() else { return false };
    let mut is_good = script.has(ScriptSide::Request);
    for _ in 0..if is_good { 2 } else { 0 } {
        let called = instance.call(
            ScriptSide::Request,
            |call| {
                let mut head = RequestHead::new();
                head.parse(HEAD, &HeadLimits::default()).unwrap();
                call.request.copy_head(&head.fields, HEAD, &Changes::default());
                call.request.copy_body(Ok(br#"{"a":[1]}"#));
                call.method = b"POST".to_vec();
                call.path = b"/a".to_vec();
                call.query = Some(b"page=1&a".to_vec());
                call.random = Random::new(1);
            },
            |call, decision| {
                for (name, value) in call.request.changes.added() {
                    assert!(is_field(name, value));
                }
                assert!(call.path.starts_with(b"/"));
                let is_query = |byte: &u8| byte.is_ascii_graphic() && *byte != b'#';
                assert!(call.query.as_deref().unwrap_or_default().iter().all(is_query));
                match decision {
                    Decision::Next => {}
                    Decision::Respond { status, fields, .. } => {
                        assert!((200..=599).contains(&status));
                        assert!(fields.iter().all(|(name, value)| is_field(name.as_bytes(), value)));
                    }
                    Decision::Refuse { status, .. } => assert!((400..=599).contains(&status)),
                }
            },
        );
        is_good &= called.is_ok();
        if called.is_err_and(|error| error.spoils()) {
            break;
        }
    }
    is_good
}

fn is_field(name: &[u8], value: &[u8]) -> bool {
    is_token(name) && name != b"host" && !value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0))
}

//! What holds for any expression, and for any body that is edited. Shared by the fuzz targets and the corpus.

use egret_flow::Timestamp;
use egret_flow::expression::{Expression, Inputs, Outcome, Scope};
use egret_flow::json::{Action, JsonEdits, JsonError};
use egret_flow::message::{Changes, Fields, Request, Response};
use egret_flow::router::Parameters;
use egret_flow::template::{Place, Template};
use serde::de::IgnoredAny;

const SCOPE: Scope<'_> = Scope { has_response: true, parameters: &["id"] };

/// The first line, up to a NUL, is an expression and a template; what follows is a body. Nothing panics, nothing runs long, and what
/// an expression comes to does not change. Says whether the expression was compiled.
pub fn expression(bytes: &[u8]) -> bool {
    let (source, body) = match bytes.iter().position(|byte| *byte == 0) {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &b"{\"items\":[1,2,{\"a\":\"b\"}]}"[..]),
    };
    let Ok(source) = std::str::from_utf8(source) else { return false };
    let changes = Changes::default();
    let fields = Fields::new(&[], b"", &changes);
    let request = Request {
        provider: "stripe",
        tls: true,
        host: "api.stripe.com",
        port: 443,
        method: b"GET",
        path: b"/v1/charges",
        query: Some(b"a=1&b=%zz&c"),
        fields,
        consumer: None,
        body: Some(body),
    };
    let response = Response { status: 429, fields, body: Some(body) };
    let (parameters, now) = (Parameters::default(), Timestamp::from_secs(1_000_000));
    let inputs = Inputs { request: &request, response: Some(&response), parameters, attempt: 1, now };
    template(source, &inputs);
    evaluate::<String>(source, &inputs);
    evaluate::<u64>(source, &inputs);
    evaluate::<bool>(source, &inputs)
}

fn evaluate<T: Outcome + PartialEq + std::fmt::Debug>(source: &str, inputs: &Inputs<'_>) -> bool {
    match Expression::<T>::compile(source, SCOPE) {
        Ok(expression) => {
            assert_eq!(expression.evaluate(inputs), expression.evaluate(inputs));
            true
        }
        Err(error) => {
            assert!(!error.message.is_empty());
            false
        }
    }
}

fn template(source: &str, inputs: &Inputs<'_>) {
    for place in [Place::Text, Place::Json, Place::Field, Place::Url] {
        if let Ok(template) = Template::compile(source, place, SCOPE, "body") {
            let _ = template.render(inputs, &mut Vec::new());
        }
    }
}

/// Up to a NUL a pointer, after it a body; without one, a body. What is edited is JSON for every reader, and stays JSON; what is put in
/// once is there, and what is taken out is gone for good. Says whether the body is JSON.
pub fn json(bytes: &[u8]) -> bool {
    let (pointer, body) = match bytes.iter().position(|byte| *byte == 0) {
        Some(end) => (std::str::from_utf8(&bytes[..end]).unwrap_or("/a"), &bytes[end + 1..]),
        None => ("/a", bytes),
    };
    let values = [&b"{\"x\":[1]}"[..]];
    let mut is_json = false;
    for action in [Action::Set(0), Action::Add(0), Action::Remove] {
        let mut edits = JsonEdits::default();
        if edits.insert(pointer, action).is_err() && edits.insert("/a", action).is_err() {
            continue;
        }
        let edited = edits.apply(body, &values);
        let is_too_deep = matches!(edited, Err(JsonError::TooDeep));
        let is_refused = matches!(edited, Err(JsonError::Malformed(_)));
        // Nothing more is read of a body that is nested too deeply, or has no place for what is put in.
        if matches!(edited, Ok(_) | Err(JsonError::Malformed(_))) {
            assert_eq!(is_refused, !is_read(body), "{action:?}");
        }
        is_json = !is_refused && !is_too_deep;
        let Ok(Some(edited)) = edited else { continue };
        assert!(is_read(&edited), "{action:?}");
        let again = edits.apply(&edited, &values);
        let appends = matches!(action, Action::Add(_)) || pointer.contains("/-");
        let moves = action == Action::Remove && pointer.contains(|digit: char| digit.is_ascii_digit());
        let is_done = matches!(again, Ok(None) | Err(JsonError::TooDeep));
        assert!(appends || moves || is_done, "{action:?} {again:?}");
    }
    is_json
}

fn is_read(body: &[u8]) -> bool {
    std::str::from_utf8(body).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

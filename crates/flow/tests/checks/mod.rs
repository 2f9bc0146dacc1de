//! What holds for any expression, for any body that is edited, and for whatever peers say of caching. Shared by the fuzz targets and the corpus.

use std::sync::Arc;
use std::time::Duration;

use egret_flow::Timestamp;
use egret_flow::cache::{
    self, Ask, CacheConfig, Candidate, Decision, Kept as _, KeySecret, Policy, Stored, Times,
};
use egret_flow::expression::{Expression, Inputs, Outcome, Scope};
use egret_flow::json::{Action, JsonEdits, JsonError};
use egret_flow::message::{Changes, Fields, Request, Response};
use egret_flow::router::Parameters;
use egret_flow::template::{Place, Template};
use egret_http1::{HeadLimits, Method, Progress, RequestHead, ResponseHead};
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

/// Fields of a request; after a NUL, status and fields of its answer. Nothing panics, what is decided twice is decided alike, and nothing that
/// says `no-store` is stored. Says whether the answer is stored.
pub fn cache(bytes: &[u8]) -> bool {
    const NOW: Timestamp = Timestamp::from_secs(1_795_307_476);
    let Some(end) = bytes.iter().position(|byte| *byte == 0) else { return false };
    let request = [b"GET / HTTP/1.1\r\nhost: h\r\n", &bytes[..end], b"\r\n\r\n"].concat();
    let answer = [b"HTTP/1.1 ", &bytes[end + 1..], b"\r\n\r\n"].concat();
    let (mut asked, mut answered) = (RequestHead::new(), ResponseHead::new());
    let limits = HeadLimits::default();
    if asked.parse(&request, &limits) != Ok(Progress::Complete)
        || answered.parse(&answer, &limits, Method::Get) != Ok(Progress::Complete)
    {
        return false;
    }
    let request = Request {
        provider: "stripe",
        tls: true,
        host: "h",
        port: 443,
        method: b"GET",
        path: b"/",
        query: None,
        fields: Fields::received(&asked.fields, &request),
        consumer: None,
        body: None,
    };
    let fields = Fields::received(&answered.fields, &answer);
    let response = Response { status: answered.status, fields, body: None };
    let policy = Policy::new(&CacheConfig::default(), "f", Arc::new(KeySecret::new(&[1; 32])));
    let place = cache::Place::default();
    let Ask::Look(question) = policy.ask(&request, &place) else { return false };
    let times = Times { sent: NOW, received: NOW };
    let receive = || policy.receive(&question, (&request, &place), &response, times, (&[], None));
    let verdict = receive();
    assert_eq!(verdict, receive());
    let cache::Action::Store(stored, ttl_s) = verdict.action else { return false };
    let says =
        |word: &str| fields.all(b"cache-control").any(|line| line.to_ascii_lowercase() == word.as_bytes());
    let is_targeted = fields.get(b"egret-cache-control").is_some();
    assert!(is_targeted || (!says("no-store") && !says("private")));
    let loaded = Stored::load(&stored.save(), &policy.targets().into());
    assert_eq!(loaded.map(|loaded| loaded.save()), Some(stored.save()));
    for later in [0, 1, 60, 86_400, 1 << 40] {
        let now = NOW + Duration::from_secs(later);
        let candidates = [Candidate { stored: &stored, len: Some(9) }];
        let decision = policy.decide(&question, &request, &candidates, now);
        assert_eq!(decision, policy.decide(&question, &request, &candidates, now));
        if let Decision::Serve(reply) = decision {
            assert!(
                reply.standing.age.as_secs() >= later
                    && (reply.standing.is_fresh() || question.wants.max_stale.is_some())
            );
            assert!(reply.standing.ttl_s() <= ttl_s);
            reply.write_fields(&stored, 9, &mut Vec::new());
            assert!(reply.content_length(&stored, 9).is_none_or(|len| len < 4_096));
        }
    }
    true
}

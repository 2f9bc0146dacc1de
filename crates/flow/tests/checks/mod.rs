//! What holds for an expression, whatever it and the body that it is evaluated on are. Shared by the fuzz target and the corpus.

use egret_flow::Timestamp;
use egret_flow::expression::{Expression, Inputs, Outcome, Scope};
use egret_flow::message::{Changes, Fields, Request, Response};
use egret_flow::router::Parameters;
use egret_flow::template::{Place, Template};

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

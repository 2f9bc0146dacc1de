//! Each error of Egret in each format: the cause is where the clients of that API look for it.

use egret_tests::dns::{Answer, NameServer};
use egret_tests::egret::Config;
use egret_tests::failing::{CASES, Failing, Needs, assert_table_is_complete};
use egret_tests::http::{Response, find};
use egret_tests::provider::Provider;
use serde_json::Value;

fn assert_told(response: &Response, pointer: &str, cause: &str) -> Value {
    let body = response.json();
    let told =
        body.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("no {pointer} in {body}"));
    assert!(told.contains(cause), "{told:?} does not tell {cause:?}");
    body
}

#[test]
fn every_error_of_the_table_has_a_case() {
    assert_table_is_complete();
}

#[test]
fn every_error_tells_its_cause_in_every_format() {
    for format in ["problem", "text", "openai", "anthropic", "aws"] {
        let mut failing = Failing::start(format);
        for case in &CASES {
            let response = failing.call(case);
            let named = (response.status, response.field("x-egret-error"));
            assert_eq!(named, (case.status, Some(case.error)), "{format}: {response:?} {}", response.text());
            assert!(
                response.field("proxy-status").is_some_and(|value| value.contains("error=")),
                "{response:?}"
            );
            assert_eq!(
                response.field("retry-after").is_some(),
                matches!(case.status, 429 | 503),
                "{response:?}"
            );
            let id = response.field("x-egret-request-id").unwrap();
            match format {
                "problem" => assert_eq!(assert_told(&response, "/detail", case.cause)["request_id"], id),
                "openai" => {
                    let body = assert_told(&response, "/error/message", case.cause);
                    assert_eq!(
                        (&body["error"]["code"], &body["error"]["param"]),
                        (&case.error.into(), &Value::Null)
                    );
                    assert_eq!(response.field("x-request-id"), Some(id));
                }
                "anthropic" => {
                    let body = assert_told(&response, "/error/message", case.cause);
                    assert_eq!((&body["type"], &body["request_id"]), (&"error".into(), &id.into()));
                    assert_eq!(response.field("request-id"), Some(id));
                }
                "aws" => {
                    let body = assert_told(&response, "/message", case.cause);
                    assert_eq!(body["__type"].as_str(), response.field("x-amzn-errortype"));
                    assert!(body["__type"].as_str().unwrap().starts_with("Egret"), "{body}");
                }
                _ => assert!(response.text().contains(case.cause), "{}", response.text()),
            }
        }
    }
}

#[test]
fn a_provider_has_its_own_error_format() {
    let config = Config::default()
        .provider("plain", "http://unknown.invalid")
        .provider_with("chat", "http://unknown.invalid", "errors: { format: openai }")
        .provider_with("store", "http://unknown.invalid", "errors: { format: aws }");
    let names = NameServer::start(|_| Answer::NoSuchName);
    let egret = config.gateway(names.config()).start();
    let call = |method: &str, provider: &str, fields: &str| {
        let request = format!("{method} /{provider}/ HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", egret.address());
        egret.client().send(request).response_to(method)
    };
    let kinds = |provider: &str, fields: &str| {
        call("GET", provider, fields).field("content-type").unwrap().to_owned()
    };
    assert_eq!(kinds("plain", ""), "application/problem+json");
    assert_eq!(kinds("chat", ""), "application/json");
    let s3 =
        "Authorization: AWS4-HMAC-SHA256 Credential=A/20260101/eu-west-1/s3/aws4_request, Signature=a\r\n";
    assert_eq!(kinds("store", s3), "application/xml");
    assert_eq!(kinds("store", "Content-Type: application/x-www-form-urlencoded\r\n"), "text/xml");
    assert_eq!(kinds("store", "Smithy-Protocol: rpc-v2-cbor\r\n"), "application/cbor");
    let head = call("HEAD", "store", s3);
    assert_eq!((head.status, head.field("x-egret-error"), head.body.len()), (502, Some("dns-failed"), 0));
    let xml = call("GET", "store", s3);
    assert!(find(&xml.body, b"<Code>EgretDnsFailed</Code><Message>").is_some(), "{}", xml.text());
}

#[test]
fn a_fallback_keeps_the_called_providers_format() {
    let origin = Provider::plain();
    let flows =
        "flows: [{ name: f, match: { provider: chat }, remedies: [fallback: { provider: other }] }]\n";
    let config = Config::with_origin(origin.url())
        .provider_with("chat", "http://unknown.invalid", "errors: { format: openai }")
        .provider("other", "http://other.invalid")
        .flows(flows);
    let egret = config.start();
    let response = egret.client().get(egret.address(), "/chat/").response();
    assert_told(&response, "/error/message", "other.invalid");
}

#[test]
fn each_server_error_is_logged_once_a_minute_with_its_cause() {
    let mut failing = Failing::start("problem");
    let logged =
        |case: &&egret_tests::failing::Case| case.status >= 500 || case.error == "body-too-large-to-sign";
    for _ in 0..3 {
        // Nothing can be called after the last one.
        for case in CASES.iter().filter(logged).filter(|case| case.error != "too-many-connections") {
            failing.call(case);
        }
    }
    failing.call(CASES.last().unwrap());
    failing.egret().until_logged("too-many-connections");
    let log = failing.egret().log();
    for case in CASES {
        let lines: Vec<Value> = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(|line| line["level"] == "WARN")
            .map(|line| line.get("fields").cloned().unwrap_or(line))
            .filter(|fields| fields["error"] == case.error)
            .collect();
        assert_eq!(lines.len(), usize::from(logged(&&case)), "{}: {lines:?}", case.error);
        let Some(fields) = lines.first() else { continue };
        assert!(fields["cause"].as_str().unwrap().contains(case.cause), "{fields}");
        assert_eq!(fields["status"], case.status);
        if case.needs == Needs::Nothing && case.error != "too-many-connections" {
            assert_eq!(fields["provider"], case.error);
        }
        assert!(!fields.to_string().contains("0123456789abcdef"), "{fields}");
    }
}

//! Errors of gRPC calls: those of the gateway in the form that gRPC clients read, those of providers as they
//! are.

use egret_tests::closed_port::ClosedPort;
use egret_tests::egret::{Config, Egret};
use egret_tests::grpc::{call, call_with, echo, response, trailers_only};
use egret_tests::provider::Provider;
use serde_json::{Value, json};

fn before(origin: &Provider) -> Config {
    Config::default().provider_with("origin", origin.url(), "http: 1").gateway("workers: 1")
}

/// Asserts that `brought` is an error of the gateway, and returns its status and message.
fn error<'v>(brought: &'v Value, slug: &str) -> [&'v str; 2] {
    let head = &brought["head"];
    assert_eq!(brought["trailersOnly"], true, "{brought}");
    assert_eq!(
        [&head[":status"], &head["content-type"], &head["x-egret-error"], &head["x-egret-generated"]],
        [&json!(200), &json!("application/grpc"), &json!(slug), &json!("true")],
        "{brought}"
    );
    assert!(head["proxy-status"].as_str().unwrap().starts_with("egret; error="), "{brought}");
    ["grpc-status", "grpc-message"].map(|name| head[name].as_str().unwrap())
}

fn refusing(egret: &Egret, slug: &str) -> [String; 2] {
    let brought = call_with(egret, &json!({}));
    error(&brought, slug).map(str::to_owned)
}

#[test]
fn a_call_passes_with_its_messages_and_trailers() {
    let origin = Provider::with_responses(echo);
    let egret = before(&origin).start();
    let brought = call_with(&egret, &json!({}));
    assert_eq!(
        [&brought["status"], &brought["messages"], &brought["trailers"]["grpc-status"]],
        [&json!(200), &json!(["ping"]), &json!("0")]
    );
    assert_eq!(origin.only_request().values("te"), ["trailers"]);
}

#[test]
fn trailers_of_the_application_pass() {
    let lines = "grpc-status: 0\r\nretry-info-bin: CgA\r\nauthorization: no\r\nproxy-status: no\r\n";
    let origin = Provider::with_responses(move |_| response(&["one"], lines));
    let egret = before(&origin).start();
    let brought = call_with(&egret, &json!({}));
    assert_eq!(brought["trailers"], json!({ "grpc-status": "0", "retry-info-bin": "CgA" }));
    // Other trailers pass only if the config names them.
    let web = json!([{ "fields": { "content-type": "application/json" } }]);
    assert_eq!(call(&egret, &web)[0]["trailers"], json!({ "grpc-status": "0" }));
}

#[test]
fn an_error_of_the_gateway_is_trailers_only() {
    let port = ClosedPort::take();
    let egret = Config::default()
        .provider_with("origin", format!("http://{}", port.address()), "http: 1")
        .gateway("workers: 1")
        .start();
    let [status, message] = refusing(&egret, "connect-failed");
    assert_eq!(status, "14");
    assert!(!message.is_empty());
    let unknown = call(&egret, &json!([{ "path": "/nowhere/a.B/C" }, { "path": "/nowhere/a.B/D" }]));
    for brought in &unknown {
        assert_eq!(error(brought, "unknown-provider")[0], "12");
    }
    assert_eq!(egret.generated("unknown-provider"), 2);
}

#[test]
fn a_refusal_of_a_remedy_is_trailers_only() {
    let origin = Provider::with_responses(echo);
    let config = "quotas: { q: { limit: 1, window: 1h } }\n\
                  flows: [{ name: all, remedies: [limit: { quota: q }] }]\n";
    let egret = before(&origin).flows(config).start();
    let brought = call(&egret, &json!([{}, { "fields": { "x-egret-trace": "1" } }]));
    assert_eq!(brought[0]["grpcStatus"], "0");
    assert_eq!(error(&brought[1], "quota-exceeded")[0], "14");
    assert!(brought[1]["head"]["retry-after"].is_string(), "{}", brought[1]);
    assert!(brought[1]["head"]["x-egret-trace"].as_str().unwrap().contains("limit"), "{}", brought[1]);
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn a_response_of_a_flow_is_trailers_only() {
    let origin = Provider::with_responses(echo);
    let respond = "flows: [{ name: all, remedies: [fixed-response: { status: 403, body: closed }] }]\n";
    let egret = before(&origin).flows(respond).start();
    let brought = call_with(&egret, &json!({}));
    assert_eq!([&brought["grpcStatus"], &brought["trailersOnly"]], [&json!("7"), &json!(true)]);
    assert_eq!(brought["head"]["grpc-message"], "a flow responds with 403 Forbidden");
    // A client of HTTP gets the response as it is written.
    assert_eq!(egret.get("/").status, 403);
}

#[test]
fn a_response_of_the_provider_stays_as_it_is() {
    let html = "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\n<p/>";
    let origin = Provider::responding(html);
    let brought = call_with(&before(&origin).start(), &json!({}));
    assert_eq!(
        [&brought["status"], &brought["head"]["content-type"], &brought["body"], &brought["grpcStatus"]],
        [&json!(502), &json!("text/html"), &json!("<p/>"), &Value::Null]
    );
    let origin = Provider::with_responses(|_| trailers_only(5, "no%20such"));
    let brought = call_with(&before(&origin).start(), &json!({}));
    assert_eq!([&brought["grpcStatus"], &brought["trailersOnly"]], [&json!("5"), &json!(true)]);
    assert_eq!(brought["head"]["grpc-message"], "no%20such");
}

#[test]
fn grpc_web_and_connect_get_errors_of_http() {
    let origin = Provider::plain();
    let egret = before(&origin).start();
    for media_type in ["application/grpc-web+proto", "application/connect+proto", "application/proto"] {
        let asked = json!([{ "path": "/nowhere/a.B/C", "fields": { "content-type": media_type } }]);
        let brought = call(&egret, &asked).remove(0);
        assert_eq!(
            [&brought["status"], &brought["head"]["content-type"]],
            [&json!(404), &json!("application/problem+json")],
            "{media_type}"
        );
    }
}

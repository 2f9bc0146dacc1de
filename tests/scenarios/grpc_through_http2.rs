//! gRPC in HTTP/2 on both sides: the built-in provider's service, through quotas, retries and deadlines.

use egret_tests::built_in::BuiltIn;
use egret_tests::egret::{Config, Egret};
use egret_tests::grpc::call;
use serde_json::{Value, json};

/// A message with the payload `ping`, as Protocol Buffers write it.
const PING: &str = "\n\u{4}ping";
/// A message that asks for three responses, with the same payload.
const THREE: &str = "\n\u{4}ping\u{10}\u{3}";

fn before(provider: &BuiltIn, flows: &str) -> Egret {
    Config::with_origin(format!("http://{}", provider.address())).gateway("workers: 1").flows(flows).start()
}

/// Calls a method of the service with these messages, and with the metadata `x-echo`.
fn asked(method: &str, sent: &[&str], echo: &str) -> Value {
    let fields = json!({ "x-echo": echo });
    json!({ "path": format!("/origin/egret.provider.Echo/{method}"), "sent": sent, "fields": fields })
}

fn statuses(brought: &[Value]) -> Vec<&str> {
    brought.iter().map(|brought| brought["grpcStatus"].as_str().unwrap_or("none")).collect()
}

#[test]
fn all_kinds_of_calls_pass() {
    let provider = BuiltIn::start(&[]);
    let egret = before(&provider, "");
    let brought = call(
        &egret,
        &json!([
            asked("Unary", &[PING], ""),
            asked("ServerStream", &[THREE], ""),
            asked("ClientStream", &[PING, PING], ""),
            asked("Bidi", &[PING, PING], ""),
        ]),
    );
    assert_eq!(statuses(&brought), ["0"; 4]);
    let counts: Vec<usize> =
        brought.iter().map(|brought| brought["messages"].as_array().unwrap().len()).collect();
    assert_eq!(counts, [1, 3, 1, 2]);
    assert_eq!(brought[0]["messages"][0], format!("{PING}\u{10}\u{1}"));
    assert_eq!(egret.provider_stat("origin", "connects"), 1);
}

#[test]
fn statuses_pass_in_heads_and_in_trailers() {
    let provider = BuiltIn::start(&[]);
    let egret = before(&provider, "");
    let brought = call(
        &egret,
        &json!([
            asked("Unary", &[PING], "status=5&message=none"),
            asked("ServerStream", &[THREE], "status=8&after=2"),
        ]),
    );
    assert_eq!(statuses(&brought), ["5", "8"]);
    assert_eq!((&brought[0]["trailersOnly"], &brought[1]["trailersOnly"]), (&json!(true), &json!(false)));
    assert_eq!(brought[1]["messages"].as_array().unwrap().len(), 2);
}

#[test]
fn a_retry_saves_a_call_that_is_unavailable() {
    let provider = BuiltIn::start(&[]);
    let retry = "flows: [{ name: all, remedies: [retry: { on: [grpc-unavailable], methods: [POST], backoff: { base: 1ms } }] }]\n";
    let egret = before(&provider, retry);
    let brought = call(
        &egret,
        &json!([
            asked("Unary", &[PING], "status=14&failures=1&key=head"),
            asked("Unary", &[PING], "status=14&failures=5&key=always"),
        ]),
    );
    assert_eq!(statuses(&brought), ["0", "14"]);
}

#[test]
fn a_refused_stream_is_sent_again_without_a_retry() {
    let provider = BuiltIn::start(&[]);
    let egret = before(&provider, "");
    let brought = call(&egret, &json!([asked("Unary", &[PING], "cut=7&failures=1&key=refused")]));
    assert_eq!(statuses(&brought), ["0"]);
}

#[test]
fn a_quota_counts_grpc_calls() {
    let provider = BuiltIn::start(&[]);
    let flows = "quotas: { two: { limit: 2, window: 1h, kind: fixed, starts: first } }\n\
                 flows: [{ name: all, match: { grpc: { service: egret.provider.Echo } }, remedies: [limit: two] }]\n";
    let egret = before(&provider, flows);
    let one = asked("Unary", &[PING], "");
    let brought = call(&egret, &json!([one, one, one]));
    assert_eq!(statuses(&brought), ["0", "0", "14"]);
    assert_eq!(brought[2]["head"]["x-egret-error"], "quota-exceeded");
}

#[test]
fn a_call_ends_at_the_deadline_of_its_client() {
    let provider = BuiltIn::start(&[]);
    let egret = before(&provider, "");
    let mut late = asked("Unary", &[PING], "delay=9s");
    late["fields"]["grpc-timeout"] = json!("200m");
    assert_eq!(statuses(&call(&egret, &json!([late]))), ["4"]);
}

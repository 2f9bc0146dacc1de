//! Flows for gRPC calls, by service and method.

use egret_tests::egret::Config;
use egret_tests::grpc::{call, echo};
use egret_tests::provider::Provider;
use serde_json::json;

#[test]
fn a_flow_is_for_the_methods_that_it_names() {
    let origin = Provider::with_responses(echo);
    let flows = "flows: [{ name: closed, match: { grpc: { service: a.B, method: ['Get*'] } }, remedies: \
                 [fixed-response: { status: 403 }] }]\n";
    let egret = Config::default()
        .provider_with("origin", origin.url(), "http: 1")
        .gateway("workers: 1")
        .flows(flows)
        .start();
    let paths = ["/origin/a.B/GetOne", "/origin/a.B/PutOne", "/origin/a.C/GetOne", "/origin/x/a.B/GetOne"];
    let asked: Vec<_> = paths.iter().map(|path| json!({ "path": path })).collect();
    let statuses: Vec<_> =
        call(&egret, &asked.into()).iter().map(|brought| brought["grpcStatus"].clone()).collect();
    assert_eq!(statuses, ["7", "0", "0", "0"]);
    // The same path in HTTP is no call of gRPC.
    assert_ne!(egret.get("/a.B/GetOne").status, 403);
}

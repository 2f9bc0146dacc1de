//! Calls of all kinds by grpc-js, the gRPC of Node, with a quota and a retry: its client before Egret, and
//! its server behind it.

use std::process::Command;

use egret_tests::process::{Process, run_checked};
use egret_tests::wait;

use super::doors::{Certified, Door, Doorway};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/node/grpc_js.mjs");

/// The output of the client before its last three calls: one exceeds the quota, one ends at its deadline, and
/// one is cancelled.
const EXPECTED: &str = r#"{"head":["one, two"],"last":[[0,255]],"response":"hello"}
["again","again","again"]
one+two
["eno","1 rebmun","2 rebmun","3 rebmun","4 rebmun","5 rebmun","6 rebmun","7 rebmun","8 rebmun","9 rebmun","01 rebmun","11 rebmun","21 rebmun","31 rebmun","41 rebmun","51 rebmun","61 rebmun","71 rebmun","81 rebmun","91 rebmun"]
true
served at try 2
"#;

const FLOWS: &str = "quotas:
  calls: { limit: 7, window: 1h }
  at-once: { limit: 10, kind: concurrency }
flows:
  - name: echoes
    match: { grpc: { service: echo.Echo } }
    remedies:
      - retry: { on: [grpc-unavailable], methods: [POST] }
      - limit: { quota: calls }
  - name: all
    remedies: [limit: { quota: at-once }]
";

fn passes(door: Door, has_tls_provider: bool) {
    let certified = Certified::default();
    let mut serve = Command::new("node");
    serve.args([SCRIPT, "serve"]);
    if has_tls_provider {
        serve.arg(certified.key()).arg(certified.chain());
    }
    let server = Process::printing(&mut serve);
    let port: u16 = server.until_printed("the server listens", |lines| lines.first()?.parse().ok());
    let scheme = if has_tls_provider { "https" } else { "http" };
    let doorway = Doorway::open(door, scheme, port, certified, FLOWS);
    let mut call = Command::new("node");
    doorway.prepare(&mut call);
    call.args([SCRIPT, "call", &format!("{}:{}", doorway.host(), doorway.port())]).args(doorway.ca());
    let printed = run_checked(&mut call);
    println!("{door:?}:\n{printed}");
    let end = printed.strip_prefix(EXPECTED).unwrap_or_else(|| panic!("{printed}"));
    let end: Vec<&str> = end.lines().collect();
    assert!(end[0].starts_with("UNAVAILABLE: "), "{end:?}");
    assert_eq!(end[1..], ["DEADLINE_EXCEEDED", "CANCELLED: Cancelled on client"]);
    assert_eq!((doorway.used("calls"), doorway.repeated()), (7, 1));
    wait::until_true("no call is left", || doorway.used("at-once") == 0);
}

#[test]
fn calls_of_every_kind_pass_by_prior_knowledge() {
    passes(Door::Plain, false);
}

#[test]
fn calls_of_every_kind_pass_over_tls() {
    passes(Door::Tls, true);
}

#[test]
fn calls_of_every_kind_pass_through_interception() {
    passes(Door::Interception, true);
}

//! `egret status` shows a gateway on one screen, and says what is wrong.

use std::process::Output;

use egret_tests::egret::{Config, Egret, egret as egret_command};
use egret_tests::process::run;
use egret_tests::provider::Provider;
use egret_tests::wait;

fn status(egret: &Egret) -> (Option<i32>, String) {
    let mut command = egret_command(["status", "--control", &egret.control().to_string()]);
    let Output { status, stdout, stderr } = run(command.current_dir(egret.directory().path()));
    (status.code(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

#[test]
fn a_healthy_gateway_has_nothing_wrong() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    egret.get("/a").assert_forwarded(200);
    let (code, text) = wait::until("the call is counted", || {
        Some(status(&egret)).filter(|(_, text)| text.contains("\norigin "))
    });
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(": ready, up for ") && text.contains("\nnothing is wrong now\n"), "{text}");
}

#[test]
fn an_open_circuit_is_wrong() {
    let origin = Provider::with_responses(|_| b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n".to_vec());
    let flows =
        "flows: [{ name: shop, remedies: [circuit-breaker: { consecutive: 2, open: 1h, open_max: 1h }] }]\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    for _ in 0..2 {
        egret.get("/a");
    }
    let (code, text) = wait::until("the circuit is open", || {
        Some(status(&egret)).filter(|(_, text)| text.contains("circuit"))
    });
    assert_eq!(code, Some(1), "{text}");
    let expected = "  error: flow shop: the circuit breaker refuses calls to origin\n    since 2";
    assert!(text.contains(expected) && text.contains("; it opened because of this: "), "{text}");
}

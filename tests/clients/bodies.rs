//! Bodies sent by each load client that can send one, and a figure that misses its limit.

use egret_tests::egret::egret;
use egret_tests::peers::path_with_peers;
use egret_tests::process::{Directory, run};
use serde_json::Value;

#[test]
fn every_client_except_siege_sends_bodies() {
    let directory = Directory::default();
    let text = "provider: { path: /post }\nclient: { duration: 1s, concurrency: 2, keep_alive: true, warm_up_requests: 0, body: 3KiB }\n\
        scenarios:\n  - { name: bench }\n  - { name: ab, client: { kind: ab } }\n  - { name: wrk, client: { kind: wrk } }\n  - { name: oha, client: { kind: oha } }\n\
        rounds: 1\nhold:\n  - { scenario: bench, beside: [ab, wrk], figures: [p50], at_most: 0 }\n";
    let file = directory.write("bodies.yaml", format!("title: Bodies\n{text}"));
    let out = directory.join("out");
    let mut command = egret(["lab", "run"]);
    command.arg(&file).arg("--hold").arg("--out").arg(&out).env("PATH", path_with_peers());
    let ran = run(&mut command);
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.code() == Some(1) && stderr.contains("Not held: 2 of 2 figures:"), "{stderr}");
    for client in ["bench", "ab", "wrk", "oha"] {
        let turn = std::fs::read(out.join(format!("turns/01-default-{client}/turn.json"))).unwrap();
        let turn: Value = serde_json::from_slice(&turn).unwrap();
        assert_eq!(turn["failed"], 0, "a GET would be refused with 405: {turn}");
        assert!(turn["requests"].as_u64().unwrap() > 10, "{turn}");
    }
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("Figures with bounds") && page.contains("NOT HELD, unsure"));
}

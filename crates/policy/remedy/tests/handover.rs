//! Whatever an earlier process hands over leaves the next one sound. Replays the fuzzing corpus: files named
//! `good-*` are understood, `bad-*` are not.

mod checks;

use std::path::{Path, PathBuf};
use std::time::Duration;

use egret_fixture::TestStep;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus/handover")
}

#[test]
fn the_corpus_of_states_holds() {
    let mut seen = 0;
    for entry in std::fs::read_dir(corpus()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let is_understood = checks::handover(&std::fs::read(entry.path()).unwrap());
        assert!(is_understood || !name.starts_with("good-"), "{name}");
        assert!(!is_understood || !name.starts_with("bad-"), "{name}");
        seen += 1;
    }
    assert!(seen > 5, "the corpus is missing");
}

#[test]
fn the_state_of_a_used_process_is_handed_over() {
    let mut flows = checks::flows();
    for quota in checks::QUOTAS {
        flows.exchange(&checks::request(quota), "200");
        flows.exchange(&checks::request(quota), "429\nRetry-After: 7");
    }
    for _ in 0..6 {
        flows.exchange(&checks::request("circuit"), "500");
    }
    flows.exchange(&checks::request("paused"), "429\nRetry-After: 30");
    flows.exchange(&checks::request("accounts"), "429\nRetry-After: 30");
    flows.now = flows.now + Duration::from_millis(3_250);
    // One call is in flight while the state is handed over, and its units are reported afterwards.
    let mut in_flight = flows.send(&checks::request("bucket"));
    assert_eq!(in_flight.poll(&flows), TestStep::Call);
    let state = serde_json::to_string(&flows.flows.hand_over(flows.now, 1)).unwrap();
    in_flight.response(&flows, "200");
    in_flight.end(&flows);
    let reports = serde_json::to_string(&flows.flows.quotas.report(flows.now, 0)).unwrap();
    let message = format!("{state}\0{reports}");
    if std::env::var_os("EGRET_WRITE_CORPUS").is_some() {
        std::fs::write(corpus().join("good-used"), &message).unwrap();
    }
    assert!(checks::handover(message.as_bytes()), "{message}");
    for part in [
        "\"sliding\"",
        "\"windows\"",
        "\"bucket\"",
        "\"circuits\"",
        "\"pauses\"",
        "\"digest\"",
        "\"counted\":1",
    ] {
        assert!(message.contains(part), "{part} is missing in {message}");
    }
}

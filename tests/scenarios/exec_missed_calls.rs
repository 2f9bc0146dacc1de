//! `egret exec` shows the user of a terminal that no call of the command went through the gateway.

use egret_tests::egret::binary;
use egret_tests::exec::{FREE_PORTS, Place};
use egret_tests::process::{in_terminal, run_checked};

/// A provider whose calls a remedy responds to.
const FLOWS: &str = "providers: { origin: { url: 'http://origin.test' } }\n\
                     flows: [{ name: all, remedies: [{ fixed-response: { body: from a remedy } }] }]\n";

/// Runs a script under `egret exec` in a terminal. Returns what the terminal shows until the log of the
/// gateway has this word, a pattern of grep, and the log.
fn shown(script: &str, word: &str) -> (String, String) {
    let place = Place::with(&format!("{FREE_PORTS}{FLOWS}"));
    let exec = format!("{} exec --config egret.yaml -- sh -c '{script}'", binary().display());
    let logged = format!("until grep --quiet '{word}' egret-data/exec/*.log; do sleep 0.02; done");
    let mut terminal = in_terminal(&format!("{exec}; {logged}"));
    place.prepare(&mut terminal);
    let shown = run_checked(&mut terminal);
    place.until_gateways_gone();
    let log = place.logs().iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    (shown, log)
}

#[test]
fn a_command_without_a_call_is_told_of() {
    let (shown, _) = shown("true", "no call went");
    assert!(shown.contains("egret: no call went through Egret."), "{shown}");
}

#[test]
fn a_command_with_a_call_is_not() {
    // A gateway that gets the processor late aborts its connections.
    let (shown, log) = shown("curl --silent http://origin.test/", "drained\\|aborted");
    assert!(shown.contains("from a remedy"), "{shown}");
    assert!(!shown.contains("egret:") && !log.contains("no call"), "{shown}\n{log}");
}

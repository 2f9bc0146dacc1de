//! `egret exec` shows the user of a terminal which calls of the command did not go through the gateway, and
//! how to fix that.

use egret_tests::exec::{FREE_PORTS, NamedProvider, Place};
use egret_tests::provider::Provider;

/// A provider whose calls a remedy responds to.
const FLOWS: &str = "providers: { origin: { url: 'http://origin.test' } }\n\
                     flows: [{ name: all, remedies: [{ fixed-response: { body: from a remedy } }] }]\n";

/// Runs a command under `egret exec` in a terminal. Returns what that shows, and the log.
fn shown(command: &str, word: &str) -> (String, String) {
    Place::with(&format!("{FREE_PORTS}{FLOWS}")).in_terminal("", command, word)
}

#[test]
fn a_command_without_a_call_is_told_of() {
    let (shown, _) = shown("true", "no call went");
    assert!(shown.contains("egret: no call went through Egret."), "{shown}");
    let log = shown.split_once("egret: the gateway's log: ").unwrap().1.lines().next().unwrap().trim_end();
    assert!(log.contains("/egret-data/exec/") && log.rsplit('.').next() == Some("log"), "{log}");
}

#[test]
fn a_command_with_a_call_is_not() {
    // A gateway that gets the processor late aborts its connections.
    let (shown, log) = shown("curl --silent http://origin.test/", "drained\\|aborted");
    assert!(shown.contains("from a remedy"), "{shown}");
    assert!(!shown.contains("egret:") && !log.contains("no call"), "{shown}\n{log}");
}

#[test]
fn a_program_with_certificates_of_its_own_is_told_of() {
    let provider = NamedProvider::start();
    let curl = "curl --silent --cacert provider.pem https://origin.test/";
    let (shown, _) = provider.place.in_terminal("--intercept", curl, "were refused by the program");
    let line = "1 of 1 connections to origin.test (unknown_ca) were refused by the program";
    assert!(shown.contains(line) && shown.contains("`CURL_CA_BUNDLE` names it"), "{shown}");
}

#[test]
fn tunnels_of_a_configured_provider_are_told_of() {
    // It closes the connection at the first bytes of TLS.
    let origin = Provider::scripted(|peer| drop(peer.take(1)));
    let url = format!("https://{}", origin.address());
    let place = Place::with(&format!("{FREE_PORTS}providers: {{ origin: {{ url: '{url}' }} }}\n"));
    let (shown, _) = place.in_terminal("", &format!("curl --silent {url}"), "passed unread");
    assert!(shown.contains("1 tunnel to configured providers passed unread"), "{shown}");
    assert!(shown.contains("add `--intercept`"), "{shown}");
}

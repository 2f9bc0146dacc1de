//! `egret archiver`: responses that it generates, and its limits.

use std::sync::{Arc, PoisonError};

use egret_tests::archiver::Archiver;
use egret_tests::closed_port::ClosedPort;
use egret_tests::dns::{Answer, NameServer};
use egret_tests::egret::egret;
use egret_tests::process::run;
use egret_tests::provider::{Provider, ok};

#[test]
fn only_preflights_pass_without_a_token() {
    let origin = Provider::plain();
    let archiver = Archiver::start(&["-host", "127.0.0.1", "-port", "9"]);
    let host = format!("Host: {}\r\n", origin.address());
    let refused = archiver.get(&host);
    assert_eq!((refused.status, refused.text()), (500, "500: Mashape-Service-Token header missing"));
    assert_eq!(refused.field("x-egret-generated"), Some("true"));
    assert_eq!(origin.requests().len(), 0);
    let asked = archiver.client().send(format!("OPTIONS /a HTTP/1.1\r\n{host}\r\n")).response_to("OPTIONS");
    asked.assert_forwarded(200);
    archiver.get(&format!("{host}Service-Token: t\r\n")).assert_forwarded(200);
}

#[test]
fn failures_are_told_in_its_words() {
    let stalled = Provider::scripted(|peer| {
        peer.request();
        peer.stall();
    });
    let closed = ClosedPort::take();
    let archiver = Archiver::start(&["-t", "0.2"]);
    for (host, status, slug, text) in [
        (
            stalled.address().to_string(),
            504,
            "first-byte-timeout",
            "504: The server timed out trying to establish a connection",
        ),
        (closed.address().to_string(), 502, "connect-failed", "502: "),
        (archiver.address().to_string(), 404, "unknown-provider", "404: "),
    ] {
        let response = archiver.get(&format!("Host: {host}\r\n"));
        assert_eq!((response.status, response.field("x-egret-error")), (status, Some(slug)));
        assert_eq!(response.field("content-type"), Some("text/plain; charset=utf-8"));
        assert!(response.text().starts_with(text), "{}", response.text());
    }
}

#[test]
fn an_unresolvable_name_is_a_400_with_printed_config() {
    let names = NameServer::start(|_| Answer::NoSuchName);
    let archiver = Archiver::start_printed(&[], |printed| {
        printed.replacen("gateway:\n", &format!("gateway:\n  {}\n", names.config()), 1)
    });
    let response = archiver.get("Host: no-such.example\r\n");
    assert_eq!((response.status, response.field("x-egret-error")), (400, Some("dns-failed")));
    assert!(
        response.text().starts_with("400: ") && response.text().contains("no-such.example"),
        "{response:?}"
    );
}

#[test]
fn more_requests_at_once_than_it_takes_are_answered_429() {
    let is_open = Arc::new((std::sync::Mutex::new(false), std::sync::Condvar::new()));
    let gate = Arc::clone(&is_open);
    let origin = Provider::with_responses(move |_| {
        let opened = gate.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(gate.1.wait_while(opened, |is_open| !*is_open));
        ok("late")
    });
    let archiver = Archiver::start(&["-c", "2"]);
    let request = format!("GET /a HTTP/1.1\r\nHost: {}\r\n\r\n", origin.address());
    let mut waiting = [archiver.client(), archiver.client()];
    for client in &mut waiting {
        client.send(&request);
    }
    origin.until_requested(2);
    for _ in 0..3 {
        let response = archiver.client().send(&request).response();
        let text = "429: The server is under heavy load, try again";
        assert_eq!((response.status, response.text()), (429, text));
        assert_eq!(response.field("x-egret-error"), Some("too-many-in-flight"));
        assert!(response.field("retry-after").is_some());
    }
    *is_open.0.lock().unwrap() = true;
    is_open.1.notify_all();
    for client in &mut waiting {
        client.response().assert_forwarded(200);
    }
    for _ in 0..5 {
        archiver.client().send(&request).response().assert_forwarded(200);
    }
}

#[test]
fn wrong_usage_is_exit_code_2_and_says_what_to_write() {
    for (arguments, part) in [
        (["archiver", "1", "-reverse", "a/b"], "-reverse expects `host[:port]`"),
        (["archiver", "1", "-https", "2"], "key.pem"),
        (["archiver", "1", "-t", "0"], "a number of seconds"),
    ] {
        let output = run(egret(arguments).current_dir(std::env::temp_dir()));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(part), "{stderr}");
    }
}

/// An archiver that listens on all addresses and forwards to any host must not give other machines access to
/// private addresses.
#[test]
fn private_addresses_are_for_those_on_this_machine_unless_they_are_allowed() {
    let origin = Provider::plain();
    let host = format!("Host: {}\r\n", origin.address());
    for (options, status) in [
        (&["-bind", "0.0.0.0"][..], 403),
        (&["-bind", "0.0.0.0", "-allow", "127.0.0.0/8"], 200),
        (&["-bind", "0.0.0.0", "-reverse", &origin.address().to_string()], 200),
    ] {
        let archiver = Archiver::start_anywhere(options);
        assert_eq!(archiver.get(&host).status, status, "{options:?}");
    }
}

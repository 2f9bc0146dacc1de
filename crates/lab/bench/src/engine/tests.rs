//! Tests of whole runs against a server on this machine: what is counted, and when a run ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use socket2::{Domain, Socket, Type};

use super::*;
use crate::fixture::{Reaction, TestServer, options};
use crate::options::Options;
use crate::tally::Fault;

const OK: &str = "HTTP/1.1 200 OK\r\nServer: test/1 extra\r\nContent-Length: 2\r\n\r\nok";

/// Runs the options to their end.
fn run(server: &TestServer, change: impl FnOnce(&mut Options)) -> RunOutcome {
    let compiled = options(server.url(), change).compile().unwrap();
    execute(&compiled.plan, &mut |_| Directive::Continue).unwrap()
}

#[test]
fn every_request_is_counted_once_and_connections_are_kept() {
    let server = TestServer::start(|_, _| Reaction::Send(OK));
    let outcome = run(&server, |it| (it.requests, it.concurrency, it.keep_alive) = (Some(40), 4, true));
    let tally = &outcome.tally;
    assert_eq!((tally.done, tally.failed, tally.non_2xx()), (40, 0, 0));
    assert_eq!(tally.statuses().collect::<Vec<_>>(), [(200, 40)]);
    assert_eq!((tally.keep_alive, server.connections()), (40, 4));
    assert_eq!((tally.connect().count(), tally.total().count()), (4, 40));
    assert_eq!((tally.bytes_body, tally.bytes_received), (80, 40 * OK.len() as u64));
    assert_eq!(outcome.server, "test/1", "the first word, as ab shows it");
    assert!(outcome.fatal.is_none() && outcome.requests_per_second() > 0.0);
}

#[test]
fn without_keep_alive_each_request_has_a_connection_of_its_own() {
    let server = TestServer::start(|_, request| {
        assert!(request.contains("\r\nConnection: close\r\n"), "{request}");
        Reaction::SendAndClose(OK)
    });
    let outcome = run(&server, |it| (it.requests, it.concurrency, it.threads) = (Some(15), 3, 2));
    assert_eq!((outcome.tally.done, outcome.tally.failed), (15, 0));
    assert_eq!((outcome.tally.keep_alive, server.connections()), (0, 15));
    assert_eq!(outcome.tally.connect().count(), 15);
}

#[test]
fn a_response_of_another_length_is_a_failure() {
    let server = TestServer::start(|number, _| match number {
        0..4 => Reaction::Send("HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\nno"),
        _ => Reaction::Send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes"),
    });
    let outcome = run(&server, |it| (it.requests, it.keep_alive) = (Some(10), true));
    assert_eq!((outcome.tally.non_2xx(), outcome.tally.failed), (4, 6));
    assert_eq!(outcome.tally.faults(Fault::Length), 6);
    let variable = run(&server, |it| {
        (it.requests, it.keep_alive, it.variable_length) = (Some(3), true, true);
    });
    assert_eq!(variable.tally.failed, 0);
}

#[test]
fn a_failed_check_is_counted_once_whatever_fails() {
    let server = TestServer::start(|_, _| Reaction::Send(OK));
    let outcome = run(&server, |it| {
        (it.requests, it.keep_alive) = (Some(5), true);
        it.check_status = Some("201".to_owned());
        it.check_body = Some("no".to_owned());
    });
    assert_eq!((outcome.tally.failed, outcome.tally.faults(Fault::Check)), (5, 5));
}

#[test]
fn a_request_on_a_kept_connection_that_was_closed_is_sent_again() {
    // The response promises to keep the connection, and the server closes it nevertheless.
    let server = TestServer::start(|_, _| Reaction::SendAndClose(OK));
    let outcome = run(&server, |it| (it.requests, it.keep_alive) = (Some(8), true));
    assert_eq!((outcome.tally.done, outcome.tally.failed), (8, 0));
    assert_eq!(server.connections(), 8);
}

#[test]
fn each_way_to_break_a_response_has_its_class() {
    for (text, fault) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", Fault::Closed),
        ("", Fault::Closed),
        ("SSH-2.0-OpenSSH_9\r\n\r\n", Fault::Protocol),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n", Fault::Protocol),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", Fault::Protocol),
    ] {
        let server = TestServer::start(move |_, _| Reaction::SendAndClose(text));
        let outcome = run(&server, |it| it.requests = Some(3));
        assert_eq!((outcome.tally.done, outcome.tally.failed), (3, 3), "{text}");
        assert_eq!(outcome.tally.faults(fault), 3, "{text}");
        assert_eq!(outcome.tally.total().count(), 0, "a broken response has no time: {text}");
    }
}

#[test]
fn informational_responses_and_all_framings_are_read() {
    for text in [
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2;a=b\r\ndy\r\n0\r\nX: y\r\n\r\n",
        "HTTP/1.0 200 OK\r\n\r\nbody",
    ] {
        let server = TestServer::start(move |_, _| Reaction::SendAndClose(text));
        let outcome = run(&server, |it| (it.requests, it.check_body) = (Some(2), Some("body".into())));
        assert_eq!((outcome.tally.failed, outcome.tally.bytes_body), (0, 8), "{text}");
    }
}

#[test]
fn a_timeout_ends_the_exchange_and_keeps_its_time() {
    let server = TestServer::start(|_, _| Reaction::Hang);
    let timeout = Duration::from_millis(120);
    let outcome = run(&server, |it| (it.requests, it.timeout) = (Some(2), timeout));
    assert_eq!((outcome.tally.failed, outcome.tally.faults(Fault::Timeout)), (2, 2));
    // Leaving a slow exchange out would make its target look fast.
    assert_eq!(outcome.tally.total().count(), 2);
    assert!(outcome.tally.total().min() >= 120_000, "{} us", outcome.tally.total().min());
}

#[test]
fn a_target_that_refuses_connections_ends_the_run_with_a_reason() {
    // It has a port, and does not listen.
    let silent = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    silent.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap().as_socket().unwrap());
    let compiled = options(url, |it| it.requests = Some(1_000)).compile().unwrap();
    let outcome = execute(&compiled.plan, &mut |_| Directive::Continue).unwrap();
    let reason = outcome.fatal.unwrap();
    assert!(reason.contains("11 failures in a row") && reason.contains("nothing listens there"), "{reason}");
    assert_eq!((outcome.tally.done, outcome.tally.faults(Fault::Connect)), (11, 11));
}

#[test]
fn a_rate_sends_what_is_due_and_no_more() {
    let server = TestServer::start(|_, _| Reaction::Send(OK));
    let outcome = run(&server, |it| {
        it.rate = Some((200.0, 200.0));
        it.time = Some(Duration::from_millis(300));
        (it.concurrency, it.keep_alive) = (8, true);
    });
    // The exchanges due at 0, 5, ..., 295 ms.
    assert_eq!(outcome.tally.done + outcome.tally.unsent, 60);
    assert_eq!(outcome.tally.failed, 0);
    assert!(outcome.elapsed >= Duration::from_millis(300), "{:?}", outcome.elapsed);
}

#[test]
fn a_stalled_target_delays_every_exchange_that_was_due_meanwhile() {
    let server = TestServer::start(|number, _| {
        if number == 0 {
            thread::park_timeout(Duration::from_millis(200));
        }
        Reaction::Send(OK)
    });
    let outcome = run(&server, |it| {
        it.rate = Some((100.0, 100.0));
        it.time = Some(Duration::from_millis(300));
        it.keep_alive = true;
    });
    let total = outcome.tally.total();
    // One connection was stalled for 200 ms, in which 20 exchanges were due: their mean wait is 100 ms.
    assert!(total.percentile(50.0) >= 50_000, "the median hides the stall: {} us", total.percentile(50.0));
}

#[test]
fn an_observer_stops_the_run() {
    let server = TestServer::start(|_, _| Reaction::Send(OK));
    let change = |it: &mut Options| (it.time, it.keep_alive) = (Some(Duration::from_mins(5)), true);
    let compiled = options(server.url(), change).compile().unwrap();
    let mut reports = 0;
    let outcome = execute(&compiled.plan, &mut |progress| {
        reports += 1;
        if progress.done > 0 { Directive::Stop } else { Directive::Continue }
    });
    let outcome = outcome.unwrap();
    assert!(outcome.interrupted && reports > 0 && outcome.tally.done > 0);
    assert!(outcome.elapsed < Duration::from_mins(1));
}

#[test]
fn the_warm_up_is_not_counted() {
    let served = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&served);
    let server = TestServer::start(move |_, _| {
        counter.fetch_add(1, Relaxed);
        Reaction::Send(OK)
    });
    // On a busy machine the warm-up may be over before its first exchange. Such a run shows nothing.
    loop {
        let before = served.load(Relaxed);
        let outcome = run(&server, |it| {
            it.warmup = Duration::from_millis(80);
            (it.requests, it.keep_alive) = (Some(10), true);
        });
        assert_eq!(outcome.tally.done, 10);
        if served.load(Relaxed) - before > 10 {
            let made = outcome.tally.connect().count();
            return assert_eq!(made, 0, "the connection was made during the warm-up");
        }
    }
}

#[test]
fn targets_are_called_in_proportion_to_their_weights() {
    let server = TestServer::start(|_, _| Reaction::Send(OK));
    let outcome = run(&server, |it| {
        let url = it.url.take().unwrap();
        it.targets = [(3, "/x"), (1, "/y")]
            .map(|(weight, path)| format!("{weight}={}", url.replace("/x", path)).parse().unwrap())
            .into();
        (it.requests, it.keep_alive) = (Some(40), true);
    });
    let counts: Vec<u64> = outcome.tally.by_target().iter().map(crate::tally::Series::count).collect();
    assert_eq!(counts, [30, 10]);
}

//! Streams that last for a third of a minute, or for `EGRET_STREAM_MINUTES`: events and messages of one byte
//! that must arrive before the next one is sent. Also readers that are slow, and calls that are cancelled.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use egret_tests::egret::{Config, Egret};
use egret_tests::http2_provider::NodeProvider;
use egret_tests::process::{Process, run_checked};
use egret_tests::provider::Provider;
use egret_tests::timeline::pass;
use egret_tests::wait::{self, Watched};

use super::doors::{Certified, Door, Doorway};
use super::grpc_interop::Server;

/// The Go program that keeps streams open.
const STREAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../.peers/tools/grpc_interop/streams");

/// Number of streams of events on one connection.
const EVENT_STREAMS: usize = 10;

/// Time between two events of a stream, so that streams that last leave the processors to others.
const PACE: Duration = Duration::from_millis(5);

/// Number of calls that are cancelled.
const CANCELLED: usize = 1_000;

/// Number of streams that a pool of these bounds admits at once.
const HELD: usize = 64;
const POOL: &str = "pool: { connections: 4, streams_per_connection: 16 }";

/// Time for which streams last.
fn lasting() -> Duration {
    let minutes = std::env::var("EGRET_STREAM_MINUTES").ok().and_then(|minutes| minutes.parse().ok());
    Duration::from_secs_f64(60.0 * minutes.unwrap_or(1.0 / 3.0))
}

/// Exchanges messages of one byte, each after the one before has arrived. One that is held back would be the
/// last.
fn exchanges_small_messages(door: Door, has_tls_provider: bool) {
    let certified = Certified::default();
    let server = Server::start(has_tls_provider.then_some(&certified));
    let doorway = Doorway::open(door, server.scheme(), server.port(), certified, "");
    let mut command = Command::new(STREAMS);
    doorway.prepare(&mut command);
    let target = format!("{}:{}", doorway.host(), doorway.port());
    command.args(["small", &target, &lasting().as_secs_f64().to_string()]).args(doorway.ca());
    let mut client = Process::printing(&mut command);
    // It ends by itself, after minutes if it is told so.
    let time = lasting() + wait::DEADLINE;
    wait::until_within(time, "the client has ended", || (!client.is_running()).then_some(()));
    assert!(client.until_ended().success(), "{}", client.stderr());
    let count: u64 = client.until_printed("the number of messages", |lines| lines.first()?.parse().ok());
    println!("{door:?}, provider over TLS: {has_tls_provider}: {count} messages of one byte");
    assert!(count > 0);
    let connects = doorway.egret.provider_stat("peer", "connects");
    assert_eq!((connects, doorway.egret.provider_stat("peer", "connect_failures")), (1, 0));
}

#[test]
fn small_messages_pass_one_by_one_without_tls() {
    exchanges_small_messages(Door::Plain, false);
}

#[test]
fn small_messages_pass_one_by_one_through_interception() {
    exchanges_small_messages(Door::Interception, true);
}

/// The rounds of events. A stream sends its event of a round once all events of the round before have
/// arrived.
#[derive(Debug, Default)]
struct Rounds {
    arrived: usize,
    is_over: bool,
}

#[test]
fn events_of_ten_streams_arrive_before_the_next_ones() {
    let rounds = Arc::new(Watched::<Rounds>::default());
    let all = Arc::clone(&rounds);
    let origin = Provider::scripted(move |peer| {
        let Some(request) = peer.request() else { return };
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        peer.send(head);
        for round in 0.. {
            let is_over = all.until("the events of a round have arrived", |rounds| {
                (rounds.is_over || rounds.arrived >= round).then_some(rounds.is_over)
            });
            if is_over {
                break;
            }
            let event = format!("data: {} {round}\n\n", request.target());
            peer.send(format!("{:x}\r\n{event}\r\n", event.len()));
        }
        peer.send("0\r\n\r\n");
    });
    let doorway = Doorway::open(Door::Tls, "http", origin.address().port(), Certified::default(), "");
    let mut command = Command::new("curl");
    doorway.prepare(&mut command);
    command.args(["--no-progress-meter", "--no-buffer", "--http2", "--parallel", "--max-time"]);
    command
        .arg((lasting() + wait::DEADLINE).as_secs().to_string())
        .arg("--cacert")
        .arg(doorway.ca().unwrap());
    command.arg(format!("{}/[1-{EVENT_STREAMS}]", doorway.url()));
    let mut curl = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(curl.stdout.take().unwrap()).lines().map_while(Result::ok);
    let (ends, mut round) = (Instant::now() + lasting(), 0);
    while Instant::now() < ends {
        pass(PACE);
        // An event is two lines.
        for line in lines.by_ref().take(2 * EVENT_STREAMS) {
            assert!(line.is_empty() || line.ends_with(&format!(" {round}")), "in round {round}: {line}");
        }
        assert!(curl.try_wait().unwrap().is_none(), "an event of round {round} is missing");
        round += 1;
        rounds.change(|rounds| rounds.arrived = round);
    }
    rounds.change(|rounds| rounds.is_over = true);
    assert!(lines.count() <= 2 * EVENT_STREAMS);
    assert!(curl.wait().unwrap().success());
    println!("{round} rounds of {EVENT_STREAMS} events");
    assert!(doorway.egret.stat("/clients/accepted") == 1, "the streams share a connection");
}

#[test]
fn slow_readers_stall_no_neighbour() {
    let provider = NodeProvider::plain();
    // Provider and gateway have one connection.
    let keys = "http: 2, pool: { connections: 1 }";
    let listener = "{ address: '127.0.0.1:0', provider: peer }";
    let config = Config::default().provider_with("peer", provider.url(), keys).gateway("workers: 1");
    let egret = config.listen([listener]).start();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/node/slow_readers.mjs");
    let printed = run_checked(Command::new("node").args([script, &egret.url(), "20", "100"]));
    assert_eq!(printed, "200\n20\n");
    assert_eq!(egret.provider_stat("peer", "connects"), 1);
}

/// Number of units that are used of the quota for calls at once.
fn at_once(egret: &Egret) -> u64 {
    let quotas = egret.control_get("/api/v1/quotas").json();
    quotas["quotas"][0]["groups"][0]["used"].as_u64().unwrap()
}

#[test]
fn a_thousand_cancelled_calls_leave_nothing_behind() {
    let server = Server::start(None);
    let listener = "{ address: '127.0.0.1:0', provider: peer }";
    let flows = "quotas: { at-once: { limit: 1000, kind: concurrency } }
flows: [{ name: all, remedies: [limit: { quota: at-once }] }]
";
    let config = Config::default().provider_with("peer", format!("http://127.0.0.1:{}", server.port()), POOL);
    let egret = config.gateway("workers: 1").listen([listener]).flows(flows).start();
    let target = egret.address().to_string();
    let run = |what: &str, count: usize| {
        let mut command = Command::new(STREAMS);
        run_checked(command.args([what, &target, &count.to_string()]).stdin(Stdio::null()))
    };
    assert_eq!(run("cancel", CANCELLED), format!("{CANCELLED}\n"));
    wait::until_true("no call is left", || at_once(&egret) == 0);
    wait::until_true("no client is left", || egret.stat("/clients/open") == 0);
    // Were a stream of the pool lost, these would wait for it.
    assert_eq!(run("hold", HELD), format!("{HELD}\n"));
    wait::until_true("no call is left", || at_once(&egret) == 0);
    let floods = egret.stats()["floods"].clone();
    assert!(floods.as_array().unwrap().iter().all(|flood| flood["count"] == 0), "{floods}");
}

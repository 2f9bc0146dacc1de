//! Attacks by many connections on a process that may open few files.

use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use egret_tests::egret::{Config, Egret};
use egret_tests::http::Client;
use egret_tests::provider::Provider;
use egret_tests::wait;

/// Well below the timeouts of clients, and above the time of a busy machine to serve a request.
const SOON: Duration = Duration::from_secs(5);

/// Starts Egret with this hard limit of open files.
fn start(config: &Config, files: u32) -> Egret {
    Egret::start_with(config, |command| {
        let mut limited = Command::new("prlimit");
        limited.arg(format!("--nofile={files}:{files}")).arg("--").arg(command.get_program());
        limited.args(command.get_args()).current_dir(command.get_current_dir().unwrap());
        *command = limited;
    })
}

/// Waits until the process opens no further sockets.
fn until_settled(egret: &Egret) {
    let (mut last, mut same) = (0, 0);
    wait::until_true("all clients are accepted or refused", || {
        let count = egret.process().sockets().len();
        same = if count == last { same + 1 } else { 0 };
        last = count;
        same > 50
    });
}

fn probe(egret: &Egret) -> (u16, Duration) {
    let started = Instant::now();
    let mut client = Client::connect(egret.control());
    client.stream().set_read_timeout(Some(SOON)).unwrap();
    client.offer(format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", egret.control()));
    let mut first = [0; 12];
    let read = std::io::Read::read(&mut client.stream(), &mut first).unwrap_or(0);
    let status =
        std::str::from_utf8(&first[..read]).ok().and_then(|line| line.split(' ').nth(1)?.parse().ok());
    (status.unwrap_or(0), started.elapsed())
}

#[test]
fn probes_are_answered_while_idle_clients_use_up_the_open_files() {
    for files in [64, 128, 1024] {
        let egret = start(&Config::default().gateway("workers: 1"), files);
        let held: Vec<TcpStream> =
            (0..files + 100).map(|_| TcpStream::connect(egret.address()).unwrap()).collect();
        until_settled(&egret);
        for number in 1..=3 {
            let (status, took) = probe(&egret);
            println!("{files} files: probe {number} got {status} after {took:?}");
            assert_eq!(status, 200, "{files} files: probe {number} after {took:?}");
        }
        drop(held);
    }
}

#[test]
fn clients_that_are_accepted_are_served_while_others_are_turned_away() {
    let origin = Provider::plain();
    let config =
        Config::with_origin(origin.url()).gateway("workers: 1").gateway("limits: { connections: 1000 }");
    let egret = start(&config, 128);
    let mut first = egret.client();
    first.get(egret.address(), "/origin/").response().assert_forwarded(200);
    let held: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(egret.address()).unwrap()).collect();
    until_settled(&egret);
    assert!(egret.stat("/clients/refused") > 100, "{}", egret.stats());
    first.get(egret.address(), "/origin/").response().assert_forwarded(200);
    egret.until_logged("does not fit the limit of open files");
    drop(held);
    wait::until_true("the others have left", || egret.stat("/clients/open") <= 1);
    egret.get("/").assert_forwarded(200);
}

#[test]
fn a_limit_of_clients_that_nobody_has_set_is_no_reason_for_a_warning() {
    let egret = start(&Config::default(), 1024);
    egret.until_logged("permits fewer clients than `gateway.limits.connections` by default");
    assert!(!egret.log().contains("WARN"), "{}", egret.log());
}

//! Attacks by many connections on a process that may open few files.

use std::net::TcpStream;
use std::process::Command;

use egret_tests::egret::{Config, Egret};
use egret_tests::provider::Provider;
use egret_tests::wait;

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

#[test]
fn probes_are_answered_while_idle_clients_use_up_the_open_files() {
    for files in [64, 128, 1024] {
        let egret = start(&Config::default().gateway("workers: 1"), files);
        let held: Vec<TcpStream> =
            (0..files + 100).map(|_| TcpStream::connect(egret.address()).unwrap()).collect();
        until_settled(&egret);
        for number in 1..=3 {
            // It would wait for longer than the deadline if it had to wait for the clients.
            assert_eq!(egret.control_get("/healthz").status, 200, "{files} files: probe {number}");
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
    wait::until_true("others are turned away", || egret.stat("/clients/refused") > 100);
    first.get(egret.address(), "/origin/").response().assert_forwarded(200);
    egret.until_logged("does not fit the limit of open files");
    drop(held);
    wait::until_true("the others have left", || egret.stat("/clients/open") <= 1);
    egret.get("/").assert_forwarded(200);
}

#[test]
fn a_default_limit_of_clients_causes_no_warning() {
    let egret = start(&Config::default(), 1024);
    egret.until_logged("permits fewer clients than `gateway.limits.connections` by default");
    assert!(!egret.log().contains("WARN"), "{}", egret.log());
}

//! A service manager that holds the sockets: a restart refuses no connection.

use egret_tests::egret::{Config, Egret};
use egret_tests::http::Client;
use egret_tests::provider::Provider;
use egret_tests::supervised::HeldSocket;
use egret_tests::wait;

fn gateway(socket: &HeldSocket, origin: &Provider) -> Config {
    Config::with_origin(origin.url()).listen([&format!("\"{}\"", socket.address())])
}

#[test]
fn the_gateway_serves_on_a_socket_that_it_was_started_with() {
    let (socket, origin) = (HeldSocket::default(), Provider::plain());
    // The test holds the socket, so Egret could not bind this address itself.
    let egret = Egret::start_with(&gateway(&socket, &origin), |command| socket.pass_to(command));
    assert_eq!(egret.address(), socket.address());
    egret.get("/").assert_forwarded(200);
}

#[test]
fn a_client_that_connects_between_two_processes_is_served_by_the_second() {
    let (socket, origin) = (HeldSocket::default(), Provider::plain());
    let config = gateway(&socket, &origin);
    let mut first = Egret::start_with(&config, |command| socket.pass_to(command));
    first.get("/").assert_forwarded(200);
    first.terminate();
    assert_eq!(first.until_ended().code(), Some(0));
    let mut waiting: Vec<Client> = (0..20).map(|_| Client::connect(socket.address())).collect();
    for client in &mut waiting {
        client.get(socket.address(), "/origin/");
    }
    let _second = Egret::start_with(&config, |command| socket.pass_to(command));
    for client in &mut waiting {
        client.response().assert_forwarded(200);
    }
}

#[test]
fn a_socket_can_be_removed_by_a_reload_and_used_again() {
    let (socket, origin) = (HeldSocket::default(), Provider::plain());
    let config = gateway(&socket, &origin);
    let egret = Egret::start_with(&config, |command| socket.pass_to(command));
    egret.get("/").assert_forwarded(200);
    egret.rewrite(Config::with_origin(origin.url()).yaml());
    egret.until_logged("config reloaded");
    // The test still holds the socket, so Egret could not bind its address again.
    egret.rewrite(config.yaml());
    wait::until_true("a client of the socket is served again", || {
        Client::connect(socket.address()).get(socket.address(), "/origin/").response().status == 200
    });
    assert_eq!(egret.stat("/reloads_refused"), 0, "{}", egret.log());
}

#[test]
fn the_control_port_serves_on_a_socket_that_it_was_started_with() {
    let socket = HeldSocket::default();
    let address = socket.address();
    let config = Config::written(format!(
        "gateway: {{ listen: [\"127.0.0.1:0\"] }}\ncontrol: {{ listen: \"{address}\" }}\nlog: {{ format: json }}\n"
    ));
    let egret = Egret::start_with(&config, |command| socket.pass_to(command));
    assert_eq!(egret.control(), address);
    assert_eq!(egret.control_get("/readyz").status, 200);
}

#[test]
fn a_socket_that_no_listener_uses_is_named_in_the_log() {
    let socket = HeldSocket::default();
    let egret = Egret::start_with(&Config::default(), |command| socket.pass_to(command));
    egret.until_logged(&socket.address().to_string());
    assert!(egret.log().contains("no listener of the config uses"), "{}", egret.log());
}

//! Clients of HTTP/2 through each door that they know: a GET, a POST of a MiB, a 304, a HEAD, and twenty
//! calls at once on one connection.

use std::io::{Read as _, Write as _, copy};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;

use egret_tests::egret::Egret;
use egret_tests::peers::Nginx;
use egret_tests::process::{Directory, run_checked};
use egret_tests::provider::{Provider, Request, ok};
use egret_tests::recorded::{entries, files};
use egret_tests::wait::Watched;

use super::doors::{Certified, Door, Doorway};

const PEERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers");

/// The Python of the checkout, with httpx.
const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../.venv/bin/python");

/// Number of calls that the provider answers once all of them have arrived.
const TOGETHER: usize = 20;

/// A flow that records the version of each call.
const RECORDING: &str = "exporters: { archive: { type: har, directory: ./har } }
flows: [{ name: all, diagnoses: [har: { export: archive }] }]
";

/// A client.
struct Client<'a> {
    /// The program with its arguments. Those of the door follow.
    command: &'a [&'a str],
    doors: &'a [Door],
    /// Number of connections that it opens.
    connections: u64,
    /// The same at the plain door.
    plain_connections: u64,
    /// Number of its calls.
    calls: usize,
}

const ALL: [Door; 3] = [Door::Plain, Door::Tls, Door::Interception];

/// Doors of clients that speak HTTP/2 over TLS only.
const OVER_TLS: [Door; 2] = [Door::Tls, Door::Interception];

/// Starts a provider over TLS.
fn provider(certified: &Certified) -> (Provider, Nginx) {
    let arrived = Watched::<usize>::default();
    let origin = Provider::with_responses(move |request| response(request, &arrived));
    let location = format!(
        "client_max_body_size 0; location / {{ proxy_pass {}; proxy_http_version 1.1; proxy_buffering off; }}",
        origin.url()
    );
    let nginx = Nginx::start_named(&certified.authority, &[super::doors::NAME], &location, |_| String::new());
    (origin, nginx)
}

fn response(request: &Request, arrived: &Watched<usize>) -> Vec<u8> {
    match request.target() {
        "/length" => ok(&request.body.len().to_string()),
        "/not-modified" => b"HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n".to_vec(),
        target if target.starts_with("/together/") => {
            arrived.change(|arrived| *arrived += 1);
            arrived.until("all calls have arrived", |arrived| (*arrived >= TOGETHER).then_some(()));
            ok("together")
        }
        _ if request.line.starts_with("HEAD ") => b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n".to_vec(),
        _ => ok("hello"),
    }
}

/// The output of each client: for each call a body or its length, and a status.
fn expected() -> String {
    format!("hello 200\n1048576 200\n 304\n5 200\n{}", "8 200\n".repeat(TOGETHER))
}

impl<'a> Client<'a> {
    /// A client that makes all calls on one connection.
    fn of(command: &'a [&'a str]) -> Self {
        Self { command, doors: &ALL, connections: 1, plain_connections: 1, calls: 24 }
    }

    /// Asserts that it gets all responses through each of its doors, and that its calls arrive in HTTP/2.
    fn is_served(&self) {
        for door in self.doors {
            let certified = Certified::default();
            let (_origin, nginx) = provider(&certified);
            let mut doorway = Doorway::open(*door, "https", nginx.tls_address().port(), certified, RECORDING);
            assert_eq!(self.printed(*door, &doorway), expected(), "{:?} {door:?}", self.command);
            let opened = match door {
                Door::Plain | Door::Tls => doorway.egret.stat("/clients/accepted"),
                Door::Interception => doorway.egret.stat("/interception/connections"),
            };
            let expected_connections = match door {
                Door::Plain => self.plain_connections,
                Door::Tls | Door::Interception => self.connections,
            };
            assert_eq!(opened, expected_connections, "{:?} {door:?}", self.command);
            assert_eq!(versions(&mut doorway.egret), vec!["HTTP/2.0"; self.calls]);
            println!("{:?} is served: {door:?}, {opened} connections", self.command);
        }
    }

    fn printed(&self, door: Door, doorway: &Doorway) -> String {
        let (program, arguments) = self.command.split_first().unwrap();
        let mut command = Command::new(program);
        doorway.prepare(&mut command);
        command.args(arguments);
        if program.ends_with("nghttp.sh") {
            let authority = format!("{}:{}", doorway.host(), doorway.port());
            command.arg(match door {
                Door::Plain | Door::Tls => doorway.url(),
                Door::Interception => {
                    format!("https://localhost:{}", tunnels(&doorway.egret, authority.clone()))
                }
            });
            command.arg(authority);
        } else {
            let ca = doorway.ca().map(|ca| ca.display().to_string());
            command.args([doorway.url(), ca.unwrap_or_default(), doorway.proxy().unwrap_or_default()]);
        }
        run_checked(&mut command)
    }
}

/// Stops the gateway, and returns the versions of all recorded calls.
fn versions(egret: &mut Egret) -> Vec<String> {
    egret.terminate();
    egret.until_ended();
    let entries = entries(&files(&egret.directory().join("har")));
    let requests = entries.iter().map(|entry| &entry["request"]);
    let calls = requests.filter(|request| request["method"] != "CONNECT");
    calls.map(|request| request["httpVersion"].as_str().unwrap().to_owned()).collect()
}

/// Opens a port whose connections become tunnels to `authority`, for a client that knows no proxy.
fn tunnels(egret: &Egret, authority: String) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (port, gateway) = (listener.local_addr().unwrap().port(), egret.address());
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let tunnel = tunnel(gateway, &authority);
            for (mut from, mut to) in [(&client, &tunnel), (&tunnel, &client)]
                .map(|(from, to)| (from.try_clone().unwrap(), to.try_clone().unwrap()))
            {
                thread::spawn(move || {
                    let _ = copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    port
}

fn tunnel(gateway: SocketAddr, authority: &str) -> TcpStream {
    let mut tunnel = TcpStream::connect(gateway).unwrap();
    write!(tunnel, "CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n").unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        tunnel.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    tunnel
}

/// curl 7.88 cannot use a connection of prior knowledge twice, whatever the server.
#[test]
fn curl_is_served_through_each_door() {
    let script = format!("{PEERS}/http2/curl.sh");
    Client { connections: 2, plain_connections: 24, ..Client::of(&["sh", &script]) }.is_served();
}

/// It opens a connection for each status, and one for each body.
#[test]
fn nghttp_is_served_through_each_door() {
    let script = format!("{PEERS}/http2/nghttp.sh");
    Client { connections: 9, plain_connections: 9, calls: 28, ..Client::of(&[&script]) }.is_served();
}

#[test]
fn httpx_is_served_through_each_door() {
    let script = format!("{PEERS}/http2/httpx_calls.py");
    Client::of(&[PYTHON, &script]).is_served();
}

#[test]
fn go_is_served_through_each_door() {
    let directory = Directory::default();
    let program = directory.join("calls").display().to_string();
    let mut build = Command::new("go");
    build.args(["build", "-o", &program, "."]).current_dir(format!("{PEERS}/http2"));
    run_checked(build.env("CGO_ENABLED", "0"));
    Client::of(&[&program]).is_served();
}

/// Without TLS it would ask for an upgrade, which is gone from HTTP/2.
#[test]
fn java_is_served_over_tls() {
    let directory = Directory::default();
    let classes = directory.path().display().to_string();
    let mut build = Command::new("javac");
    run_checked(build.args(["-d", &classes, "Calls.java"]).current_dir(format!("{PEERS}/http2")));
    let command = ["java", "-cp", &classes, "Calls"];
    Client { doors: &OVER_TLS, ..Client::of(&command) }.is_served();
}

#[test]
fn node_is_served_through_each_door() {
    let script = format!("{PEERS}/node/http2_calls.mjs");
    Client::of(&["node", &script]).is_served();
}

#[test]
fn undici_is_served_over_tls() {
    let node = format!("{PEERS}/javascript/node_modules/node-24/bin/node");
    let script = format!("{PEERS}/javascript/undici_calls.mjs");
    Client { doors: &OVER_TLS, ..Client::of(&[&node, &script]) }.is_served();
}

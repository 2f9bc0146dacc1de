//! Clients that read almost nothing, and so hold a connection, a provider or a stored response.

use std::io::Read;
use std::thread;
use std::time::{Duration, Instant};

use egret_tests::egret::{Config, Egret};
use egret_tests::http::Client;
use egret_tests::provider::Provider;
use egret_tests::wait::DEADLINE;
use socket2::{Domain, Socket, Type};

/// More than all systems in between can buffer.
const LARGE: usize = 24 << 20;

/// Requests `path` with a small receive buffer.
fn start_request(egret: &Egret, path: &str) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(16 << 10).unwrap();
    socket.connect(&egret.address().into()).unwrap();
    let mut client = Client::over(socket.into());
    client.get(egret.address(), path);
    let head = client.head();
    assert_eq!(head.status, 200, "{path}: {head:?}");
    client
}

/// Reads some bytes now and then, until the deadline. Returns `true` if the connection was closed before.
fn is_cut_off(client: &Client) -> bool {
    let (start, mut piece) = (Instant::now(), [0; 1_000]);
    while start.elapsed() < DEADLINE {
        match client.stream().read(&mut piece) {
            Ok(1..) => thread::park_timeout(Duration::from_millis(100)),
            Ok(0) | Err(_) => return true,
        }
    }
    false
}

#[test]
fn slow_readers_are_disconnected_for_every_response_source() {
    let origin = Provider::scripted(|peer| {
        while let Some(request) = peer.request() {
            if request.target() == "/pausing" {
                // Slower than any client may be, but no data waits for the client.
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\n");
                for _ in 0..60 {
                    peer.send("a");
                    thread::park_timeout(Duration::from_millis(200));
                }
                continue;
            }
            let text = "a".repeat(LARGE / 2);
            let json = format!("{{\"text\":\"{text}\"}}");
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                json.len()
            ));
            peer.send(&json);
        }
    });
    let flows = "flows:\n\
         - { name: stored, match: { path: /stored }, remedies: [ { cache: { memory: 64MiB, max_entry: 32MiB } } ] }\n\
         - name: made\n  match: { path: /made }\n  remedies:\n  - transform: { body: 16MiB, response: { json: { set: { /more: 1 } } } }\n\
         \x20 - cache: { memory: 64MiB, max_entry: 32MiB }\n";
    let egret = Config::with_origin(origin.url()).gateway("limits: { body_rate: 4MiB }").flows(flows).start();
    // The responses are stored now; the second one is transformed again for each client.
    for path in ["/stored", "/made"] {
        egret.get(path).assert_forwarded(200);
    }
    let slow = ["/origin/forwarded", "/origin/stored", "/origin/made"].map(|path| {
        let client = start_request(&egret, path);
        (path, thread::spawn(move || is_cut_off(&client)))
    });
    let mut patient = egret.client();
    let response = patient.get(egret.address(), "/origin/pausing").response();
    assert_eq!(response.assert_forwarded(200).body.len(), 60, "a provider's pauses are not the client's");
    for (path, slow) in slow {
        assert!(slow.join().unwrap(), "{path} is still served after {DEADLINE:?}");
    }
    egret.assert_well();
}

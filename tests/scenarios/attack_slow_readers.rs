//! Clients that take next to nothing of what waits for them, and hold a connection, a provider or a stored
//! answer with it.

use std::io::Read;
use std::thread;
use std::time::{Duration, Instant};

use egret_tests::egret::{Config, Egret};
use egret_tests::http::Client;
use egret_tests::provider::Provider;
use socket2::{Domain, Socket, Type};

/// More than all systems between buffer.
const LARGE: usize = 24 << 20;
/// A window of 10 s, what the system may hide at the least rate, and some to spare.
const PATIENCE: Duration = Duration::from_secs(14);

/// Asks for `path`, with a small buffer.
fn asking(egret: &Egret, path: &str) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(16 << 10).unwrap();
    socket.connect(&egret.address().into()).unwrap();
    let mut client = Client::over(socket.into());
    client.get(egret.address(), path);
    let head = client.head();
    assert_eq!(head.status, 200, "{path}: {head:?}");
    client
}

/// Takes some bytes every now and then, for as long as they are there and [`PATIENCE`] lasts. Whether it has
/// been cut off.
fn is_cut_off(client: &Client) -> bool {
    let (start, mut piece) = (Instant::now(), [0; 1_000]);
    while start.elapsed() < PATIENCE {
        match client.stream().read(&mut piece) {
            Ok(1..) => thread::park_timeout(Duration::from_millis(100)),
            Ok(0) | Err(_) => return true,
        }
    }
    false
}

#[test]
fn who_takes_a_response_too_slowly_is_cut_off_wherever_it_comes_from() {
    let origin = Provider::scripted(|peer| {
        while let Some(request) = peer.request() {
            if request.target() == "/pausing" {
                // Slower than any client may be, with nothing that waits for the client.
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
    // From here on they are stored; the second is put together anew for each client.
    for path in ["/stored", "/made"] {
        egret.get(path).assert_forwarded(200);
    }
    let slow = ["/origin/forwarded", "/origin/stored", "/origin/made"].map(|path| {
        let client = asking(&egret, path);
        (path, thread::spawn(move || is_cut_off(&client)))
    });
    let mut patient = egret.client();
    let response = patient.get(egret.address(), "/origin/pausing").response();
    assert_eq!(response.assert_forwarded(200).body.len(), 60, "a provider's pauses are not the client's");
    for (path, slow) in slow {
        assert!(slow.join().unwrap(), "{path} is still served after {PATIENCE:?}");
    }
    egret.assert_well();
}

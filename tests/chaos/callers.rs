//! The clients: threads that call and note what they get.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use egret_tests::http::find;
use egret_tests::random::Random;
use egret_tests::timeline::pass;

use super::ledger::{Call, Calls, Group, Outcome, now};
use super::network::Part;
use super::providers::NAMES;

/// Patience of a client: longer than any time limit of the gateway.
const PATIENCE: Duration = Duration::from_secs(25);
const CONNECT: Duration = Duration::from_secs(3);
/// Time between two calls of a client, at most twice as long.
const PAUSE_MS: usize = 60;
/// Number of clients of each gateway for a group, and the time that the provider takes.
const CLIENTS: [(Group, usize, u64); 9] = [
    (Group::Plain, 2, 20),
    (Group::Posts, 2, 20),
    (Group::SecurePosts, 1, 20),
    (Group::Secure, 1, 20),
    (Group::Sliding, 2, 5),
    (Group::Bucket, 2, 5),
    (Group::Fixed, 2, 5),
    (Group::Concurrent, 3, 150),
    (Group::Total, 1, 5),
];
/// Length of the content of a POST: several packets.
const CONTENT: usize = 3_000;

/// The state that all clients share.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    pub(crate) calls: Calls,
    pub(crate) is_over: AtomicBool,
    ids: AtomicU64,
}

impl Callers {
    /// The clients of all gateways: for each its gateway, its group, and the time that the provider takes.
    pub(crate) fn all() -> impl Iterator<Item = (usize, Group, u64)> {
        (0..super::network::GATEWAYS).flat_map(|gateway| {
            CLIENTS
                .into_iter()
                .flat_map(move |(group, count, ms)| std::iter::repeat_n((gateway, group, ms), count))
        })
    }

    /// Calls until it is over.
    pub(crate) fn call(&self, (gateway, group, ms): (usize, Group, u64), mut random: Random) {
        let address: SocketAddr = format!("{}:8000", Part::Gateway(gateway).address()).parse().unwrap();
        let mut kept = None;
        while !self.is_over.load(SeqCst) {
            let id = self.ids.fetch_add(1, Relaxed);
            let sent = now();
            let outcome = call(&mut kept, address, &request(address, id, group, ms), id);
            self.calls.note(Call { id, gateway, group, sent, ended: now(), outcome });
            let pause = PAUSE_MS + random.below(PAUSE_MS);
            pass(Duration::from_millis(pause as u64));
        }
    }
}

fn request(address: SocketAddr, id: u64, group: Group, ms: u64) -> Vec<u8> {
    let provider = NAMES[usize::from(group.is_secure())];
    let (method, content) = match group {
        Group::Posts | Group::SecurePosts => ("POST", "x".repeat(CONTENT)),
        _ => ("GET", String::new()),
    };
    let length = if content.is_empty() { String::new() } else { format!("Content-Length: {CONTENT}\r\n") };
    let name = group.name();
    format!("{method} /{provider}/{name}/{id}?ms={ms} HTTP/1.1\r\nHost: {address}\r\n{length}\r\n{content}")
        .into_bytes()
}

/// Makes a call over the kept connection, or over a new one, which is kept if it can be.
fn call(kept: &mut Option<TcpStream>, address: SocketAddr, request: &[u8], id: u64) -> Outcome {
    let lost = |step: &str, error: std::io::Error| Outcome::Lost(format!("{step}: {error}"));
    let mut stream = match kept.take() {
        Some(stream) if is_open(&stream) => stream,
        _ => match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => stream,
            Err(error) => return lost("connecting", error),
        },
    };
    let prepared = stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(PATIENCE)));
    if let Err(error) = prepared.and_then(|()| stream.write_all(request)) {
        return lost("sending", error);
    }
    let (mut received, mut piece) = (Vec::new(), [0; 8_192]);
    loop {
        if let Some((head, body)) = whole(&received) {
            let outcome = outcome(&head, body, id);
            if !head.contains("\r\nconnection: close") {
                *kept = Some(stream);
            }
            return outcome;
        }
        match stream.read(&mut piece) {
            Ok(0) => return Outcome::Lost(format!("closed after {} bytes", received.len())),
            Ok(count) => received.extend(&piece[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return lost("receiving", error),
        }
    }
}

/// Returns `false` if the gateway has closed an unused connection: a client that looks does not use it.
fn is_open(stream: &TcpStream) -> bool {
    let looked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
    let is_open = looked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    is_open && stream.set_nonblocking(false).is_ok()
}

/// The head in lower case and the content of a response, if it is whole. All have a length.
fn whole(received: &[u8]) -> Option<(String, &[u8])> {
    let end = find(received, b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&received[..end]).to_ascii_lowercase();
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    let body = received.get(end + 4..end + 4 + length.unwrap_or(0))?;
    Some((head, body))
}

fn outcome(head: &str, body: &[u8], id: u64) -> Outcome {
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let error =
        head.lines().find_map(|line| line.strip_prefix("x-egret-error:")).map(|slug| slug.trim().to_owned());
    match error {
        Some(slug) => Outcome::Refused(status, slug),
        None if status == 200 && body.starts_with(format!("{{\"id\":{id},").as_bytes()) => Outcome::Answered,
        None => Outcome::Wrong(format!("{head}\n{}", String::from_utf8_lossy(&body[..body.len().min(40)]))),
    }
}

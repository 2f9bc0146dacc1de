//! Runs, outcomes and servers for tests.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use clap::{Args as _, FromArgMatches as _};

use crate::compile::Compiled;
use crate::engine::RunOutcome;
use crate::options::Options;
use crate::tally::{ExchangeTimes, Tally};

/// Options with one target, changed by `change`.
pub(crate) fn options(url: impl Into<String>, change: impl FnOnce(&mut Options)) -> Options {
    let mut options = Options { url: Some(url.into()), ..parsed("") };
    change(&mut options);
    options
}

/// The options of a command line, split at its spaces.
pub(crate) fn parsed(line: &str) -> Options {
    try_parsed(line).unwrap()
}

/// The options of a command line, or the reason why it is refused.
pub(crate) fn try_parsed(line: &str) -> Result<Options, clap::Error> {
    let words = ["bench"].into_iter().chain(line.split_ascii_whitespace());
    let command = Options::augment_args(clap::Command::new("bench").disable_version_flag(true));
    Options::from_arg_matches(&command.try_get_matches_from(words)?)
}

/// Options for a target on this machine that nothing listens at, compiled.
pub(crate) fn compiled(change: impl FnOnce(&mut Options)) -> Compiled {
    options("http://127.0.0.1:9/x", change).compile().unwrap()
}

/// The outcome of a run of one second in which each exchange took one of these times on a new connection,
/// which took a quarter of it, and returned 200.
pub(crate) fn outcome(times_us: impl IntoIterator<Item = u64>) -> RunOutcome {
    let mut tally = Tally::new(1, 100);
    for (number, total) in times_us.into_iter().enumerate() {
        let start = Duration::from_millis(u64::try_from(number).unwrap());
        let times = ExchangeTimes { connect: Some(total / 4), wait: total / 2, total, is_2xx: true };
        tally.record(0, start, times);
        tally.status(200);
        tally.done += 1;
        tally.bytes_received += 1_024;
        tally.bytes_body += 1_000;
        tally.bytes_sent += 100;
    }
    RunOutcome {
        tally,
        elapsed: Duration::from_secs(1),
        fatal: None,
        interrupted: false,
        cpu_share: 0.25,
        saturated: false,
        server: "test/1".to_owned(),
        tls: None,
    }
}

/// The reaction of a test server to a request.
pub(crate) enum Reaction {
    /// Sends these bytes and waits for the next request.
    Send(&'static str),
    /// Sends these bytes and closes the connection.
    SendAndClose(&'static str),
    /// Waits until the client closes.
    Hang,
}

/// A server on a port of this machine. Its threads end with the process.
pub(crate) struct TestServer {
    address: SocketAddr,
    connections: Arc<AtomicU64>,
}

impl TestServer {
    /// Starts a server that reacts to the nth request, counted from 0, and its text.
    pub fn start(react: impl Fn(u64, &str) -> Reaction + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (react, requests) = (Arc::new(react), Arc::new(AtomicU64::new(0)));
        let connections = Arc::new(AtomicU64::new(0));
        let accepted = Arc::clone(&connections);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                accepted.fetch_add(1, Relaxed);
                let (react, requests) = (Arc::clone(&react), Arc::clone(&requests));
                std::thread::spawn(move || serve(stream, &requests, &*react));
            }
        });
        Self { address, connections }
    }

    /// The URL of the server.
    pub fn url(&self) -> String {
        format!("http://{}/x", self.address)
    }

    /// Number of connections accepted.
    pub fn connections(&self) -> u64 {
        self.connections.load(Relaxed)
    }
}

fn serve(mut stream: TcpStream, requests: &AtomicU64, react: &dyn Fn(u64, &str) -> Reaction) {
    let mut received = Vec::new();
    let mut piece = [0; 4 << 10];
    loop {
        while let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") {
            let rest = received.split_off(end + 4);
            let request = String::from_utf8(std::mem::replace(&mut received, rest)).unwrap();
            let (text, closes) = match react(requests.fetch_add(1, Relaxed), &request) {
                Reaction::Send(text) => (text, false),
                Reaction::SendAndClose(text) => (text, true),
                Reaction::Hang => ("", false),
            };
            if stream.write_all(text.as_bytes()).is_err() || closes {
                return;
            }
        }
        match stream.read(&mut piece) {
            Ok(count @ 1..) => received.extend_from_slice(&piece[..count]),
            _ => return,
        }
    }
}

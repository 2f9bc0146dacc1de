//! Sends messages to a server, directly and through Egret, and gathers what became of them.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use egret_tests::wait;
use memchr::memmem;

use super::generate::{end, mark};
use super::record::{Record, Records};
use super::servers::Server;

/// Connections at a time. Many messages end in silence, and most of the time is spent waiting for its end.
const AT_ONCE: usize = 64;

/// The silence after which nothing more is expected, for most messages; and for those whose ways differ,
/// which are played again one by one.
pub(crate) const QUIET: Duration = Duration::from_millis(400);
pub(crate) const LONG_QUIET: Duration = Duration::from_secs(10);

/// Number of the request that shows that a server has reported all before it.
const FENCE: u64 = u64::MAX >> 1;

/// The outcome of a message on one way.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    /// The requests that the server has reported.
    pub(crate) records: Vec<Record>,
    /// The bytes that came back.
    pub(crate) bytes: Vec<u8>,
    /// `true` if the connection was closed.
    pub(crate) closed: bool,
}

impl Outcome {
    /// The number of responses that are the server's echo.
    pub(crate) fn echoes(&self) -> usize {
        memmem::find_iter(&self.bytes.to_ascii_lowercase(), b"x-echo:").count()
    }

    /// The statuses of all final responses.
    pub(crate) fn statuses(&self) -> Vec<u16> {
        let starts = memmem::find_iter(&self.bytes, b"HTTP/1.");
        let statuses =
            starts.filter_map(|at| std::str::from_utf8(self.bytes.get(at + 9..at + 12)?).ok()?.parse().ok());
        statuses.filter(|status| *status >= 200).collect()
    }

    /// Egret's own refusal: the name of the error and its detail.
    pub(crate) fn refusal(&self) -> Option<(String, String)> {
        let text = String::from_utf8_lossy(&self.bytes);
        let (_, rest) = text.split_once("x-egret-error: ")?;
        let (slug, rest) = rest.split_once("\r\n")?;
        let detail = rest.split_once("\"detail\":\"").and_then(|(_, detail)| detail.split_once('"'));
        Some((slug.to_owned(), detail.map_or("", |(detail, _)| detail).to_owned()))
    }

    /// `true` if the request behind the message was answered by the server.
    pub(crate) fn has_end(&self, number: u64) -> bool {
        memmem::find(&self.bytes, format!(": {}end", mark(number)).as_bytes()).is_some()
    }

    /// The requests without the one that follows each message.
    pub(crate) fn of_message(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(|record| !record.is_end())
    }
}

/// Sends a message, and reads until the request behind it is answered, the connection is closed, or silence.
fn send(address: SocketAddr, number: u64, bytes: &[u8], quiet: Duration) -> Outcome {
    let mut outcome = Outcome::default();
    let Ok(mut stream) = TcpStream::connect(address) else { return outcome };
    // A connection that is reset leaves no port behind that waits for a minute.
    let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
    let _ = stream.set_nodelay(true);
    let _ = stream.set_write_timeout(Some(LONG_QUIET));
    let _ = stream.set_read_timeout(Some(quiet));
    // A server may refuse and close before it has all. One in four messages arrives in two pieces.
    let first = if number.is_multiple_of(4) { bytes.len() * 2 / 3 } else { bytes.len() };
    let _ = stream.write_all(&bytes[..first]).and_then(|()| stream.write_all(&bytes[first..]));
    let mut piece = [0; 8_192];
    while !outcome.has_end(number) {
        match stream.read(&mut piece) {
            Ok(count) if count > 0 => outcome.bytes.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
            _ => {
                outcome.closed = true;
                break;
            }
        }
    }
    outcome
}

/// Plays messages on one way, many at a time. Returns their outcomes in the same order.
fn play_way(
    address: SocketAddr,
    records: &Records,
    messages: &[(u64, Vec<u8>)],
    quiet: Duration,
) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(vec![Outcome::default(); messages.len()]);
    records.take();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(messages.len()) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Relaxed);
                    let Some((number, bytes)) = messages.get(at) else { break };
                    let outcome = send(address, *number, bytes, quiet);
                    outcomes.lock().unwrap()[at] = outcome;
                }
            });
        }
    });
    // A server that is busy with messages without an end may need several.
    wait::until_true("a server responds", || {
        send(address, FENCE, &end(&mark(FENCE)), LONG_QUIET).has_end(FENCE)
    });
    records.until(FENCE);
    let mut taken = records.take();
    let mut outcomes = outcomes.into_inner().unwrap();
    for (outcome, (number, _)) in outcomes.iter_mut().zip(messages) {
        outcome.records = taken.remove(number).unwrap_or_default();
    }
    outcomes
}

/// Plays messages directly, then through Egret.
pub(crate) fn play(server: &Server, messages: &[(u64, Vec<u8>)], quiet: Duration) -> Vec<(Outcome, Outcome)> {
    let direct = play_way(server.address, &server.records, messages, quiet);
    let through = play_way(server.egret.address(), &server.records, messages, quiet);
    direct.into_iter().zip(through).collect()
}

//! Clients that send requests until they are stopped, and count the results.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::http::find;
use crate::wait::DEADLINE;

/// Pause of a client after an exchange. Some clients still have hundreds of exchanges in each second, and
/// leave the processors to the other scenarios.
const PAUSE: Duration = Duration::from_millis(4);

/// Threads that send the same request over and over, each on its own connection.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Tally>>,
}

/// The results of the requests.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests sent completely.
    pub sent: usize,
    /// Responses with 200 and the complete body.
    pub completed: usize,
    /// Failed connection attempts.
    pub refused: usize,
    /// Other errors, each one once.
    pub failures: Vec<String>,
}

impl Load {
    /// Starts `connections` clients. If `kept` is false, each request uses a new connection.
    pub fn start(address: SocketAddr, target: &str, connections: usize, kept: bool) -> Self {
        Self::start_with(address, target, connections, kept, PAUSE)
    }

    /// Does the same with clients that keep the processors busy.
    pub fn without_pause(address: SocketAddr, target: &str, connections: usize, kept: bool) -> Self {
        Self::start_with(address, target, connections, kept, Duration::ZERO)
    }

    fn start_with(
        address: SocketAddr,
        target: &str,
        connections: usize,
        kept: bool,
        pause: Duration,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let close = if kept { "" } else { "Connection: close\r\n" };
        let request = format!("GET {target} HTTP/1.1\r\nHost: {address}\r\n{close}\r\n");
        let threads = (0..connections)
            .map(|_| {
                let (stop, request) = (Arc::clone(&stop), request.clone());
                thread::spawn(move || ask(address, request.as_bytes(), pause, &stop))
            })
            .collect();
        Self { stop, threads }
    }

    /// Stops after the exchanges in progress and returns the sum. A client also stops by itself when a
    /// connection is refused.
    pub fn finish(self) -> Tally {
        self.stop.store(true, SeqCst);
        let mut total = Tally::default();
        for thread in self.threads {
            let tally = thread.join().unwrap();
            total.sent += tally.sent;
            total.completed += tally.completed;
            total.refused += tally.refused;
            total.failures.extend(tally.failures);
        }
        total.failures.sort();
        total.failures.dedup();
        total
    }
}

fn ask(address: SocketAddr, request: &[u8], pause: Duration, stop: &AtomicBool) -> Tally {
    let mut tally = Tally::default();
    let mut connection = None;
    while !stop.load(SeqCst) && tally.failures.len() < 10 {
        let Some(stream) = connection.take().or_else(|| TcpStream::connect(address).ok()) else {
            tally.refused += 1;
            break;
        };
        match exchange(stream, request, &mut tally) {
            Ok(kept) => connection = kept,
            Err(failure) => tally.failures.push(failure),
        }
        if !pause.is_zero() {
            thread::park_timeout(pause);
        }
    }
    tally
}

/// Makes one exchange. Returns the connection if it is kept.
fn exchange(mut stream: TcpStream, request: &[u8], tally: &mut Tally) -> Result<Option<TcpStream>, String> {
    stream
        .set_nodelay(true)
        .and_then(|()| stream.set_read_timeout(Some(DEADLINE)))
        .map_err(|error| error.to_string())?;
    stream.write_all(request).map_err(|error| format!("sending: {error}"))?;
    tally.sent += 1;
    let mut received = Vec::new();
    let mut piece = [0; 4096];
    let (head, whole) = loop {
        let count = stream.read(&mut piece).map_err(|error| format!("receiving: {error}"))?;
        if count == 0 {
            return Err(format!("closed after {} bytes", received.len()));
        }
        received.extend(&piece[..count]);
        let Some(end) = find(&received, b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&received[..end]).to_ascii_lowercase();
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
        let whole = end + 4 + length.unwrap_or(0);
        if received.len() >= whole {
            break (head, whole);
        }
    };
    if !head.starts_with("http/1.1 200") || received.len() != whole {
        return Err(String::from_utf8_lossy(&received).into_owned());
    }
    tally.completed += 1;
    Ok((!head.contains("\r\nconnection: close")).then_some(stream))
}

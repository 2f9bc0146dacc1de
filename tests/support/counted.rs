//! A provider that counts: it notes when each call arrived and ended, and judges afterwards if a limit was
//! kept.
//!
//! The path of a call begins with the name of its group. Its query says how to respond: `ms`, the time to the
//! response; `stream`, a body that lasts for so many milliseconds; `cost`, the number in the body; `from`,
//! the number of the gateway that made the call.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};

use crate::http::find;

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
const STREAMS: usize = 2;

/// A call. Times are in nanoseconds since the epoch, by a clock that does not step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountedCall {
    /// Arrival of the last byte of its head.
    pub came: u64,
    /// Time just before its response was complete, or at which its connection was lost; `None` while it runs.
    pub ended: Option<u64>,
    /// Number of the gateway.
    pub from: usize,
    /// Units that its response names.
    pub cost: u64,
}

type Calls = BTreeMap<String, Vec<CountedCall>>;

/// A running provider that counts.
#[derive(Debug)]
pub struct Counted {
    address: SocketAddr,
    calls: Arc<Mutex<Calls>>,
    stopping: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
    clock: SteadyClock,
}

/// Nanoseconds since the epoch, by a clock that nobody sets.
#[derive(Debug, Clone, Copy)]
struct SteadyClock {
    began: Instant,
    began_ns: u64,
}

impl SteadyClock {
    fn new() -> Self {
        let began_ns = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        Self { began: Instant::now(), began_ns: nanos(began_ns) }
    }

    fn now(self) -> u64 {
        self.began_ns + nanos(self.began.elapsed())
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}

impl Counted {
    /// Starts a provider.
    pub fn start() -> Self {
        let (poll, clock) = (Poll::new().unwrap(), SteadyClock::new());
        let mut listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE).unwrap();
        let waker = Waker::new(poll.registry(), WAKER).unwrap();
        let (calls, stopping) = (Arc::<Mutex<Calls>>::default(), Arc::<AtomicBool>::default());
        let server = Server {
            poll,
            listener,
            streams: HashMap::new(),
            next: STREAMS,
            due: BinaryHeap::new(),
            calls: Arc::clone(&calls),
            clock,
        };
        let stop = Arc::clone(&stopping);
        let thread = std::thread::spawn(move || server.run(&stop));
        Self { address, calls, stopping, waker, thread: Some(thread), clock }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The present time by its clock.
    pub fn now(&self) -> u64 {
        self.clock.now()
    }

    /// The calls of a group so far, in order of arrival.
    pub fn calls(&self, group: &str) -> Vec<CountedCall> {
        self.calls.lock().unwrap().get(group).cloned().unwrap_or_default()
    }

    /// The number of calls of a group so far.
    pub fn count(&self, group: &str) -> usize {
        self.calls.lock().unwrap().get(group).map_or(0, Vec::len)
    }

    /// The number of calls of a group that arrived in this time.
    pub fn count_between(&self, group: &str, from: u64, to: u64) -> usize {
        let calls = self.calls.lock().unwrap();
        calls.get(group).map_or(0, |calls| between(calls, from, to).len())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.stopping.store(true, Relaxed);
        let _ = self.waker.wake();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The part of `calls`, which are in order, that arrived in this time.
pub fn between(calls: &[CountedCall], from: u64, to: u64) -> &[CountedCall] {
    let begin = calls.partition_point(|call| call.came < from);
    let end = calls.partition_point(|call| call.came < to);
    &calls[begin..end.max(begin)]
}

/// The most calls in any time of this length, wherever it begins.
pub fn most_in_any(calls: &[CountedCall], window: Duration) -> usize {
    let (window, mut begin, mut max) = (nanos(window), 0, 0);
    for (end, call) in calls.iter().enumerate() {
        while calls[begin].came + window <= call.came {
            begin += 1;
        }
        max = max.max(end + 1 - begin);
    }
    max
}

/// The most calls in a window of this length that begins at a multiple of it since the epoch.
pub fn most_in_fixed(calls: &[CountedCall], window: Duration) -> usize {
    let mut windows = BTreeMap::new();
    for call in calls {
        *windows.entry(call.came / nanos(window)).or_insert(0) += 1;
    }
    windows.into_values().max().unwrap_or(0)
}

/// The most calls at the same time.
pub fn most_at_once(calls: &[CountedCall]) -> usize {
    let mut changes: Vec<(u64, isize)> = Vec::with_capacity(calls.len() * 2);
    for call in calls {
        changes.push((call.came, 1));
        changes.extend(call.ended.map(|ended| (ended, -1)));
    }
    // A call that ends makes room for one that arrives at the same moment.
    changes.sort_unstable();
    let levels = changes.iter().scan(0, |level, (_, change)| {
        *level += change;
        Some(*level)
    });
    usize::try_from(levels.max().unwrap_or(0)).unwrap()
}

/// The tokens that a bucket lacked at the worst moment, if it is full at first; 0 if the limit was kept.
pub fn most_lacking(calls: &[CountedCall], limit: u64, window: Duration, burst: u64) -> u64 {
    // In parts of a token: as many as there are nanoseconds in a window.
    let (part, full) = (i128::from(nanos(window)), i128::from(burst) * i128::from(nanos(window)));
    let (mut level, mut then, mut least) = (full, 0, 0);
    for call in calls {
        level = (level + i128::from(call.came - then) * i128::from(limit)).min(full) - part;
        then = call.came;
        least = least.min(level);
    }
    u64::try_from((part - 1 - least) / part).unwrap()
}

/// The thread of a provider.
struct Server {
    poll: Poll,
    listener: TcpListener,
    streams: HashMap<usize, Stream>,
    next: usize,
    /// The times of responses, and of ends of bodies.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    calls: Arc<Mutex<Calls>>,
    clock: SteadyClock,
}

struct Stream {
    tcp: TcpStream,
    received: Vec<u8>,
    call: Option<Running>,
}

/// A call that has no complete response yet.
struct Running {
    group: String,
    number: usize,
    cost: u64,
    /// Time for which the body lasts, before its head is sent.
    stream: Option<u64>,
    has_begun: bool,
}

impl Server {
    fn run(mut self, stopping: &AtomicBool) {
        let mut events = Events::with_capacity(1_024);
        while !stopping.load(Relaxed) {
            let wait = self.due.peek().map(|Reverse((due, _))| due.saturating_sub(self.clock.now()));
            // The system rounds to milliseconds.
            let wait = wait.map(|nanos| Duration::from_nanos(nanos).max(Duration::from_millis(1)));
            match self.poll.poll(&mut events, wait) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                polled => polled.unwrap(),
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept(),
                    WAKER => {}
                    Token(number) => self.read(number),
                }
            }
            self.respond_due();
        }
    }

    fn accept(&mut self) {
        while let Ok((mut tcp, _)) = self.listener.accept() {
            let _ = tcp.set_nodelay(true);
            self.poll.registry().register(&mut tcp, Token(self.next), Interest::READABLE).unwrap();
            self.streams.insert(self.next, Stream { tcp, received: Vec::new(), call: None });
            self.next += 1;
        }
    }

    fn read(&mut self, number: usize) {
        let Some(stream) = self.streams.get_mut(&number) else { return };
        let mut piece = [0; 4_096];
        loop {
            match stream.tcp.read(&mut piece) {
                Ok(count) if count > 0 => stream.received.extend(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                _ => return self.lose(number),
            }
        }
        let Some(end) = find(&stream.received, b"\r\n\r\n") else { return };
        assert!(stream.call.is_none(), "a request came before the last one had its response");
        let request = String::from_utf8_lossy(&stream.received[..end]).into_owned();
        stream.received.drain(..end + 4);
        let now = self.clock.now();
        let (wait_ms, call) = self.note(&request, now);
        if let Some(stream) = self.streams.get_mut(&number) {
            stream.call = Some(call);
            self.due.push(Reverse((now + wait_ms * 1_000_000, number)));
        }
    }

    /// Counts a call. Returns the time until its response.
    fn note(&self, request: &str, now: u64) -> (u64, Running) {
        let target = request.split(' ').nth(1).unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let figure = |name: &str| -> Option<u64> {
            query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
        };
        let group = path.split('/').nth(1).unwrap_or_default().to_owned();
        let cost = figure("cost").unwrap_or(1);
        let from = usize::try_from(figure("from").unwrap_or(0)).unwrap();
        let mut calls = self.calls.lock().unwrap();
        let calls = calls.entry(group.clone()).or_default();
        calls.push(CountedCall { came: now, ended: None, from, cost });
        let number = calls.len() - 1;
        (
            figure("ms").unwrap_or(0),
            Running { group, number, cost, stream: figure("stream"), has_begun: false },
        )
    }

    fn respond_due(&mut self) {
        let now = self.clock.now();
        while let Some(Reverse((due, number))) = self.due.peek().copied() {
            if due > now {
                return;
            }
            self.due.pop();
            if let Some(again) = self.respond(number) {
                self.due.push(Reverse((now + again * 1_000_000, number)));
            }
        }
    }

    /// Sends a response, or its next part. Returns the time until the part after it.
    fn respond(&mut self, number: usize) -> Option<u64> {
        let stream = self.streams.get_mut(&number)?;
        let mut call = stream.call.take()?;
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
        let body = format!("{{\"cost\":{}}}", call.cost);
        let (bytes, again) = match call.stream {
            None => (format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()), None),
            Some(ms) if !call.has_begun => {
                (format!("{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n", body.len()), Some(ms))
            }
            Some(_) => ("0\r\n\r\n".to_owned(), None),
        };
        call.has_begun = true;
        if again.is_none() {
            self.end(&call);
        }
        let stream = self.streams.get_mut(&number)?;
        if again.is_some() {
            stream.call = Some(call);
        }
        // A few bytes always fit, unless the connection is gone, which the next read shows.
        let _ = stream.tcp.write(bytes.as_bytes());
        again
    }

    fn end(&self, call: &Running) {
        let mut calls = self.calls.lock().unwrap();
        calls.get_mut(&call.group).unwrap()[call.number].ended = Some(self.clock.now());
    }

    /// Forgets a connection. The provider works on its call until it would have responded.
    fn lose(&mut self, number: usize) {
        if let Some(call) = self.streams.remove(&number).and_then(|stream| stream.call) {
            self.end(&call);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(times_ms: &[u64]) -> Vec<CountedCall> {
        let call = |ms: &u64| CountedCall {
            came: ms * 1_000_000,
            ended: Some((ms + 10) * 1_000_000),
            from: 0,
            cost: 1,
        };
        times_ms.iter().map(call).collect()
    }

    #[test]
    fn the_judges_find_a_call_too_many() {
        let second = Duration::from_secs(1);
        assert_eq!(most_in_any(&calls(&[900, 950, 1_899, 1_901]), second), 3);
        assert_eq!(most_in_any(&calls(&[0, 1_000, 2_000]), second), 1);
        assert_eq!(most_in_fixed(&calls(&[900, 950, 1_899, 1_901]), second), 2);
        assert_eq!(most_at_once(&calls(&[0, 5, 9, 10, 19])), 3);
        assert_eq!(most_lacking(&calls(&[1_000, 1_000, 2_000]), 1, second, 2), 0);
        assert_eq!(most_lacking(&calls(&[1_000, 1_000, 1_999]), 1, second, 2), 1);
    }
}

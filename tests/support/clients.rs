//! Many clients on one thread: each one sends its request again as soon as it has the response.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token, Waker};

use crate::http::find;

/// Longest wait for events, so that responses to other threads' commands need no more than this.
const TURN_MAX: Duration = Duration::from_millis(100);
/// Wait of a client after a response other than 200.
const PAUSE: Duration = Duration::from_millis(200);

/// Running clients; stopped when dropped, which closes their connections.
#[derive(Debug)]
pub struct Clients {
    shared: Arc<Shared>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stopping: AtomicBool,
    /// Number of clients that send; the others stop after the response that they wait for.
    active: AtomicUsize,
    served: AtomicU64,
    refused: AtomicU64,
    lost: AtomicU64,
    /// The first response other than 200.
    refusal: Mutex<Option<String>>,
}

/// The results so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientCounts {
    /// Responses with 200.
    pub served: u64,
    /// Other responses.
    pub refused: u64,
    /// Connections that ended early; each of these clients has stopped.
    pub lost: u64,
}

/// A client.
struct Visitor {
    tcp: Option<TcpStream>,
    request: usize,
    received: Vec<u8>,
    /// `true` from the sending of a request to its response.
    waits: bool,
}

struct ClientThread {
    poll: Poll,
    visitors: Vec<Visitor>,
    requests: Vec<Vec<u8>>,
    pause: Duration,
    /// Clients that send again at these times, which are in order.
    paused: VecDeque<(Instant, usize)>,
    shared: Arc<Shared>,
}

impl Clients {
    /// Starts so many clients. They share the targets evenly.
    pub fn start(address: SocketAddr, targets: &[String], clients: usize) -> Self {
        Self::start_with(address, targets, clients, PAUSE)
    }

    /// Does the same with another wait after a response that is not 200.
    pub fn start_with(address: SocketAddr, targets: &[String], clients: usize, pause: Duration) -> Self {
        Self::sending(address, targets, "", clients, pause)
    }

    /// Does the same with more field lines in each request.
    pub fn sending(
        address: SocketAddr,
        targets: &[String],
        fields: &str,
        clients: usize,
        pause: Duration,
    ) -> Self {
        let poll = Poll::new().unwrap();
        let waker = Waker::new(poll.registry(), Token(usize::MAX - 1)).unwrap();
        let request = |target: &String| {
            format!("GET {target} HTTP/1.1\r\nHost: {address}\r\n{fields}\r\n").into_bytes()
        };
        let visitors = (0..clients).map(|number| {
            let mut tcp = TcpStream::connect(address).unwrap();
            let _ = tcp.set_nodelay(true);
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut tcp, Token(number), interest).unwrap();
            Visitor { tcp: Some(tcp), request: number % targets.len(), received: Vec::new(), waits: false }
        });
        let visitors = visitors.collect();
        let shared = Arc::new(Shared { active: AtomicUsize::new(clients), ..Shared::default() });
        let thread_state = ClientThread {
            poll,
            visitors,
            requests: targets.iter().map(request).collect(),
            pause,
            paused: VecDeque::new(),
            shared: Arc::clone(&shared),
        };
        let thread = std::thread::spawn(move || thread_state.run());
        Self { shared, waker, thread: Some(thread) }
    }

    /// Lets the first so many clients send. The others stop after the response that they wait for.
    pub fn allow(&self, clients: usize) {
        self.shared.active.store(clients, Relaxed);
        self.waker.wake().unwrap();
    }

    /// The results so far.
    pub fn counts(&self) -> ClientCounts {
        let Shared { served, refused, lost, .. } = &*self.shared;
        ClientCounts {
            served: served.load(Relaxed),
            refused: refused.load(Relaxed),
            lost: lost.load(Relaxed),
        }
    }

    /// The first response other than 200, if there was one.
    pub fn refusal(&self) -> Option<String> {
        self.shared.refusal.lock().unwrap().clone()
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Relaxed);
        let _ = self.waker.wake();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl ClientThread {
    fn run(mut self) {
        let mut events = Events::with_capacity(1_024);
        let mut active = 0;
        while !self.shared.stopping.load(Relaxed) {
            let next = self.paused.front().map(|(at, _)| at.saturating_duration_since(Instant::now()));
            // The system rounds to milliseconds.
            let wait = next.unwrap_or(TURN_MAX).clamp(Duration::from_millis(1), TURN_MAX);
            match self.poll.poll(&mut events, Some(wait)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                polled => polled.unwrap(),
            }
            for event in &events {
                let Token(number) = event.token();
                if number < self.visitors.len() {
                    self.look(number);
                }
            }
            self.resume();
            let allowed = self.shared.active.load(Relaxed).min(self.visitors.len());
            for number in active..allowed {
                self.send(number);
            }
            active = allowed;
        }
    }

    fn is_active(&self, number: usize) -> bool {
        number < self.shared.active.load(Relaxed)
    }

    /// Sends the client's request, if it does not wait already.
    fn send(&mut self, number: usize) {
        let visitor = &mut self.visitors[number];
        let Some(tcp) = visitor.tcp.as_mut().filter(|_| !visitor.waits) else { return };
        match tcp.write(&self.requests[visitor.request]) {
            Ok(_) => visitor.waits = true,
            // It is not connected yet: an event says when it is.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {}
            Err(_) => self.lose(number),
        }
    }

    /// Handles an event of a client.
    fn look(&mut self, number: usize) {
        let visitor = &mut self.visitors[number];
        if !visitor.waits {
            if self.is_active(number) && !self.paused.iter().any(|(_, paused)| *paused == number) {
                self.send(number);
            }
            return;
        }
        let Some(tcp) = visitor.tcp.as_mut() else { return };
        let mut piece = [0; 4_096];
        loop {
            match tcp.read(&mut piece) {
                Ok(count) if count > 0 => visitor.received.extend(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                _ => return self.lose(number),
            }
        }
        let Some(head) = complete(&visitor.received) else { return };
        let is_served = visitor.received.starts_with(b"HTTP/1.1 200 ");
        visitor.waits = false;
        let received = std::mem::take(&mut visitor.received);
        if is_served {
            self.shared.served.fetch_add(1, Relaxed);
            if self.is_active(number) {
                self.send(number);
            }
            return;
        }
        self.shared.refused.fetch_add(1, Relaxed);
        let mut refusal = self.shared.refusal.lock().unwrap();
        refusal.get_or_insert_with(|| String::from_utf8_lossy(&received).into_owned());
        drop(refusal);
        if head.contains("\r\nconnection: close") {
            return self.lose(number);
        }
        self.paused.push_back((Instant::now() + self.pause, number));
    }

    fn resume(&mut self) {
        let now = Instant::now();
        while self.paused.front().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, number)) = self.paused.pop_front()
                && self.is_active(number)
            {
                self.send(number);
            }
        }
    }

    fn lose(&mut self, number: usize) {
        if self.visitors[number].tcp.take().is_some() {
            self.shared.lost.fetch_add(1, Relaxed);
        }
    }
}

/// Returns the head of a response in lower case, if the response is complete.
fn complete(received: &[u8]) -> Option<String> {
    let end = find(received, b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&received[..end]).to_ascii_lowercase();
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    let is_complete = match length {
        Some(length) => received.len() >= end + 4 + length,
        None => received.ends_with(b"\r\n0\r\n\r\n"),
    };
    is_complete.then_some(head)
}

//! A provider that is scripted byte by byte: it uses a thread per connection and keeps everything it
//! receives.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use socket2::SockRef;

use crate::arrival;
use crate::http::{find, split_field};
use crate::wait::Watched;

/// A listening provider; stopped when dropped.
#[derive(Debug)]
pub struct Provider {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    stopping: AtomicBool,
    seen: Watched<Seen>,
}

/// The data received so far.
#[derive(Debug, Default)]
struct Seen {
    connections: usize,
    ended: usize,
    streams: Vec<TcpStream>,
    received: Vec<Vec<u8>>,
    requests: Vec<Request>,
}

/// A received request.
#[derive(Debug, Clone)]
pub struct Request {
    /// Number of its connection, counted from 0.
    pub connection: usize,
    /// Method, target and version.
    pub line: String,
    /// Field names as received, and values; in order.
    pub fields: Vec<(String, String)>,
    /// The content, without chunked framing.
    pub body: Vec<u8>,
    /// Trailer fields.
    pub trailers: Vec<(String, String)>,
}

impl Request {
    /// The request target.
    pub fn target(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }

    /// Returns all values of a field, by case-insensitive name.
    pub fn values(&self, name: &str) -> Vec<&str> {
        self.fields
            .iter()
            .filter(|field| field.0.eq_ignore_ascii_case(name))
            .map(|field| field.1.as_str())
            .collect()
    }
}

/// One connection, as the scenario's script sees it.
#[derive(Debug)]
pub struct Peer {
    /// Number of this connection, counted from 0.
    pub number: usize,
    stream: TcpStream,
    buffer: Vec<u8>,
    reset: bool,
    shared: Arc<Shared>,
}

impl Provider {
    /// Runs `script` for every connection; the connection closes when it returns.
    pub fn scripted(script: impl Fn(&mut Peer) + Send + Sync + 'static) -> Self {
        Self::scripted_at(IpAddr::V4(Ipv4Addr::LOCALHOST), script)
    }

    /// Does the same on another address.
    pub fn scripted_at(ip: IpAddr, script: impl Fn(&mut Peer) + Send + Sync + 'static) -> Self {
        Self::scripted_on(SocketAddr::new(ip, 0), script)
    }

    /// Does the same on another address and at this port.
    pub fn scripted_on(address: SocketAddr, script: impl Fn(&mut Peer) + Send + Sync + 'static) -> Self {
        Self::listening(TcpListener::bind(address).unwrap(), script)
    }

    /// Does the same with a listener.
    pub fn listening(listener: TcpListener, script: impl Fn(&mut Peer) + Send + Sync + 'static) -> Self {
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let (accepting, script) = (Arc::clone(&shared), Arc::new(script));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { continue };
                if accepting.stopping.load(SeqCst) {
                    return;
                }
                let mut peer = Peer::new(stream, &accepting);
                let script = Arc::clone(&script);
                thread::spawn(move || script(&mut peer));
            }
        });
        Self { address, shared }
    }

    /// Sends the same bytes in response to every request, and keeps the connection open.
    pub fn responding(response: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self::with_responses(move |_| response.as_ref().to_vec())
    }

    /// Sends the result of `answer` in response to every request, and keeps the connection open.
    pub fn with_responses(response: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::scripted(move |peer| {
            while let Some(request) = peer.request() {
                peer.send(response(&request));
            }
        })
    }

    /// Sends a small 200 in response to every request, and keeps the connection open.
    pub fn plain() -> Self {
        Self::responding(ok("hello"))
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Number of connections accepted so far.
    pub fn connections(&self) -> usize {
        self.shared.seen.read(|seen| seen.connections)
    }

    /// All requests so far, in the order of their ends.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.seen.read(|seen| seen.requests.clone())
    }

    /// The only request so far.
    pub fn only_request(&self) -> Request {
        let requests = self.requests();
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests[0].clone()
    }

    /// All bytes received so far, connection after connection.
    pub fn received(&self) -> Vec<u8> {
        self.shared.seen.read(|seen| seen.received.concat())
    }

    /// Waits until `count` connections have ended.
    pub fn until_ended(&self, count: usize) {
        let what = format!("{count} connections to the provider have ended");
        self.shared.seen.until(&what, |seen| (seen.ended >= count).then_some(()));
    }

    /// Waits until `count` connections were accepted.
    pub fn until_connected(&self, count: usize) {
        let what = format!("{count} connections to the provider are made");
        self.shared.seen.until(&what, |seen| (seen.connections >= count).then_some(()));
    }

    /// Waits until `count` requests have been received.
    pub fn until_requested(&self, count: usize) {
        let what = format!("the provider has received {count} requests");
        self.shared.seen.until(&what, |seen| (seen.requests.len() >= count).then_some(()));
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.shared.stopping.store(true, SeqCst);
        let _ = TcpStream::connect(self.address);
        self.shared.seen.change(|seen| {
            for stream in &seen.streams {
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
    }
}

/// Returns a 200 response with this text.
pub fn ok(text: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{text}", text.len())
        .into_bytes()
}

impl Peer {
    fn new(stream: TcpStream, shared: &Arc<Shared>) -> Self {
        let _ = stream.set_nodelay(true);
        let mut number = 0;
        shared.seen.change(|seen| {
            number = seen.connections;
            seen.connections += 1;
            seen.received.push(Vec::new());
            seen.streams.extend(stream.try_clone());
        });
        Self { number, stream, buffer: Vec::new(), reset: false, shared: Arc::clone(shared) }
    }

    /// Reads a whole request; `None` once the connection has ended.
    pub fn request(&mut self) -> Option<Request> {
        let mut request = self.request_head()?;
        let chunked = !request.values("transfer-encoding").is_empty();
        let length = request.values("content-length").first().and_then(|length| length.parse().ok());
        if chunked {
            self.chunks(&mut request)?;
        } else {
            request.body = self.take(length.unwrap_or(0))?;
        }
        self.shared.seen.change(|seen| seen.requests.push(request.clone()));
        Some(request)
    }

    /// Reads only a request's head, and does not count it as a received request.
    pub fn request_head(&mut self) -> Option<Request> {
        let end = self.until_found(b"\r\n\r\n")?;
        let head = self.take(end + 4)?;
        let text: String = head[..end].iter().map(|byte| char::from(*byte)).collect();
        let (line, fields) = text.split_once("\r\n").unwrap_or((&text, ""));
        Some(Request {
            connection: self.number,
            line: line.to_owned(),
            fields: fields.split("\r\n").filter(|line| !line.is_empty()).map(split_field).collect(),
            body: Vec::new(),
            trailers: Vec::new(),
        })
    }

    /// Has the system note when bytes arrive.
    pub fn watch_arrivals(&self) {
        arrival::watch(&self.stream);
    }

    /// Waits for the bytes of the next request. Returns the time since the epoch at which they arrived, or
    /// `None` if the connection has ended.
    pub fn arrival(&self) -> Option<Duration> {
        arrival::of(&self.stream)
    }

    /// Sends exactly these bytes; returns `false` if the peer has closed.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Reads raw bytes without recording them; 0 once the connection has ended.
    pub fn read(&mut self, piece: &mut [u8]) -> usize {
        if self.buffer.is_empty() {
            return self.stream.read(piece).unwrap_or(0);
        }
        let count = piece.len().min(self.buffer.len());
        piece[..count].copy_from_slice(&self.buffer[..count]);
        self.buffer.drain(..count);
        count
    }

    /// Reads `count` bytes of the body; `None` if the connection ends before.
    pub fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.buffer.len() < count {
            self.more()?;
        }
        Some(self.buffer.drain(..count).collect())
    }

    /// Sends nothing until the peer leaves.
    pub fn stall(&mut self) {
        while self.more().is_some() {}
    }

    /// Sends nothing for `period`. Returns `false` if the peer has left.
    pub fn pause(&mut self, period: Duration) -> bool {
        let set = |timeout| self.stream.set_read_timeout(timeout).is_ok();
        let is_there = set(Some(period))
            && match self.stream.peek(&mut [0]) {
                Ok(count) => count > 0,
                Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            };
        set(None) && is_there
    }

    /// Returns `true` if the scenario is over.
    pub fn stopped(&self) -> bool {
        self.shared.stopping.load(SeqCst)
    }

    /// Shuts down the sending side, and continues to read.
    pub fn half_close(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Makes this connection end with a reset.
    pub fn reset(&mut self) {
        self.reset = true;
        let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }

    /// Relays everything from now on to a server and back, until both sides have ended.
    pub fn relay_to(&mut self, server: SocketAddr) {
        let mut server = TcpStream::connect(server).unwrap();
        server.write_all(&std::mem::take(&mut self.buffer)).unwrap();
        let (mut back, mut client) = (server.try_clone().unwrap(), self.stream.try_clone().unwrap());
        let returning = thread::spawn(move || {
            let _ = std::io::copy(&mut back, &mut client);
            let _ = client.shutdown(Shutdown::Write);
        });
        let _ = std::io::copy(&mut self.stream, &mut server);
        let _ = server.shutdown(Shutdown::Write);
        let _ = returning.join();
    }

    fn chunks(&mut self, request: &mut Request) -> Option<()> {
        loop {
            let size = usize::from_str_radix(&self.line()?, 16).expect("a chunk size");
            if size == 0 {
                break;
            }
            request.body.extend(self.take(size)?);
            assert_eq!(self.line()?, "", "a chunk ends with CRLF");
        }
        loop {
            match self.line()? {
                line if line.is_empty() => return Some(()),
                line => request.trailers.push(split_field(&line)),
            }
        }
    }

    fn line(&mut self) -> Option<String> {
        let end = self.until_found(b"\r\n")?;
        let line = self.take(end + 2)?;
        Some(String::from_utf8_lossy(&line[..end]).into_owned())
    }

    fn until_found(&mut self, needle: &[u8]) -> Option<usize> {
        loop {
            if let Some(at) = find(&self.buffer, needle) {
                return Some(at);
            }
            self.more()?;
        }
    }

    fn more(&mut self) -> Option<()> {
        let mut piece = [0; 16 << 10];
        let count = self.stream.read(&mut piece).ok().filter(|count| *count > 0)?;
        self.buffer.extend(&piece[..count]);
        self.shared.seen.change(|seen| seen.received[self.number].extend(&piece[..count]));
        Some(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let address = self.stream.peer_addr().ok();
        if !self.reset {
            let _ = self.stream.shutdown(Shutdown::Both);
        }
        self.shared.seen.change(|seen| {
            seen.streams.retain(|stream| stream.peer_addr().ok() != address);
            seen.ended += 1;
        });
    }
}

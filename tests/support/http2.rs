//! A client and a provider of HTTP/2 that write their frames one by one, so that they can send what no
//! library would.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use crate::wait::DEADLINE;

/// The preface of a client (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Types of frames (RFC 9113 §6).
pub const DATA: u8 = 0;
/// The fields of a message.
pub const HEADERS: u8 = 1;
/// A priority, which has no effect.
pub const PRIORITY: u8 = 2;
/// The end of a stream by an error.
pub const RST_STREAM: u8 = 3;
/// Settings of a peer.
pub const SETTINGS: u8 = 4;
/// A question whether the peer is there.
pub const PING: u8 = 6;
/// The end of a connection.
pub const GOAWAY: u8 = 7;
/// More room in a window.
pub const WINDOW_UPDATE: u8 = 8;
/// More fields of a message.
pub const CONTINUATION: u8 = 9;
/// The flag of the last frame of a stream, and of an acknowledgement.
pub const END_STREAM: u8 = 1;
/// The flag of an acknowledgement.
pub const ACK: u8 = 1;
/// The flag of the last frame of fields.
pub const END_HEADERS: u8 = 4;
/// The error code of a flood (RFC 9113 §7).
pub const ENHANCE_YOUR_CALM: u32 = 11;

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its type.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// The stream that it belongs to; 0 is the connection.
    pub stream: u32,
    /// The bytes that follow its head.
    pub payload: Vec<u8>,
}

impl Frame {
    /// The error code of a frame that ends a stream or the connection.
    pub fn error(&self) -> u32 {
        let start = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[start..start + 4].try_into().unwrap())
    }

    /// The status code of a response whose status is in the static table (RFC 7541, appendix A). Otherwise
    /// `None`.
    pub fn status(&self) -> Option<u16> {
        let statuses = [200, 204, 206, 304, 400, 404, 500];
        statuses.get(usize::from(self.payload[0].checked_sub(0x88)?)).copied()
    }
}

/// A connection.
#[derive(Debug)]
pub struct Http2Client {
    stream: TcpStream,
}

impl Http2Client {
    /// Connects, and sends the preface and empty settings.
    pub fn connect(address: SocketAddr) -> Self {
        Self::connect_with(address, &[])
    }

    /// Connects, and sends the preface, empty settings and these frames at once.
    pub fn connect_with(address: SocketAddr, frames: &[u8]) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        let mut client = Self { stream };
        client.send(&[PREFACE, &frame(SETTINGS, 0, 0, &[]), frames].concat());
        client
    }

    /// Returns another handle of the connection, which may read while this one writes.
    #[must_use]
    pub fn reader(&self) -> Self {
        Self { stream: self.stream.try_clone().unwrap() }
    }

    /// Sends bytes, which the other end may no longer accept.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Sends a frame. Returns `false` if the connection has ended.
    pub fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        self.send(&frame(kind, flags, stream, payload))
    }

    /// Sends the fields of a message.
    pub fn headers(&mut self, stream: u32, fields: &[(&str, &str)], ends: bool) -> bool {
        let flags = END_HEADERS | if ends { END_STREAM } else { 0 };
        self.frame(HEADERS, flags, stream, &block(fields))
    }

    /// Sends a GET without a body.
    pub fn get(&mut self, stream: u32, authority: SocketAddr, path: &str) -> bool {
        let authority = authority.to_string();
        let fields = [(":method", "GET"), (":scheme", "http"), (":authority", &authority), (":path", path)];
        self.headers(stream, &fields, true)
    }

    /// Receives the next frame; `None` once the connection has ended.
    pub fn receive(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).ok()?;
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; len];
        self.stream.read_exact(&mut payload).ok()?;
        let stream = u32::from_be_bytes(head[5..9].try_into().unwrap());
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// Receives frames until one is of this type.
    pub fn until(&mut self, kind: u8) -> Frame {
        std::iter::from_fn(|| self.receive())
            .find(|frame| frame.kind == kind)
            .unwrap_or_else(|| panic!("the connection ended without a frame of type {kind}"))
    }

    /// Receives frames until one of this type belongs to this stream.
    pub fn until_on(&mut self, stream: u32, kind: u8) -> Frame {
        loop {
            let frame = self.until(kind);
            if frame.stream == stream {
                return frame;
            }
        }
    }

    /// Receives all frames to the end of the connection.
    pub fn rest(&mut self) -> Vec<Frame> {
        std::iter::from_fn(|| self.receive()).collect()
    }
}

/// Number of bytes that may be sent on one stream (RFC 9113 §5.2).
#[derive(Debug)]
pub struct Room {
    stream: u32,
    /// The window that each stream begins with, as the other end has announced it.
    pub initial: usize,
    of_stream: usize,
    of_connection: usize,
}

impl Room {
    /// Returns it for a stream of a new connection.
    pub fn new(stream: u32) -> Self {
        Self { stream, initial: 65_535, of_stream: 65_535, of_connection: 65_535 }
    }

    /// Takes the length of the next frame, of at most `max` bytes. 0 if there is no room.
    pub fn take(&mut self, max: usize) -> usize {
        let count = self.of_stream.min(self.of_connection).min(16_384).min(max);
        self.of_stream -= count;
        self.of_connection -= count;
        count
    }

    /// Notes a received frame. Returns `true` if it changes a window.
    pub fn note(&mut self, frame: &Frame) -> bool {
        let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap()) as usize;
        match frame.kind {
            WINDOW_UPDATE if frame.stream == 0 => self.of_connection += number(&frame.payload),
            WINDOW_UPDATE if frame.stream == self.stream => self.of_stream += number(&frame.payload),
            SETTINGS if frame.flags & ACK == 0 => {
                for setting in frame.payload.chunks(6).filter(|setting| setting[..2] == [0, 4]) {
                    let initial = number(&setting[2..]);
                    assert!(initial >= self.initial, "a stream alone never has less than before");
                    self.of_stream += initial - self.initial;
                    self.initial = initial;
                }
            }
            _ => return false,
        }
        true
    }
}

/// The bytes of a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Fields in literal form, without a table or compression (RFC 7541 §6.2.2).
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            text_in(&mut bytes, text);
        }
    }
    bytes
}

fn text_in(bytes: &mut Vec<u8>, text: &str) {
    let len = text.len();
    if len < 127 {
        bytes.push(u8::try_from(len).unwrap());
    } else {
        bytes.push(127);
        let mut rest = len - 127;
        while rest >= 128 {
            bytes.push(u8::try_from(rest % 128).unwrap() | 128);
            rest /= 128;
        }
        bytes.push(u8::try_from(rest).unwrap());
    }
    bytes.extend_from_slice(text.as_bytes());
}

/// A provider of HTTP/2 without TLS that writes its frames one by one.
#[derive(Debug)]
pub struct Http2Provider {
    address: SocketAddr,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicUsize,
    connections: AtomicUsize,
    requests: AtomicUsize,
    http1_requests: AtomicUsize,
}

impl Http2Provider {
    /// Starts it. Each connection runs `script` in a thread of its own. A connection that begins with a
    /// request of HTTP/1.1 gets an empty 204.
    pub fn scripted(script: impl Fn(&mut Http2Peer) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (counts, script) = (Arc::new(Counts::default()), Arc::new(script));
        let all = Arc::clone(&counts);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                all.accepted.fetch_add(1, SeqCst);
                let (counts, script) = (Arc::clone(&all), Arc::clone(&script));
                thread::spawn(move || serve(stream, &counts, &*script));
            }
        });
        Self { address, counts }
    }

    /// Its URL, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Number of connections that were accepted, also those that ended before they spoke.
    pub fn accepted(&self) -> usize {
        self.counts.accepted.load(SeqCst)
    }

    /// Number of connections that have spoken HTTP/2.
    pub fn connections(&self) -> usize {
        self.counts.connections.load(SeqCst)
    }

    /// Number of requests that have arrived in HTTP/2, also those that were refused.
    pub fn requests(&self) -> usize {
        self.counts.requests.load(SeqCst)
    }

    /// Number of requests that have arrived in HTTP/1.1.
    pub fn http1_requests(&self) -> usize {
        self.counts.http1_requests.load(SeqCst)
    }
}

fn serve(stream: TcpStream, counts: &Arc<Counts>, script: &dyn Fn(&mut Http2Peer)) {
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut inner = Http2Client { stream };
    let mut preface = [0; PREFACE.len()];
    if inner.stream.read_exact(&mut preface).is_err() {
        return;
    }
    if preface != PREFACE {
        counts.http1_requests.fetch_add(1, SeqCst);
        inner.send(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
        return;
    }
    let number = counts.connections.fetch_add(1, SeqCst);
    inner.frame(SETTINGS, 0, 0, &[]);
    script(&mut Http2Peer { inner, number, counts: Arc::clone(counts) });
}

/// A connection of such a provider.
#[derive(Debug)]
pub struct Http2Peer {
    /// Its frames.
    pub inner: Http2Client,
    /// Its number, from 0 on.
    pub number: usize,
    counts: Arc<Counts>,
}

impl Http2Peer {
    /// Receives the next frame, and acknowledges settings and pings. `None` once the connection has ended.
    pub fn receive(&mut self) -> Option<Frame> {
        let frame = self.inner.receive()?;
        match frame.kind {
            SETTINGS | PING if frame.flags & ACK == 0 => {
                let payload = if frame.kind == PING { &frame.payload[..] } else { &[] };
                self.inner.frame(frame.kind, ACK, 0, payload);
            }
            HEADERS => {
                self.counts.requests.fetch_add(1, SeqCst);
            }
            _ => {}
        }
        Some(frame)
    }

    /// Receives a whole request, and returns the number of its stream. `None` once the connection has ended.
    pub fn request(&mut self) -> Option<u32> {
        loop {
            let frame = self.receive()?;
            if matches!(frame.kind, HEADERS | DATA) && frame.flags & END_STREAM != 0 {
                return Some(frame.stream);
            }
        }
    }

    /// Responds with 200 and this body.
    pub fn respond(&mut self, stream: u32, body: &str) {
        self.inner.headers(stream, &[(":status", "200")], false);
        self.inner.frame(DATA, END_STREAM, stream, body.as_bytes());
    }

    /// Ends a stream with this error.
    pub fn reset(&mut self, stream: u32, error: u32) {
        self.inner.frame(RST_STREAM, 0, stream, &error.to_be_bytes());
    }

    /// Announces the end of the connection. Streams above `last` are not processed.
    pub fn go_away(&mut self, last: u32) {
        self.inner.frame(GOAWAY, 0, 0, &[last.to_be_bytes(), 0_u32.to_be_bytes()].concat());
    }
}

//! A strict HTTP/1.1 client over exact bytes: it sends what the test wrote, and accepts only what RFC 9112
//! allows.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustls::ClientConnection;
use serde_json::Value;

use crate::wait::DEADLINE;

/// The field lines of a client that asks for a WebSocket (RFC 6455 §4.1), with the key of the RFC's example.
pub const WEBSOCKET: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// A connection to the gateway, or directly to a provider.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    /// TLS on the connection, once [`Client::shake_hands`] has succeeded.
    tls: Option<Box<ClientConnection>>,
    received: Vec<u8>,
}

/// A received response.
#[derive(Clone)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The whole status line.
    pub status_line: String,
    /// Field names as received, and values; in order.
    pub fields: Vec<(String, String)>,
    /// The content, without chunked framing.
    pub body: Vec<u8>,
    /// Trailer fields.
    pub trailers: Vec<(String, String)>,
    /// `true` if the connection ended before the body was complete.
    pub cut: bool,
}

/// Framing of a body.
enum Framing {
    None,
    Length(usize),
    Chunked,
    UntilClose,
}

impl Client {
    /// Opens a connection.
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address)
            .unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"));
        Self::over(stream)
    }

    /// Opens a connection to a Unix socket.
    pub fn connect_unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path)
            .unwrap_or_else(|error| panic!("cannot connect to {}: {error}", path.display()));
        // What sends and receives does not ask for the family of the socket.
        Self::of(OwnedFd::from(stream).into())
    }

    /// Uses an existing stream.
    pub fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        Self::of(stream)
    }

    fn of(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        Self { stream, tls: None, received: Vec::new() }
    }

    /// Performs a TLS handshake as a client. From then on, everything is sent and received over TLS.
    pub fn shake_hands(&mut self, mut tls: ClientConnection) -> io::Result<&mut Self> {
        // The server's first bytes may have arrived together with a response.
        let received = std::mem::take(&mut self.received);
        let mut rest = &received[..];
        while !rest.is_empty() {
            tls.read_tls(&mut rest)?;
            tls.process_new_packets().map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        }
        while tls.is_handshaking() {
            tls.complete_io(&mut self.stream)?;
        }
        // What a server of TLS 1.3 says after the handshake is read with its first response.
        while tls.wants_write() {
            tls.write_tls(&mut self.stream)?;
        }
        self.tls = Some(Box::new(tls));
        Ok(self)
    }

    /// The TLS connection. There must be one.
    pub fn tls(&mut self) -> &mut ClientConnection {
        self.tls.as_mut().expect("a handshake")
    }

    /// The socket, for uses without a method here.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Received bytes that were not yet consumed.
    pub fn pending(&self) -> &[u8] {
        &self.received
    }

    /// Sends exactly these bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.write_all(bytes.as_ref()).expect("the peer takes the bytes");
        self
    }

    /// Sends as many of these bytes as the peer accepts; it may close meanwhile.
    pub fn offer(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        let _ = self.write_all(bytes.as_ref());
        self
    }

    /// Sends a GET for `target` with `host`.
    pub fn get(&mut self, host: impl std::fmt::Display, target: &str) -> &mut Self {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
    }

    /// Sends a request for `host`: a line such as `POST /a`, further field lines, and a body, whose length is
    /// added if there is one.
    pub fn request(
        &mut self,
        host: impl std::fmt::Display,
        line: &str,
        fields: &str,
        body: impl AsRef<[u8]>,
    ) -> &mut Self {
        let body = body.as_ref();
        let length =
            if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let head = format!("{line} HTTP/1.1\r\nHost: {host}\r\n{length}{fields}\r\n");
        self.send([head.as_bytes(), body].concat())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.stream).write_all(bytes),
            None => self.stream.write_all(bytes),
        }
    }

    /// Ends the connection with a reset.
    pub fn reset(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    }

    /// Shuts down the sending side.
    pub fn half_close(&mut self) -> &mut Self {
        self.stream.shutdown(Shutdown::Write).unwrap();
        self
    }

    /// Reads the next response to a request that was not HEAD, informational ones included.
    pub fn response(&mut self) -> Response {
        self.response_to("GET")
    }

    /// Reads the next response to a request with this method.
    pub fn response_to(&mut self, method: &str) -> Response {
        let response = self.any_response_to(method);
        assert!(!response.cut, "the response is cut short: {response:?}");
        response
    }

    /// Reads the next response, whose body may be truncated.
    pub fn any_response_to(&mut self, method: &str) -> Response {
        let mut response = self.head();
        match framing(&response, method) {
            Framing::None => {}
            Framing::Length(length) => {
                response.cut = !self.fill(length);
                let length = length.min(self.received.len());
                response.body = self.received.drain(..length).collect();
            }
            Framing::Chunked => self.chunks(&mut response),
            Framing::UntilClose => {
                response.cut = !self.fill_until_close();
                response.body = std::mem::take(&mut self.received);
            }
        }
        response
    }

    /// Reads only the head of the next response.
    pub fn head(&mut self) -> Response {
        let end = loop {
            if let Some(at) = find(&self.received, b"\r\n\r\n") {
                break at;
            }
            assert!(
                self.more(),
                "closed before a whole response head came: {:?}",
                String::from_utf8_lossy(&self.received)
            );
        };
        let head: Vec<u8> = self.received.drain(..end + 4).collect();
        parse_head(&head[..end])
    }

    /// Reads exactly `count` raw bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        assert!(self.fill(count), "closed after {} of {count} bytes", self.received.len());
        self.received.drain(..count).collect()
    }

    /// Reads the rest of a chunked body, up to its last chunk.
    pub fn rest_of_chunks(&mut self) {
        while !self.received.ends_with(b"\r\n0\r\n\r\n") && self.received != b"0\r\n\r\n" {
            assert!(
                self.more(),
                "closed in the middle of a body: {:?}",
                String::from_utf8_lossy(&self.received)
            );
        }
        self.received.clear();
    }

    /// Reads until the peer closes. A reset counts as a close here.
    pub fn rest(&mut self) -> Vec<u8> {
        self.fill_until_close();
        std::mem::take(&mut self.received)
    }

    /// Asserts that the peer closes the connection without sending anything more.
    pub fn assert_closed(&mut self) {
        let rest = self.rest();
        assert!(rest.is_empty(), "more came: {:?}", String::from_utf8_lossy(&rest));
    }

    /// Asserts that the peer neither sends anything nor closes during `period`.
    pub fn assert_silent(&mut self, period: std::time::Duration) {
        self.stream.set_read_timeout(Some(period)).unwrap();
        let end = self.stream.peek(&mut [0]).map_err(|error| error.kind());
        self.stream.set_read_timeout(Some(DEADLINE)).unwrap();
        assert!(matches!(end, Err(ErrorKind::WouldBlock | ErrorKind::TimedOut)), "{end:?}");
        assert!(self.received.is_empty(), "{:?}", String::from_utf8_lossy(&self.received));
    }

    fn chunks(&mut self, response: &mut Response) {
        loop {
            let Some(line) = self.line() else {
                response.cut = true;
                return;
            };
            let size =
                usize::from_str_radix(&line, 16).unwrap_or_else(|_| panic!("{line:?} is not a chunk size"));
            if size == 0 {
                break;
            }
            response.cut = !self.fill(size + 2);
            let got = size.min(self.received.len());
            response.body.extend(self.received.drain(..got));
            if response.cut {
                return;
            }
            assert_eq!(self.received.drain(..2).collect::<Vec<_>>(), b"\r\n", "a chunk ends with CRLF");
        }
        while let Some(line) = self.line() {
            if line.is_empty() {
                return;
            }
            response.trailers.push(split_field(&line));
        }
        response.cut = true;
    }

    /// Returns the next line without its CRLF; `None` if the connection ends first.
    fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = find(&self.received, b"\r\n") {
                let line = self.received.drain(..end + 2).collect::<Vec<_>>();
                return Some(String::from_utf8(line[..end].to_vec()).unwrap());
            }
            if !self.more() {
                return None;
            }
        }
    }

    /// Reads until `count` bytes are available. Returns `true` if they are.
    fn fill(&mut self, count: usize) -> bool {
        while self.received.len() < count {
            if !self.more() {
                return false;
            }
        }
        true
    }

    /// Reads until the end. Returns `true` if it was a clean one.
    fn fill_until_close(&mut self) -> bool {
        loop {
            match self.read() {
                Ok(0) => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }

    fn more(&mut self) -> bool {
        matches!(self.read(), Ok(1..))
    }

    fn read(&mut self) -> io::Result<usize> {
        let mut piece = [0; 16 << 10];
        loop {
            let read = match &mut self.tls {
                Some(tls) => rustls::Stream::new(&mut **tls, &mut self.stream).read(&mut piece),
                None => self.stream.read(&mut piece),
            };
            match read {
                Ok(count) => {
                    self.received.extend(&piece[..count]);
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    panic!(
                        "nothing came for {DEADLINE:?}; until then: {:?}",
                        String::from_utf8_lossy(&self.received)
                    )
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl std::fmt::Debug for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let start = String::from_utf8_lossy(&self.body[..self.body.len().min(300)]);
        let cut = if self.cut { ", cut short" } else { "" };
        write!(
            f,
            "{} {:?}, {} bytes {start:?}{cut}, {:?}",
            self.status_line,
            self.fields,
            self.body.len(),
            self.trailers
        )
    }
}

impl Response {
    /// Returns the only value of a field, by case-insensitive name.
    pub fn field(&self, name: &str) -> Option<&str> {
        let values = self.values(name);
        assert!(values.len() < 2, "{name} stands {} times in {self:?}", values.len());
        values.first().copied()
    }

    /// Returns all values of a field, in order.
    pub fn values(&self, name: &str) -> Vec<&str> {
        self.fields
            .iter()
            .filter(|field| field.0.eq_ignore_ascii_case(name))
            .map(|field| field.1.as_str())
            .collect()
    }

    /// The content as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The content as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("not JSON: {error}: {self:?}"))
    }

    /// Asserts that this is a provider's response with this status code.
    pub fn assert_forwarded(&self, status: u16) -> &Self {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(
            self.field("x-egret-generated"),
            None,
            "the response is generated by the gateway: {self:?}"
        );
        self
    }

    /// Asserts that the gateway generated this response: this status code and slug, and all signs by which
    /// programs and people recognize it.
    pub fn assert_generated(&self, status: u16, slug: &str) -> &Self {
        assert_eq!(self.status, status, "{self:?} {}", String::from_utf8_lossy(&self.body));
        assert_eq!(self.field("x-egret-generated"), Some("true"), "{self:?}");
        assert_eq!(self.field("x-egret-error"), Some(slug), "{self:?}");
        assert!(self.field("proxy-status").is_some_and(|value| value.contains("error=")), "{self:?}");
        assert_eq!(self.field("content-type"), Some("application/problem+json"), "{self:?}");
        if !self.body.is_empty() {
            assert_eq!(self.json()["status"], status, "{self:?}");
        }
        self
    }
}

fn framing(response: &Response, method: &str) -> Framing {
    if method == "HEAD" || matches!(response.status, 100..=199 | 204 | 304) {
        return Framing::None;
    }
    match (response.field("transfer-encoding"), response.field("content-length")) {
        (Some(_), Some(_)) => panic!("the response has both framings: {response:?}"),
        (Some(coding), None) => {
            assert_eq!(coding, "chunked", "{response:?}");
            Framing::Chunked
        }
        (None, Some(length)) => Framing::Length(length.parse().unwrap()),
        (None, None) => Framing::UntilClose,
    }
}

fn parse_head(head: &[u8]) -> Response {
    let text: String = head.iter().map(|byte| char::from(*byte)).collect();
    let (status_line, fields) = text.split_once("\r\n").unwrap_or((&text, ""));
    let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
    assert!(status_line.starts_with("HTTP/1."), "{status_line:?} is not a status line");
    Response {
        status: status.unwrap_or_else(|| panic!("{status_line:?} is not a status line")),
        status_line: status_line.to_owned(),
        fields: fields.split("\r\n").filter(|line| !line.is_empty()).map(split_field).collect(),
        body: Vec::new(),
        trailers: Vec::new(),
        cut: false,
    }
}

/// Splits a field line into name and value.
pub(crate) fn split_field(line: &str) -> (String, String) {
    assert!(!line.contains(['\r', '\n', '\0']), "{line:?} holds a control byte");
    let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("{line:?} is not a field line"));
    assert!(!name.is_empty() && !name.contains(' '), "{name:?} is not a field name");
    (name.to_owned(), value.trim_matches([' ', '\t']).to_owned())
}

/// Returns the position of `needle` in `haystack`.
pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

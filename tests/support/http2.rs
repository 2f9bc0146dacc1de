//! A client of HTTP/2 that writes its frames one by one, so that it can send what no library would.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

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
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        let mut client = Self { stream };
        client.send(PREFACE);
        client.frame(SETTINGS, 0, 0, &[]);
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

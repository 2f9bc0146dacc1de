//! The handshake with a proxy: CONNECT (RFC 9110 §9.3.6) or SOCKS 5 (RFC 1928, RFC 1929), as a state machine
//! that knows no socket.
//!
//! It never asks for more bytes than the handshake must still have. So the first byte of the tunnel stays
//! where the tunnel's owner reads it, and a proxy cannot put bytes of its own in front of it.

use std::fmt::Write as _;
use std::net::IpAddr;

use data_encoding::BASE64;
use egret_items::opaque;
use egret_message::authority::{Authority, Host};

/// Maximum length of a proxy's response head. A real one has a few hundred bytes.
pub const HEAD_BYTES_MAX: usize = 8 << 10;

/// Maximum length of a user name or password (RFC 1929 §2), and of a name in SOCKS (RFC 1928 §5).
pub const SOCKS_TEXT_BYTES_MAX: usize = 255;

/// The shortest head of a response: a status line without a reason, and an empty line.
const SHORTEST_HEAD: &[u8] = b"HTTP/1.1 200\r\n\r\n";
const HEAD_END: &[u8] = b"\r\n\r\n";
/// Number of bytes up to the end of the status code.
const STATUS_BYTES: usize = 12;

pub(crate) const SOCKS_VERSION: u8 = 5;
pub(crate) const SOCKS_NO_AUTHENTICATION: u8 = 0;
pub(crate) const SOCKS_PASSWORD: u8 = 2;
pub(crate) const SOCKS_NO_METHOD: u8 = 0xff;
pub(crate) const SOCKS_PASSWORD_VERSION: u8 = 1;
pub(crate) const SOCKS_CONNECT: u8 = 1;
pub(crate) const SOCKS_IPV4: u8 = 1;
pub(crate) const SOCKS_NAME: u8 = 3;
pub(crate) const SOCKS_IPV6: u8 = 4;

/// A user name and a password for a proxy. `Debug` shows neither.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user name. For HTTP it has no colon (RFC 7617 §2).
    pub username: String,
    /// The password.
    pub password: String,
}

opaque!(Credentials);

/// The reason why a proxy opens no tunnel. It holds none of the proxy's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The proxy responded with 407 (RFC 9110 §15.5.8).
    #[error("the proxy asks for other credentials (status 407)")]
    HttpCredentials,
    /// The proxy responded with another status than success.
    #[error("the proxy refused with status {0}")]
    HttpStatus(u16),
    /// The SOCKS proxy rejected user name and password, or wants ones and has none.
    #[error("the SOCKS proxy asks for other credentials")]
    SocksCredentials,
    /// The SOCKS proxy refused, with a reply code of RFC 1928 §6.
    #[error("the SOCKS proxy refused with reply {0} ({text})", text = socks_reply(*.0))]
    SocksReply(u8),
    /// The bytes are no response of HTTP.
    #[error("its response is not HTTP/1.1")]
    NotHttp,
    /// The response's head is longer than [`HEAD_BYTES_MAX`].
    #[error("its response head is longer than 8 KiB")]
    HeadTooLong,
    /// The bytes are no response of SOCKS 5.
    #[error("its response is not SOCKS 5")]
    NotSocks,
}

/// Returns the meaning of a reply code (RFC 1928 §6).
fn socks_reply(code: u8) -> &'static str {
    match code {
        1 => "general failure",
        2 => "not allowed by its rules",
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "time to live expired",
        7 => "command not supported",
        8 => "address type not supported",
        _ => "unassigned",
    }
}

/// The next thing to do in a handshake.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Send these bytes.
    Send(Vec<u8>),
    /// Receive at least one byte and at most this many, and pass them to [`Handshake::receive`].
    Receive(usize),
    /// The tunnel is open. All bytes from now on are the tunnel's.
    Done,
}

/// The part of the proxy's answers that is received next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaiting {
    HttpHead,
    SocksMethod,
    SocksPassword,
    SocksReply,
    SocksAddress,
    Nothing,
}

/// A handshake in progress.
#[derive(Debug)]
pub struct Handshake {
    awaiting: Awaiting,
    to_send: Vec<u8>,
    /// The bytes of the current response so far.
    received: Vec<u8>,
    /// SOCKS: the bytes that follow once the method is chosen.
    request: Vec<u8>,
    credentials: Option<Credentials>,
}

impl Handshake {
    /// Begins CONNECT to `target`.
    pub fn connect(target: &Authority, credentials: Option<&Credentials>) -> Self {
        let head = connect_head(target, credentials).into_bytes();
        Self::begin(Awaiting::HttpHead, head, Vec::new(), None)
    }

    /// Begins SOCKS 5 to `target`.
    pub fn socks5(target: &Authority, credentials: Option<&Credentials>) -> Self {
        let greeting = match credentials {
            None => vec![SOCKS_VERSION, 1, SOCKS_NO_AUTHENTICATION],
            Some(_) => vec![SOCKS_VERSION, 2, SOCKS_NO_AUTHENTICATION, SOCKS_PASSWORD],
        };
        Self::begin(Awaiting::SocksMethod, greeting, socks_request(target), credentials.cloned())
    }

    fn begin(
        awaiting: Awaiting,
        to_send: Vec<u8>,
        request: Vec<u8>,
        credentials: Option<Credentials>,
    ) -> Self {
        Self { awaiting, to_send, received: Vec::new(), request, credentials }
    }

    /// Returns what to do next.
    pub fn step(&mut self) -> Step {
        match (self.to_send.is_empty(), self.wanted()) {
            (false, _) => Step::Send(std::mem::take(&mut self.to_send)),
            (true, 0) => Step::Done,
            (true, wanted) => Step::Receive(wanted),
        }
    }

    /// Returns the number of bytes that the handshake has at least still to receive.
    fn wanted(&self) -> usize {
        let received = self.received.len();
        match self.awaiting {
            Awaiting::HttpHead => {
                let end = HEAD_END.len() - matched_end(&self.received);
                SHORTEST_HEAD.len().saturating_sub(received).max(end)
            }
            Awaiting::SocksMethod | Awaiting::SocksPassword => 2 - received,
            // Up to the first byte of the address, which is the length of a name.
            Awaiting::SocksReply => 5 - received,
            Awaiting::SocksAddress => address_bytes(&self.received) - received,
            Awaiting::Nothing => 0,
        }
    }

    /// Takes bytes that were received: not more than [`Step::Receive`] asked for.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), HandshakeError> {
        debug_assert!(bytes.len() <= self.wanted(), "the caller received bytes of the tunnel");
        let before = self.received.len();
        self.received.extend_from_slice(bytes);
        match self.awaiting {
            Awaiting::HttpHead => self.receive_head(before),
            Awaiting::Nothing => Ok(()),
            _ => self.receive_socks(),
        }
    }

    fn receive_head(&mut self, before: usize) -> Result<(), HandshakeError> {
        let head = &*self.received;
        let start = &head[..head.len().min(STATUS_BYTES + 1)];
        check(start, before)?;
        // The status decides without the rest, whose length the proxy chooses.
        if start.len() > STATUS_BYTES {
            match status(start)? {
                200..=299 => {}
                407 => return Err(HandshakeError::HttpCredentials),
                status => return Err(HandshakeError::HttpStatus(status)),
            }
        }
        check(head, before)?;
        if head.ends_with(HEAD_END) {
            self.finish();
        } else if head.len() >= HEAD_BYTES_MAX {
            return Err(HandshakeError::HeadTooLong);
        }
        Ok(())
    }

    fn receive_socks(&mut self) -> Result<(), HandshakeError> {
        let version =
            if self.awaiting == Awaiting::SocksPassword { SOCKS_PASSWORD_VERSION } else { SOCKS_VERSION };
        if self.received.first().is_some_and(|first| *first != version) {
            return Err(HandshakeError::NotSocks);
        }
        let Some(answer) = self.received.get(1).copied() else { return Ok(()) };
        match (self.awaiting, answer) {
            (Awaiting::SocksMethod, SOCKS_NO_METHOD) => return Err(HandshakeError::SocksCredentials),
            (Awaiting::SocksMethod, SOCKS_NO_AUTHENTICATION) | (Awaiting::SocksPassword, 0) => {
                self.send_request();
            }
            (Awaiting::SocksMethod, SOCKS_PASSWORD) => self.send_password()?,
            (Awaiting::SocksMethod, _) => return Err(HandshakeError::NotSocks),
            (Awaiting::SocksPassword, _) => return Err(HandshakeError::SocksCredentials),
            (_, 0) => self.receive_address()?,
            (_, code) => return Err(HandshakeError::SocksReply(code)),
        }
        Ok(())
    }

    fn receive_address(&mut self) -> Result<(), HandshakeError> {
        if self.received.get(2).is_some_and(|reserved| *reserved != 0) {
            return Err(HandshakeError::NotSocks);
        }
        match self.received.get(3) {
            None | Some(&(SOCKS_IPV4 | SOCKS_NAME | SOCKS_IPV6)) => {}
            Some(_) => return Err(HandshakeError::NotSocks),
        }
        if self.received.len() >= 5 {
            self.awaiting = Awaiting::SocksAddress;
        }
        if self.awaiting == Awaiting::SocksAddress && self.wanted() == 0 {
            self.finish();
        }
        Ok(())
    }

    fn send_request(&mut self) {
        self.received.clear();
        self.to_send = std::mem::take(&mut self.request);
        self.awaiting = Awaiting::SocksReply;
    }

    fn send_password(&mut self) -> Result<(), HandshakeError> {
        // A proxy that chooses a method that was not offered.
        let Credentials { username, password } = self.credentials.take().ok_or(HandshakeError::NotSocks)?;
        self.received.clear();
        self.to_send = vec![SOCKS_PASSWORD_VERSION];
        push_text(&mut self.to_send, username.as_bytes());
        push_text(&mut self.to_send, password.as_bytes());
        self.awaiting = Awaiting::SocksPassword;
        Ok(())
    }

    fn finish(&mut self) {
        self.received = Vec::new();
        self.awaiting = Awaiting::Nothing;
    }
}

/// Returns the head of a CONNECT to `target` (RFC 9110 §9.3.6), with these credentials in `Basic` (RFC 7617).
pub fn connect_head(target: &Authority, credentials: Option<&Credentials>) -> String {
    let mut head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
    if let Some(Credentials { username, password }) = credentials {
        let token = BASE64.encode(format!("{username}:{password}").as_bytes());
        let _ = write!(head, "Proxy-Authorization: Basic {token}\r\n");
    }
    head.push_str("\r\n");
    head
}

/// Returns the number of bytes at the end of `head` with which its end may have begun.
fn matched_end(head: &[u8]) -> usize {
    (0..=HEAD_END.len()).rev().find(|count| head.ends_with(&HEAD_END[..*count])).unwrap_or(0)
}

/// Checks the bytes of a head from `before` on: the version, the status, and that every line ends with both
/// CR and LF.
fn check(head: &[u8], before: usize) -> Result<(), HandshakeError> {
    let is_good = |(at, byte): (usize, &u8)| match at {
        0..=6 | 8 => *byte == SHORTEST_HEAD[at],
        7 => matches!(byte, b'0' | b'1'),
        9..STATUS_BYTES => byte.is_ascii_digit(),
        STATUS_BYTES => matches!(byte, b' ' | b'\r'),
        _ if head[at - 1] == b'\r' => *byte == b'\n',
        _ => matches!(byte, b'\r' | b'\t' | b' '..=b'~' | 0x80..),
    };
    if head.iter().enumerate().skip(before).all(is_good) { Ok(()) } else { Err(HandshakeError::NotHttp) }
}

/// Returns the status code of a head that was checked.
fn status(head: &[u8]) -> Result<u16, HandshakeError> {
    let digits = std::str::from_utf8(&head[9..STATUS_BYTES]).map_err(|_| HandshakeError::NotHttp)?;
    digits.parse().map_err(|_| HandshakeError::NotHttp)
}

/// Returns the length of a reply, from its first five bytes (RFC 1928 §6).
fn address_bytes(reply: &[u8]) -> usize {
    let address = match (reply.get(3), reply.get(4)) {
        (Some(&SOCKS_NAME), Some(len)) => 1 + usize::from(*len),
        (Some(&SOCKS_IPV6), _) => 16,
        _ => 4,
    };
    4 + address + 2
}

fn socks_request(target: &Authority) -> Vec<u8> {
    let mut request = vec![SOCKS_VERSION, SOCKS_CONNECT, 0];
    match &target.host {
        Host::Ip(IpAddr::V4(ip)) => {
            request.push(SOCKS_IPV4);
            request.extend_from_slice(&ip.octets());
        }
        Host::Ip(IpAddr::V6(ip)) => {
            request.push(SOCKS_IPV6);
            request.extend_from_slice(&ip.octets());
        }
        Host::Name(name) => {
            request.push(SOCKS_NAME);
            push_text(&mut request, name.as_bytes());
        }
    }
    request.extend_from_slice(&target.port.to_be_bytes());
    request
}

/// Appends a text with its length. Names have at most 253 bytes, and longer credentials are refused with the
/// config.
fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    let text = &text[..text.len().min(SOCKS_TEXT_BYTES_MAX)];
    out.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
    out.extend_from_slice(text);
}

#[cfg(test)]
mod tests;

//! A ZeroMQ PUSH socket: ZMTP 3.1 with the NULL mechanism over TCP.
//!
//! It is implemented here to confirm delivery. Libraries queue messages without a limit in bytes, and drop
//! them when the connection ends. Here a batch counts as sent when the peer has answered a PING that follows
//! it, so it has read the whole batch.

use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufWriter};
use tokio::net::TcpStream;

/// Signature, version 3.1, mechanism NULL, not a server, filler.
const GREETING_BYTES: usize = 64;
/// First version whose peers respond to PING.
const PING_SINCE: (u8, u8) = (3, 1);
/// Maximum length of a received frame. A PULL socket only sends commands, which are short.
const FRAME_BYTES_MAX: u64 = 4_096;
/// Maximum number of other frames skipped while waiting for a PONG.
const FRAMES_MAX: usize = 64;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// A text is not the address of a ZeroMQ socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a socket address: expected `tcp://host:port`")]
pub struct AddressError;

/// Returns the `host:port` of `tcp://host:port`.
pub fn socket_address(text: &str) -> Result<&str, AddressError> {
    let address = text.strip_prefix("tcp://").filter(|address| {
        let (host, port) = address.rsplit_once(':').unwrap_or_default();
        let is_plain = |byte: u8| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'[' | b']')
        };
        !host.is_empty() && host.bytes().all(is_plain) && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    address.ok_or(AddressError)
}

/// A connection to a PULL socket.
#[derive(Debug)]
pub struct Push {
    stream: BufWriter<TcpStream>,
    /// `true` if the peer's version responds to PING.
    confirms: bool,
    pings: u64,
}

impl Push {
    /// Connects and performs the handshake. The caller sets a time limit.
    pub async fn connect(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut push = Self { stream: BufWriter::with_capacity(64 << 10, stream), confirms: false, pings: 0 };
        push.shake_hands().await?;
        Ok(push)
    }

    async fn shake_hands(&mut self) -> io::Result<()> {
        self.stream.write_all(&greeting()).await?;
        self.stream.flush().await?;
        let mut theirs = [0; GREETING_BYTES];
        self.stream.read_exact(&mut theirs).await?;
        let (signature, rest) = theirs.split_at(10);
        if signature[0] != 0xff || signature[9] != 0x7f || rest[0] < 3 {
            return Err(refused("the peer does not speak ZMTP 3"));
        }
        if &rest[2..22] != b"NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0" {
            return Err(refused("the peer requires a mechanism other than NULL"));
        }
        self.confirms = (rest[0], rest[1]) >= PING_SINCE;
        self.write_frame(COMMAND, &[b"\x05READY\x0bSocket-Type\0\0\0\x04PUSH"]).await?;
        self.stream.flush().await?;
        let (flags, ready) = self.read_frame().await?;
        if flags & COMMAND == 0 || !ready.starts_with(b"\x05READY") {
            return Err(refused("the peer does not accept the connection"));
        }
        if socket_type(&ready[6..]) != Some(b"PULL") {
            return Err(refused("the peer is not a PULL socket"));
        }
        Ok(())
    }

    /// Sends messages of one frame each; the two parts of an item form one message. Returns when the peer has
    /// read them or, with an older version, when the system has accepted them. The caller sets a time limit,
    /// and drops the connection after an error.
    pub async fn send<'a>(&mut self, messages: impl Iterator<Item = [&'a [u8]; 2]>) -> io::Result<()> {
        for parts in messages {
            self.write_frame(0, &parts).await?;
        }
        if !self.confirms {
            return self.stream.flush().await;
        }
        self.pings += 1;
        let context = self.pings.to_be_bytes();
        self.write_frame(COMMAND, &[b"\x04PING\0\0", &context]).await?;
        self.stream.flush().await?;
        for _ in 0..FRAMES_MAX {
            let (flags, frame) = self.read_frame().await?;
            if flags & COMMAND == 0 {
                continue;
            }
            if frame.strip_prefix(b"\x04PONG") == Some(&context) {
                return Ok(());
            }
            // A PING of the peer has a time to live, which is ignored, and a context, which is sent back.
            if let Some(theirs) = frame.strip_prefix(b"\x04PING").and_then(|ping| ping.get(2..)) {
                let theirs = theirs.to_vec();
                self.write_frame(COMMAND, &[b"\x04PONG", &theirs]).await?;
                self.stream.flush().await?;
            }
        }
        Err(refused("the peer sent other frames instead of answering a PING"))
    }

    async fn write_frame(&mut self, flags: u8, parts: &[&[u8]]) -> io::Result<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if let Ok(short) = u8::try_from(length) {
            self.stream.write_all(&[flags, short]).await?;
        } else {
            self.stream.write_all(&[flags | LONG]).await?;
            self.stream.write_all(&(length as u64).to_be_bytes()).await?;
        }
        for part in parts {
            self.stream.write_all(part).await?;
        }
        Ok(())
    }

    async fn read_frame(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let flags = self.stream.read_u8().await?;
        if flags & !(MORE | LONG | COMMAND) != 0 {
            return Err(refused("the peer sent an invalid frame"));
        }
        let length = if flags & LONG == 0 {
            u64::from(self.stream.read_u8().await?)
        } else {
            self.stream.read_u64().await?
        };
        if length > FRAME_BYTES_MAX {
            return Err(refused("the peer sent a frame that is too long"));
        }
        let mut frame = vec![0; usize::try_from(length).unwrap_or_default()];
        self.stream.read_exact(&mut frame).await?;
        Ok((flags, frame))
    }
}

fn greeting() -> [u8; GREETING_BYTES] {
    let mut greeting = [0; GREETING_BYTES];
    greeting[0] = 0xff;
    greeting[9] = 0x7f;
    [greeting[10], greeting[11]] = [PING_SINCE.0, PING_SINCE.1];
    greeting[12..16].copy_from_slice(b"NULL");
    greeting
}

fn refused(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Finds the peer's socket type among its properties. Each property is a name after its length in 8 bits, and
/// a value after its length in 32 bits.
fn socket_type(mut properties: &[u8]) -> Option<&[u8]> {
    while let [length, rest @ ..] = properties {
        let (name, rest) = rest.split_at_checked(usize::from(*length))?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (value, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        if name.eq_ignore_ascii_case(b"Socket-Type") {
            return Some(value);
        }
        properties = rest;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_socket_s_type_is_found_among_its_properties() {
        assert_eq!(socket_type(b"\x08Identity\0\0\0\0\x0bSocket-Type\0\0\0\x04PULL"), Some(&b"PULL"[..]));
        assert_eq!(socket_type(b"\x0bsocket-type\0\0\0\x03PUB"), Some(&b"PUB"[..]));
        assert_eq!(socket_type(b"\x0bSocket-Type\0\0\0\x09PULL"), None);
        assert_eq!(socket_type(b""), None);
    }

    proptest! {
        #[test]
        fn no_properties_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = socket_type(&bytes);
        }
    }

    #[test]
    fn an_address_is_a_host_and_a_port() {
        assert_eq!(socket_address("tcp://collector.example:5500"), Ok("collector.example:5500"));
        assert_eq!(socket_address("tcp://[::1]:5500"), Ok("[::1]:5500"));
        for wrong in [
            "collector:5500",
            "tcp://:5500",
            "tcp://a",
            "tcp://a:0",
            "ipc://x",
            "tcp://u@a:1",
            "tcp://a:99999",
        ] {
            assert!(socket_address(wrong).is_err(), "{wrong}");
        }
    }
}

//! The first bytes of a connection inside a tunnel: what they begin, and the `ClientHello` if that is TLS.
//!
//! Nothing here does I/O. The caller keeps what it has received, so the bytes can still be relayed unchanged
//! once it is known what they are.

use std::sync::Arc;

use egret_items::opaque;
use rustls::server::{Accepted, AcceptedAlert, Acceptor};
use rustls::{AlertDescription, ServerConfig, ServerConnection};

use super::TlsError;

/// Maximum size of a `ClientHello` with its record headers. With a post-quantum key share it has about
/// 1.7 KiB.
pub const HELLO_BYTES_MAX: usize = 16 << 10;
/// Maximum length of a method. The longest that IANA lists has 17 letters.
const METHOD_BYTES_MAX: usize = 24;
/// The first byte of a TLS record that carries a handshake message (RFC 8446 §5.1).
const HANDSHAKE_RECORD: u8 = 0x16;
/// The start of the client's preface of HTTP/2 (RFC 9113 §3.4). No method of HTTP/1 has this name.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";

/// The protocol that a client has begun to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// A TLS record with a handshake message.
    Tls,
    /// A request of HTTP/1.
    Http,
    /// HTTP/2 without TLS.
    Http2,
    /// Anything else.
    Other,
}

impl Opening {
    /// Returns the protocol that `bytes`, the first ones of a connection, begin. `None` if more bytes are
    /// needed, of at most 33.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        match bytes.first()? {
            &HANDSHAKE_RECORD => return Some(Self::Tls),
            byte if !is_of_method(*byte) => return Some(Self::Other),
            _ => {}
        }
        let common = bytes.len().min(HTTP2_PREFACE.len());
        if bytes[..common] == HTTP2_PREFACE[..common] {
            return (bytes.len() >= HTTP2_PREFACE.len()).then_some(Self::Http2);
        }
        let method = bytes.iter().take_while(|byte| is_of_method(**byte)).count();
        if method > METHOD_BYTES_MAX {
            return Some(Self::Other);
        }
        match bytes[method..].split_first() {
            None | Some((b' ', [])) => None,
            Some((b' ', target)) => Self::of_target(&bytes[..method], target),
            Some(_) => Some(Self::Other),
        }
    }

    /// Decides by the start of a request's target (RFC 9112 §3.2). Other protocols have commands in capital
    /// letters too, such as `HELO name`.
    fn of_target(method: &[u8], target: &[u8]) -> Option<Self> {
        let schemes: [&[u8]; 2] = [b"http://", b"https://"];
        let begins = |scheme: &[u8]| {
            let common = target.len().min(scheme.len());
            target[..common].eq_ignore_ascii_case(&scheme[..common])
        };
        if method == b"CONNECT" || matches!(target.first(), Some(b'/' | b'*')) {
            return Some(Self::Http);
        }
        match schemes.iter().find(|scheme| begins(scheme)) {
            Some(scheme) if target.len() >= scheme.len() => Some(Self::Http),
            // More bytes may still make it one of them.
            Some(_) => None,
            None => Some(Self::Other),
        }
    }
}

/// Returns `true` for the bytes that names of methods consist of in practice. The grammar allows more.
fn is_of_method(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte == b'-'
}

/// The reason why there is no `ClientHello`, with the alert to send.
#[derive(Debug)]
pub struct HelloError {
    /// The reason.
    pub error: TlsError,
    /// The alert's record. May be empty.
    pub alert: Vec<u8>,
}

/// Reads a `ClientHello`, which may arrive in pieces.
#[derive(Default)]
pub struct HelloReader {
    acceptor: Acceptor,
    /// Number of bytes that the acceptor has taken.
    taken: usize,
}

opaque!(HelloReader { taken });

impl HelloReader {
    /// Reads on in `received`, all bytes of the connection so far. Returns `None` if the `ClientHello` is not
    /// complete. After an error or a `ClientHello`, do not call it again.
    pub fn read(&mut self, received: &[u8]) -> Result<Option<Hello>, HelloError> {
        let mut rest = received.get(self.taken..).unwrap_or_default();
        while !rest.is_empty() {
            let before = rest.len();
            let read = self.acceptor.read_tls(&mut rest);
            read.map_err(|error| HelloError { error: TlsError::Io(error.kind()), alert: Vec::new() })?;
            self.taken += before - rest.len();
            match self.acceptor.accept() {
                Ok(Some(accepted)) => return Ok(Some(Hello { accepted, taken: self.taken })),
                Ok(None) if self.taken >= HELLO_BYTES_MAX => return Err(HelloError::too_large()),
                Ok(None) => {}
                Err(refused) => return Err(refused.into()),
            }
        }
        Ok(None)
    }
}

impl HelloError {
    fn too_large() -> Self {
        Self { error: TlsError::Protocol, alert: alert(AlertDescription::DecodeError).to_vec() }
    }
}

impl From<(rustls::Error, AcceptedAlert)> for HelloError {
    fn from((error, mut alert): (rustls::Error, AcceptedAlert)) -> Self {
        let mut record = Vec::new();
        // Writing to memory does not fail.
        let _ = alert.write_all(&mut record);
        Self { error: error.into(), alert: record }
    }
}

/// A complete `ClientHello`.
pub struct Hello {
    accepted: Accepted,
    /// Number of bytes that were read for it. Those behind it belong to the client's next message.
    taken: usize,
}

opaque!(Hello { taken });

impl Hello {
    /// Returns the name that the client wants to reach (SNI, RFC 6066 §3), as the client wrote it. `None` if
    /// it names none, or an address.
    pub fn server_name(&self) -> Option<String> {
        self.accepted.client_hello().server_name().map(str::to_owned)
    }

    /// Returns `true` if the client names `protocol` (ALPN, RFC 7301), or no protocol at all.
    pub fn accepts(&self, protocol: &[u8]) -> bool {
        let hello = self.accepted.client_hello();
        hello.alpn().is_none_or(|mut offered| offered.any(|offer| offer == protocol))
    }

    /// Begins the handshake with `config`. `received` holds all bytes of the connection so far.
    pub(super) fn into_connection(
        self,
        config: Arc<ServerConfig>,
        received: &[u8],
    ) -> Result<ServerConnection, HelloError> {
        let Self { accepted, taken } = self;
        let mut connection = accepted.into_connection(config)?;
        let mut rest = received.get(taken..).unwrap_or_default();
        while !rest.is_empty() {
            // What the library refuses here, it refuses again when it reads on.
            if connection.read_tls(&mut rest).is_err() || connection.process_new_packets().is_err() {
                break;
            }
        }
        Ok(connection)
    }
}

/// Returns the record of a fatal alert that is sent before there are keys (RFC 8446 §6).
pub fn alert(description: AlertDescription) -> [u8; 7] {
    [0x15, 3, 3, 0, 2, 2, description.into()]
}

/// The alert for a client that asks for another name than the one of its tunnel.
pub fn unrecognized_name() -> [u8; 7] {
    alert(AlertDescription::UnrecognisedName)
}

/// The alert for a client that must not reach the host that it asks for.
pub fn access_denied() -> [u8; 7] {
    alert(AlertDescription::AccessDenied)
}

/// The alert for a client that offers no protocol that is spoken here.
pub fn no_application_protocol() -> [u8; 7] {
    alert(AlertDescription::NoApplicationProtocol)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustls::ClientConnection;
    use rustls::pki_types::ServerName;
    use rustls::version::{TLS12, TLS13};

    use super::super::{Verification, client_config, provider};
    use super::*;

    /// More bytes are never needed to tell what a connection begins.
    const OPENING_BYTES_MAX: usize = METHOD_BYTES_MAX + 1 + "https://".len();

    /// Returns the first bytes that a client of `name` sends.
    fn hello(name: &str, alpn: &[&str]) -> Vec<u8> {
        let versions = [&TLS13, &TLS12];
        let mut config = client_config(provider(), &versions, Verification::Off, None).unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_first_bytes_tell_what_a_connection_begins() {
        for (bytes, expected) in [
            (&b"\x16"[..], Some(Opening::Tls)),
            (b"", None),
            (b"G", None),
            (b"GET ", None),
            (b"GET /", Some(Opening::Http)),
            (b"OPTIONS *", Some(Opening::Http)),
            (b"PROPFIND /a HTTP/1.1", Some(Opening::Http)),
            (b"M-SEARCH *", Some(Opening::Http)),
            (b"GET h", None),
            (b"GET HTTPS:/", None),
            (b"GET HTTP://", Some(Opening::Http)),
            (b"CONNECT a", Some(Opening::Http)),
            (b"P", None),
            (b"PRI * HTTP/2.0\r", None),
            (b"PRI * HTTP/2.0\r\n", Some(Opening::Http2)),
            (b"PRI * HTTP/1.1\r\n", Some(Opening::Http)),
            (b"POST /", Some(Opening::Http)),
            // A hello of SSL 2.
            (b"\x80\x2e\x01\x03\x01", Some(Opening::Other)),
            (b"SSH-2.0-x", Some(Opening::Other)),
            (b"HELO me.example", Some(Opening::Other)),
            (b"*1\r\n$4\r\nPING", Some(Opening::Other)),
            (b"get /", Some(Opening::Other)),
            (b"AAAAAAAAAAAAAAAAAAAAAAAAA", Some(Opening::Other)),
            (b"\0", Some(Opening::Other)),
        ] {
            assert_eq!(Opening::of(bytes), expected, "{}", bytes.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn more_bytes_never_change_what_a_connection_begins(
            begin in r"(GET|PRI|HELO|M-SEARCH|[A-Z-]{0,30}|\PC{0,3})( |  )?(https?://|HTTPS:|\*|/|h|)( HTTP/2.0\r\n)?",
            rest in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let whole = [begin.as_bytes(), &rest].concat();
            let seen: Vec<_> = (0..=whole.len()).filter_map(|end| Opening::of(&whole[..end])).collect();
            prop_assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "{:?}", seen);
            prop_assert!(whole.len() <= OPENING_BYTES_MAX || !seen.is_empty());
        }

        #[test]
        fn whatever_arrives_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400), at in 0_usize..300) {
            let mut sent = hello("api.example", &["http/1.1"]);
            let at = at.min(sent.len());
            sent.splice(at..at, bytes);
            let mut reader = HelloReader::default();
            let mut ends = (0..sent.len()).step_by(37).chain([sent.len()]);
            // The first outcome ends the reading.
            if let Some(Err(refused)) = ends.find_map(|end| reader.read(&sent[..end]).transpose()) {
                prop_assert!(refused.alert.first().is_none_or(|record| *record == 0x15), "{:?}", refused);
            }
        }
    }

    #[test]
    fn a_hello_may_arrive_byte_by_byte() {
        let bytes = hello("api.example", &["h2", "http/1.1"]);
        let mut reader = HelloReader::default();
        for end in 0..bytes.len() {
            assert!(reader.read(&bytes[..end]).unwrap().is_none(), "{end}");
        }
        let hello = reader.read(&bytes).unwrap().unwrap();
        assert_eq!(hello.server_name().as_deref(), Some("api.example"));
        assert!(hello.accepts(b"http/1.1") && hello.accepts(b"h2") && !hello.accepts(b"acme-tls/1"));
    }

    #[test]
    fn a_hello_need_not_name_a_host_or_a_protocol() {
        let mut reader = HelloReader::default();
        let hello = reader.read(&hello("192.0.2.1", &[])).unwrap().unwrap();
        assert_eq!(hello.server_name(), None);
        assert!(hello.accepts(b"http/1.1"));
    }

    #[test]
    fn a_hello_is_bounded() {
        // A handshake message of 60,000 bytes, in records of 1 KiB.
        let mut bytes = Vec::new();
        for number in 0..17 {
            bytes.extend([0x16, 3, 1, 4, 0]);
            let mut piece = vec![0; 1024];
            if number == 0 {
                piece[..4].copy_from_slice(&[1, 0, 0xea, 0x60]);
            }
            bytes.extend(piece);
        }
        let mut reader = HelloReader::default();
        let refused = (0..=bytes.len()).step_by(100).find_map(|end| reader.read(&bytes[..end]).err());
        assert_eq!(refused.unwrap().alert, alert(AlertDescription::DecodeError));
    }

    #[test]
    fn a_malformed_hello_is_refused_with_an_alert() {
        for bytes in [
            &b"\x16\x03\x01\x00\x04\x02\x00\x00\x00"[..],
            b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
            b"\x16GET / HTTP/1.1\r\n\r\n",
        ] {
            let refused = HelloReader::default().read(bytes).unwrap_err();
            assert_eq!(refused.alert.first(), Some(&0x15), "{refused:?}");
        }
    }
}

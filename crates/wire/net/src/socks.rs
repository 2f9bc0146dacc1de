//! The handshake of SOCKS 5 (RFC 1928, RFC 1929) with a client, read from the bytes that it has sent so far.
//! It knows no socket.
//!
//! These hold at all times:
//!
//! - Bytes that a handshake takes ≤ `SOCKS_BYTES_MAX`, each length of which is one byte.
//! - The same bytes have the same outcome and the same answers, however they were cut.

use egret_message::authority::{Authority, AuthorityError, Host};

use crate::proxy::handshake::{
    Credentials, SOCKS_CONNECT, SOCKS_IPV4, SOCKS_IPV6, SOCKS_NAME, SOCKS_NO_AUTHENTICATION, SOCKS_NO_METHOD,
    SOCKS_PASSWORD, SOCKS_PASSWORD_VERSION, SOCKS_TEXT_BYTES_MAX, SOCKS_VERSION,
};

/// Maximum length of a handshake, in bytes: the methods, the user name and the password, and a name with its
/// port.
pub const SOCKS_BYTES_MAX: usize =
    (2 + SOCKS_TEXT_BYTES_MAX) + (3 + 2 * SOCKS_TEXT_BYTES_MAX) + (5 + SOCKS_TEXT_BYTES_MAX + 2);

/// A request for a tunnel, and the bytes that it took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocksRequest {
    /// The destination.
    pub target: Authority,
    /// The user name and the password, if the client was asked for them.
    pub credentials: Option<Credentials>,
    /// Length of the handshake. All bytes behind it are the tunnel's.
    pub len: usize,
}

/// The outcome that a reply tells (RFC 1928 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocksReply {
    /// The tunnel is open.
    Succeeded = 0,
    /// A failure without a code of its own.
    Failed = 1,
    /// A rule forbids the tunnel.
    NotAllowed = 2,
    /// The host has no address, or does not respond.
    HostUnreachable = 4,
    /// The host refuses the connection.
    ConnectionRefused = 5,
    /// The command is not CONNECT.
    CommandNotSupported = 7,
    /// The kind of the address is unknown.
    AddressNotSupported = 8,
}

/// The reason why a handshake is refused. It holds none of the client's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SocksError {
    /// The first byte is not the version. Perhaps the client speaks HTTP.
    #[error(
        "this listener speaks SOCKS 5 alone: write the proxy's URL with `socks5h://`, or use another listener"
    )]
    NotSocks,
    /// The client offers no user name and password, which it was to be asked for.
    #[error(
        "this listener serves only clients that prove who they are: send your token as the proxy's password, as in \
         `socks5h://NAME:TOKEN@host:port`"
    )]
    NoCredentials,
    /// The client offers only methods of authentication, and is not to be asked for any.
    #[error("the client insists on a method of authentication that this listener does not have")]
    NoMethod,
    /// The user name and the password break a rule of RFC 1929, or the name has a colon (RFC 7617 §2).
    #[error("the user name or the password is malformed")]
    Credentials,
    /// The request breaks a rule of RFC 1928 §4.
    #[error("the request of SOCKS 5 is malformed")]
    Request,
    /// The command is not CONNECT.
    #[error("SOCKS 5 is served with CONNECT alone, without BIND and UDP ASSOCIATE")]
    Command,
    /// The kind of the address is neither IPv4, IPv6 nor a name.
    #[error("the kind of the address is unknown")]
    AddressKind,
    /// The destination is invalid.
    #[error("invalid host: {0}")]
    Target(AuthorityError),
}

impl SocksError {
    /// Returns the outcome to tell the client.
    pub fn reply(self) -> SocksReply {
        match self {
            Self::Command => SocksReply::CommandNotSupported,
            Self::AddressKind => SocksReply::AddressNotSupported,
            _ => SocksReply::Failed,
        }
    }
}

/// The part of the handshake that the client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Methods,
    Password,
    Request,
}

/// A handshake in progress.
#[derive(Debug)]
pub struct SocksHandshake {
    asks: bool,
    part: Part,
    /// Length of the answers that were returned.
    answered: usize,
}

impl SocksHandshake {
    /// Begins a handshake. The client must send a user name and a password if `asks`.
    pub fn new(asks: bool) -> Self {
        Self { asks, part: Part::Methods, answered: 0 }
    }

    /// Reads all bytes that the client has sent so far. Returns `None` while the request is incomplete.
    pub fn read(&mut self, bytes: &[u8]) -> Result<Option<SocksRequest>, SocksError> {
        let mut rest = Rest(bytes);
        match self.parse(&mut rest) {
            Ok((target, credentials)) => {
                Ok(Some(SocksRequest { target, credentials, len: bytes.len() - rest.0.len() }))
            }
            Err(Unread::Incomplete) => Ok(None),
            Err(Unread::Refused(error)) => Err(error),
        }
    }

    /// Returns the answers to what was read. Each is returned once.
    pub fn answers(&mut self) -> &'static [u8] {
        let all: &[u8] = match (self.part, self.asks) {
            (Part::Methods, _) => &[],
            (Part::Password, _) => &[SOCKS_VERSION, SOCKS_PASSWORD],
            // The user name and the password are judged together with the request.
            (Part::Request, true) => &[SOCKS_VERSION, SOCKS_PASSWORD, SOCKS_PASSWORD_VERSION, 0],
            (Part::Request, false) => &[SOCKS_VERSION, SOCKS_NO_AUTHENTICATION],
        };
        let new = all.get(self.answered..).unwrap_or_default();
        self.answered = all.len();
        new
    }

    /// Returns the bytes that end the handshake with `reply`. Before the client's request they refuse what it
    /// has sent, whatever the reply.
    pub fn end(&self, reply: SocksReply) -> Vec<u8> {
        match self.part {
            Part::Methods => vec![SOCKS_VERSION, SOCKS_NO_METHOD],
            Part::Password => vec![SOCKS_PASSWORD_VERSION, 1],
            // The address of the tunnel's other end is not told.
            Part::Request => vec![SOCKS_VERSION, reply as u8, 0, SOCKS_IPV4, 0, 0, 0, 0, 0, 0],
        }
    }

    fn parse(&mut self, rest: &mut Rest<'_>) -> Result<(Authority, Option<Credentials>), Unread> {
        let [version] = rest.take()?;
        if version != SOCKS_VERSION {
            return Err(SocksError::NotSocks.into());
        }
        let methods = rest.text()?;
        if !self.asks {
            if !methods.contains(&SOCKS_NO_AUTHENTICATION) {
                return Err(SocksError::NoMethod.into());
            }
            self.part = Part::Request;
            return Ok((target(rest)?, None));
        }
        if !methods.contains(&SOCKS_PASSWORD) {
            return Err(SocksError::NoCredentials.into());
        }
        self.part = Part::Password;
        let credentials = credentials(rest)?;
        self.part = Part::Request;
        Ok((target(rest)?, Some(credentials)))
    }
}

/// The reason why there is no request.
enum Unread {
    Incomplete,
    Refused(SocksError),
}

impl From<SocksError> for Unread {
    fn from(error: SocksError) -> Self {
        Self::Refused(error)
    }
}

/// The bytes that have not been read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    /// Takes this number of bytes.
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Unread> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Unread::Incomplete)?;
        self.0 = rest;
        Ok(*taken)
    }

    /// Takes a text with its length before it.
    fn text(&mut self) -> Result<&'a [u8], Unread> {
        let [len] = self.take()?;
        let (text, rest) = self.0.split_at_checked(len.into()).ok_or(Unread::Incomplete)?;
        self.0 = rest;
        Ok(text)
    }
}

/// Reads a user name and a password (RFC 1929 §2).
fn credentials(rest: &mut Rest<'_>) -> Result<Credentials, Unread> {
    let [version] = rest.take()?;
    if version != SOCKS_PASSWORD_VERSION {
        return Err(SocksError::Credentials.into());
    }
    let texts = [rest.text()?, rest.text()?].map(|text| String::from_utf8(text.to_vec()));
    match texts {
        [Ok(username), Ok(password)] if !username.contains(':') => Ok(Credentials { username, password }),
        _ => Err(SocksError::Credentials.into()),
    }
}

/// Reads a request (RFC 1928 §4).
fn target(rest: &mut Rest<'_>) -> Result<Authority, Unread> {
    let [version, command, reserved, kind] = rest.take()?;
    if (version, reserved) != (SOCKS_VERSION, 0) {
        return Err(SocksError::Request.into());
    }
    if command != SOCKS_CONNECT {
        return Err(SocksError::Command.into());
    }
    let host = match kind {
        SOCKS_IPV4 => Host::Ip(rest.take::<4>()?.into()),
        SOCKS_IPV6 => Host::Ip(rest.take::<16>()?.into()),
        SOCKS_NAME => Host::parse(rest.text()?).map_err(SocksError::Target)?,
        _ => return Err(SocksError::AddressKind.into()),
    };
    match u16::from_be_bytes(rest.take()?) {
        0 => Err(SocksError::Target(AuthorityError::Port).into()),
        port => Ok(Authority { host, port }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request of CONNECT to a name.
    fn named(name: &[u8], port: u16) -> Vec<u8> {
        let len = u8::try_from(name.len()).unwrap();
        [&[5, 1, 0, 3, len][..], name, &port.to_be_bytes()].concat()
    }

    fn read(asks: bool, bytes: &[u8]) -> Result<Option<SocksRequest>, SocksError> {
        SocksHandshake::new(asks).read(bytes)
    }

    fn target_of(request: &[u8]) -> Result<String, SocksError> {
        let bytes = [&[5, 1, 0][..], request].concat();
        read(false, &bytes).map(|request| request.unwrap().target.to_string())
    }

    #[test]
    fn a_destination_is_a_name_or_an_address() {
        let v6 = [&[5, 1, 0, 4][..], &[0; 15], &[1, 0, 80]].concat();
        let mapped = [&[5, 1, 0, 4][..], &[0; 10], &[0xff, 0xff, 10, 1, 2, 3, 0, 80]].concat();
        for (request, expected) in [
            (named(b"api.example.com", 443), Ok("api.example.com:443")),
            (named(b"API.Example.com.", 443), Ok("api.example.com:443")),
            (named(b"127.0.0.1", 80), Ok("127.0.0.1:80")),
            (named(b"[::1]", 80), Ok("[::1]:80")),
            (vec![5, 1, 0, 1, 192, 0, 2, 1, 0x1f, 0x90], Ok("192.0.2.1:8080")),
            (v6, Ok("[::1]:80")),
            (mapped, Ok("[::ffff:10.1.2.3]:80")),
            (named(b"127.1", 80), Err(SocksError::Target(AuthorityError::Ipv4))),
            (named(b"a\r\nX: y", 80), Err(SocksError::Target(AuthorityError::Byte))),
            (named(b"a\0.example", 80), Err(SocksError::Target(AuthorityError::Byte))),
            (named(b"user@a", 80), Err(SocksError::Target(AuthorityError::Byte))),
            (named(b"a:80", 80), Err(SocksError::Target(AuthorityError::Byte))),
            (named(b"", 80), Err(SocksError::Target(AuthorityError::Empty))),
            (named(&[b'a'; 255], 80), Err(SocksError::Target(AuthorityError::Length))),
            (named(b"a", 0), Err(SocksError::Target(AuthorityError::Port))),
            (vec![5, 2, 0, 1, 192, 0, 2, 1, 0, 80], Err(SocksError::Command)),
            (vec![5, 3, 0, 1, 0, 0, 0, 0, 0, 0], Err(SocksError::Command)),
            (vec![5, 1, 0, 2, 0, 0], Err(SocksError::AddressKind)),
            (vec![5, 1, 1, 1], Err(SocksError::Request)),
            (vec![4, 1, 0, 1], Err(SocksError::Request)),
        ] {
            assert_eq!(target_of(&request), expected.map(str::to_owned), "{request:?}");
        }
    }

    #[test]
    fn the_method_depends_on_the_need_for_a_proof() {
        for (asks, methods, expected) in [
            (false, &[5, 1, 0][..], Ok(&[5, 0][..])),
            (false, &[5, 3, 1, 2, 0], Ok(&[5, 0])),
            (false, &[5, 1, 2], Err(SocksError::NoMethod)),
            (false, &[5, 0], Err(SocksError::NoMethod)),
            (true, &[5, 2, 0, 2], Ok(&[5, 2])),
            (true, &[5, 2, 0, 1], Err(SocksError::NoCredentials)),
            (true, &[4, 1], Err(SocksError::NotSocks)),
            (false, b"GET / HTTP/1.1\r\n", Err(SocksError::NotSocks)),
        ] {
            let mut handshake = SocksHandshake::new(asks);
            let answers = handshake.read(methods).map(|request| {
                assert_eq!(request, None);
                handshake.answers()
            });
            assert_eq!(answers, expected, "{methods:?}");
            if expected.is_err() {
                assert_eq!(handshake.answers(), b"");
                assert_eq!(handshake.end(SocksReply::Failed), [5, 0xff]);
            }
        }
    }

    #[test]
    fn a_password_is_taken_before_the_request_and_shows_nowhere() {
        let (methods, password) = (&[5, 1, 2][..], &b"\x01\x08checkout\x05token"[..]);
        let bytes = [methods, password, &named(b"a.example", 443), b"tunnel"].concat();
        let mut handshake = SocksHandshake::new(true);
        let request = handshake.read(&bytes).unwrap().unwrap();
        assert_eq!(handshake.answers(), [5, 2, 1, 0]);
        assert_eq!(handshake.answers(), b"");
        assert_eq!(handshake.end(SocksReply::NotAllowed), [5, 2, 0, 1, 0, 0, 0, 0, 0, 0]);
        let expected = Credentials { username: "checkout".to_owned(), password: "token".to_owned() };
        assert_eq!((request.credentials.as_ref(), request.len), (Some(&expected), bytes.len() - 6));
        assert!(!format!("{request:?}").contains("token"));
        for password in [&b"\x05\x01a\x01b"[..], b"\x01\x03a:b\x01c", b"\x01\x01\xff\x01c"] {
            let mut handshake = SocksHandshake::new(true);
            let refused = handshake.read(&[methods, password].concat());
            assert_eq!(refused, Err(SocksError::Credentials), "{password:?}");
            assert_eq!(handshake.answers(), [5, 2]);
            assert_eq!(handshake.end(SocksReply::Failed), [1, 1]);
        }
    }

    #[test]
    fn the_longest_handshake_stays_within_the_bound() {
        let (text, name) = ([b'a'; 255], b"a.".repeat(127));
        let methods = [&[5, 255][..], &[2; 255]].concat();
        let password = [&[1, 255][..], &text, &[255], &text].concat();
        let begin = [methods, password].concat();
        // A name has at most 254 bytes, with its trailing dot.
        let longest = [&begin[..], &named(&name, 80)].concat();
        assert_eq!(longest.len(), SOCKS_BYTES_MAX - 1);
        assert_eq!(read(true, &longest[..longest.len() - 1]), Ok(None));
        let request = read(true, &longest).unwrap().unwrap();
        assert_eq!(request.len, longest.len());
        let longer = read(true, &[&begin[..], &named(&text, 80)].concat());
        assert_eq!(longer, Err(SocksError::Target(AuthorityError::Length)));
    }
}

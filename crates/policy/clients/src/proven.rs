//! A name that a client has proven.

use std::sync::Arc;

use egret_clock::Timestamp;
use egret_items::opaque;

use crate::jwk::KeyDigest;
use crate::jwt_config::JwtConfig;
use crate::tokens::Digest;

/// Maximum length of a name that is not from the config, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// The name that a client has proven, and how.
pub struct Proven {
    pub(crate) name: Box<str>,
    pub(crate) by: By,
}

/// The proof of a name.
pub(crate) enum By {
    /// A token with this digest.
    Token(Digest),
    /// A JSON Web Token.
    Jwt(JwtProof),
    /// A certificate that one of these authorities has signed, until it expires.
    Certificate { authorities: Arc<[u8]>, until: Timestamp },
    /// The user who has connected to a Unix socket, by number.
    User(u32),
}

/// The proof by a JSON Web Token.
pub(crate) struct JwtProof {
    /// The rules by which it was accepted.
    pub config: Arc<JwtConfig>,
    /// The key that it is signed with.
    pub key: KeyDigest,
    /// The time from which it proves nothing any more.
    pub until: Timestamp,
}

opaque!(Proven { name });

impl Proven {
    pub(crate) fn new(name: &str, by: By) -> Arc<Self> {
        Arc::new(Self { name: name.into(), by })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Returns `true` if the name can be the value of a field, and is one client's: a pattern is nobody's.
pub(crate) fn is_usable(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    let is_trimmed = name.trim_ascii() == name;
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_plain)
        && is_trimmed
        && !name.contains('*')
}

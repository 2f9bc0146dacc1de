//! The tokens of a listener's clients. Only keyed digests of them are kept.

use std::collections::BTreeMap;
use std::collections::hash_map::{Entry, HashMap};
use std::sync::{Arc, LazyLock};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use egret_config::{Problem, Secret};

use crate::proven::{By, Proven};

/// The key of the digests, made once per process. Nobody outside knows it, so a client cannot choose the
/// digest of a token that it tries. The time of a look-up then says nothing about the tokens.
static KEY: LazyLock<Option<hmac::Key>> =
    LazyLock::new(|| hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).ok());

/// Length of a digest, in bytes.
pub(crate) const DIGEST_BYTES: usize = 32;

/// The keyed digest of a token.
#[derive(Clone, Copy)]
pub(crate) struct Digest([u8; DIGEST_BYTES]);

impl Digest {
    /// Computes the digest of a token. Returns `None` if the system had no random key.
    pub fn of(token: &[u8]) -> Option<Self> {
        let tag = hmac::sign(KEY.as_ref()?, token);
        Some(Self(tag.as_ref().try_into().ok()?))
    }

    /// Compares in constant time.
    fn is(&self, other: &Self) -> bool {
        verify_slices_are_equal(&self.0, &other.0).is_ok()
    }

    /// Returns the part under which it is stored.
    fn short(&self) -> u64 {
        self.0.iter().take(8).fold(0, |short, byte| short << 8 | u64::from(*byte))
    }
}

/// The clients of a listener by their tokens.
pub(crate) struct Tokens(HashMap<u64, (Digest, Arc<Proven>)>);

impl Tokens {
    /// Compiles the `tokens` and `old_tokens` of the key `clients` at `at`. Two clients must not share one.
    pub fn compile(
        tokens: &BTreeMap<String, Secret>,
        old_tokens: &BTreeMap<String, Secret>,
        at: &str,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let mut by_digest: HashMap<u64, (Digest, Arc<Proven>)> =
            HashMap::with_capacity(tokens.len() + old_tokens.len());
        for (key, tokens) in [("tokens", tokens), ("old_tokens", old_tokens)] {
            for (name, token) in tokens {
                let mut report = |message: String| {
                    problems.push(Problem::new(format!("{at}.{key}.{name}"), message));
                };
                let Some(digest) = Digest::of(token.expose().as_bytes()) else {
                    report("the system provides no random bytes".to_owned());
                    continue;
                };
                match by_digest.entry(digest.short()) {
                    Entry::Vacant(vacant) => {
                        vacant.insert((digest, Proven::new(name, By::Token(digest))));
                    }
                    Entry::Occupied(known) if known.get().1.name() == name => {}
                    Entry::Occupied(known) => {
                        report(format!("the client `{}` has the same token", known.get().1.name()));
                    }
                }
            }
        }
        Self(by_digest)
    }

    /// Returns the client that has this token.
    pub fn client(&self, token: &[u8]) -> Option<&Arc<Proven>> {
        self.client_of(&Digest::of(token)?)
    }

    /// Returns the client that has the token with this digest.
    pub fn client_of(&self, digest: &Digest) -> Option<&Arc<Proven>> {
        let (known, client) = self.0.get(&digest.short())?;
        known.is(digest).then_some(client)
    }
}

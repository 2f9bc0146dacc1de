//! An issuer of JSON Web Tokens: its keys, and the judgement of its tokens.
//!
//! This module fetches nothing. A thread of the process puts the keys here, and workers ask it for new ones
//! when a token names a key that is not there. Each worker remembers the tokens that it has verified.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use aws_lc_rs::digest::{SHA256, digest};
use egret_clock::Timestamp;
use egret_config::{Problem, Secret, read_file};
use parking_lot::Mutex;
use tokio::sync::Notify;
use url::Url;

use crate::jwk::{KEY_SET_BYTES_MAX, KeySet, KeySetError};
use crate::jwt::{JWT_BYTES_MAX, Jwt};
use crate::jwt_config::{JwtConfig, KeySource, key_url};
use crate::proven::{By, JwtProof, Proven};
use crate::strict_json::{StrictValue, object};
use crate::unproven::Unproven;

/// Maximum number of verified tokens that a worker remembers, of 0.5 KiB each.
const TOKENS_MAX: usize = 1_024;
/// Maximum number of key sets that a worker has at hand: one for each issuer.
const KEY_SETS_MAX: usize = 64;

/// An issuer of tokens, as one listener accepts them.
#[derive(Debug)]
pub struct Issuer {
    config: Arc<JwtConfig>,
    source: KeySource,
    keys: Arc<KeyStore>,
}

impl Issuer {
    /// Compiles the key at `at` (`gateway.listen[0].clients.jwt`). The keys of one of the `known` issuers are
    /// kept if it is the same.
    pub(crate) fn compile(
        config: &JwtConfig,
        at: &str,
        known: &[Arc<Self>],
        problems: &mut Vec<Problem>,
    ) -> Option<Arc<Self>> {
        let source = config.check(at, problems)?;
        let keys = match &source {
            KeySource::File(path) => {
                let report =
                    |error| Problem::new(format!("{at}.jwks"), format!("{}: {error}", path.display()));
                let keys =
                    file_keys(path).map_err(|error: KeyFileError| problems.push(report(error))).ok()?;
                Arc::new(KeyStore::new(keys))
            }
            KeySource::Keys(_) | KeySource::Metadata(_) => {
                let is_same =
                    |known: &&Arc<Self>| known.source == source && known.config.issuer == config.issuer;
                let same = known.iter().find(is_same).map(|known| Arc::clone(&known.keys));
                same.unwrap_or_else(|| Arc::new(KeyStore::new(KeySet::default())))
            }
        };
        Some(Arc::new(Self { config: Arc::new(config.clone()), source, keys }))
    }

    /// The issuer as it is called in its tokens.
    pub fn issuer(&self) -> &str {
        &self.config.issuer
    }

    /// The place of its keys.
    pub fn source(&self) -> &KeySource {
        &self.source
    }

    /// The token that its keys are fetched with.
    pub fn token(&self) -> Option<&Secret> {
        self.config.token.as_ref()
    }

    /// The file with authorities that are trusted when its keys are fetched.
    pub fn ca(&self) -> Option<&Path> {
        self.config.ca.as_deref()
    }

    /// Returns `true` if both have the same keys, which they would fetch in different ways.
    pub fn contradicts(&self, other: &Self) -> bool {
        let is_same = self.source == other.source && self.issuer() == other.issuer();
        is_same && (self.config.ca != other.config.ca || self.config.token != other.config.token)
    }

    /// Returns `true` if both have their keys in the same place of memory.
    pub fn shares_keys(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.keys, &other.keys)
    }

    /// Returns the URL of the keys from the metadata of the issuer (OpenID Connect Discovery 1.0 §4.3).
    pub fn key_url(&self, metadata: &[u8]) -> Result<Url, KeySetError> {
        let members = object(metadata).ok_or(KeySetError::NotJson)?;
        let text = |name: &str| members.get(name).and_then(StrictValue::text);
        if text("issuer") != Some(self.issuer()) {
            return Err(KeySetError::OtherIssuer);
        }
        let url = text("jwks_uri").and_then(|text| key_url(text).ok()).ok_or(KeySetError::NoUrl)?;
        // A step down to `http` would let a program of this machine prove any name.
        let is_secure = matches!(&self.source, KeySource::Metadata(own) if own.scheme() == url.scheme());
        if is_secure || url.scheme() == "https" { Ok(url) } else { Err(KeySetError::NoUrl) }
    }

    /// Replaces the keys by those of a JWK Set. A set without a usable key takes all keys back, and is an
    /// error too. After any other error, the keys before stay.
    pub fn put_keys(&self, key_set: &[u8]) -> Result<(), KeySetError> {
        let keys = KeySet::parse(key_set)?;
        let is_empty = keys.is_empty();
        self.keys.put(keys);
        if is_empty { Err(KeySetError::NotUsable) } else { Ok(()) }
    }

    /// Waits until a token names a key that is not there.
    pub async fn keys_asked(&self) {
        self.keys.wake.notified().await;
    }

    /// Notes at `now` that keys were fetched, or the `error` that prevented it. Workers may then ask again.
    pub fn keys_answered(&self, error: Option<String>, now: Timestamp) {
        let mut failure = self.keys.failure.lock();
        let since = failure.as_ref().map_or(now, |(since, _)| *since);
        *failure = error.map(|error| (since, error));
        self.keys.is_asked.store(false, Ordering::Relaxed);
    }

    /// The time of the first of the attempts to fetch keys that have failed since the last success, and the
    /// error of the last one. `None` if the last attempt has succeeded, or there was none.
    pub fn key_failure(&self) -> Option<(Timestamp, String)> {
        self.keys.failure.lock().clone()
    }

    /// Returns `true` if there are keys. Without any, every token is refused.
    pub fn has_keys(&self) -> bool {
        !self.keys.keys.lock().is_empty()
    }

    /// Returns the client that `token` proves at `now`.
    pub(crate) fn client(
        &self,
        token: &[u8],
        memory: &mut JwtMemory,
        now: Timestamp,
    ) -> Result<Arc<Proven>, Unproven> {
        if token.len() > JWT_BYTES_MAX {
            return Err(Unproven::JwtMalformed);
        }
        let digest: [u8; 32] = digest(&SHA256, token).as_ref().try_into().unwrap_or_default();
        if let Some(known) = memory.tokens.get(&digest)
            && let By::Jwt(proof) = &known.by
            && self.confirms(proof, &mut memory.keys, now)
        {
            return Ok(Arc::clone(known));
        }
        let jwt = Jwt::parse(token)?;
        let claimed = jwt.claimed_name(&self.config, now)?;
        let Some(key) = memory.keys.latest(&self.keys).find(jwt.algorithm, jwt.key_id()) else {
            self.keys.ask();
            return Err(Unproven::JwtKeyUnknown);
        };
        if !jwt.is_signed_with(key) {
            return Err(Unproven::JwtSignature);
        }
        let proof = JwtProof { config: Arc::clone(&self.config), key: key.digest(), until: claimed.until };
        let proven = Proven::new(&claimed.name, By::Jwt(proof));
        memory.keep(digest, &proven, now);
        Ok(proven)
    }

    /// Returns `true` if a proof holds at `now`, perhaps one of an earlier config.
    pub(crate) fn confirms(&self, proof: &JwtProof, keys: &mut LatestKeys, now: Timestamp) -> bool {
        let is_judged_alike =
            Arc::ptr_eq(&proof.config, &self.config) || proof.config.judges_like(&self.config);
        now < proof.until && is_judged_alike && keys.latest(&self.keys).has(&proof.key)
    }
}

/// Reads keys from a file.
fn file_keys(path: &Path) -> Result<KeySet, KeyFileError> {
    let keys = KeySet::parse(&read_file(path, KEY_SET_BYTES_MAX)?)?;
    if keys.is_empty() { Err(KeySetError::NotUsable.into()) } else { Ok(keys) }
}

/// The reason why a file has no keys.
#[derive(Debug, thiserror::Error)]
enum KeyFileError {
    /// It cannot be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// It has something else.
    #[error("{0}")]
    Keys(#[from] KeySetError),
}

/// The keys of an issuer, shared by workers and the thread that fetches them.
#[derive(Debug)]
struct KeyStore {
    /// Number of the set in `keys`, so that workers need the lock for a new set only.
    current: AtomicU64,
    keys: Mutex<Arc<KeySet>>,
    /// The time of the first failure in a row, and the error of the last one. No worker takes this lock.
    failure: Mutex<Option<(Timestamp, String)>>,
    is_asked: AtomicBool,
    wake: Notify,
}

impl KeyStore {
    fn new(keys: KeySet) -> Self {
        Self {
            current: AtomicU64::new(keys.id),
            keys: Mutex::new(Arc::new(keys)),
            failure: Mutex::default(),
            is_asked: AtomicBool::new(false),
            wake: Notify::new(),
        }
    }

    fn put(&self, keys: KeySet) {
        let mut current = self.keys.lock();
        if !current.is_like(&keys) {
            let id = keys.id;
            *current = Arc::new(keys);
            self.current.store(id, Ordering::Release);
        }
    }

    /// Asks for new keys. Of many that ask, one wakes the thread.
    fn ask(&self) {
        if !self.is_asked.load(Ordering::Relaxed) && !self.is_asked.swap(true, Ordering::Relaxed) {
            self.wake.notify_one();
        }
    }
}

/// The tokens that a worker has verified, and the keys that it has seen.
#[derive(Debug, Default)]
pub struct JwtMemory {
    tokens: HashMap<[u8; 32], Arc<Proven>>,
    pub(crate) keys: LatestKeys,
}

impl JwtMemory {
    /// Remembers a token by its digest. Tokens that have expired are forgotten first, then all.
    fn keep(&mut self, digest: [u8; 32], proven: &Arc<Proven>, now: Timestamp) {
        if self.tokens.len() >= TOKENS_MAX {
            self.tokens.retain(|_, known| matches!(&known.by, By::Jwt(proof) if now < proof.until));
        }
        if self.tokens.len() >= TOKENS_MAX {
            self.tokens.clear();
        }
        self.tokens.insert(digest, Arc::clone(proven));
    }
}

/// The key sets that a worker has seen last.
#[derive(Debug, Default)]
pub(crate) struct LatestKeys(Vec<Arc<KeySet>>);

impl LatestKeys {
    /// Returns the latest keys.
    fn latest(&mut self, store: &KeyStore) -> &KeySet {
        let id = store.current.load(Ordering::Acquire);
        let place = self.0.iter().position(|keys| keys.id == id).unwrap_or_else(|| {
            if self.0.len() >= KEY_SETS_MAX {
                self.0.remove(0);
            }
            self.0.push(Arc::clone(&store.keys.lock()));
            self.0.len() - 1
        });
        &self.0[place]
    }
}

#[cfg(test)]
mod forgeries;
#[cfg(test)]
mod test_keys;
#[cfg(test)]
mod tests;

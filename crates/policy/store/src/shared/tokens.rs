//! Tokens that the gateways of a cluster share: the protocol, without I/O and without the keys that seal
//! them.
//!
//! A gateway that needs a token *claims* it. The answer is a newer state of the token, or the right to fetch
//! it, which one gateway has at a time. The state is opaque here. It has a *version*, a number that grows
//! with each fetch, so a state that comes back from a backup or a replica is recognized.
//!
//! A refresh token that its endpoint accepts once is *exclusive*. Its use is noted before it is sent, and the
//! note stays if the gateway dies: another gateway cannot know if the endpoint has replaced the token, and
//! does not use it. A store that has lost its state is asked only after the other gateways had time to offer
//! a newer version.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use egret_items::opaque;
use tokio::sync::oneshot;
use zeroize::Zeroizing;

use super::script::{ScriptCall, ScriptReplyError, Shard, digits};

/// The text of the script.
pub const TOKEN_SCRIPT: &str = include_str!("token.lua");

/// The identity of a token in all gateways of a cluster.
pub struct TokenIdentity {
    /// Name of the account.
    pub account: Arc<str>,
    /// URL of the token endpoint.
    pub endpoint: Box<str>,
    /// All that distinguishes the token from others. It may be secret.
    pub content: Zeroizing<Vec<u8>>,
    /// `true` if a refresh token is used that the endpoint may accept once.
    pub is_exclusive: bool,
}

opaque!(TokenIdentity { account });

/// A request for a newer state than that of version `known`, or for the right to fetch the token.
#[derive(Debug)]
pub struct TokenClaim {
    /// The token.
    pub identity: Arc<TokenIdentity>,
    /// The newest version that the asker knows; 0 if none.
    pub known: u64,
    /// Maximum duration of a fetch.
    pub timeout: Duration,
    /// Receives the answer. It is dropped without one if too many claims wait.
    pub answer: oneshot::Sender<TokenAnswer>,
}

/// The answer to a claim.
#[derive(Debug)]
pub enum TokenAnswer {
    /// Another gateway has fetched the token.
    Newer(SharedTokenState),
    /// This gateway is elected to fetch the token.
    Elected(Election),
    /// Neither.
    Refused(ClaimRefusal),
}

/// The right to fetch a token.
#[derive(Debug)]
pub struct Election {
    /// The newest state in the cluster, if there is one.
    pub latest: Option<SharedTokenState>,
    /// Version of the state that the fetch leads to.
    pub version: u64,
    /// Receives the outcome of the fetch. Dropped without one, the fetch is in doubt.
    pub outcome: oneshot::Sender<TokenOutcome>,
}

/// Reason why a gateway gets neither a token nor the right to fetch one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimRefusal {
    /// The store cannot be used.
    Away,
    /// Another gateway has the right, and has fetched nothing so far.
    Busy,
    /// A gateway was stopped while it used the refresh token.
    Doubt,
}

/// A state of a token, as it is shared.
pub struct SharedTokenState {
    /// Its version.
    pub version: u64,
    /// Its content.
    pub content: Zeroizing<Vec<u8>>,
    /// Time since it was stored.
    pub age: Duration,
}

opaque!(SharedTokenState { version });

/// The outcome of a fetch.
pub enum TokenOutcome {
    /// A token was granted.
    Granted {
        /// The new state.
        content: Zeroizing<Vec<u8>>,
        /// Lifetime of the token.
        life: Duration,
        /// `true` if the endpoint has not replaced the refresh token.
        is_reusable: bool,
    },
    /// The fetch failed, and no gateway should try again for this time.
    Failed(Duration),
}

impl fmt::Debug for TokenOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted { life, .. } => write!(f, "Granted({life:?})"),
            Self::Failed(wait) => write!(f, "Failed({wait:?})"),
        }
    }
}

/// Shares tokens among the gateways of a cluster. It never blocks.
pub trait SharedTokens: Send + Sync + fmt::Debug {
    /// Makes a token known, so that what this gateway knows of it survives the loss of the store.
    fn open(&self, identity: &Arc<TokenIdentity>);
    /// Claims a token.
    fn claim(&self, claim: TokenClaim);
}

/// The calls of one claim.
#[derive(Debug, Clone)]
pub struct TokenCalls {
    keys: [Vec<u8>; 2],
    channel: Vec<u8>,
    /// A number that nobody can predict.
    owner: u128,
    is_exclusive: bool,
}

/// A reply of the script.
#[derive(Debug, PartialEq, Eq)]
pub enum TokenReply {
    /// The stored state, which may be newer.
    Newer(StoredToken),
    /// Another gateway has the right, for this many milliseconds at most.
    Busy(u64),
    /// A gateway was stopped while it used the refresh token.
    Doubt,
    /// This gateway is elected.
    Elected(StoredToken),
    /// The refresh token is in use from now on.
    Begun(StoredToken),
    /// The right has ended meanwhile.
    Lost,
    /// The state was stored.
    Stored,
    /// The state was not stored.
    Refused,
    /// The right was returned.
    Released,
}

/// A state in the store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredToken {
    /// Its version; 0 if there is none.
    pub version: u64,
    /// Its sealed content.
    pub sealed: Vec<u8>,
    /// Time since it was stored, in milliseconds.
    pub age_ms: u64,
    /// The process of the store that it is from.
    pub incarnation: Vec<u8>,
}

impl Shard {
    /// The key of a token's state.
    pub fn token(&self, name: &str) -> Vec<u8> {
        self.key(&format!("a:{name}"))
    }

    /// The channel on which the keys of changed tokens are published.
    pub fn token_channel(&self) -> Vec<u8> {
        self.key("a")
    }
}

impl TokenCalls {
    /// The calls of `owner`, a unique number, about the token with that name in the store.
    pub fn new(shard: &Shard, name: &str, is_exclusive: bool, owner: u128) -> Self {
        let keys = [shard.token(name), shard.key(&format!("l:{name}"))];
        Self { keys, channel: shard.token_channel(), owner, is_exclusive }
    }

    /// Claims the token, with a lock that lasts for `lock_ms`.
    pub fn claim(&self, known: u64, lock_ms: u64) -> ScriptCall {
        self.call("claim", [digits(known), digits(lock_ms), flag(self.is_exclusive)])
    }

    /// Notes that the refresh token is in use.
    pub fn begin(&self, incarnation: &str, ttl_ms: u64) -> ScriptCall {
        self.call("begin", [incarnation.as_bytes().to_vec(), digits(ttl_ms)])
    }

    /// Stores the result of a fetch.
    pub fn store(
        &self,
        version: u64,
        sealed: &[u8],
        ttl_ms: u64,
        incarnation: &str,
        is_reusable: bool,
    ) -> ScriptCall {
        let [version, ttl] = [version, ttl_ms].map(digits);
        let [is_exclusive, is_reusable] = [self.is_exclusive, is_reusable].map(flag);
        self.call("store", [version, sealed.into(), ttl, incarnation.into(), is_exclusive, is_reusable])
    }

    /// Offers a state of that age, which the store may have lost.
    pub fn offer(&self, version: u64, sealed: &[u8], ttl_ms: u64, age_ms: u64) -> ScriptCall {
        self.call("offer", [digits(version), sealed.to_vec(), digits(ttl_ms), digits(age_ms)])
    }

    /// Reads the state.
    pub fn read(&self) -> ScriptCall {
        self.call("read", [])
    }

    /// Returns the right to fetch, which nobody gets for `wait_ms`.
    pub fn release(&self, wait_ms: u64) -> ScriptCall {
        self.call("release", [digits(wait_ms)])
    }

    fn call<const N: usize>(&self, verb: &str, more: [Vec<u8>; N]) -> ScriptCall {
        let mut arguments = vec![verb.into(), format!("{:032x}", self.owner).into(), self.channel.clone()];
        arguments.extend(more);
        ScriptCall { keys: self.keys.to_vec(), arguments }
    }
}

fn flag(is_set: bool) -> Vec<u8> {
    digits(u64::from(is_set))
}

impl TokenReply {
    /// Reads a reply of the script.
    pub fn from_script(reply: &[Vec<u8>]) -> Result<Self, ScriptReplyError> {
        let [word, rest @ ..] = reply else { return Err(ScriptReplyError) };
        match (word.as_slice(), rest) {
            (b"newer", rest) => stored(rest).map(Self::Newer),
            (b"elected", rest) => stored(rest).map(Self::Elected),
            (b"begun", rest) => stored(rest).map(Self::Begun),
            (b"busy", [left_ms]) => number(left_ms).map(Self::Busy),
            (b"doubt", []) => Ok(Self::Doubt),
            (b"lost", []) => Ok(Self::Lost),
            (b"stored", []) => Ok(Self::Stored),
            (b"refused", []) => Ok(Self::Refused),
            (b"released", []) => Ok(Self::Released),
            _ => Err(ScriptReplyError),
        }
    }
}

fn stored(words: &[Vec<u8>]) -> Result<StoredToken, ScriptReplyError> {
    let [version, sealed, age_ms, incarnation] = words else { return Err(ScriptReplyError) };
    let (version, age_ms) = (number(version)?, number(age_ms)?);
    Ok(StoredToken { version, sealed: sealed.clone(), age_ms, incarnation: incarnation.clone() })
}

/// Reads a number that the script can count with.
fn number(text: &[u8]) -> Result<u64, ScriptReplyError> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.filter(|number| *number < 1 << 53).ok_or(ScriptReplyError)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(words: &[&str]) -> Result<TokenReply, ScriptReplyError> {
        TokenReply::from_script(&words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>())
    }

    #[test]
    fn a_reply_has_a_word_and_what_belongs_to_it() {
        let stored =
            StoredToken { version: 7, sealed: b"x".to_vec(), age_ms: 12, incarnation: b"r".to_vec() };
        assert_eq!(reply(&["newer", "7", "x", "12", "r"]), Ok(TokenReply::Newer(stored)));
        assert_eq!(reply(&["busy", "250"]), Ok(TokenReply::Busy(250)));
        assert_eq!(reply(&["doubt"]), Ok(TokenReply::Doubt));
    }

    #[test]
    fn replies_of_other_scripts_are_refused() {
        let wrong: [&[&str]; 7] = [
            &[],
            &["OK"],
            &["busy"],
            &["busy", "-1"],
            &["newer", "7", "x", "12"],
            &["newer", "9007199254740992", "x", "0", ""],
            &["doubt", "1"],
        ];
        for words in wrong {
            assert_eq!(reply(words), Err(ScriptReplyError), "{words:?}");
        }
    }

    #[test]
    fn all_that_a_call_touches_is_in_one_slot() {
        let calls = TokenCalls::new(&Shard::new("payments", 0), "0a", true, 5);
        let call = calls.claim(3, 1_000);
        assert_eq!(call.keys, [b"egret:{payments:0}:a:0a".to_vec(), b"egret:{payments:0}:l:0a".to_vec()]);
        let owner = format!("{:032x}", 5);
        let expected = ["claim", &owner, "egret:{payments:0}:a", "3", "1000", "1"];
        assert_eq!(call.arguments, expected.map(|word| word.as_bytes().to_vec()));
    }
}

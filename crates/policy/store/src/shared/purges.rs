//! Removals of stored responses that a gateway tells the others of its cluster: the protocol, without I/O.
//!
//! Each cache has a stream. A gateway reads it from its own position. If the position is gone, the gateway
//! cannot know what it has missed, and removes everything from that cache.

use std::fmt;
use std::sync::Weak;

use tokio::sync::oneshot;

use super::script::{ScriptCall, Shard, digits};
use crate::entries::Removal;

/// The text of the script.
pub const PURGE_SCRIPT: &str = include_str!("purge.lua");
/// Number of entries after which a stream forgets its oldest ones.
const ENTRIES_MAX: u64 = 1_000;
/// Time to live of a stream, which gateways with its cache renew.
pub const STREAM_TTL_MS: u64 = 3_600_000;
/// Maximum length of a position.
const POSITION_BYTES_MAX: usize = 41;

/// Reason why the other gateways of a cluster were not told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotTold {
    /// The store cannot be used. They are told as soon as it can.
    #[error("the store of the cluster cannot be used; the other gateways are told as soon as it can")]
    Away,
    /// They are told of changed URLs only if the cluster has a key.
    #[error("the cluster has no `key` to hide URLs with")]
    NoKey,
    /// Too many removals wait.
    #[error("too many removals wait to be told")]
    Busy,
}

/// Tells if the other gateways were told. It is dropped without an answer if the cluster is left.
pub type Told = oneshot::Receiver<Result<(), NotTold>>;

/// The result of a purge.
#[derive(Debug, Default)]
pub struct Purged {
    /// Number of responses that this gateway removed.
    pub removed: usize,
    /// Tell, for each cache that gateways share, if the others were told.
    pub told: Vec<Told>,
}

/// A cache from which other gateways remove stored responses.
pub trait PurgedCache: Send + Sync {
    /// Removes stored responses.
    fn remove(&self, removal: &Removal);
}

/// Shares removals among the gateways of a cluster. It never blocks.
pub trait SharedPurges: Send + Sync + fmt::Debug {
    /// Applies to `cache` what the other gateways remove from their caches of the same name, as long as it
    /// exists.
    fn open(&self, name: &str, cache: Weak<dyn PurgedCache>);
    /// Tells the other gateways what to remove from the cache with that name.
    fn tell(&self, name: &str, removal: Removal) -> Told;
}

impl Shard {
    /// The key of the stream of a cache.
    pub fn purges(&self, name: &str) -> Vec<u8> {
        self.key(&format!("g:{name}"))
    }

    /// The channel on which the keys of streams with new entries are published.
    pub fn purge_channel(&self) -> Vec<u8> {
        self.key("g")
    }

    /// Asks for the last position of a stream.
    pub fn join_purges(stream: &[u8]) -> ScriptCall {
        ScriptCall { keys: vec![stream.to_vec()], arguments: vec![b"join".to_vec(), digits(STREAM_TTL_MS)] }
    }

    /// Adds messages of the gateway `origin` to a stream.
    pub fn tell_purges(&self, stream: &[u8], origin: &str, messages: &[Vec<u8>]) -> ScriptCall {
        let mut arguments = vec![b"tell".to_vec(), digits(STREAM_TTL_MS), self.purge_channel()];
        arguments.extend([digits(ENTRIES_MAX), origin.as_bytes().to_vec()]);
        arguments.extend_from_slice(messages);
        ScriptCall { keys: vec![stream.to_vec()], arguments }
    }
}

/// An entry of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PurgeEntry {
    /// Its position.
    pub position: String,
    /// The gateway that it is from.
    pub origin: Vec<u8>,
    /// The message; empty in the first entry of a stream.
    pub message: Vec<u8>,
}

/// A reader of a stream.
#[derive(Debug, Default)]
pub struct PurgePosition(Option<String>);

impl PurgePosition {
    /// The position to read from, this one included; `None` before the stream was joined.
    pub fn get(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// Starts after the position, which the store gave. Returns `false` if it is not a position.
    pub fn join(&mut self, position: String) -> bool {
        let is_digit = |byte: u8| byte.is_ascii_digit() || byte == b'-';
        let is_position = position.len() <= POSITION_BYTES_MAX && position.bytes().all(is_digit);
        self.0 = Some(position).filter(|position| is_position && !position.is_empty());
        self.0.is_some()
    }

    /// Forgets the position.
    pub fn forget(&mut self) {
        self.0 = None;
    }

    /// Moves past `entries`, which begin with the one at the position. Returns the new ones, or `None` if
    /// entries are missing in between.
    pub fn advance<'a>(&mut self, entries: &'a [PurgeEntry]) -> Option<&'a [PurgeEntry]> {
        let (first, new) = entries.split_first()?;
        if self.0.as_deref() != Some(first.position.as_str()) {
            return None;
        }
        if let Some(last) = new.last()
            && !self.join(last.position.clone())
        {
            return None;
        }
        Some(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(position: &str) -> PurgeEntry {
        PurgeEntry { position: position.to_owned(), origin: Vec::new(), message: Vec::new() }
    }

    #[test]
    fn a_reader_goes_on_where_it_was_and_notices_a_gap() {
        let mut position = PurgePosition::default();
        assert!(position.advance(&[entry("1-0")]).is_none(), "nothing was joined");
        assert!(position.join("1-0".to_owned()));
        let entries = [entry("1-0"), entry("2-0"), entry("2-1")];
        assert_eq!(position.advance(&entries[..1]), Some(&[][..]));
        assert_eq!(position.advance(&entries), Some(&entries[1..]));
        assert_eq!(position.get(), Some("2-1"));
        for gap in [&entries[..2], &[]] {
            assert!(position.advance(gap).is_none(), "the position is not in the stream any more");
        }
    }

    #[test]
    fn only_a_position_is_taken_for_one() {
        for wrong in ["", "+", "-inf", "1-0 COUNT", &"1".repeat(42)] {
            assert!(!PurgePosition::default().join(wrong.to_owned()), "{wrong}");
        }
    }
}

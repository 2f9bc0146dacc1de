//! The scripts by which Redis or Valkey merges the marks of all gateways, and the texts between them.

use super::{Mark, MarkChange, MarkKey, MarkNews};

/// The text of the script that merges marks.
pub const MARK_SCRIPT: &str = include_str!("mark.lua");
/// The text of the script that grants a probe.
pub const PROBE_SCRIPT: &str = include_str!("probe.lua");
/// The text of the script that ends a probe.
pub const RELEASE_SCRIPT: &str = include_str!("release.lua");

/// The keys of a cluster's marks. They share a hash tag, so one server of a Redis Cluster has all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkScripts {
    prefix: String,
}

impl MarkScripts {
    /// The keys of the cluster with that name.
    pub fn new(cluster: &str) -> Self {
        Self { prefix: format!("egret:{{{cluster}:0}}:t") }
    }

    /// The channel of news.
    pub fn channel(&self) -> &str {
        &self.prefix
    }

    /// The key of all marks.
    pub fn marks(&self) -> String {
        format!("{}:m", self.prefix)
    }

    /// The key of the times at which marks may be forgotten.
    pub fn ends(&self) -> String {
        format!("{}:e", self.prefix)
    }

    /// The key of a mark's probe.
    pub fn probe(&self, key: MarkKey) -> String {
        format!("{}:p:{key}", self.prefix)
    }

    /// Writes a change as the script reads it.
    pub fn change((key, news): &MarkChange) -> Option<String> {
        match news {
            MarkNews::Marked(Mark { left_ms, proof_ms, note }) => {
                Some(format!("m {key} {left_ms} {proof_ms} {note}"))
            }
            MarkNews::Ended(began_ago_ms) => Some(format!("e {key} {began_ago_ms}")),
            MarkNews::Freed => None,
        }
    }

    /// Reads news that the script replies or publishes; `None` if they are not Egret's.
    pub fn news(text: &[u8]) -> Option<MarkChange> {
        let mut words = std::str::from_utf8(text).ok()?.split(' ');
        let (kind, key) = (words.next()?, words.next()?.parse().ok()?);
        let news = match kind {
            "m" => MarkNews::Marked(Mark {
                left_ms: words.next()?.parse().ok()?,
                proof_ms: words.next()?.parse().ok()?,
                note: words.next()?.parse().ok()?,
            }),
            "e" => MarkNews::Ended(words.next()?.parse().ok()?),
            "f" => MarkNews::Freed,
            _ => return None,
        };
        words.next().is_none().then_some((key, news))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: MarkKey = MarkKey { scope: 0xa, name: u128::MAX };

    #[test]
    fn news_are_read_as_they_are_written() {
        let scripts = MarkScripts::new("payments");
        let mark = Mark { left_ms: 30_000, proof_ms: -20, note: u64::MAX };
        for news in [MarkNews::Marked(mark), MarkNews::Ended(7)] {
            let text = MarkScripts::change(&(KEY, news)).unwrap();
            assert_eq!(MarkScripts::news(text.as_bytes()), Some((KEY, news)), "{text}");
        }
        assert_eq!(MarkScripts::news(format!("f {KEY}").as_bytes()), Some((KEY, MarkNews::Freed)));
        assert_eq!(scripts.probe(KEY), format!("egret:{{payments:0}}:t:p:{:032x}:{}", 0xa, "f".repeat(32)));
    }

    #[test]
    fn texts_of_others_are_not_news() {
        for text in
            ["", "m", "m a:b", "m a:b 1 2", "m a:b -1 2 3", "m a:b 1 2 3 4", "e a:b x", "f a", "x a:b"]
        {
            assert_eq!(MarkScripts::news(text.as_bytes()), None, "{text}");
        }
        assert_eq!(MarkScripts::news(&[0xff]), None);
    }
}

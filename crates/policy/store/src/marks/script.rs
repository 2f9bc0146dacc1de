//! The scripts by which Redis or Valkey merges the marks of all gateways, and the texts between them.

use std::time::Duration;

use super::{Mark, MarkChange, MarkKey, MarkNews, ProbeQuestion};
use crate::shared::{ScriptCall, Shard, digits};

/// The text of the script that merges marks.
pub const MARK_SCRIPT: &str = include_str!("mark.lua");
/// The text of the script that grants a probe.
pub const PROBE_SCRIPT: &str = include_str!("probe.lua");
/// The text of the script that ends a probe.
pub const RELEASE_SCRIPT: &str = include_str!("release.lua");

impl Shard {
    /// The channel of news of marks.
    pub fn mark_channel(&self) -> Vec<u8> {
        self.key("t")
    }

    fn marks(&self) -> Vec<u8> {
        self.key("t:m")
    }

    fn probe(&self, key: MarkKey) -> Vec<u8> {
        self.key(&format!("t:p:{key}"))
    }

    /// Tells the changes. The reply has the news that correct them or, if `reads_all`, all marks.
    pub fn merge_marks(&self, changes: &[MarkChange], reads_all: bool) -> ScriptCall {
        let mut arguments = vec![self.mark_channel(), digits(u64::from(reads_all))];
        arguments.extend(changes.iter().filter_map(change));
        ScriptCall { keys: vec![self.marks(), self.key("t:e")], arguments }
    }

    /// Asks for the probe of a mark, for this time at most. The reply is the time to wait in milliseconds, or
    /// 0.
    pub fn probe_mark(&self, question: &ProbeQuestion, max: Duration) -> ScriptCall {
        let key = question.key();
        let numbers = [u128::from(question.owner()), max.as_millis()].map(|number| number.to_string().into());
        let arguments = [key.to_string().into()].into_iter().chain(numbers).collect();
        ScriptCall { keys: vec![self.marks(), self.probe(key)], arguments }
    }

    /// Ends the probe of a mark.
    pub fn release_probe(&self, key: MarkKey, owner: u64) -> ScriptCall {
        let arguments = vec![digits(owner), self.mark_channel(), key.to_string().into()];
        ScriptCall { keys: vec![self.probe(key)], arguments }
    }
}

/// Writes a change as the script reads it.
fn change((key, news): &MarkChange) -> Option<Vec<u8>> {
    match news {
        MarkNews::Marked(Mark { left_ms, proof_ms, note }) => {
            Some(format!("m {key} {left_ms} {proof_ms} {note}").into())
        }
        MarkNews::Ended(began_ago_ms) => Some(format!("e {key} {began_ago_ms}").into()),
        MarkNews::Freed => None,
    }
}

/// Reads news that the script replies or publishes; `None` if they are not Egret's.
pub fn mark_news(text: &[u8]) -> Option<MarkChange> {
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

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: MarkKey = MarkKey { scope: 0xa, name: u128::MAX };

    #[test]
    fn news_are_read_as_they_are_written() {
        let mark = Mark { left_ms: 30_000, proof_ms: -20, note: u64::MAX };
        for news in [MarkNews::Marked(mark), MarkNews::Ended(7)] {
            let text = change(&(KEY, news)).unwrap();
            assert_eq!(mark_news(&text), Some((KEY, news)));
        }
        assert_eq!(mark_news(format!("f {KEY}").as_bytes()), Some((KEY, MarkNews::Freed)));
        let probe = format!("egret:{{payments:0}}:t:p:{:032x}:{}", 0xa, "f".repeat(32));
        assert_eq!(Shard::new("payments", 0).probe(KEY), probe.into_bytes());
    }

    #[test]
    fn texts_of_others_are_not_news() {
        for text in
            ["", "m", "m a:b", "m a:b 1 2", "m a:b -1 2 3", "m a:b 1 2 3 4", "e a:b x", "f a", "x a:b"]
        {
            assert_eq!(mark_news(text.as_bytes()), None, "{text}");
        }
        assert_eq!(mark_news(&[0xff]), None);
    }
}

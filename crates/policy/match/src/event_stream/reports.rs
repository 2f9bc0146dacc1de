//! Merges the events of a stream that matter.

use std::mem;

use memchr::memmem;
use serde_json::{Map, Value};

use crate::expression::EXPRESSION_BODY_BYTES_MAX;

/// Events that report usage are gathered up to this length before they are merged, so that a stream which
/// reports in every event is not merged again for each.
const RECENT_BYTES: usize = 16 << 10;

/// The beginning of a name under which providers report usage: `usage`, `usageMetadata`.
const USAGE: &[u8] = b"\"usage";

/// The members of a typed event that hold what a response without a stream has at its top.
const ENVELOPES: [&str; 3] = ["message", "response", "delta"];

/// The events of a stream that matter, merged as far as possible.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// The merge so far, as JSON. Empty if nothing has been merged.
    merged: Vec<u8>,
    /// Events that report usage and are not merged yet, one behind the other.
    recent: Vec<u8>,
    /// The ends of these events.
    ends: Vec<usize>,
    /// The last event in JSON, if it is not among these.
    last: Vec<u8>,
}

impl Reports {
    /// Takes the data of an event, whose memory may be exchanged for another's.
    pub fn take(&mut self, event: &mut Vec<u8>) {
        if event.trim_ascii_start().first() != Some(&b'{') {
            return;
        }
        if !reports_usage(event) {
            mem::swap(&mut self.last, event);
            return;
        }
        self.last.clear();
        // As much again as has been merged: each byte is then parsed a few times, not once for each event.
        if self.recent.len() + event.len() > RECENT_BYTES.max(self.merged.len()) {
            self.merge();
        }
        self.recent.extend_from_slice(event);
        self.ends.push(self.recent.len());
    }

    /// Returns the merge of all events that matter, as JSON, or `None` if there is none.
    pub fn finish(mut self) -> Option<Vec<u8>> {
        if !self.last.is_empty() {
            self.recent.append(&mut self.last);
            self.ends.push(self.recent.len());
        }
        self.merge();
        (!self.merged.is_empty()).then_some(self.merged)
    }

    pub fn held_bytes(&self) -> usize {
        self.merged.capacity() + self.recent.capacity() + self.last.capacity() + 8 * self.ends.capacity()
    }

    /// Merges the recent events. A merge that has become longer than expressions may read stays as it is.
    fn merge(&mut self) {
        if self.ends.is_empty() {
            return;
        }
        let (recent, ends) = (mem::take(&mut self.recent), mem::take(&mut self.ends));
        if self.merged.len() > EXPRESSION_BODY_BYTES_MAX {
            return;
        }
        let mut body: Map<String, Value> = serde_json::from_slice(&self.merged).unwrap_or_default();
        let mut start = 0;
        for end in ends {
            if let Ok(event) = serde_json::from_slice(&recent[start..end]) {
                add_event(&mut body, event);
            }
            start = end;
        }
        if !body.is_empty() {
            self.merged = serde_json::to_vec(&body).unwrap_or_default();
        }
    }
}

/// Merges an event into the body. Members of its envelopes count as its own, unless it has such a member.
fn add_event(body: &mut Map<String, Value>, mut event: Map<String, Value>) {
    if event.get("type").is_some_and(Value::is_string) {
        for name in ENVELOPES {
            if let Some(Value::Object(_)) = event.get(name)
                && let Some(Value::Object(content)) = event.remove(name)
            {
                merge(body, content);
            }
        }
    }
    merge(body, event);
}

/// Merges `from` into `into`: objects are merged member by member, anything else is replaced, but by nothing
/// that is `null`.
fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (name, value) in from {
        match (into.get_mut(&name), value) {
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            (Some(_), Value::Null) => {}
            (Some(old), new) => *old = new,
            (None, new) => {
                into.insert(name, new);
            }
        }
    }
}

/// Returns `true` if some member of the event has a name that begins with `usage` and a value other than
/// `null`. A text that only contains such a member has a backslash before each quote.
fn reports_usage(event: &[u8]) -> bool {
    memmem::find_iter(event, USAGE).any(|at| {
        let is_in_text = at.checked_sub(1).is_some_and(|before| event[before] == b'\\');
        let value = after_name(&event[at + USAGE.len()..]).trim_ascii_start().strip_prefix(b":");
        !is_in_text && value.is_some_and(|value| !value.trim_ascii_start().starts_with(b"null"))
    })
}

/// Returns what comes after the name that `bytes` begin in.
fn after_name(bytes: &[u8]) -> &[u8] {
    let mut is_escaped = false;
    let end = bytes.iter().position(|byte| {
        let is_end = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    });
    end.and_then(|end| bytes.get(end + 1..)).unwrap_or_default()
}

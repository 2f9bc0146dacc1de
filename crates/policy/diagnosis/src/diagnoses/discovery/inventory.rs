//! Inventory of each provider's endpoints, as a tree of path segments in which variable segments are merged.
//!
//! A segment is a word of the API or a value. Numbers, UUIDs, hexadecimal strings and anything else that is
//! unlikely as a resource name are values from the start. Words are kept separate until one position has more
//! of them than an API plausibly has. Then they become values, and everything recorded below them is merged.

use std::collections::BTreeMap;

use egret_har::detect;
use serde::{Deserialize, Serialize};

use super::times::TimeHistogram;

/// Maximum depth of a path in segments. Deeper ones are recorded as `/*`.
pub(crate) const DEPTH_MAX: usize = 16;
/// Maximum length of a word.
const WORD_BYTES_MAX: usize = 40;
/// Maximum number of digits in a word, as in `oauth2`. More make it a value.
const WORD_DIGITS_MAX: usize = 3;
/// Maximum number of changes between upper and lower case in a word, as in `getUserById`. More indicate a
/// random string.
const WORD_CASES_MAX: usize = 7;
/// Minimum length of a hexadecimal string that is a value.
const HEX_DIGITS_MIN: usize = 8;
/// Maximum number of status codes recorded per endpoint.
const STATUSES_MAX: usize = 64;

/// Estimates of memory, from above: a node of a path with its share of a tree; the statistics of an endpoint
/// with a full histogram and a dozen statuses; a consumer; an origin.
const NODE_BYTES: usize = 256;
const STATS_BYTES: usize = 2 * 1024;
const CONSUMER_BYTES: usize = 128;
const ORIGIN_BYTES: usize = 256;

/// Placeholder for segments below the maximum depth. It cannot be a word.
const DEEPER: &str = "*";
/// Placeholder for words that became values. It cannot be a word.
pub const VARIED: &str = "{}";

/// The provider or host that endpoints belong to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub struct Origin {
    /// Name of the provider in the config; `-` if there is none.
    pub provider: String,
    /// `true` if it is called over TLS.
    pub tls: bool,
    /// Host in lower case; IPv6 without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path of the provider's URL.
    pub prefix: String,
}

/// Exchanges of one endpoint with the same status and consumer.
#[derive(Debug, Clone)]
pub struct SeenCalls<'a> {
    /// Method as sent; `other` for a non-standard one.
    pub method: &'a str,
    /// Path relative to the provider's URL, without the query.
    pub path: &'a str,
    /// Status code; 0 if the client received no response.
    pub status: u16,
    /// `true` if the response says when to try again.
    pub has_retry_after: bool,
    /// Consumer in a form that may be exported; empty if none is named.
    pub consumer: &'a str,
    /// Client program in a form that may be exported; empty if it is not asked for.
    pub client: &'a str,
    /// Number of exchanges.
    pub count: u64,
    /// Times that the client waited.
    pub times: TimeHistogram,
    /// Times of the first and the last exchange, in microseconds since 1970.
    pub first_us: u64,
    pub last_us: u64,
}

/// Bounds of an inventory.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Maximum number of words at one position.
    pub variety: usize,
    /// Maximum number of endpoints.
    pub endpoints: usize,
    /// Maximum number of consumers recorded per endpoint, and of client programs.
    pub names: usize,
    /// Memory that the inventory may take, estimated from above.
    pub bytes: usize,
}

/// The bounded inventory.
#[derive(Debug, Default)]
pub struct Inventory {
    origins: BTreeMap<Origin, PathNode>,
    endpoints: usize,
    bytes: usize,
    /// Number of exchanges whose endpoints did not fit.
    pub unlisted: u64,
}

/// A position in paths.
#[derive(Debug, Default)]
struct PathNode {
    words: BTreeMap<Box<str>, PathNode>,
    /// The node below all values.
    values: Option<Box<PathNode>>,
    /// `true` if the words at this position have become values.
    is_varied: bool,
    methods: BTreeMap<Box<str>, Stats>,
}

/// Statistics of an endpoint.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
pub struct Stats {
    /// Number of exchanges.
    pub count: u64,
    /// Number of exchanges by status code; 0 if the client received no response.
    pub statuses: BTreeMap<u16, u64>,
    /// Times that clients waited.
    pub times: TimeHistogram,
    /// First call, in microseconds since 1970.
    pub first_seen_us: u64,
    /// Last call, in microseconds since 1970.
    pub last_seen_us: u64,
    /// Number of exchanges by consumer.
    pub consumers: NamedCounts,
    /// Number of exchanges by client program.
    #[serde(default)]
    pub clients: NamedCounts,
    /// Number of responses that said when to try again.
    #[serde(default)]
    pub retry_after: u64,
}

/// Number of exchanges by a name that requests carry.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct NamedCounts {
    /// Number of exchanges by name.
    pub listed: BTreeMap<String, u64>,
    /// Number of exchanges with names that did not fit.
    pub others: u64,
}

/// An endpoint with its path. A segment is a word, `None` for a value, `{}` for words that became values, or
/// a final `*` for any remainder.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct FoundEndpoint {
    /// The provider or host.
    pub origin: Origin,
    /// Segments of the path.
    pub path: Vec<Option<String>>,
    /// Method.
    pub method: String,
    /// Statistics.
    pub stats: Stats,
}

impl Inventory {
    /// Adds exchanges.
    pub fn add(&mut self, origin: &Origin, calls: SeenCalls<'_>, bounds: &Bounds) {
        let (method, path) = (calls.method, calls.path);
        if let Some(root) = self.origins.get_mut(origin)
            && let Some(stats) = root.stats(method, path, bounds.variety, false)
        {
            return stats.join(calls.into(), bounds.names);
        }
        if !self.has_room(bounds) {
            self.unlisted += calls.count;
            return;
        }
        let root = self.origins.entry(origin.clone()).or_default();
        if let Some(stats) = root.stats(method, path, bounds.variety, true) {
            stats.join(calls.into(), bounds.names);
        }
        self.measure(bounds);
    }

    /// Adds a stored endpoint.
    pub fn restore(&mut self, endpoint: FoundEndpoint, bounds: &Bounds) {
        if !self.has_room(bounds) {
            self.unlisted += endpoint.stats.count;
            return;
        }
        let variety = bounds.variety;
        let mut node = self.origins.entry(endpoint.origin).or_default();
        for segment in endpoint.path.iter().take(DEPTH_MAX + 1) {
            let next = match segment {
                Some(word) if word == DEEPER || is_word(word) => node.word(word, variety, true),
                Some(word) => {
                    node.is_varied |= word == VARIED;
                    node.value(true)
                }
                None => node.value(true),
            };
            // A node is always found when there is room.
            let Some(next) = next else { return };
            node = next;
        }
        let stats = node.methods.entry(endpoint.method.into()).or_default();
        stats.join(endpoint.stats, bounds.names);
        self.measure(bounds);
    }

    fn has_room(&self, bounds: &Bounds) -> bool {
        self.endpoints < bounds.endpoints && self.bytes < bounds.bytes
    }

    /// Counts the endpoints and their memory again: there is one endpoint more, or fewer if words were
    /// merged.
    fn measure(&mut self, bounds: &Bounds) {
        let stats_bytes = STATS_BYTES + bounds.names * CONSUMER_BYTES;
        let of_origin = |origin: &Origin| ORIGIN_BYTES + origin.host.len() + origin.prefix.len();
        self.endpoints = self.origins.values().map(PathNode::endpoints).sum();
        let nodes = |(origin, root): (&Origin, &PathNode)| of_origin(origin) + root.bytes();
        self.bytes = self.endpoints * stats_bytes + self.origins.iter().map(nodes).sum::<usize>();
    }

    /// Returns all endpoints, by origin and path.
    pub fn endpoints(&self) -> Vec<FoundEndpoint> {
        let mut found = Vec::with_capacity(self.endpoints);
        for (origin, root) in &self.origins {
            root.collect(origin, &mut Vec::new(), &mut found);
        }
        found
    }
}

impl PathNode {
    /// Returns the statistics of an endpoint below this node. `None` if the endpoint is new and there is no
    /// room.
    fn stats(&mut self, method: &str, path: &str, variety: usize, has_room: bool) -> Option<&mut Stats> {
        let mut node = self;
        let segments = path.split('/').filter(|segment| !segment.is_empty());
        for (depth, segment) in segments.enumerate() {
            if depth >= DEPTH_MAX {
                node = node.word(DEEPER, usize::MAX, has_room)?;
                break;
            }
            node =
                if is_word(segment) { node.word(segment, variety, has_room)? } else { node.value(has_room)? };
        }
        if has_room {
            return Some(node.methods.entry(method.into()).or_default());
        }
        node.methods.get_mut(method)
    }

    /// Returns the node below a word, or below values if words are values here. `None` if it is new and there
    /// is no room.
    fn word(&mut self, word: &str, variety: usize, has_room: bool) -> Option<&mut Self> {
        if self.is_varied {
            return self.value(has_room);
        }
        if !self.words.contains_key(word) {
            if !has_room {
                return None;
            }
            if self.words.len() >= variety {
                self.merge_words(variety);
                return self.value(true);
            }
        }
        Some(self.words.entry(word.into()).or_default())
    }

    /// Returns the node below values.
    fn value(&mut self, has_room: bool) -> Option<&mut Self> {
        if self.values.is_none() && !has_room {
            return None;
        }
        Some(self.values.get_or_insert_default())
    }

    /// Turns all words at this position into values and merges their nodes.
    fn merge_words(&mut self, variety: usize) {
        self.is_varied = true;
        let mut all = self.values.take().map_or_else(Self::default, |values| *values);
        for (_, node) in std::mem::take(&mut self.words) {
            all.join(node, variety);
        }
        self.values = Some(Box::new(all));
    }

    /// Merges another node into this one. Both are within the maximum depth.
    fn join(&mut self, other: Self, variety: usize) {
        for (method, stats) in other.methods {
            self.methods.entry(method).or_default().join(stats, usize::MAX);
        }
        if let Some(values) = other.values {
            self.values.get_or_insert_default().join(*values, variety);
        }
        for (word, node) in other.words {
            if self.is_varied {
                self.values.get_or_insert_default().join(node, variety);
            } else {
                self.words.entry(word).or_default().join(node, variety);
            }
        }
        if other.is_varied || self.words.len() > variety {
            self.merge_words(variety);
        }
    }

    fn endpoints(&self) -> usize {
        let below = self.words.values().chain(self.values.as_deref());
        self.methods.len() + below.map(Self::endpoints).sum::<usize>()
    }

    /// Returns an upper estimate of the memory of the nodes below, without statistics.
    fn bytes(&self) -> usize {
        let words = self.words.iter().map(|(word, node)| NODE_BYTES + word.len() + node.bytes());
        let values = self.values.as_deref().map_or(0, |values| NODE_BYTES + values.bytes());
        words.sum::<usize>() + values
    }

    fn collect(&self, origin: &Origin, path: &mut Vec<Option<String>>, found: &mut Vec<FoundEndpoint>) {
        for (method, stats) in &self.methods {
            found.push(FoundEndpoint {
                origin: origin.clone(),
                path: path.clone(),
                method: method.as_ref().to_owned(),
                stats: stats.clone(),
            });
        }
        let words = self.words.iter().map(|(word, node)| (Some(word.as_ref().to_owned()), node));
        let value = self.is_varied.then(|| VARIED.to_owned());
        for (segment, node) in words.chain(self.values.as_deref().map(|node| (value, node))) {
            path.push(segment);
            node.collect(origin, path, found);
            path.pop();
        }
    }
}

impl Stats {
    /// Adds the counts of `other`. Of the consumers and of the clients, at most `names` are listed.
    pub(crate) fn join(&mut self, other: Self, names: usize) {
        if other.count == 0 {
            return;
        }
        self.seen(other.first_seen_us, other.last_seen_us);
        self.count += other.count;
        self.consumers.join(other.consumers, names);
        self.clients.join(other.clients, names);
        self.retry_after += other.retry_after;
        self.times.join(&other.times);
        for (status, count) in other.statuses {
            self.status(status, count);
        }
    }

    fn seen(&mut self, first_us: u64, last_us: u64) {
        self.first_seen_us = if self.count == 0 { first_us } else { self.first_seen_us.min(first_us) };
        self.last_seen_us = self.last_seen_us.max(last_us);
    }

    fn status(&mut self, status: u16, count: u64) {
        let is_room = self.statuses.len() < STATUSES_MAX || self.statuses.contains_key(&status);
        // Further status codes of a provider that has too many are counted by class.
        let status = if is_room { status } else { status / 100 * 100 };
        *self.statuses.entry(status).or_default() += count;
    }
}

impl NamedCounts {
    /// Counts `count` exchanges with this name; none if it is empty.
    fn of(name: &str, count: u64) -> Self {
        let listed = (!name.is_empty()).then(|| (name.to_owned(), count));
        Self { listed: listed.into_iter().collect(), others: 0 }
    }

    /// Adds the counts of `other`. At most `max` names are listed.
    fn join(&mut self, other: Self, max: usize) {
        self.others += other.others;
        for (name, count) in other.listed {
            if let Some(known) = self.listed.get_mut(&name) {
                *known += count;
            } else if self.listed.len() < max {
                self.listed.insert(name, count);
            } else {
                self.others += count;
            }
        }
    }
}

impl From<SeenCalls<'_>> for Stats {
    fn from(calls: SeenCalls<'_>) -> Self {
        let SeenCalls { status, has_retry_after, consumer, client, count, times, first_us, last_us, .. } =
            calls;
        Self {
            count,
            statuses: [(status, count)].into(),
            times,
            first_seen_us: first_us,
            last_seen_us: last_us,
            consumers: NamedCounts::of(consumer, count),
            clients: NamedCounts::of(client, count),
            retry_after: if has_retry_after { count } else { 0 },
        }
    }
}

/// Returns `true` if a segment may be a word of an API. A segment that looks like a secret is never one.
pub(crate) fn is_word(segment: &str) -> bool {
    let bytes = segment.as_bytes();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    let digits = bytes.iter().filter(|byte| byte.is_ascii_digit()).count();
    let cases = bytes.windows(2).filter(|pair| {
        pair[0].is_ascii_alphabetic()
            && pair[1].is_ascii_alphabetic()
            && pair[0].is_ascii_uppercase() != pair[1].is_ascii_uppercase()
    });
    let is_hex = bytes.len() >= HEX_DIGITS_MIN && bytes.iter().all(u8::is_ascii_hexdigit);
    bytes.len() <= WORD_BYTES_MAX
        && bytes.iter().all(is_plain)
        && bytes.iter().any(u8::is_ascii_alphabetic)
        && !matches!(segment, "." | "..")
        && digits <= WORD_DIGITS_MAX
        && !is_hex
        && cases.count() <= WORD_CASES_MAX
        && !detect::holds_secret(segment)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn origin(host: &str) -> Origin {
        Origin {
            provider: "-".to_owned(),
            tls: true,
            host: host.to_owned(),
            port: 443,
            prefix: String::new(),
        }
    }

    fn bounds(variety: usize, endpoints: usize) -> Bounds {
        Bounds { variety, endpoints, names: 32, bytes: usize::MAX }
    }

    fn call(path: &str) -> SeenCalls<'_> {
        let mut times = TimeHistogram::default();
        times.count(1_000);
        SeenCalls {
            method: "GET",
            path,
            status: 200,
            has_retry_after: false,
            consumer: "",
            client: "",
            count: 1,
            times,
            first_us: 5,
            last_us: 5,
        }
    }

    fn paths(inventory: &Inventory) -> Vec<String> {
        let shown = |endpoint: FoundEndpoint| {
            let segments = endpoint.path.iter().map(|segment| segment.as_deref().unwrap_or("{}"));
            format!(
                "{} /{} {}",
                endpoint.method,
                segments.collect::<Vec<_>>().join("/"),
                endpoint.stats.count
            )
        };
        inventory.endpoints().into_iter().map(shown).collect()
    }

    #[test]
    fn words_are_told_from_values() {
        for word in [
            "users",
            "v1",
            "v1.2",
            "oauth2",
            "getUserById",
            "charge-sessions",
            "robots.txt",
            "s3",
            "me",
            "IDs",
        ] {
            assert!(is_word(word), "{word}");
        }
        let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0".repeat(2));
        for value in [
            "7",
            "2024-10-31",
            "550e8400-e29b-41d4-a716-446655440000",
            "deadbeef",
            "ch_1A2b3C4d5",
            "ada@example.com",
            "a%20b",
            "..",
            "aBcDeFgHiJkL",
            "4111111111111111",
            &"x".repeat(41),
            &token,
            "\u{e9}",
        ] {
            assert!(!is_word(value), "{value}");
        }
    }

    #[test]
    fn values_come_together_at_once_and_words_once_there_are_too_many() {
        let mut inventory = Inventory::default();
        let mut see = |path: &str| inventory.add(&origin("a"), call(path), &bounds(3, 100));
        for path in ["/users/1", "/users/2/", "//users/me", "/users/1/orders/9", "/"] {
            see(path);
        }
        for tenant in ["red", "green", "blue"] {
            see(&format!("/tenants/{tenant}/items"));
        }
        assert_eq!(
            paths(&inventory),
            [
                "GET / 1",
                "GET /tenants/blue/items 1",
                "GET /tenants/green/items 1",
                "GET /tenants/red/items 1",
                "GET /users/me 1",
                "GET /users/{} 2",
                "GET /users/{}/orders/{} 1",
            ]
        );
        let mut see = |path: &str| inventory.add(&origin("a"), call(path), &bounds(3, 100));
        see("/tenants/black/items");
        see("/tenants/red");
        assert_eq!(paths(&inventory)[1..3], ["GET /tenants/{} 1", "GET /tenants/{}/items 4"]);
        assert_eq!(inventory.endpoints, 6);
    }

    #[test]
    fn calls_beyond_the_bounds_are_counted() {
        let mut inventory = Inventory::default();
        for path in ["/a", "/b", "/c", "/a", "/d/e"] {
            inventory.add(&origin("a"), call(path), &bounds(10, 2));
        }
        inventory.add(&origin("b"), call("/a"), &bounds(10, 2));
        assert_eq!(paths(&inventory), ["GET /a 2", "GET /b 1"]);
        assert_eq!(inventory.unlisted, 3);
        let mut inventory = Inventory::default();
        let deep = "/a".repeat(DEPTH_MAX + 5);
        inventory.add(&origin("a"), call(&deep), &bounds(10, 10));
        assert_eq!(paths(&inventory), [format!("GET {}/* 1", "/a".repeat(DEPTH_MAX))]);
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut inventory = Inventory::default();
        let bounds = Bounds { bytes: 20_000, ..bounds(1_000, 1_000) };
        for number in 0..100_u8 {
            let letter = char::from(b'a' + number % 26);
            let path = format!("/{}", letter.to_string().repeat(1 + usize::from(number) / 26));
            inventory.add(&origin("a"), call(&path), &bounds);
        }
        assert!(inventory.bytes >= 20_000 && inventory.bytes < 30_000, "{}", inventory.bytes);
        assert!(inventory.unlisted > 90, "{}", inventory.unlisted);
    }

    #[test]
    fn an_endpoint_keeps_what_was_seen_of_it() {
        let mut inventory = Inventory::default();
        for (number, status) in [(1_u16, 200), (2, 500), (3, 0)] {
            let consumer = format!("c{number}");
            let at_us = u64::from(number);
            let call =
                SeenCalls { status, first_us: at_us, last_us: at_us, consumer: &consumer, ..call("/a") };
            inventory.add(&origin("a"), call, &bounds(10, 10));
        }
        let [endpoint] = &inventory.endpoints()[..] else { panic!("one") };
        let stats = &endpoint.stats;
        assert_eq!((stats.count, stats.first_seen_us, stats.last_seen_us), (3, 1, 3));
        assert_eq!(stats.statuses, [(0, 1), (200, 1), (500, 1)].into());
        assert_eq!(stats.consumers.listed.len(), 3);
    }

    proptest! {
        #[test]
        fn no_exchange_is_lost_whatever_converges(
            paths in prop::collection::vec("(/[a-f]{1,2}|/[0-9]){0,5}", 0..60), variety in 2_usize..5, max in 1_usize..30,
        ) {
            let mut inventory = Inventory::default();
            for path in &paths {
                inventory.add(&origin("a"), call(path), &bounds(variety, max));
            }
            let listed: u64 = inventory.endpoints().iter().map(|endpoint| endpoint.stats.count).sum();
            prop_assert_eq!(listed + inventory.unlisted, paths.len() as u64);
            prop_assert!(inventory.endpoints().len() <= max);
            prop_assert_eq!(inventory.endpoints().len(), inventory.endpoints);
            // An inventory that is stored and restored is the same.
            let mut again = Inventory::default();
            for endpoint in inventory.endpoints() {
                again.restore(endpoint, &bounds(variety, max));
            }
            prop_assert_eq!(again.endpoints(), inventory.endpoints());
        }
    }
}

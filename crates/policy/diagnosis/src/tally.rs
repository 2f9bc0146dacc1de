//! The inventory that the gateway keeps of all exchanges without any flow: cheap enough for every exchange.
//!
//! Each worker counts in a table of its own. A path that it has seen recently costs one hash and a few
//! stores; any other path is split into words and values, at most [`LEARNED_PER_SECOND`] times per second.
//! Endpoints that leave the table, and all of them when somebody asks, are added to one shared inventory.
//! Nothing but words, as the inventory understands them, is kept of a path, and nothing of a query.

use std::fmt::Write as _;
use std::mem;

use egret_clock::{Clock, Moment, Random, folded};
use egret_har::detect;
use egret_http1::Method;
use egret_match::target::normal_path;
use egret_message::request_target::split_query;
use parking_lot::Mutex;

use crate::callers::Callers;
use crate::diagnoses::discovery::inventory::{Bounds, DEPTH_MAX, Inventory, Origin, SeenCalls, is_word};
use crate::diagnoses::discovery::times::{CLASSES, TimeHistogram, class};
use crate::discovered::{Discovered, DiscoveredEndpoint};

/// Bounds of the shared inventory. Together with the tables it stays below 1 MiB.
const BOUNDS: Bounds = Bounds { variety: 30, endpoints: 1_000, names: 8, bytes: 640 * 1024 };
/// Memory of all workers' tables together.
const TABLES_BYTES: usize = 192 * 1024;
/// Bounds of the number of endpoints in one table.
const SLOTS_MIN: usize = 4;
const SLOTS_MAX: usize = 64;
/// Number of recent paths that a worker knows the endpoints of.
const PATHS: usize = 64;
/// Number of paths that a worker takes apart per second. Exchanges beyond it are only counted.
const LEARNED_PER_SECOND: u32 = 1_000;
/// Maximum length of a consumer's name. Longer names are left out.
const CONSUMER_BYTES_MAX: usize = 64;
/// A segment that is a value in every inventory.
const VALUE: &str = "0";

/// A finished exchange.
#[derive(Debug, Clone, Copy)]
pub struct TalliedCall<'a> {
    /// A number that identifies the provider or host, and its base path.
    pub origin: u64,
    /// Method.
    pub method: Method,
    /// Target relative to the provider's URL, in origin-form. Its query is left out.
    pub target: &'a [u8],
    /// Status code; 0 if the provider did not respond.
    pub status: u16,
    /// `true` if the response says when to try again.
    pub has_retry_after: bool,
    /// Name that the client gives itself.
    pub consumer: &'a [u8],
    /// Time that the client waited.
    pub time_us: u64,
    /// End of the exchange.
    pub ended: Moment,
}

/// The provider or host that a call belongs to.
#[derive(Debug, Clone, Copy)]
pub struct TalliedOrigin<'a> {
    /// Name of the provider in the config; `-` if there is none.
    pub provider: &'a str,
    /// `true` if it is called over TLS.
    pub tls: bool,
    /// Host in lower case; IPv6 without brackets.
    pub host: &'a str,
    /// Port.
    pub port: u16,
    /// Path of the provider's URL.
    pub prefix: &'a [u8],
}

/// The tables of all workers, and the inventory that they add up to.
#[derive(Debug)]
pub struct Tallies {
    sums: Mutex<Sums>,
    /// Each worker locks its own table, which is free unless somebody reads the inventory.
    workers: Box<[Worker]>,
    seed: u64,
}

/// The sums over all workers.
#[derive(Debug, Default)]
struct Sums {
    inventory: Inventory,
    callers: Callers,
}

/// One worker's table. Aligned, so two workers never write to the same cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Worker(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// Recent paths, by their hash. Empty until the first exchange.
    paths: Vec<KnownPath>,
    slots: Vec<Slot>,
    /// Second in which `learned` paths were taken apart.
    second: u64,
    learned: u32,
    /// Number of exchanges that were not counted by endpoint.
    skipped: u64,
}

/// A path that was taken apart.
#[derive(Debug, Clone, Copy, Default)]
struct KnownPath {
    hash: u64,
    endpoint: u64,
    slot: usize,
}

/// Exchanges of one endpoint with the same status and consumer.
#[derive(Debug)]
struct Slot {
    /// Hash of everything by which slots differ; the path in its words.
    endpoint: u64,
    origin: Origin,
    method: &'static str,
    path: String,
    status: u16,
    has_retry_after: bool,
    consumer: String,
    count: u16,
    first: Moment,
    last: Moment,
    times: Box<[u16; CLASSES]>,
}

impl Tallies {
    /// Creates empty tables for `workers` workers.
    pub fn new(workers: usize) -> Self {
        Self {
            sums: Mutex::default(),
            workers: (0..workers).map(|_| Worker::default()).collect(),
            seed: Random::default().draw(),
        }
    }

    /// Returns a number for [`TalliedCall::origin`].
    pub fn number(origin: TalliedOrigin<'_>) -> u64 {
        let TalliedOrigin { provider, tls, host, port, prefix } = origin;
        let named = hash(u64::from(tls) << 16 | u64::from(port), provider.as_bytes());
        hash(hash(named, host.as_bytes()), prefix)
    }

    /// Counts an exchange on the thread of worker `worker`. `origin` is asked only about a new endpoint.
    pub fn count<'a>(
        &self,
        worker: usize,
        call: &TalliedCall<'_>,
        clock: &Clock,
        origin: impl FnOnce() -> TalliedOrigin<'a>,
    ) {
        let Some(Worker(table)) = self.workers.get(worker) else { return };
        let mut table = table.lock();
        let path_hash = hash_of_path(call.key(self.seed), call.target);
        let Some(slot) = table.known(path_hash) else {
            // A copy, so the usual case need not write `call` to memory.
            let call = *call;
            return self.learn(&mut table, path_hash, &call, clock, origin());
        };
        self.add(slot, call, clock);
    }

    /// Counts an exchange in its slot. A full slot moves into the inventory.
    #[inline]
    fn add(&self, slot: &mut Slot, call: &TalliedCall<'_>, clock: &Clock) {
        slot.add(call);
        if slot.count == u16::MAX {
            slot.empty_into(&mut self.sums.lock(), clock);
        }
    }

    /// Finds the endpoint of a path that is not known, and counts the exchange.
    #[cold]
    fn learn(
        &self,
        table: &mut Table,
        path_hash: u64,
        call: &TalliedCall<'_>,
        clock: &Clock,
        origin: TalliedOrigin<'_>,
    ) {
        if !table.may_learn(call.ended) {
            table.skipped += 1;
            return;
        }
        let path = words_of(split_query(call.target).0);
        let endpoint = hash(call.key(self.seed), path.as_bytes());
        let known = table.slots.iter().position(|slot| slot.endpoint == endpoint);
        let slot = known.unwrap_or_else(|| {
            let max = (TABLES_BYTES / self.workers.len() / SLOT_BYTES).clamp(SLOTS_MIN, SLOTS_MAX);
            let slot = Slot::new(endpoint, call, path, origin);
            table.put(slot, max, |evicted| evicted.empty_into(&mut self.sums.lock(), clock))
        });
        self.add(&mut table.slots[slot], call, clock);
        let place = table.place(path_hash);
        table.paths[place] = KnownPath { hash: path_hash, endpoint, slot };
    }

    /// Returns the endpoints of all exchanges so far.
    pub fn discovered(&self, clock: &Clock) -> Discovered {
        let mut skipped = 0;
        for Worker(table) in &self.workers {
            let mut table = table.lock();
            skipped += table.skipped;
            let mut sums = self.sums.lock();
            table.slots.iter_mut().for_each(|slot| slot.empty_into(&mut sums, clock));
        }
        let sums = self.sums.lock();
        let (endpoints, unlisted) = (sums.inventory.endpoints(), sums.inventory.unlisted + skipped);
        let (consumers, other_consumers) = (sums.callers.list(), sums.callers.unlisted() + skipped);
        drop(sums);
        let endpoints = endpoints.into_iter().map(DiscoveredEndpoint::from).collect();
        Discovered { flow: String::new(), unlisted, endpoints, consumers, other_consumers }
    }
}

/// Memory of a slot with texts of the usual length.
const SLOT_BYTES: usize = size_of::<Slot>() + size_of::<[u16; CLASSES]>() + 192;

impl TalliedCall<'_> {
    /// Returns a hash of everything but the path.
    fn key(&self, seed: u64) -> u64 {
        let small = u64::from(self.status) << 16
            | u64::from(self.has_retry_after) << 8
            | u64::try_from(self.method.index()).unwrap_or_default();
        let key = folded(seed ^ self.origin ^ small);
        if self.consumer.is_empty() { key } else { hash(key, self.consumer) }
    }
}

impl Table {
    /// Returns the slot of a path that was taken apart before.
    fn known(&mut self, path_hash: u64) -> Option<&mut Slot> {
        let known = self.paths.get(place_of(path_hash))?;
        if known.hash != path_hash {
            return None;
        }
        let endpoint = known.endpoint;
        self.slots.get_mut(known.slot).filter(|slot| slot.endpoint == endpoint)
    }

    /// Returns the place of a path among the recent ones.
    fn place(&mut self, path_hash: u64) -> usize {
        if self.paths.is_empty() {
            self.paths.resize(PATHS, KnownPath::default());
        }
        place_of(path_hash)
    }

    /// Returns `true` if one more path may be taken apart in this second.
    fn may_learn(&mut self, now: Moment) -> bool {
        let second = now.as_nanos() / 1_000_000_000;
        if second != self.second {
            self.second = second;
            self.learned = 0;
        }
        self.learned += 1;
        self.learned <= LEARNED_PER_SECOND
    }

    /// Stores a slot. If there are `max`, it replaces the one that was used the longest ago, which is passed
    /// to `evict` first.
    fn put(&mut self, slot: Slot, max: usize, evict: impl FnOnce(&mut Slot)) -> usize {
        if self.slots.len() < max {
            self.slots.push(slot);
            return self.slots.len() - 1;
        }
        let oldest = (0..self.slots.len()).min_by_key(|at| self.slots[*at].last).unwrap_or_default();
        evict(&mut self.slots[oldest]);
        self.slots[oldest] = slot;
        oldest
    }
}

impl Slot {
    fn new(endpoint: u64, call: &TalliedCall<'_>, path: String, origin: TalliedOrigin<'_>) -> Self {
        let TalliedOrigin { provider, tls, host, port, prefix } = origin;
        let prefix = prefix.strip_suffix(b"/").unwrap_or(prefix);
        Self {
            endpoint,
            origin: Origin {
                provider: provider.to_owned(),
                tls,
                host: host.to_owned(),
                port,
                prefix: String::from_utf8_lossy(prefix).into_owned(),
            },
            method: call.method.name(),
            path,
            status: call.status,
            has_retry_after: call.has_retry_after,
            consumer: consumer_of(call.consumer),
            count: 0,
            first: call.ended,
            last: call.ended,
            times: Box::new([0; CLASSES]),
        }
    }

    fn add(&mut self, call: &TalliedCall<'_>) {
        debug_assert!(self.count < u16::MAX, "a full slot is emptied at once");
        if self.count == 0 {
            self.first = call.ended;
        }
        self.count += 1;
        self.last = call.ended;
        // No bucket can hold more than `count`.
        self.times[class(call.time_us)] += 1;
    }

    /// Adds the counts to the inventory and starts again from zero.
    fn empty_into(&mut self, sums: &mut Sums, clock: &Clock) {
        let count = mem::take(&mut self.count);
        if count == 0 {
            return;
        }
        let times = mem::replace(&mut *self.times, [0; CLASSES]);
        let calls = SeenCalls {
            method: self.method,
            path: &self.path,
            status: self.status,
            has_retry_after: self.has_retry_after,
            consumer: &self.consumer,
            client: "",
            count: count.into(),
            times: TimeHistogram::of(&times.map(u32::from)),
            first_us: clock.timestamp(self.first).as_micros(),
            last_us: clock.timestamp(self.last).as_micros(),
        };
        sums.callers.add(&self.origin.provider, calls.clone());
        sums.inventory.add(&self.origin, calls, &BOUNDS);
    }
}

/// Returns the place of a path among the recent ones.
fn place_of(path_hash: u64) -> usize {
    usize::try_from(path_hash % PATHS as u64).unwrap_or_default()
}

/// Returns the path with a placeholder for each value.
fn words_of(path: &[u8]) -> String {
    let path = normal_path(path);
    let path = String::from_utf8_lossy(&path);
    let mut words = String::new();
    for segment in path.split('/').filter(|segment| !segment.is_empty()).take(DEPTH_MAX + 1) {
        // Writing to a `String` cannot fail.
        let _ = write!(words, "/{}", if is_word(segment) { segment } else { VALUE });
    }
    words
}

/// Returns the name of a consumer, unless it is too long, not plain text, or looks like a secret.
fn consumer_of(name: &[u8]) -> String {
    let name = std::str::from_utf8(name).unwrap_or_default();
    let is_plain =
        name.len() <= CONSUMER_BYTES_MAX && !name.contains(char::is_control) && !detect::holds_secret(name);
    if is_plain { name.to_owned() } else { String::new() }
}

/// Hashes `bytes`. The start is secret, so nobody can choose texts that collide.
fn hash(start: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let hash = words.iter().fold(start, |hash, word| folded(hash ^ u64::from_le_bytes(*word)));
    // The length tells a short text from one that ends with zeros.
    folded(folded(hash ^ small_word(rest)) ^ bytes.len() as u64)
}

/// Hashes a target up to its query. A target has no byte 0, so its length need not be hashed.
fn hash_of_path(start: u64, target: &[u8]) -> u64 {
    let (words, rest) = target.as_chunks::<8>();
    let mut hash = start;
    for word in words {
        let word = u64::from_le_bytes(*word);
        let before_query = before_query(word);
        hash = folded(hash ^ before_query);
        if before_query != word {
            return hash;
        }
    }
    let rest = match target.last_chunk::<8>() {
        // One load instead of several; the bytes that are hashed already fall out.
        Some(last) if !rest.is_empty() => u64::from_le_bytes(*last) >> (64 - 8 * rest.len()),
        _ => small_word(rest),
    };
    folded(hash ^ before_query(rest))
}

/// Returns up to eight bytes as a number.
fn small_word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// Returns the bytes of `word` before its first question mark.
fn before_query(word: u64) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const MARKS: u64 = u64::from_ne_bytes([b'?'; 8]);
    let differs = word ^ MARKS;
    // The lowest bit is the highest of the first byte that is zero: a subtraction borrows only upwards.
    let zeros = differs.wrapping_sub(ONES) & !differs & ONES << 7;
    if zeros == 0 { word } else { word & ((1 << (zeros.trailing_zeros() - 7)) - 1) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const ORIGIN: TalliedOrigin<'_> =
        TalliedOrigin { provider: "stripe", tls: true, host: "api.stripe.com", port: 443, prefix: b"/v1" };

    fn call(path: &str, status: u16) -> TalliedCall<'_> {
        TalliedCall {
            origin: Tallies::number(ORIGIN),
            method: Method::Get,
            target: path.as_bytes(),
            status,
            has_retry_after: status == 429,
            consumer: b"",
            time_us: 1_000,
            ended: Moment::now(),
        }
    }

    fn listed(tallies: &Tallies) -> Vec<(String, String, u64)> {
        let found = tallies.discovered(&Clock::new());
        let row =
            |found: DiscoveredEndpoint| (found.method, format!("{}{}", found.url, found.path), found.count);
        found.endpoints.into_iter().map(row).collect()
    }

    #[test]
    fn exchanges_are_counted_by_endpoint_without_a_value_of_a_parameter() {
        let (tallies, clock) = (Tallies::new(2), Clock::new());
        for number in 0..300 {
            let path = format!("/charges/{number}");
            tallies.count(number % 2, &call(&path, 200), &clock, || ORIGIN);
            tallies.count(0, &call("/balance", if number < 40 { 429 } else { 200 }), &clock, || ORIGIN);
        }
        let url = "https://api.stripe.com/v1";
        let get = || "GET".to_owned();
        let expected =
            [(get(), format!("{url}/balance"), 300), (get(), format!("{url}/charges/{{charge_id}}"), 300)];
        assert_eq!(listed(&tallies), expected);
        assert_eq!(listed(&tallies), expected, "asking changes nothing");
        let found = tallies.discovered(&clock);
        assert_eq!(found.endpoints[0].statuses, [(200, 260), (429, 40)].into());
        assert_eq!(found.endpoints[0].retry_after, 40);
        assert!((1_000..1_200).contains(&found.endpoints[0].p50_us));
    }

    #[test]
    fn a_path_has_one_hash_for_every_query() {
        let mut seen = std::collections::HashSet::new();
        for len in 0..40 {
            for letter in ["a", "b", "@", ">", "\u{bf}"] {
                let path = format!("/{}{letter}", "a".repeat(len));
                let hash = hash_of_path(7, path.as_bytes());
                assert!(seen.insert(hash), "{path}");
                for query in ["?", "?a=b", "?a?b", "?@>\u{7f}\u{80}", "?a-long-query=with-a-long-value"] {
                    assert_eq!(hash_of_path(7, format!("{path}{query}").as_bytes()), hash, "{path}{query}");
                }
            }
        }
    }

    #[test]
    fn more_endpoints_than_a_table_has_room_for_are_all_kept() {
        let (tallies, clock) = (Tallies::new(1), Clock::new());
        for round in 0..3 {
            for word in 0..26_u8 {
                for method in [Method::Get, Method::Post, Method::Put] {
                    let path = format!("/{}", char::from(b'a' + word));
                    let call = TalliedCall { method, ..call(&path, 200 + round) };
                    tallies.count(0, &call, &clock, || ORIGIN);
                }
            }
        }
        let listed = listed(&tallies);
        assert_eq!(listed.len(), 78);
        assert!(listed.iter().all(|(_, _, count)| *count == 3), "{listed:?}");
    }

    #[test]
    fn a_flood_of_new_paths_is_only_counted() {
        let (tallies, clock) = (Tallies::new(1), Clock::new());
        let now = Moment::now();
        for number in 0..u64::from(LEARNED_PER_SECOND) + 500 {
            let path = format!("/x/{number}");
            tallies.count(0, &TalliedCall { ended: now, ..call(&path, 200) }, &clock, || ORIGIN);
        }
        let found = tallies.discovered(&clock);
        assert_eq!(found.unlisted, 500);
        assert_eq!(found.endpoints[0].count, u64::from(LEARNED_PER_SECOND));
    }

    #[test]
    fn consumers_are_named_unless_the_name_may_be_a_secret() {
        let (tallies, clock) = (Tallies::new(1), Clock::new());
        let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0".repeat(2));
        for consumer in ["shop", &token, &"x".repeat(65)] {
            let call = TalliedCall { consumer: consumer.as_bytes(), ..call("/a", 200) };
            tallies.count(0, &call, &clock, || ORIGIN);
        }
        let found = tallies.discovered(&clock);
        assert_eq!(found.endpoints[0].consumers, [("shop".to_owned(), 1)].into());
        assert_eq!(found.endpoints[0].count, 3);
    }

    #[test]
    fn a_counter_that_is_full_moves_into_the_inventory() {
        let (tallies, clock) = (Tallies::new(1), Clock::new());
        for _ in 0..70_000 {
            tallies.count(0, &call("/a", 200), &clock, || ORIGIN);
        }
        assert_eq!(tallies.discovered(&clock).endpoints[0].count, 70_000);
    }

    #[test]
    fn a_counter_of_many_paths_that_is_full_moves_into_the_inventory() {
        let (tallies, clock, begun) = (Tallies::new(1), Clock::new(), Moment::now());
        let one = Duration::from_secs(1) / LEARNED_PER_SECOND;
        for number in 0..70_000 {
            let ended = begun + one * number;
            tallies.count(0, &TalliedCall { ended, ..call(&format!("/a/{number}"), 200) }, &clock, || ORIGIN);
        }
        let found = tallies.discovered(&clock);
        assert_eq!(found.endpoints[0].count + found.unlisted, 70_000);
        assert!(found.unlisted < 200, "{}", found.unlisted);
    }

    #[test]
    fn the_tables_of_any_number_of_workers_stay_small() {
        for workers in [1, 2, 16, 64] {
            let slots = (TABLES_BYTES / workers / SLOT_BYTES).clamp(SLOTS_MIN, SLOTS_MAX);
            let paths = PATHS * size_of::<KnownPath>();
            let bytes = workers * (slots * SLOT_BYTES + paths);
            assert!(bytes + BOUNDS.bytes <= 1 << 20, "{workers}: {bytes}");
        }
    }

    proptest! {
        #[test]
        fn no_exchange_is_lost(
            calls in prop::collection::vec(("(/[a-c]{1,2}|/[0-9]){0,3}", 0_usize..3, 200_u16..203), 0..200),
        ) {
            let (tallies, clock) = (Tallies::new(3), Clock::new());
            for (path, worker, status) in &calls {
                tallies.count(*worker, &call(path, *status), &clock, || ORIGIN);
            }
            let found = tallies.discovered(&clock);
            let listed: u64 = found.endpoints.iter().map(|endpoint| endpoint.count).sum();
            prop_assert_eq!(listed + found.unlisted, calls.len() as u64);
        }

        #[test]
        fn texts_that_differ_have_different_hashes(one in "[a-z/]{0,20}", other in "[a-z/]{0,20}") {
            prop_assert_eq!(hash(7, one.as_bytes()) == hash(7, other.as_bytes()), one == other);
        }
    }
}

//! Tests that a queue uses as much of a quota as possible and never exceeds it, for each kind of quota. They
//! run in simulated time, with clients that send the next request after each response, and a provider that
//! keeps its own count.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Wake, Waker};

use egret_clock::Timestamp;
use jiff::tz::TimeZone;
use proptest::prelude::*;
use serde_json::{Value, json};

use egret_fixture::{TestExchange, TestFlows, TestStep};
use egret_message::ErrorKind;

const GET: &str = "GET https://one.example/";
const MS: u64 = 1_000;
const HOUR: u64 = 3_600_000 * MS;

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

/// A client and its state.
enum Client {
    /// Its exchange waits for a wake-up or a time.
    Waits {
        exchange: TestExchange,
        flag: Arc<Flag>,
        until: u64,
        since: u64,
    },
    /// Its call is in progress until this time.
    Called {
        exchange: TestExchange,
        ends: u64,
    },
    Done,
}

/// Results of a simulation. Times are in microseconds.
#[derive(Debug, Default)]
struct Seen {
    /// Times at which the provider counted the calls.
    counted: Vec<u64>,
    /// Waits of exchanges that were called, and of those that were refused.
    called_after: Vec<u64>,
    refused_after: Vec<u64>,
}

/// Times from sending a call until the provider counts it, and until its response arrives.
type Network<'n> = &'n dyn Fn(usize) -> (u64, u64);

struct Simulation<'n> {
    harness: TestFlows,
    clients: Vec<Client>,
    network: Network<'n>,
    /// `true` if clients send another request after a response.
    asks_again: bool,
    seen: Seen,
}

impl<'n> Simulation<'n> {
    fn new(quota: &Value, queue: &Value, begin: u64, network: Network<'n>) -> Self {
        let mut harness = TestFlows::new(json!({
            "quotas": { "q": quota },
            "flows": [{ "name": "f", "remedies": [{ "queue": queue }] }],
        }));
        harness.now = Timestamp::from_micros(begin);
        Self { harness, clients: Vec::new(), network, asks_again: true, seen: Seen::default() }
    }

    fn now(&self) -> u64 {
        self.harness.now.as_micros()
    }

    fn ask(&self) -> Client {
        let exchange = self.harness.send(GET);
        let flag = Arc::new(Flag(true.into()));
        Client::Waits { exchange, flag, until: u64::MAX, since: self.now() }
    }

    fn join(&mut self, clients: usize) {
        for _ in 0..clients {
            self.clients.push(self.ask());
        }
    }

    /// Runs the simulation until `end`.
    fn run(mut self, end: u64) -> Seen {
        loop {
            while self.step() {}
            let next = self.clients.iter().map(|client| match client {
                Client::Waits { until, .. } => *until,
                Client::Called { ends, .. } => *ends,
                Client::Done => u64::MAX,
            });
            match next.min().filter(|next| *next < end) {
                Some(next) => self.harness.now = Timestamp::from_micros(next.max(self.now() + 1)),
                None => return self.seen,
            }
        }
    }

    /// Visits all clients once. Returns `true` if any of them did something.
    fn step(&mut self) -> bool {
        let mut has_happened = false;
        for place in 0..self.clients.len() {
            let now = self.now();
            let is_due = match &self.clients[place] {
                Client::Waits { flag, until, .. } => flag.0.swap(false, Relaxed) || *until <= now,
                Client::Called { ends, .. } => *ends <= now,
                Client::Done => false,
            };
            if is_due {
                has_happened = true;
                let client = std::mem::replace(&mut self.clients[place], Client::Done);
                self.clients[place] = self.resume(client);
            }
        }
        has_happened
    }

    fn resume(&mut self, client: Client) -> Client {
        let now = self.now();
        match client {
            Client::Waits { mut exchange, flag, since, .. } => {
                match exchange.poll_with(&self.harness, &Waker::from(Arc::clone(&flag))) {
                    TestStep::Wait(at) => {
                        let until = at.map_or(u64::MAX, Timestamp::as_micros);
                        Client::Waits { exchange, flag, until: until.max(now + 1), since }
                    }
                    TestStep::Call => {
                        let (counted, ends) = (self.network)(self.seen.counted.len());
                        self.seen.counted.push(now + counted);
                        self.seen.called_after.push(now - since);
                        Client::Called { exchange, ends: now + ends }
                    }
                    refused => {
                        assert_eq!(refused.refusal(&self.harness).0, ErrorKind::QueueTimeout);
                        self.seen.refused_after.push(now - since);
                        Client::Done
                    }
                }
            }
            Client::Called { mut exchange, .. } => {
                assert_eq!(exchange.response(&self.harness, "200"), TestStep::Response(200));
                exchange.end(&self.harness);
                if self.asks_again { self.ask() } else { Client::Done }
            }
            Client::Done => Client::Done,
        }
    }
}

/// Returns the maximum number of calls counted in any window of that length.
fn peak(mut counted: Vec<u64>, window: u64) -> usize {
    counted.sort_unstable();
    let within = |(first, begin): (usize, &u64)| {
        counted[first..].iter().take_while(|time| **time < begin + window).count()
    };
    counted.iter().enumerate().map(within).max().unwrap_or_default()
}

/// Returns the number of calls in each window of a provider whose windows follow the clock.
fn by_window(counted: &[u64], window: u64) -> BTreeMap<u64, u64> {
    let mut windows = BTreeMap::new();
    for time in counted {
        *windows.entry(time / window).or_insert(0) += 1;
    }
    windows
}

/// Returns the maximum deficit of the provider's bucket, in units times `window`.
fn most_missing(mut counted: Vec<u64>, limit: u64, window: u64) -> u64 {
    counted.sort_unstable();
    let (mut debt, mut last, mut max) = (0_u64, 0, 0);
    for time in counted {
        debt = debt.saturating_sub((time - last) * limit) + window;
        last = time;
        max = max.max(debt);
    }
    max
}

fn limit_for(clients: u64) -> u64 {
    clients.div_ceil(2)
}

fn quota(kind: &str, limit: u64, window_ms: u64) -> Value {
    json!({ "kind": kind, "limit": limit, "window": format!("{window_ms}ms") })
}

/// Returns all combinations of clients, response times and windows, in milliseconds.
fn combinations() -> impl Iterator<Item = (u64, u64, u64)> {
    let windows = |clients: u64, response: u64| {
        [500, 1_000, 2_000].into_iter().map(move |window| (clients, response, window))
    };
    let responses =
        move |clients: u64| [0, 20, 300].into_iter().flat_map(move |response| windows(clients, response));
    [1, 2, 7, 100].into_iter().flat_map(responses).chain([(1_000, 0, 500), (1_000, 300, 1_000)])
}

const LONG: &str = "10m";
const WINDOWS: u64 = 12;

/// Asserts that at least 95 % of `allowed` was counted.
fn assert_used(counted: usize, allowed: u64, what: &str) {
    let counted = counted as u64;
    assert!(counted * 100 >= allowed * 95, "{counted} of {allowed} used: {what}");
}

#[test]
fn windows_by_the_clock_are_used_up_and_never_exceeded() {
    for (clients, response, window) in combinations() {
        let (limit, begin) = (limit_for(clients), 1_000_000_000 * MS);
        let network = |_: usize| (response * MS / 2, response * MS);
        let quota = quota("fixed", limit, window);
        let mut simulation =
            Simulation::new(&quota, &json!({ "quota": "q", "max_wait": LONG }), begin, &network);
        simulation.join(usize::try_from(clients).unwrap());
        let seen = simulation.run(begin + WINDOWS * window * MS);
        let what = format!("{clients} clients, responses after {response} ms, windows of {window} ms");
        let windows = by_window(&seen.counted, window * MS);
        assert!(windows.values().all(|used| *used <= limit), "{windows:?}: {what}");
        assert_used(seen.counted.len(), WINDOWS * limit, &what);
        assert_eq!(seen.refused_after, Vec::<u64>::new(), "{what}");
    }
}

#[test]
fn windows_from_the_first_call_on_are_used_up() {
    for (clients, response, window) in combinations() {
        let (limit, begin) = (limit_for(clients), 1_000_000_123 * MS);
        let network = |_: usize| (0, response * MS);
        let mut quota = quota("fixed", limit, window);
        quota["starts"] = "first".into();
        let mut simulation =
            Simulation::new(&quota, &json!({ "quota": "q", "max_wait": LONG }), begin, &network);
        simulation.join(usize::try_from(clients).unwrap());
        let seen = simulation.run(begin + WINDOWS * window * MS);
        let what = format!("{clients} clients, responses after {response} ms, windows of {window} ms");
        let since: Vec<u64> = seen.counted.iter().map(|time| time - begin).collect();
        let windows = by_window(&since, window * MS);
        assert!(windows.values().all(|used| *used <= limit), "{windows:?}: {what}");
        assert_used(seen.counted.len(), WINDOWS * limit, &what);
    }
}

#[test]
fn sliding_windows_are_nearly_used_and_never_exceeded() {
    for (clients, response, window) in combinations() {
        let (limit, begin) = (limit_for(clients), 1_000_000_123 * MS);
        let network = |_: usize| (response * MS / 2, response * MS);
        let quota = quota("sliding", limit, window);
        let mut simulation =
            Simulation::new(&quota, &json!({ "quota": "q", "max_wait": LONG }), begin, &network);
        simulation.join(usize::try_from(clients).unwrap());
        let seen = simulation.run(begin + WINDOWS * window * MS);
        let what = format!("{clients} clients, responses after {response} ms, windows of {window} ms");
        assert!(peak(seen.counted.clone(), window * MS) as u64 <= limit, "{what}");
        assert_used(seen.counted.len(), WINDOWS * limit * window / (window + response), &what);
    }
}

#[test]
fn token_buckets_are_used_and_never_overdrawn() {
    for (clients, response, window) in combinations() {
        for burst in [1, limit_for(clients)] {
            let (limit, begin) = (limit_for(clients), 1_000_000_123 * MS);
            let network = |_: usize| (response * MS / 2, response * MS);
            let mut quota = quota("token-bucket", limit, window);
            quota["burst"] = burst.into();
            let mut simulation =
                Simulation::new(&quota, &json!({ "quota": "q", "max_wait": LONG }), begin, &network);
            simulation.join(usize::try_from(clients).unwrap());
            let seen = simulation.run(begin + WINDOWS * window * MS);
            let what = format!(
                "burst of {burst}, {clients} clients, responses after {response} ms, windows of {window} ms"
            );
            let missing = most_missing(seen.counted.clone(), limit, window * MS);
            assert!(missing <= burst * window * MS, "{what}");
            let whole = WINDOWS * limit;
            let used = whole.min(whole * burst * window / (limit * response + window));
            assert_used(seen.counted.len(), used, &what);
        }
    }
}

#[test]
fn calendar_windows_are_used_up_across_a_change_of_the_clocks() {
    for (period, zone, from, days) in [
        ("day", "Europe/Berlin", "2026-03-26T23:00:00Z", 6),
        ("day", "Europe/Berlin", "2026-10-22T22:00:00Z", 6),
        ("day", "America/New_York", "2026-10-29T04:00:00Z", 6),
        ("day", "Australia/Lord_Howe", "2026-10-01T13:30:00Z", 6),
        ("month", "Europe/Berlin", "2026-01-31T23:00:00Z", 28 + 31 + 30),
        ("month", "America/New_York", "2026-10-01T04:00:00Z", 31 + 30 + 31),
    ] {
        let begin = u64::try_from(from.parse::<jiff::Timestamp>().unwrap().as_microsecond()).unwrap();
        let zone_of_provider = TimeZone::get(zone).unwrap();
        let local = |time: u64| {
            let time = jiff::Timestamp::from_microsecond(i64::try_from(time).unwrap()).unwrap();
            time.to_zoned(zone_of_provider.clone()).date()
        };
        let network = |_: usize| (150 * MS, 300 * MS);
        let renews = json!({ "time_zone": zone });
        let quota = json!({ "kind": "calendar", "limit": 5, "period": period, "renews": renews });
        let mut simulation =
            Simulation::new(&quota, &json!({ "quota": "q", "max_wait": "2000h" }), begin, &network);
        simulation.join(9);
        // Leaves out the last hours of the last window, because the change of the clocks may shift its end.
        let seen = simulation.run(begin + days * 24 * HOUR - 2 * HOUR);
        let mut windows = BTreeMap::new();
        for time in &seen.counted {
            let date = local(*time);
            let day = if period == "day" { date.day() } else { 0 };
            *windows.entry((date.month(), day)).or_insert(0) += 1;
        }
        let expected = if period == "day" { days } else { 3 };
        assert_eq!(
            windows.values().copied().collect::<Vec<u64>>(),
            vec![5; usize::try_from(expected).unwrap()],
            "{zone}: {windows:?}"
        );
        assert_eq!(seen.refused_after, Vec::<u64>::new(), "{zone}");
    }
}

/// A quota of each kind that is refilled over time, with two units per second.
fn two_a_second(kind: &str) -> Value {
    match kind {
        "first" => json!({ "kind": "fixed", "starts": "first", "limit": 2, "window": "1s" }),
        kind => quota(kind, 2, 1_000),
    }
}

#[test]
fn late_requests_are_refused_when_that_is_known() {
    for kind in ["fixed", "first", "sliding", "token-bucket"] {
        for response in [0, 20, 300] {
            for max_wait in [1_500, 2_500, 4_000] {
                for phase in [0, 450, 850] {
                    let begin = 1_000_000_000 * MS + phase * MS;
                    let network = |_: usize| (response * MS, response * MS);
                    let queue = json!({ "quota": "q", "max_wait": format!("{max_wait}ms") });
                    let mut simulation = Simulation::new(&two_a_second(kind), &queue, begin, &network);
                    simulation.asks_again = false;
                    simulation.join(20);
                    let seen = simulation.run(begin + 60_000 * MS);
                    let what = format!("{kind}: responses after {response} ms, {max_wait} ms, at {phase} ms");
                    assert_eq!(seen.called_after.len() + seen.refused_after.len(), 20, "{what}");
                    let told = seen.refused_after.iter().max().unwrap();
                    assert!(*told <= (response + 1) * MS, "told after {told} µs: {what}");
                    let waited = seen.called_after.iter().max().unwrap();
                    assert!(*waited <= max_wait * MS, "{what}");
                    // No exchange is refused that could have been served: this is the number of refills
                    // within that time.
                    let (first, cycle) = match kind {
                        "fixed" if phase + response > 1_000 => (2_000 - phase, 1_000),
                        "fixed" => (1_000 - phase, 1_000),
                        "sliding" => (1_002 + response, 1_002 + response),
                        "token-bucket" => (500 + response, 500),
                        _ => (1_000, 1_000),
                    };
                    let each = if kind == "token-bucket" { 1 } else { 2 };
                    let refills = if max_wait < first { 0 } else { 1 + (max_wait - first) / cycle };
                    let least = usize::try_from(2 + each * refills).unwrap();
                    assert!(
                        seen.called_after.len() >= least,
                        "{} of {least}: {what}",
                        seen.called_after.len()
                    );
                }
            }
        }
    }
}

/// A network whose calls take times from a list, in microseconds.
fn jitter(times: &[(u64, u64)]) -> impl Fn(usize) -> (u64, u64) {
    move |call| {
        let (counted, ends) = times[call % times.len()];
        (counted.min(ends), counted.max(ends))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Holds for any duration of calls, wherever between request and response the provider counts them.
    #[test]
    fn no_provider_ever_counts_more_than_it_allows(
        limit in 1_u64..6,
        clients in 1_usize..20,
        phase in 0_u64..1_000_000,
        times in prop::collection::vec((0_u64..1_500_000, 0_u64..1_500_000), 1..30),
    ) {
        let begin = 1_000_000_000 * MS + phase;
        let network = jitter(&times);
        let run = |quota: &Value| {
            let mut simulation = Simulation::new(quota, &json!({ "quota": "q", "max_wait": LONG }), begin, &network);
            simulation.join(clients);
            simulation.run(begin + 15_000 * MS).counted
        };
        let windows = by_window(&run(&quota("fixed", limit, 1_000)), 1_000 * MS);
        prop_assert!(windows.values().all(|used| *used <= limit), "{:?}", windows);
        prop_assert!(peak(run(&quota("sliding", limit, 1_000)), 1_000 * MS) as u64 <= limit);
        let counted = run(&quota("token-bucket", limit, 1_000));
        prop_assert!(most_missing(counted, limit, 1_000 * MS) <= limit * 1_000 * MS);
    }

    /// Responses arrive within the window, so no allowance of the next window is lost.
    #[test]
    fn windows_by_the_clock_lose_nothing_from_the_second_on(
        limit in 1_u64..6,
        more in 0_u64..20,
        phase in 0_u64..1_000_000,
        times in prop::collection::vec((0_u64..900_000, 0_u64..900_000), 1..30),
    ) {
        let begin = 1_000_000_000 * MS + phase;
        let network = jitter(&times);
        let queue = json!({ "quota": "q", "max_wait": LONG });
        let mut simulation = Simulation::new(&quota("fixed", limit, 1_000), &queue, begin, &network);
        simulation.join(usize::try_from(2 * limit + more).unwrap());
        let counted = simulation.run(1_000_010_000 * MS).counted;
        let windows = by_window(&counted, 1_000 * MS);
        for window in 1_000_002..1_000_009 {
            prop_assert_eq!(windows.get(&window).copied(), Some(limit), "{:?}", windows);
        }
    }
}

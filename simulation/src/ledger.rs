//! The books of a world: what clients sent and got, what reached the providers, and every rule that was
//! broken.

use std::collections::{BTreeMap, BTreeSet};

use egret_clock::Moment;
use egret_kernel::outside::{self, EndId};
use serde_json::Value;

use crate::scenario::{Event, Quota, QuotaKind, Remedies, RequestPlan, Scenario, WINDOW_MS};

/// Rounding of times to microseconds, by the gateway and here.
const ROUNDING_NS: u64 = 2_000;

/// The end of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A whole response of a provider, or one that the gateway has stored.
    Answered(u16),
    /// A whole response that the gateway has made.
    Refused(u16),
    /// A response whose end is missing.
    Cut,
    /// The connection ended without a response.
    Closed,
}

/// A request, as the books have it.
#[derive(Debug)]
struct Record {
    plan: RequestPlan,
    /// Number of times that a provider has read its head.
    arrivals: u64,
    outcome: Option<Outcome>,
}

/// The body that a provider has sent.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sent {
    /// Length of the whole body.
    pub len: u64,
    /// A shorter one looks whole: only the end of the connection tells its end.
    pub may_be_short: bool,
    /// Only the end of the connection would have told its end, and it was cut. It must not be taken for
    /// whole, even if it is.
    pub is_cut: bool,
}

/// A call at a provider: its connection, and its stream in HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallKey {
    /// The provider's end of the connection.
    pub end: EndId,
    /// The number of the stream. 0 in HTTP/1.1.
    pub stream: u32,
}

impl CallKey {
    /// The call on a connection of HTTP/1.1.
    pub fn of(end: EndId) -> Self {
        Self { end, stream: 0 }
    }
}

/// The books.
#[derive(Debug)]
pub struct Ledger {
    remedies: Remedies,
    is_calm: bool,
    may_refuse: bool,
    checks_quota: bool,
    /// The end of a stream that was given up is not known at once.
    checks_at_once: bool,
    checks_concurrency: bool,
    records: BTreeMap<u64, Record>,
    /// Times at which calls of the flow reached the provider.
    arrivals: Vec<u64>,
    /// Calls of the flow that the provider has not answered to the end, with their requests.
    under_way: BTreeMap<CallKey, u64>,
    /// Responses by the number of their body.
    sent: BTreeMap<u64, Sent>,
    /// Rules that were broken.
    pub violations: Vec<String>,
    /// Number of requests that were sent, and that were answered in each way.
    pub outcomes: [u64; 4],
}

impl Ledger {
    /// Opens the books of a scenario.
    pub fn new(scenario: &Scenario) -> Self {
        let remedies = scenario.remedies;
        Self {
            remedies,
            is_calm: scenario.is_calm,
            may_refuse: remedies.concurrency > 0
                || remedies.quota.is_some()
                || remedies.limits_time
                || scenario.exchanges > 0,
            // A clock that was set forward looks as if time had passed. What is counted in memory is
            // forgotten without power.
            checks_quota: !scenario.has(|event| matches!(event, Event::ClockStep(1..)))
                && (is_durable(remedies) || !scenario.has(|event| *event == Event::PowerCut)),
            checks_at_once: !scenario.is_provider_http2[0],
            // Two processes count apart.
            checks_concurrency: !scenario.has(|event| matches!(event, Event::HandOver)),
            records: BTreeMap::new(),
            arrivals: Vec::new(),
            under_way: BTreeMap::new(),
            sent: BTreeMap::new(),
            violations: Vec::new(),
            outcomes: [0; 4],
        }
    }

    /// Notes that a rule was broken.
    pub fn accuse(&mut self, what: impl Into<String>) {
        self.violations.push(what.into());
    }

    /// A client has begun to send a request.
    pub fn begin(&mut self, plan: &RequestPlan) {
        self.records.insert(plan.id, Record { plan: plan.clone(), arrivals: 0, outcome: None });
    }

    /// A provider has read the head of request `id`, which is now the call `key`. Returns the request.
    pub fn arrive(&mut self, id: u64, provider: usize, key: CallKey, now: Moment) -> Option<RequestPlan> {
        let remedies = self.remedies;
        let has_flow = provider == 0;
        let Some(record) = self.records.get_mut(&id) else {
            self.accuse(format!("request {id} reached a provider, and nobody has sent it"));
            return None;
        };
        record.arrivals += 1;
        let plan = record.plan.clone();
        let most = most_calls(&plan, if has_flow { remedies } else { Remedies::default() });
        if record.arrivals > most {
            let arrivals = record.arrivals;
            self.accuse(format!(
                "request {id} ({}) reached a provider {arrivals} times, of {most}",
                plan.method
            ));
        }
        if plan.provider != provider {
            self.accuse(format!("request {id} reached another provider"));
        }
        if has_flow {
            self.count(id, key, now);
        }
        Some(plan)
    }

    /// Counts a call of the flow, and checks its limits.
    fn count(&mut self, id: u64, key: CallKey, now: Moment) {
        // A call that the gateway has given up does not count any more.
        self.under_way.retain(|call, _| !outside::is_left(call.end));
        if !outside::is_left(key.end) {
            self.under_way.insert(key, id);
        }
        self.arrivals.push(now.as_nanos());
        let at_once = self.under_way.len() as u64;
        let (most, exchanges) =
            (self.remedies.concurrency, self.under_way.values().collect::<BTreeSet<_>>().len() as u64);
        if most > 0 && exchanges > most && self.checks_at_once && self.checks_concurrency {
            self.accuse(format!(
                "{exchanges} exchanges are at the provider at once, of {most} (`concurrency`)"
            ));
        }
        if let Some((quota, _)) = self.remedies.quota
            && self.checks_quota
        {
            self.check_quota(quota, at_once);
        }
    }

    fn check_quota(&mut self, Quota { kind, limit }: Quota, at_once: u64) {
        let Some(&last) = self.arrivals.last() else { return };
        let window_ns = WINDOW_MS * 1_000_000;
        let broken = match kind {
            QuotaKind::Concurrency => {
                (at_once > limit && self.checks_at_once).then(|| format!("{at_once} at once"))
            }
            QuotaKind::Sliding => {
                let from = (last + ROUNDING_NS).saturating_sub(window_ns);
                let within = self.arrivals.iter().filter(|at| **at > from).count() as u64;
                (within > limit).then(|| format!("{within} in a window"))
            }
            QuotaKind::TokenBucket => self.arrivals.iter().rev().zip(1_u64..).find_map(|(first, count)| {
                let refilled = (last - first + ROUNDING_NS) * limit / window_ns;
                (count > limit + refilled + 1)
                    .then(|| format!("{count} in {} ms", (last - first) / 1_000_000))
            }),
            QuotaKind::Durable => {
                let count = self.arrivals.len() as u64;
                (count > limit).then(|| format!("{count} in all"))
            }
        };
        if let Some(broken) = broken {
            self.accuse(format!("a quota of {limit} is exceeded ({kind:?}): {broken}"));
        }
    }

    /// A provider sends a response whose body has this number.
    pub fn respond(&mut self, body: u64, sent: Sent) {
        self.sent.insert(body, sent);
    }

    /// A connection over TLS has ended, and with it this body, whose end nothing else tells. The gateway was
    /// told so, or not.
    pub fn end_unframed(&mut self, body: u64, is_told: bool) {
        if let Some(sent) = self.sent.get_mut(&body) {
            (sent.may_be_short, sent.is_cut) = (is_told, !is_told);
        }
    }

    /// A request has reached a provider whose certificate has expired, or not.
    pub fn check_certificate(&mut self, has_expired: bool) {
        if has_expired {
            self.accuse("a provider whose certificate has expired got a request");
        }
    }

    /// A call is over at the provider.
    pub fn end_call(&mut self, key: CallKey) {
        self.under_way.remove(&key);
    }

    /// Returns the body with this number, if a provider has sent it.
    pub fn sent(&self, body: u64) -> Option<Sent> {
        self.sent.get(&body).copied()
    }

    /// Returns `true` if the response may be that to another request for the same resource.
    pub fn may_share(&self, plan: &RequestPlan) -> bool {
        self.remedies.caches && plan.provider == 0 && plan.shared.is_some()
    }

    /// Notes what became of a request. Each has one end.
    pub fn close(&mut self, id: u64, outcome: Outcome) {
        let Some(record) = self.records.get_mut(&id) else { return };
        if let Some(before) = record.outcome.replace(outcome) {
            self.accuse(format!("request {id} has two ends: {before:?} and {outcome:?}"));
            return;
        }
        let index = match outcome {
            Outcome::Answered(_) => 0,
            Outcome::Refused(_) => 1,
            Outcome::Cut => 2,
            Outcome::Closed => 3,
        };
        self.outcomes[index] += 1;
        let is_good = match outcome {
            Outcome::Answered(status) => status == 200,
            Outcome::Refused(_) => self.may_refuse,
            // The time of a response may end in its middle.
            Outcome::Cut | Outcome::Closed => self.remedies.limits_time,
        };
        if self.is_calm && !is_good {
            self.accuse(format!("nothing has failed, and request {id} ended with {outcome:?}"));
        }
    }

    /// A request on a connection that the gateway has closed in order, behind another response.
    pub fn forget(&mut self, id: u64) {
        if let Some(record) = self.records.get_mut(&id) {
            record.outcome.get_or_insert(Outcome::Closed);
        }
    }

    /// Compares the records of exchanges, each a line of JSON, with the ends that clients have seen.
    pub fn check_records(&mut self, lines: &[u8]) {
        let mut recorded = BTreeMap::<(String, u64), u64>::new();
        let mut paths = BTreeMap::<String, u64>::new();
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let Ok(line) = serde_json::from_slice::<Value>(line) else {
                return self.accuse("a record is no JSON");
            };
            let path = line["url"].as_str().and_then(|url| url.split(".example").nth(1)).unwrap_or_default();
            let status = line["status"].as_u64().unwrap_or_default();
            *recorded.entry((path.to_owned(), status)).or_default() += 1;
            *paths.entry(path.to_owned()).or_default() += 1;
        }
        let mut ends = BTreeMap::<(String, u64), u64>::new();
        let mut begun = BTreeMap::<String, u64>::new();
        for record in self.records.values() {
            let path = record.plan.path();
            *begun.entry(path.clone()).or_default() += 1;
            // Whose head comes too slowly has begun no exchange.
            if let Some(Outcome::Answered(status) | Outcome::Refused(status)) = record.outcome
                && status != 408
            {
                *ends.entry((path, status.into())).or_default() += 1;
            }
        }
        for (end, count) in &ends {
            let found = recorded.get(end).copied().unwrap_or_default();
            if found < *count {
                self.accuse(format!("{count} exchanges {end:?} have ended, and {found} are recorded"));
            }
        }
        for (path, count) in &paths {
            let sent = begun.get(path).copied().unwrap_or_default();
            if *count > sent {
                self.accuse(format!("{count} exchanges for {path} are recorded, and {sent} were sent"));
            }
        }
    }

    /// Checks that each request has an end.
    pub fn check_ends(&mut self) {
        let open: Vec<u64> =
            self.records.iter().filter(|(_, record)| record.outcome.is_none()).map(|(id, _)| *id).collect();
        for id in open {
            self.accuse(format!("request {id} has no end"));
        }
    }
}

/// Returns `true` if the quota outlives the process.
fn is_durable(remedies: Remedies) -> bool {
    remedies.quota.is_some_and(|(quota, _)| quota.kind == QuotaKind::Durable)
}

/// The number of calls that a request may become.
fn most_calls(plan: &RequestPlan, remedies: Remedies) -> u64 {
    let attempts = if plan.is_idempotent() || plan.has_key { remedies.attempts.max(1) } else { 1 };
    if !plan.is_idempotent() {
        // Only `retry` repeats it, and only with a key.
        return attempts;
    }
    // One on a connection that turns out to be dead, and a second one beside a slow one.
    let is_safe = matches!(plan.method, "GET" | "HEAD");
    attempts * (1 + u64::from(remedies.hedges && is_safe)) * 2
}

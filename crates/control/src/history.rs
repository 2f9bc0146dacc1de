//! The last hour: for each provider its responses by status class, those of Egret and of caches in its place,
//! and the quantiles of latency and footprint, in steps of ten seconds. The steps are differences of the
//! gateway's counters, which the control thread reads. An exchange takes no part in it.

mod day;

use std::collections::VecDeque;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use egret_diagnosis::TrafficStatus;
use egret_observe::stats::{Count, HistogramSnapshot, ProviderSnapshot, StatsSnapshot};
use parking_lot::Mutex;
use serde::Serialize;

use day::{CallSum, ComparedCalls, Day};

/// Length of a step.
pub(crate) const STEP: Duration = Duration::from_secs(10);
/// Number of steps that are kept: an hour.
const STEPS_MAX: usize = 360;
/// Number of providers and hosts that a step tells apart. The others are counted together.
const PROVIDERS_MAX: usize = 64;
/// Number of names that all steps together tell apart.
const NAMES_MAX: usize = 1_024;
/// Bytes of a name: a host of DNS with a port, or a provider's name.
const NAME_BYTES_MAX: usize = 260;
/// Name of the providers and hosts that are counted together.
const OTHERS: &str = "others";
/// The status classes in the order of the counts. The first is for exchanges without a response.
const CLASSES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];
/// The quantiles that are kept.
const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];

/// The last steps, which do not tell what is usual, and the number of those before that do.
const RECENT_STEPS: usize = 2;
const USUAL_STEPS_MIN: usize = 3;

/// The steps so far.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<Hour>);

#[derive(Debug, Default)]
struct Hour {
    /// The oldest first.
    steps: VecDeque<HistoryStep>,
    /// Names of providers and hosts, by the number that steps refer to.
    names: Vec<Name>,
    /// The counters at the end of the last step.
    last: Option<StatsSnapshot>,
    day: Day,
}

/// The usual time until a response of a provider begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UsualWait {
    /// In the last hour.
    pub hour_us: u64,
    /// In five minutes at this time yesterday, if there were calls.
    pub yesterday_us: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Name {
    provider: String,
    host: Option<String>,
}

impl Name {
    fn of(provider: &ProviderSnapshot) -> Self {
        Self { provider: provider.name.clone(), host: provider.host.clone() }
    }

    /// Returns the host, or the provider's name.
    fn label(&self) -> &str {
        self.host.as_deref().unwrap_or(&self.provider)
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.provider.len() + self.host.as_ref().map_or(0, String::len)
    }
}

/// A step.
#[derive(Debug)]
struct HistoryStep {
    /// Its end, in seconds since the epoch.
    until_s: u64,
    /// Responses that Egret generated itself because of errors.
    generated: u32,
    /// The providers with exchanges in this step.
    active: Box<[Active]>,
}

/// A provider in a step.
#[derive(Debug, Clone, Copy)]
struct Active {
    /// Number of the provider among the names.
    name: u32,
    /// The provider's own responses.
    statuses: [u32; CLASSES.len()],
    /// Responses that Egret generated in its place.
    generated: u32,
    /// Responses from a cache.
    stored: u32,
    latency_us: [Option<u32>; QUANTILES.len()],
    footprint_us: [Option<u32>; QUANTILES.len()],
    /// Mean time that calls waited for the head of their response.
    wait_us: Option<u32>,
}

/// The response of `/api/v1/history`: columns, each with one element for each step.
#[derive(Debug, Serialize)]
pub(crate) struct HistoryView {
    step_s: u64,
    /// Ends of the steps, in seconds since the epoch.
    times_s: Vec<u64>,
    /// Responses that Egret generated itself because of errors.
    generated: Vec<u32>,
    providers: Vec<ProviderView>,
    /// Memory of the steps and names, and its bound.
    bytes: usize,
    bytes_max: usize,
    /// Memory of the list of recent exchanges, the page's other memory. `None` before the gateway runs.
    traffic_list: Option<ListMemory>,
}

/// The memory of the list of recent exchanges, and its bounds.
#[derive(Debug, Serialize)]
pub(crate) struct ListMemory {
    pub entries: usize,
    pub entries_max: u32,
    pub bytes: usize,
    pub bytes_max: u64,
}

impl From<TrafficStatus> for ListMemory {
    fn from(status: TrafficStatus) -> Self {
        let TrafficStatus { entries, entries_max, bytes, bytes_max, .. } = status;
        Self { entries, entries_max, bytes, bytes_max }
    }
}

#[derive(Debug, Serialize)]
struct ProviderView {
    provider: String,
    host: Option<String>,
    /// The provider's own responses by status class.
    statuses: Statuses,
    /// Responses that Egret generated in the provider's place.
    generated: Vec<u32>,
    /// Responses from a cache.
    stored: Vec<u32>,
    latency_us: Quantiles,
    footprint_us: Quantiles,
    /// Its calls in the last five minutes beside those at this time yesterday, if there were any.
    compared: Option<ComparedCalls>,
}

/// Numbers of responses.
#[derive(Debug, Serialize)]
struct Statuses {
    none: Vec<u32>,
    #[serde(rename = "1xx")]
    informational: Vec<u32>,
    #[serde(rename = "2xx")]
    successful: Vec<u32>,
    #[serde(rename = "3xx")]
    redirected: Vec<u32>,
    #[serde(rename = "4xx")]
    client_errors: Vec<u32>,
    #[serde(rename = "5xx")]
    server_errors: Vec<u32>,
}

/// Quantiles, at most 2 % off; `null` without exchanges.
#[derive(Debug, Serialize)]
struct Quantiles {
    p50: Vec<Option<u32>>,
    p90: Vec<Option<u32>>,
    p99: Vec<Option<u32>>,
}

impl History {
    /// Ends a step now. The first call only notes the counters.
    pub(crate) fn add(&self, stats: StatsSnapshot) {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.add_at(since_epoch.as_secs(), stats);
    }

    fn add_at(&self, until_s: u64, stats: StatsSnapshot) {
        let mut hour = self.0.lock();
        let Some(last) = hour.last.take() else {
            hour.last = Some(stats);
            return;
        };
        let mut deltas: Vec<ProviderSnapshot> =
            stats.providers.iter().filter_map(|now| delta(now, before(&last, now))).collect();
        deltas.sort_by_key(|delta| std::cmp::Reverse(exchanges(delta)));
        hour.day.add(
            until_s,
            deltas.iter().map(|delta| (delta.host.as_deref().unwrap_or(&delta.name), calls(delta))),
        );
        let mut rest = deltas.split_off(deltas.len().min(PROVIDERS_MAX));
        // One place is for the name of the others.
        let mut room = NAMES_MAX.saturating_sub(hour.names.len() + 1);
        rest.extend(deltas.extract_if(.., |delta| {
            if hour.number(&Name::of(delta)).is_some() {
                return false;
            }
            let has_room = room > 0;
            room = room.saturating_sub(1);
            !has_room
        }));
        if !rest.is_empty() {
            deltas.push(sum(&rest));
        }
        let active = deltas.iter().map(|delta| hour.active(delta)).collect();
        let generated = generated(&stats).saturating_sub(generated(&last));
        hour.steps.push_back(HistoryStep { until_s, generated: small(generated), active });
        if hour.steps.len() > STEPS_MAX {
            hour.steps.pop_front();
            hour.forget_names();
        }
        hour.last = Some(stats);
    }

    /// Returns all steps as columns.
    pub(crate) fn view(&self, traffic_list: Option<ListMemory>) -> HistoryView {
        let hour = self.0.lock();
        let is_in_use = |number: usize| hour.steps.iter().any(|step| step.of(number).is_some());
        let numbers = (0..hour.names.len()).filter(|number| is_in_use(*number));
        HistoryView {
            step_s: STEP.as_secs(),
            times_s: hour.steps.iter().map(|step| step.until_s).collect(),
            generated: hour.steps.iter().map(|step| step.generated).collect(),
            providers: numbers.map(|number| hour.provider(number)).collect(),
            bytes: hour.bytes(),
            bytes_max: STEPS_MAX * (size_of::<HistoryStep>() + (PROVIDERS_MAX + 1) * size_of::<Active>())
                + NAMES_MAX * (size_of::<Name>() + NAME_BYTES_MAX)
                + Day::BYTES_MAX,
            traffic_list,
        }
    }

    /// Returns the usual time in which a provider begins to respond, by the last hour without its last steps.
    /// `None` if too little is known. A host without a provider is named by the host.
    pub(crate) fn usual_wait(&self, provider: &str) -> Option<UsualWait> {
        let hour = self.0.lock();
        let number = hour.names.iter().position(|name| name.label() == provider)?;
        let older = hour.steps.iter().rev().skip(RECENT_STEPS);
        let mut waits: Vec<u32> = older.filter_map(|step| step.of(number)?.wait_us).collect();
        if waits.len() < USUAL_STEPS_MIN {
            return None;
        }
        waits.sort_unstable();
        let yesterday_us = hour.day.compared(provider).and_then(|compared| compared.yesterday.wait_us);
        Some(UsualWait { hour_us: waits[waits.len() / 2].into(), yesterday_us })
    }
}

impl Hour {
    /// Returns the figures of a provider in the step that ends.
    fn active(&mut self, delta: &ProviderSnapshot) -> Active {
        let name = Name::of(delta);
        let number = self.number(&name).unwrap_or_else(|| {
            self.names.push(name);
            self.names.len() - 1
        });
        Active {
            name: u32::try_from(number).unwrap_or(u32::MAX),
            statuses: own_statuses(delta).map(small),
            generated: small(total(&delta.generated)),
            stored: small(total(&delta.stored)),
            latency_us: quantiles(&delta.latency),
            footprint_us: quantiles(&delta.footprint),
            wait_us: delta.waited_us.checked_div(delta.answered_calls).map(small),
        }
    }

    fn number(&self, name: &Name) -> Option<usize> {
        self.names.iter().position(|known| known == name)
    }

    /// Forgets the names that no step refers to, once there are many.
    fn forget_names(&mut self) {
        if self.names.len() <= 4 * PROVIDERS_MAX {
            return;
        }
        let mut renumbered = vec![None; self.names.len()];
        let mut names = Vec::new();
        for active in self.steps.iter_mut().flat_map(|step| &mut step.active) {
            let Some(name) = renumbered.get_mut(active.name as usize) else { continue };
            active.name = *name.get_or_insert_with(|| {
                names.push(self.names[active.name as usize].clone());
                u32::try_from(names.len() - 1).unwrap_or(u32::MAX)
            });
        }
        self.names = names;
    }

    fn provider(&self, number: usize) -> ProviderView {
        let name = &self.names[number];
        let column = |of: &dyn Fn(&Active) -> u32| -> Vec<u32> {
            self.steps.iter().map(|step| step.of(number).map_or(0, of)).collect()
        };
        let status = |class: usize| column(&|active| active.statuses[class]);
        let quantile = |of: &dyn Fn(&Active) -> Option<u32>| -> Vec<Option<u32>> {
            self.steps.iter().map(|step| step.of(number).and_then(of)).collect()
        };
        let latency = |at: usize| quantile(&|active| active.latency_us[at]);
        let footprint = |at: usize| quantile(&|active| active.footprint_us[at]);
        ProviderView {
            provider: name.provider.clone(),
            host: name.host.clone(),
            statuses: Statuses {
                none: status(0),
                informational: status(1),
                successful: status(2),
                redirected: status(3),
                client_errors: status(4),
                server_errors: status(5),
            },
            generated: column(&|active| active.generated),
            stored: column(&|active| active.stored),
            latency_us: Quantiles { p50: latency(0), p90: latency(1), p99: latency(2) },
            footprint_us: Quantiles { p50: footprint(0), p90: footprint(1), p99: footprint(2) },
            compared: self.day.compared(name.label()),
        }
    }

    fn bytes(&self) -> usize {
        let of_step = |step: &HistoryStep| size_of::<HistoryStep>() + step.active.len() * size_of::<Active>();
        let names = self.names.iter().map(Name::bytes).sum::<usize>();
        self.steps.iter().map(of_step).sum::<usize>() + names + self.day.bytes()
    }
}

impl HistoryStep {
    fn of(&self, number: usize) -> Option<&Active> {
        self.active.iter().find(|active| active.name as usize == number)
    }
}

/// Returns the counters of the same provider at the end of the last step.
fn before<'a>(last: &'a StatsSnapshot, now: &ProviderSnapshot) -> Option<&'a ProviderSnapshot> {
    last.providers.iter().find(|known| known.name == now.name && known.host == now.host)
}

/// Returns what has been counted since then. `None` if that is nothing. Counters that start again, as after
/// some reloads, count from zero.
fn delta(now: &ProviderSnapshot, before: Option<&ProviderSnapshot>) -> Option<ProviderSnapshot> {
    let before = before.filter(|before| exchanges(before) <= exchanges(now));
    let mut delta = ProviderSnapshot {
        name: now.name.clone(),
        host: now.host.clone(),
        exchanges: now.exchanges.clone(),
        generated: now.generated.clone(),
        stored: now.stored.clone(),
        latency: now.latency.clone(),
        footprint: now.footprint.clone(),
        answered_calls: now.answered_calls,
        waited_us: now.waited_us,
        ..ProviderSnapshot::default()
    };
    for before in before.into_iter().flat_map(|before| &before.exchanges) {
        let is_same = |count: &&mut _| is_same_kind(count, before);
        if let Some(count) = delta.exchanges.iter_mut().find(is_same) {
            count.count = count.count.saturating_sub(before.count);
        }
    }
    if let Some(before) = before {
        subtract_counts(&mut delta.generated, &before.generated);
        subtract_counts(&mut delta.stored, &before.stored);
        delta.answered_calls = delta.answered_calls.saturating_sub(before.answered_calls);
        delta.waited_us = delta.waited_us.saturating_sub(before.waited_us);
        delta.latency.subtract(&before.latency);
        delta.footprint.subtract(&before.footprint);
    }
    (exchanges(&delta) > 0).then_some(delta)
}

fn is_same_kind(
    one: &egret_observe::stats::ExchangeCount,
    other: &egret_observe::stats::ExchangeCount,
) -> bool {
    one.method == other.method && one.status == other.status
}

/// Returns the provider's own responses, in the order of the classes.
fn own_statuses(delta: &ProviderSnapshot) -> [u64; CLASSES.len()] {
    CLASSES.map(|class| {
        let all: u64 =
            delta.exchanges.iter().filter(|count| count.status == class).map(|count| count.count).sum();
        let of_others = delta.generated.iter().chain(&delta.stored).filter(|count| count.name == class);
        // Both kinds are counted when the response begins, and the exchange when it ends.
        all.saturating_sub(of_others.map(|count| count.count).sum())
    })
}

/// Returns the calls of a provider, for the comparison with yesterday.
fn calls(delta: &ProviderSnapshot) -> CallSum {
    let [none, .., server_errors] = own_statuses(delta);
    CallSum {
        exchanges: small(exchanges(delta)),
        errors: small(none + server_errors),
        answered: small(delta.answered_calls),
        waited_us: delta.waited_us,
    }
}

fn subtract_counts(now: &mut [Count], before: &[Count]) {
    for count in now {
        let known = before.iter().find(|before| before.name == count.name).map_or(0, |before| before.count);
        count.count = count.count.saturating_sub(known);
    }
}

fn total(counts: &[Count]) -> u64 {
    counts.iter().map(|count| count.count).sum()
}

/// Returns the sum of some providers.
fn sum(deltas: &[ProviderSnapshot]) -> ProviderSnapshot {
    let mut sum = ProviderSnapshot { name: OTHERS.to_owned(), ..ProviderSnapshot::default() };
    for delta in deltas {
        sum.exchanges.extend(delta.exchanges.iter().cloned());
        sum.generated.extend(delta.generated.iter().cloned());
        sum.stored.extend(delta.stored.iter().cloned());
        sum.answered_calls += delta.answered_calls;
        sum.waited_us += delta.waited_us;
        sum.latency.join(&delta.latency);
        sum.footprint.join(&delta.footprint);
    }
    sum
}

fn exchanges(provider: &ProviderSnapshot) -> u64 {
    provider.exchanges.iter().map(|count| count.count).sum()
}

fn generated(stats: &StatsSnapshot) -> u64 {
    total(&stats.generated)
}

fn quantiles(histogram: &HistogramSnapshot) -> [Option<u32>; QUANTILES.len()] {
    QUANTILES.map(|quantile| histogram.quantile_us(quantile).map(small))
}

fn small(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use egret_observe::stats::{ExchangeCount, Histogram};

    use super::*;

    fn provider(name: &str, host: Option<&str>, counts: [u64; 2]) -> ProviderSnapshot {
        let histogram = Histogram::default();
        (0..counts[0]).for_each(|_| histogram.record(90));
        (0..counts[1]).for_each(|_| histogram.record(2_000));
        let count = |status, count| ExchangeCount { method: "GET", status, count };
        let mut provider = ProviderSnapshot {
            name: name.to_owned(),
            host: host.map(str::to_owned),
            exchanges: vec![count("2xx", counts[0]), count("5xx", counts[1])],
            ..ProviderSnapshot::default()
        };
        histogram.add_to(&mut provider.latency);
        provider
    }

    fn stats(providers: Vec<ProviderSnapshot>, generated: u64) -> StatsSnapshot {
        let generated = vec![Count { name: "dns-failed", count: generated }];
        StatsSnapshot { providers, generated, ..StatsSnapshot::default() }
    }

    #[test]
    fn a_step_has_what_was_counted_in_it() {
        let history = History::default();
        history.add_at(10, stats(vec![provider("a", None, [5, 5])], 3));
        assert_eq!(history.view(None).times_s, [0; 0]);
        history.add_at(20, stats(vec![provider("a", None, [7, 5])], 4));
        history.add_at(30, stats(vec![provider("a", None, [7, 5]), provider("-", Some("h"), [0, 1])], 4));
        history.add_at(41, stats(vec![provider("a", None, [8, 95]), provider("-", Some("h"), [0, 1])], 4));
        // The provider has changed, so its counters start again.
        history.add_at(50, stats(vec![provider("a", None, [1, 0])], 4));
        let view = history.view(None);
        assert_eq!((&view.times_s[..], &view.generated[..]), (&[20, 30, 41, 50][..], &[1, 0, 0, 0][..]));
        let [a, host] = &view.providers[..] else { panic!("two providers") };
        assert_eq!((&*a.provider, &a.host), ("a", &None));
        assert_eq!(
            (&a.statuses.successful[..], &a.statuses.server_errors[..]),
            (&[2, 0, 1, 1][..], &[0, 0, 90, 0][..])
        );
        assert_eq!(a.latency_us.p50, [Some(91), None, Some(2_000), Some(91)]);
        assert_eq!((host.host.as_deref(), &host.statuses.server_errors[..]), (Some("h"), &[0, 1, 0, 0][..]));
        assert!(view.bytes <= view.bytes_max);
    }

    #[test]
    fn responses_of_egret_and_of_caches_are_not_counted_as_the_providers() {
        let history = History::default();
        let with = |counts, generated: u64, stored: u64| ProviderSnapshot {
            generated: vec![Count { name: "5xx", count: generated }],
            stored: vec![Count { name: "2xx", count: stored }],
            ..provider("a", None, counts)
        };
        history.add_at(10, stats(vec![with([5, 5], 5, 1)], 0));
        history.add_at(20, stats(vec![with([12, 9], 8, 3)], 0));
        let view = history.view(None);
        let [a] = &view.providers[..] else { panic!("one provider") };
        assert_eq!((&a.statuses.successful[..], &a.statuses.server_errors[..]), (&[5][..], &[1][..]));
        assert_eq!((&a.generated[..], &a.stored[..]), (&[3][..], &[2][..]));
    }

    #[test]
    fn an_hour_of_many_hosts_stays_within_the_bound() {
        let history = History::default();
        let hosts = |step: u64| {
            let host = |number: u64| provider("-", Some(&format!("h{number}-{}", step / 100)), [step + 1, 0]);
            (0..100).map(host).collect::<Vec<_>>()
        };
        for step in 0..500 {
            history.add_at(step * 10, stats(hosts(step), 0));
        }
        let view = history.view(None);
        assert_eq!(view.times_s.len(), STEPS_MAX);
        assert!(view.bytes <= view.bytes_max, "{} of {}", view.bytes, view.bytes_max);
        assert!(view.bytes_max < 3 << 20, "{}", view.bytes_max);
        let others = view.providers.iter().find(|provider| provider.provider == OTHERS).unwrap();
        // In three of the steps all hosts are new.
        assert_eq!(others.statuses.successful.iter().filter(|count| **count == 36).count(), STEPS_MAX - 3);
        assert!(history.0.lock().names.len() <= 4 * PROVIDERS_MAX + PROVIDERS_MAX + 1);
    }

    #[test]
    fn hosts_beyond_the_names_of_an_hour_are_counted_together() {
        let history = History::default();
        history.add_at(0, stats(Vec::new(), 0));
        for step in 1..=STEPS_MAX as u64 {
            let host = |number: u64| provider("-", Some(&format!("h{number}-{step}")), [1, 0]);
            history.add_at(step * 10, stats((0..50).map(host).collect(), 0));
        }
        let view = history.view(None);
        assert_eq!(history.0.lock().names.len(), NAMES_MAX);
        assert!(view.bytes <= view.bytes_max, "{} of {}", view.bytes, view.bytes_max);
        let all = |provider: &ProviderView| provider.statuses.successful.iter().sum::<u32>();
        assert_eq!(view.providers.iter().map(all).sum::<u32>(), 50 * 360, "no exchange is lost");
    }
}

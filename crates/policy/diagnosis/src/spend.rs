//! Sums of what calls have cost, by consumer, model, provider, flow and label, for the control port.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use egret_clock::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Maximum number of labels that costs are summed by, in all flows together.
const LABELS_MAX: usize = 8;

/// Maximum time by which the clock may go back unnoticed: threads read it one after the other, and it is set
/// by a little now and then. One that goes back further was wrong before.
const CLOCK_BACK_MAX: Duration = Duration::from_mins(2);

/// The steps in which costs are summed: the length of each in seconds, and the number that are kept. There is
/// one for each range.
const STEPS: [(u64, usize); 3] = [(60, 60), (3_600, 24), (86_400, 31)];

/// The cost of a call, and the names that it is summed under.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spent {
    /// Nano-dollars.
    pub cost: u64,
    /// Consumer; empty if the client names none.
    pub consumer: String,
    /// Model; empty if there is none.
    pub model: String,
    /// Provider.
    pub provider: String,
    /// Labels by name.
    pub labels: BTreeMap<String, String>,
    /// Maximum number of names of each kind that have sums of their own.
    pub series_max: usize,
}

/// A kind of names that costs are summed by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpendBy {
    /// Consumers.
    Consumer,
    /// Models, as providers name them.
    Model,
    /// Providers.
    Provider,
    /// Flows.
    Flow,
    /// Values of the label with this name.
    Label(String),
}

/// The time whose costs are summed, up to now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SpendRange {
    /// The last 60 minutes, with the current one.
    Hour,
    /// The last 24 hours, with the current one.
    #[default]
    Day,
    /// The last 31 days in UTC, with the current one.
    Month,
}

/// A sum of costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct SpendSum {
    /// Number of calls.
    pub calls: u64,
    /// Nano-dollars.
    pub cost_nanodollars: u64,
}

impl SpendSum {
    fn and(self, other: Self) -> Self {
        Self {
            calls: self.calls.saturating_add(other.calls),
            cost_nanodollars: self.cost_nanodollars.saturating_add(other.cost_nanodollars),
        }
    }
}

/// The costs of a range, by one kind of names. The sum of all rows and of `other` is `total`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SpendSums {
    /// Time of the first call that was summed.
    pub since: Option<Timestamp>,
    /// Names of the labels that there are sums by.
    pub labels: Vec<String>,
    /// The names with sums of their own, those with the highest costs first.
    pub rows: Vec<(String, SpendSum)>,
    /// All other names together.
    pub other: SpendSum,
    /// All calls.
    pub total: SpendSum,
}

/// The sums of costs so far. They outlive a reload, and end with the process.
#[derive(Debug, Default)]
pub struct Spend(Mutex<SpendTables>);

#[derive(Debug, Default)]
struct SpendTables {
    since: Option<Timestamp>,
    /// Time of the last call.
    latest: Timestamp,
    consumers: SpendTable,
    models: SpendTable,
    providers: SpendTable,
    flows: SpendTable,
    labels: BTreeMap<String, SpendTable>,
    total: SpendRow,
}

/// The sums by one kind of names.
#[derive(Debug, Default)]
struct SpendTable {
    rows: BTreeMap<Box<str>, SpendRow>,
    /// All names without a row together.
    other: SpendRow,
    /// Day on which rows without recent calls were last removed, since the epoch.
    swept_day: u64,
}

/// The sums of one name in each kind of steps, the oldest first.
#[derive(Debug, Clone, Default)]
struct SpendRow([VecDeque<SpendStep>; STEPS.len()]);

#[derive(Debug, Clone, Copy)]
struct SpendStep {
    /// Number of the step since the epoch.
    number: u64,
    sum: SpendSum,
}

impl SpendRow {
    /// Adds a call.
    fn add(&mut self, now: Timestamp, sum: SpendSum) {
        for (steps, (length_s, count)) in self.0.iter_mut().zip(STEPS) {
            let number = now.as_secs() / length_s;
            match steps.back_mut() {
                Some(last) if last.number == number => last.sum = last.sum.and(sum),
                _ => {
                    steps.push_back(SpendStep { number, sum });
                    if steps.len() > count {
                        steps.pop_front();
                    }
                }
            }
        }
    }

    /// Returns the sum of a range that ends at `now`. Steps after it, of a clock that was ahead, are ignored.
    fn sum(&self, now: Timestamp, range: SpendRange) -> SpendSum {
        let (length_s, count) = STEPS[range as usize];
        let last = now.as_secs() / length_s;
        let first = (last + 1).saturating_sub(count as u64);
        let steps = self.0[range as usize].iter().filter(|step| (first..=last).contains(&step.number));
        steps.fold(SpendSum::default(), |sum, step| sum.and(step.sum))
    }
}

impl SpendTable {
    fn add(&mut self, name: &str, series_max: usize, now: Timestamp, sum: SpendSum) {
        let Self { rows, other, swept_day } = self;
        let is_known = rows.contains_key(name);
        let day = now.as_secs() / 86_400;
        if !is_known && rows.len() >= series_max && *swept_day != day {
            *swept_day = day;
            rows.retain(|_, row| row.sum(now, SpendRange::Month).calls > 0);
        }
        if is_known || rows.len() < series_max {
            rows.entry(name.into()).or_default().add(now, sum);
        } else {
            other.add(now, sum);
        }
    }
}

impl SpendTables {
    /// Returns `now`, or the time of the last call if the clock was set back by a little since.
    fn steady(&self, now: Timestamp) -> Timestamp {
        if now + CLOCK_BACK_MAX < self.latest { now } else { now.max(self.latest) }
    }

    fn table(&self, by: &SpendBy) -> Option<&SpendTable> {
        match by {
            SpendBy::Consumer => Some(&self.consumers),
            SpendBy::Model => Some(&self.models),
            SpendBy::Provider => Some(&self.providers),
            SpendBy::Flow => Some(&self.flows),
            SpendBy::Label(name) => self.labels.get(name),
        }
    }
}

impl Spend {
    /// Adds the cost of a call of this flow, which ended at `now`.
    pub(crate) fn add(&self, now: Timestamp, flow: &str, spent: &Spent) {
        let mut tables = self.0.lock();
        let now = tables.steady(now);
        let SpendTables { since, latest, consumers, models, providers, flows, labels, total } = &mut *tables;
        *latest = now;
        since.get_or_insert(now);
        for name in spent.labels.keys() {
            if labels.len() < LABELS_MAX && !labels.contains_key(name) {
                // The calls before have no value of this label.
                let rows = [("".into(), total.clone())].into();
                labels.insert(name.clone(), SpendTable { rows, ..SpendTable::default() });
            }
        }
        let sum = SpendSum { calls: 1, cost_nanodollars: spent.cost };
        let tables = [
            (consumers, spent.consumer.as_str()),
            (models, spent.model.as_str()),
            (providers, spent.provider.as_str()),
            (flows, flow),
        ];
        let value = |name: &String| spent.labels.get(name).map_or("", String::as_str);
        let by_label = labels.iter_mut().map(|(name, table)| (table, value(name)));
        for (table, name) in tables.into_iter().chain(by_label) {
            table.add(name, spent.series_max, now, sum);
        }
        total.add(now, sum);
    }

    /// Returns the sums by that kind of names. Returns `None` if there is no such label.
    pub fn sums(&self, now: Timestamp, by: &SpendBy, range: SpendRange) -> Option<SpendSums> {
        let tables = self.0.lock();
        let now = tables.steady(now);
        let table = tables.table(by)?;
        let rows = table.rows.iter().map(|(name, row)| (String::from(&**name), row.sum(now, range)));
        let mut rows: Vec<(String, SpendSum)> = rows.filter(|(_, sum)| sum.calls > 0).collect();
        rows.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.cost_nanodollars));
        let other = table.other.sum(now, range);
        let total = rows.iter().fold(other, |total, (_, sum)| total.and(*sum));
        let labels = tables.labels.keys().cloned().collect();
        Some(SpendSums { since: tables.since, labels, rows, other, total })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_000_000_000);

    fn after(seconds: u64) -> Timestamp {
        START + Duration::from_secs(seconds)
    }

    fn spent(consumer: &str, cost: u64) -> Spent {
        Spent { cost, consumer: consumer.to_owned(), series_max: 2, ..Spent::default() }
    }

    fn costs(spend: &Spend, now: Timestamp, by: &SpendBy, range: SpendRange) -> Vec<(String, u64)> {
        let sums = spend.sums(now, by, range).unwrap();
        let rows = sums.rows.iter().map(|(name, sum)| (name.clone(), sum.cost_nanodollars));
        rows.chain([("(other)".to_owned(), sums.other.cost_nanodollars)]).collect()
    }

    fn named(rows: &[(&str, u64)]) -> Vec<(String, u64)> {
        rows.iter().map(|(name, cost)| ((*name).to_owned(), *cost)).collect()
    }

    #[test]
    fn costs_leave_each_range_after_its_time() {
        let spend = Spend::default();
        for (seconds, cost) in [(0, 1), (30 * 86_400, 20), (31 * 86_400, 300), (31 * 86_400 + 3_700, 4_000)] {
            spend.add(after(seconds), "f", &spent("web", cost));
        }
        let now = after(31 * 86_400 + 3_700);
        let cost = |range| costs(&spend, now, &SpendBy::Flow, range);
        assert_eq!(cost(SpendRange::Hour), named(&[("f", 4_000), ("(other)", 0)]));
        assert_eq!(cost(SpendRange::Day), named(&[("f", 4_300), ("(other)", 0)]));
        assert_eq!(cost(SpendRange::Month), named(&[("f", 4_320), ("(other)", 0)]));
        let later = costs(&spend, after(99 * 86_400), &SpendBy::Flow, SpendRange::Month);
        assert_eq!(later, named(&[("(other)", 0)]));
    }

    #[test]
    fn names_beyond_the_bound_are_one_sum_until_others_expire() {
        let spend = Spend::default();
        for name in ["a", "b", "c", "a", "d"] {
            spend.add(START, "f", &spent(name, 5));
        }
        let rows = costs(&spend, START, &SpendBy::Consumer, SpendRange::Day);
        assert_eq!(rows, named(&[("a", 10), ("b", 5), ("(other)", 10)]));
        let later = after(40 * 86_400);
        spend.add(later, "f", &spent("c", 7));
        let rows = costs(&spend, later, &SpendBy::Consumer, SpendRange::Month);
        assert_eq!(rows, named(&[("c", 7), ("(other)", 0)]));
    }

    #[test]
    fn a_label_that_comes_later_has_the_calls_before_without_a_value() {
        let spend = Spend::default();
        spend.add(START, "f", &spent("web", 5));
        let labels = [("team".to_owned(), "search".to_owned())].into();
        spend.add(START, "f", &Spent { labels, ..spent("web", 30) });
        spend.add(START, "f", &spent("web", 100));
        let by = SpendBy::Label("team".to_owned());
        let rows = costs(&spend, START, &by, SpendRange::Hour);
        assert_eq!(rows, named(&[("", 105), ("search", 30), ("(other)", 0)]));
        assert_eq!(spend.sums(START, &by, SpendRange::Hour).unwrap().labels, ["team"]);
        assert!(spend.sums(START, &SpendBy::Label("none".to_owned()), SpendRange::Hour).is_none());
    }

    #[test]
    fn a_clock_that_is_set_back_a_little_loses_no_cost() {
        let spend = Spend::default();
        spend.add(after(100), "f", &spent("web", 5));
        spend.add(START, "f", &spent("web", 6));
        let rows = costs(&spend, START, &SpendBy::Consumer, SpendRange::Hour);
        assert_eq!(rows, named(&[("web", 11), ("(other)", 0)]));
    }

    #[test]
    fn a_clock_that_was_ahead_once_freezes_no_sum() {
        let spend = Spend::default();
        for (seconds, cost) in [(0, 1), (400 * 86_400, 20), (60, 300), (7_200, 4_000)] {
            spend.add(after(seconds), "f", &spent("web", cost));
        }
        let cost = |range| costs(&spend, after(7_200), &SpendBy::Consumer, range);
        assert_eq!(cost(SpendRange::Hour), named(&[("web", 4_000), ("(other)", 0)]));
        assert_eq!(cost(SpendRange::Day), named(&[("web", 4_301), ("(other)", 0)]));
    }

    proptest! {
        #[test]
        fn every_kind_of_names_adds_up_to_the_same_total(
            calls in prop::collection::vec(
                (0_u64..5_000_000, 0_u64..1_000_000_000, 0_u8..5, 0_u8..5, prop::option::of(0_u8..12)), 1..60
            ),
        ) {
            let spend = Spend::default();
            let mut now = START;
            let mut made = Vec::new();
            for (wait_s, cost, consumer, model, label) in calls {
                now = now + Duration::from_secs(wait_s);
                made.push((now, cost));
                let labels = label.map(|label| (format!("l{}", label % 3), label.to_string()));
                let (consumer, model) = (consumer.to_string(), model.to_string());
                let call = Spent { cost, consumer, model, labels: labels.into_iter().collect(), series_max: 3, ..Spent::default() };
                spend.add(now, "f", &call);
            }
            let labels = spend.sums(now, &SpendBy::Flow, SpendRange::Day).unwrap().labels;
            let kinds = [SpendBy::Consumer, SpendBy::Model, SpendBy::Provider, SpendBy::Flow];
            for by in kinds.into_iter().chain(labels.into_iter().map(SpendBy::Label)) {
                for (range, (length_s, count)) in [SpendRange::Hour, SpendRange::Day, SpendRange::Month].into_iter().zip(STEPS) {
                    let sums = spend.sums(now, &by, range).unwrap();
                    let is_in = |at: Timestamp| now.as_secs() / length_s - at.as_secs() / length_s < count as u64;
                    let expected: Vec<u64> = made.iter().filter(|(at, _)| is_in(*at)).map(|(_, cost)| *cost).collect();
                    let cost_nanodollars = expected.iter().sum();
                    prop_assert_eq!(sums.total, SpendSum { calls: expected.len() as u64, cost_nanodollars });
                    prop_assert!(sums.rows.len() <= 3);
                }
            }
        }
    }
}

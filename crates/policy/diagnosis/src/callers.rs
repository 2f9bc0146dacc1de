//! The consumers that call each provider, with the sums of their calls. Clients choose their names, so the
//! number of names is bounded.

use std::collections::BTreeMap;

use crate::diagnoses::discovery::date;
use crate::diagnoses::discovery::inventory::{SeenCalls, Stats};
use crate::discovered::DiscoveredConsumer;

/// Maximum number of consumers, each with each provider that it calls. They take less than 400 KiB.
const CALLERS_MAX: usize = 256;

/// The consumers that have called.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    /// By the names of the provider and of the consumer, which is empty if the client gives none.
    known: BTreeMap<(String, String), Stats>,
    /// Number of calls of further consumers.
    unlisted: u64,
}

impl Callers {
    /// Adds calls to `provider`.
    pub fn add(&mut self, provider: &str, calls: SeenCalls<'_>) {
        let key = (provider.to_owned(), calls.consumer.to_owned());
        if self.known.len() >= CALLERS_MAX && !self.known.contains_key(&key) {
            self.unlisted += calls.count;
            return;
        }
        self.known.entry(key).or_default().join(calls.into(), 0);
    }

    /// Returns the consumers, those with most calls first.
    pub fn list(&self) -> Vec<DiscoveredConsumer> {
        let mut list: Vec<_> =
            self.known.iter().map(|((provider, name), stats)| consumer(provider, name, stats)).collect();
        list.sort_by_key(|consumer| std::cmp::Reverse(consumer.count));
        list
    }

    /// Number of calls of consumers that are not in the list.
    pub fn unlisted(&self) -> u64 {
        self.unlisted
    }
}

fn consumer(provider: &str, name: &str, stats: &Stats) -> DiscoveredConsumer {
    let quantile = |share| stats.times.quantile_us(share).unwrap_or_default();
    DiscoveredConsumer {
        consumer: name.to_owned(),
        provider: provider.to_owned(),
        count: stats.count,
        statuses: stats.statuses.clone(),
        p50_us: quantile(0.5),
        p99_us: quantile(0.99),
        first_seen: date(stats.first_seen_us),
        last_seen: date(stats.last_seen_us),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnoses::discovery::times::{CLASSES, TimeHistogram};

    fn calls(consumer: &str, status: u16, count: u64) -> SeenCalls<'_> {
        let mut times = [0; CLASSES];
        times[10] = u32::try_from(count).unwrap();
        SeenCalls {
            method: "GET",
            path: "/a",
            status,
            has_retry_after: false,
            consumer,
            client: "",
            count,
            times: TimeHistogram::of(&times),
            first_us: 1_000_000,
            last_us: 2_000_000,
        }
    }

    #[test]
    fn consumers_are_listed_by_their_calls_to_each_provider() {
        let mut callers = Callers::default();
        callers.add("shop", calls("web", 200, 3));
        callers.add("shop", calls("batch", 429, 9));
        callers.add("maps", calls("web", 200, 1));
        callers.add("shop", calls("web", 503, 2));
        let list = callers.list();
        let rows: Vec<_> = list.iter().map(|row| (&*row.consumer, &*row.provider, row.count)).collect();
        assert_eq!(rows, [("batch", "shop", 9), ("web", "shop", 5), ("web", "maps", 1)]);
        assert_eq!(list[1].statuses, BTreeMap::from([(200, 3), (503, 2)]));
        assert_eq!((list[1].p50_us, &*list[1].last_seen), (10, "1970-01-01T00:00:02.000000Z"));
    }

    #[test]
    fn names_beyond_the_bound_are_only_counted() {
        let mut callers = Callers::default();
        for number in 0..CALLERS_MAX + 10 {
            callers.add("shop", calls(&format!("client-{number}"), 200, 2));
        }
        callers.add("shop", calls("client-0", 200, 1));
        assert_eq!((callers.list().len(), callers.unlisted()), (CALLERS_MAX, 20));
        assert_eq!(callers.list()[0].consumer, "client-0");
    }
}

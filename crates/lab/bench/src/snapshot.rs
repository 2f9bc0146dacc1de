//! The counters of a run while it goes on.

use std::collections::BTreeMap;

use crate::tally::{Series, Tally};

/// The counters of a thread, or of all, at a moment of the run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    /// Times from start to end.
    pub total: Series,
    /// Failed exchanges.
    pub failed: u64,
    /// Number of failures and of unsuccessful responses by cause.
    pub errors: BTreeMap<String, u64>,
}

impl Snapshot {
    /// Reads the counters.
    pub fn of(tally: &Tally) -> Self {
        let responses = tally.statuses().filter(|(status, _)| status / 100 != 2);
        let responses = responses.map(|(status, count)| (format!("responses with status {status}"), count));
        Self {
            total: tally.total(),
            failed: tally.failed,
            errors: tally
                .causes()
                .map(|(cause, count)| (cause.to_string(), count))
                .chain(responses)
                .collect(),
        }
    }

    /// Adds the counters of another thread.
    pub fn add(&mut self, other: &Self) {
        self.total.add(&other.total);
        self.failed += other.failed;
        for (cause, count) in &other.errors {
            *self.errors.entry(cause.clone()).or_default() += count;
        }
    }
}

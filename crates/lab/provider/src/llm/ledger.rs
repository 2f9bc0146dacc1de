//! The ledger of language models: the bill of each call, whatever its client received.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use serde::Serialize;

use super::cost::Cost;

/// Maximum number of calls that are kept. The totals of all calls include those that are not.
pub(super) const CALLS_MAX: usize = 100_000;

/// The ledger.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    number: AtomicU64,
    under_way: AtomicU64,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    calls: VecDeque<Charge>,
    dropped: u64,
    totals: Totals,
}

/// The bill of a call.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Charge {
    pub id: String,
    pub dialect: &'static str,
    pub operation: &'static str,
    pub model: String,
    pub consumer: String,
    pub status: u16,
    pub streamed: bool,
    /// `true` if the response was sent to its end. A refusal and a broken stream are not complete.
    pub complete: bool,
    /// `true` if the client left before the end.
    pub left: bool,
    #[serde(flatten)]
    pub cost: Cost,
    /// The cost that the response itself states, in nano-dollars; only in the dialect `openrouter`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stated_cost_nanodollars: Option<u64>,
}

/// Sums over calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Totals {
    pub calls: u64,
    pub refused: u64,
    pub incomplete: u64,
    pub left: u64,
    #[serde(flatten)]
    pub cost: Cost,
}

/// The ledger as it is shown.
#[derive(Debug, Serialize)]
pub(crate) struct Excerpt {
    pub totals: Totals,
    /// Number of calls whose responses have not ended.
    pub under_way: u64,
    /// Number of calls that are in the totals, but no longer in the list.
    pub dropped: u64,
    /// The last calls, oldest first.
    pub calls: Vec<Charge>,
}

impl Totals {
    fn add(&mut self, charge: &Charge) {
        self.calls += 1;
        self.refused += u64::from(charge.status >= 400);
        self.incomplete += u64::from(charge.status < 400 && !charge.complete);
        self.left += u64::from(charge.left);
        self.cost += charge.cost;
    }
}

impl Ledger {
    /// A number that no other call has.
    pub fn next_number(&self) -> u64 {
        self.number.fetch_add(1, Relaxed) + 1
    }

    /// Adds a call that has ended.
    pub fn add(&self, charge: Charge) {
        let mut book = self.book.lock();
        book.totals.add(&charge);
        if book.calls.len() == CALLS_MAX {
            book.calls.pop_front();
            book.dropped += 1;
        }
        book.calls.push_back(charge);
    }

    /// The last calls that fit, at most `last`. Totals are of all calls that fit and are kept; without a
    /// filter they are of all calls.
    pub fn excerpt(&self, last: usize, filter: Option<&dyn Fn(&Charge) -> bool>) -> Excerpt {
        let book = self.book.lock();
        let fitting = || book.calls.iter().filter(|charge| filter.is_none_or(|fits| fits(charge)));
        let totals = match filter {
            None => book.totals.clone(),
            Some(_) => fitting().fold(Totals::default(), |mut totals, charge| {
                totals.add(charge);
                totals
            }),
        };
        let mut calls: Vec<Charge> = fitting().rev().take(last).cloned().collect();
        calls.reverse();
        Excerpt { totals, under_way: self.under_way.load(Relaxed), dropped: book.dropped, calls }
    }

    /// Forgets all calls. Those under way are added when they end.
    pub fn clear(&self) {
        *self.book.lock() = Book::default();
    }
}

/// The charge of a stream that has not ended. If it is dropped before, the client has left.
#[derive(Debug)]
pub(super) struct OpenCharge {
    ledger: Arc<Ledger>,
    charge: Charge,
    /// Output tokens made so far, reasoning included.
    produced: u64,
    /// A stream that ends early is billed in full.
    whole: bool,
    is_added: bool,
}

impl OpenCharge {
    /// Opens a charge, with the cost of the complete stream.
    pub fn new(ledger: Arc<Ledger>, charge: Charge, whole: bool) -> Self {
        ledger.under_way.fetch_add(1, Relaxed);
        Self { ledger, produced: charge.cost.reasoning, charge, whole, is_added: false }
    }

    /// States the number of output tokens made so far.
    pub fn has_produced(&mut self, produced: u64) {
        self.produced = produced;
    }

    /// The stream has ended with all its events.
    pub fn complete(&mut self) {
        self.charge.complete = true;
        self.end();
    }

    /// The stream has ended with an error or was cut.
    pub fn fail(&mut self) {
        self.end();
    }

    fn end(&mut self) {
        if self.is_added {
            return;
        }
        self.is_added = true;
        if !self.charge.complete && !self.whole {
            self.charge.cost.output = self.produced;
        }
        self.ledger.add(std::mem::take(&mut self.charge));
        self.ledger.under_way.fetch_sub(1, Relaxed);
    }
}

impl Drop for OpenCharge {
    fn drop(&mut self) {
        self.charge.left = !self.is_added;
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charge(consumer: &str) -> Charge {
        let consumer = consumer.to_owned();
        let cost = Cost { input: 10, output: 5, reasoning: 2, ..Cost::default() };
        Charge { consumer, status: 200, cost, ..Charge::default() }
    }

    #[test]
    fn the_ledger_keeps_totals_beyond_its_bound() {
        let ledger = Ledger::default();
        for index in 0..=CALLS_MAX {
            ledger.add(charge(if index == 0 { "a" } else { "b" }));
        }
        let all = ledger.excerpt(3, None);
        assert_eq!((all.totals.calls, all.dropped, all.calls.len()), (CALLS_MAX as u64 + 1, 1, 3));
        let of_a = ledger.excerpt(3, Some(&|charge: &Charge| charge.consumer == "a"));
        assert_eq!((of_a.totals, of_a.calls.len()), (Totals::default(), 0));
        ledger.clear();
        assert_eq!(ledger.excerpt(3, None).totals, Totals::default());
    }

    #[test]
    fn a_stream_that_ends_early_is_billed_what_was_made() {
        let ledger = Arc::new(Ledger::default());
        let open = |whole| OpenCharge::new(Arc::clone(&ledger), charge("a"), whole);
        open(false).complete();
        let mut cut = open(false);
        cut.has_produced(3);
        assert_eq!(ledger.excerpt(9, None).under_way, 1);
        cut.fail();
        drop(cut);
        drop(open(false));
        drop(open(true));
        let shown = ledger.excerpt(9, None);
        let facts: Vec<_> =
            shown.calls.iter().map(|charge| (charge.cost.output, charge.complete, charge.left)).collect();
        assert_eq!(facts, [(5, true, false), (3, false, false), (2, false, true), (5, false, true)]);
        assert_eq!((shown.under_way, shown.totals.left, shown.totals.incomplete), (0, 2, 3));
    }
}

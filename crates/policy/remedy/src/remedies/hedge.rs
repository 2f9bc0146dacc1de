//! `hedge`: makes a second call if the first is slow, and uses whichever response comes first.
//!
//! A second call costs the provider as much as the first. So it is made only if it is harmless for the
//! provider to see the request twice, and only within a budget. The budget is checked when the request passes
//! and charged when the second call has been made.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::{Context, Poll};

use egret_clock::Timestamp;
use egret_config::Duration;
use egret_message::Outcome;
use parking_lot::Mutex;
use serde::Serialize;

use crate::exchange::{Exchange, SecondCall};
use crate::remedies::retry::{Budget, BudgetConfig};
use crate::remedies::timeout::shorter;
use crate::remedy::{CompileContext, Reaction, Remedy, Step};

egret_config::keys! {
    /// Conditions for a second call.
    pub struct HedgeConfig {
        /// Time to wait for the response to the first call. With `percentile`, it applies until enough
        /// latencies are known.
        pub after: Duration = Duration::from_millis(500),
        /// Waits for this percentile of the latencies of the last 256 calls: with 95, about one call in
        /// twenty is made twice.
        #[schemars(range(min = 50, max = 99))]
        pub percentile: Option<u8>,
        /// Methods whose calls may be made twice in addition to the safe ones (RFC 9110 §9.2.1).
        pub methods: BTreeSet<String>,
        /// Budget of second calls.
        pub budget: BudgetConfig = BudgetConfig { ratio: 0.05, min_per_second: 1 },
    }
}

/// Makes a second call if the first is slow.
#[derive(Debug)]
pub struct Hedge {
    config: HedgeConfig,
    state: Arc<Mutex<HedgeState>>,
}

/// Statistics of previous calls.
#[derive(Debug, Default)]
struct HedgeState {
    budget: Budget,
    latencies: Latencies,
    counts: HedgesSnapshot,
}

/// Number of second calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct HedgesSnapshot {
    /// Calls that were slow enough for a second one, whether it was made or not: in report mode, those for
    /// which it would have been.
    pub slow: u64,
    /// Second calls.
    pub made: u64,
    /// Second calls whose response was used.
    pub used: u64,
    /// Requests that passed without a second call, because the budget was used up.
    pub over_budget: u64,
}

/// State of one exchange that may be hedged.
#[derive(Debug, Clone, Copy)]
pub struct HedgeRun {
    since: Timestamp,
    /// Time after which a second call is due; `None` if the budget has no room for it.
    after: Option<std::time::Duration>,
}

impl Remedy for Hedge {
    type Config = HedgeConfig;
    /// `None` if the exchange is not hedged.
    type Run = Option<HedgeRun>;

    fn compile(config: &HedgeConfig, context: &mut CompileContext<'_>) -> Option<Self> {
        let before = context.problems.len();
        if config.after.is_zero() {
            context.problem("after", "must be greater than 0: otherwise every call would be made twice");
        }
        if config.percentile.is_some_and(|percentile| !(50..=99).contains(&percentile)) {
            context.problem("percentile", "must be from 50 to 99: below 50, most calls would be made twice");
        }
        if !(0.0..=1.0).contains(&config.budget.ratio) {
            context.problem("budget.ratio", "must be from 0 to 1");
        }
        context.check_methods(&config.methods);
        let state = context.states.keep(|_| true, Mutex::default);
        (context.problems.len() == before).then(|| Self { config: config.clone(), state })
    }

    fn describe(&self) -> String {
        match self.config.percentile {
            Some(percentile) => {
                format!("a second call if the first is slower than {percentile} % of the last calls")
            }
            None => format!("a second call if the first takes longer than {}", self.config.after),
        }
    }

    fn request(
        &self,
        exchange: &mut Exchange<'_>,
        held: &mut Self::Run,
        _cx: &mut Context<'_>,
    ) -> Poll<Step> {
        let method = exchange.method();
        if !method.is_safe() && !self.config.methods.contains(method.name()) {
            return Poll::Ready(Step::Next);
        }
        let mut state = self.state.lock();
        state.budget.first_call(exchange.now);
        let mut after = None;
        if state.budget.has_room(exchange.now, self.config.budget) {
            let usual = self.config.percentile.and_then(|percentile| state.latencies.at(percentile));
            after = Some(usual.unwrap_or(self.config.after.get()));
            let call = &mut exchange.draft.call;
            call.hedge = shorter(call.hedge, after);
        } else {
            state.counts.over_budget += 1;
        }
        *held = Some(HedgeRun { since: exchange.now, after });
        Poll::Ready(Step::Next)
    }

    fn response(&self, exchange: &mut Exchange<'_>, held: &mut Self::Run) -> Reaction {
        let Some(HedgeRun { since, after }) = *held else { return Reaction::Pass };
        let second_call = exchange.draft.second_call;
        let took = exchange.now.since(since);
        let mut state = self.state.lock();
        let is_slow = second_call != SecondCall::None || after.is_some_and(|after| took >= after);
        state.counts.slow += u64::from(is_slow && exchange.local_kind.is_none());
        if second_call != SecondCall::None {
            state.budget.count_repeat(exchange.now);
            state.counts.made += 1;
            state.counts.used += u64::from(second_call == SecondCall::Used);
        }
        if let Outcome::Response(_) = exchange.outcome {
            state.latencies.note(took);
        }
        Reaction::Pass
    }
}

impl Hedge {
    /// Returns the number of second calls so far.
    pub(crate) fn snapshot(&self) -> HedgesSnapshot {
        self.state.lock().counts
    }
}

/// Number of latencies kept.
const LATENCIES: usize = 256;
/// Minimum number of latencies for a percentile, and number of new ones between two sorts.
const LATENCIES_MIN: usize = 32;

/// Latencies of the last calls.
#[derive(Debug, Default)]
struct Latencies {
    /// A ring in the order of the calls; the oldest is overwritten first.
    last: Vec<std::time::Duration>,
    next: usize,
    noted: usize,
    sorted: Vec<std::time::Duration>,
}

impl Latencies {
    fn note(&mut self, latency: std::time::Duration) {
        if self.last.len() < LATENCIES {
            self.last.push(latency);
        } else {
            self.last[self.next] = latency;
        }
        self.next = (self.next + 1) % LATENCIES;
        self.noted += 1;
        if self.noted.is_multiple_of(LATENCIES_MIN) {
            self.sorted.clone_from(&self.last);
            self.sorted.sort_unstable();
        }
    }

    /// Returns the latency at this percentile, or `None` if too few are known.
    fn at(&self, percentile: u8) -> Option<std::time::Duration> {
        let rank = (self.sorted.len() * usize::from(percentile)).div_ceil(100);
        self.sorted.get(rank.checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use egret_fixture::{TestFlows, TestStep};
    use serde_json::json;

    const GET: &str = "GET https://one.example/";

    #[test]
    fn slow_calls_are_counted_whether_a_second_call_is_made_or_not() {
        for mode in ["enforce", "report"] {
            let hedge = json!({ "after": "100ms", "budget": { "ratio": 0, "min_per_second": 1 } });
            let mut harness = TestFlows::with(&json!([{ "hedge": hedge, "mode": mode }]));
            for time_ms in [99, 100, 101] {
                let mut exchange = harness.send(GET);
                assert_eq!(exchange.poll(&harness), TestStep::Call);
                harness.pass_ms(time_ms);
                exchange.response(&harness, "200");
            }
            let counts = harness.flows.snapshot(harness.now, 0).flows[0].remedies[0].state.hedges.unwrap();
            assert_eq!((counts.slow, counts.made, counts.used), (2, 0, 0), "{mode}");
        }
    }

    #[test]
    fn percentiles_are_those_of_the_last_calls() {
        let mut latencies = Latencies::default();
        for ms in 1..LATENCIES_MIN as u64 {
            latencies.note(std::time::Duration::from_millis(ms));
        }
        assert_eq!(latencies.at(95), None);
        latencies.note(std::time::Duration::from_millis(LATENCIES_MIN as u64));
        assert_eq!(latencies.at(50), Some(std::time::Duration::from_millis(16)));
        assert_eq!(latencies.at(99), Some(std::time::Duration::from_millis(32)));
        for _ in 0..LATENCIES {
            latencies.note(std::time::Duration::from_secs(1));
        }
        assert_eq!(latencies.at(50), Some(std::time::Duration::from_secs(1)));
        assert_eq!(latencies.last.len(), LATENCIES);
    }
}

//! `circuit-breaker`: responds in place of a failing provider, and probes from time to time whether it has
//! recovered.

use std::sync::Arc;
use std::task::{Context, Poll};

use egret_clock::Timestamp;
use egret_config::Duration;
use egret_message::{Condition, Fault, Reason, Refused, any_meets};
use egret_quota::GroupBy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::exchange::Exchange;
use crate::grouping::{GroupKey, Grouping, Groups};
use crate::remedy::{CompileContext, Reaction, Remedy, Step};

/// `Retry-After` of requests refused while probes are in flight, since the duration of a probe is unknown.
const TRY_AGAIN: std::time::Duration = std::time::Duration::from_secs(1);
/// Maximum time for which a circuit may stay open.
const OPEN_MAX: std::time::Duration = std::time::Duration::from_hours(24);
/// Maximum length of the window over which failures are counted.
const WINDOW_MAX: std::time::Duration = std::time::Duration::from_hours(1);
/// Maximum number of calls in a threshold.
const CALLS_MAX: u32 = 1_000_000;

/// Conditions under which a circuit opens and closes.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CircuitBreakerConfig {
    /// Outcomes of a call that count as failures.
    pub on: Vec<Condition>,
    /// Number of consecutive failures that opens the circuit; `null` disables this condition.
    pub consecutive: Option<u32>,
    /// Share of failed calls in `window` that opens the circuit, above 0 and up to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Window over which `ratio` is calculated, in ten steps.
    pub window: Duration,
    /// Minimum number of calls in `window` for `ratio` to apply.
    pub min_calls: u32,
    /// Time for which the circuit first stays open and requests are refused. It doubles each time that
    /// probing fails.
    pub open: Duration,
    /// Maximum time for which the circuit stays open, up to `24h`.
    pub open_max: Duration,
    /// Number of concurrent probes after that time.
    pub probes: u32,
    /// Number of successful probes that closes the circuit.
    pub successes: u32,
    /// A response whose `Retry-After` is at least this far ahead opens the circuit at once, until that time,
    /// for at most `open_max`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_min: Option<Duration>,
    /// Keeps one circuit per group within each provider: `header:NAME`, `consumer`, `param:NAME` or
    /// `cel:EXPRESSION`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_by: Option<GroupBy>,
    /// Status code of a refusal, 400 to 599. Default: 503.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
}

impl Default for CircuitBreakerConfig {
    fn default() -> Self {
        Self {
            on: vec![
                Condition::Connect,
                Condition::Timeout,
                Condition::Reset,
                Condition::BadResponse,
                Condition::Status(500, 599),
            ],
            consecutive: Some(5),
            ratio: None,
            window: Duration::from_secs(10),
            min_calls: 20,
            open: Duration::from_secs(5),
            open_max: Duration::from_secs(60),
            probes: 1,
            successes: 1,
            retry_after_min: None,
            group_by: None,
            status: None,
        }
    }
}

/// Responds in place of a failing provider.
#[derive(Debug)]
pub struct CircuitBreaker {
    config: CircuitBreakerConfig,
    grouping: Grouping,
    circuits: Arc<Groups<Circuit>>,
}

/// The circuits of a breaker: one for each provider or group that calls have failed for lately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CircuitsSnapshot {
    /// Number of circuits that count failures.
    pub circuits: usize,
    /// Number of those that are open.
    pub open: usize,
    /// Number of those whose probes decide.
    pub half_open: usize,
    /// The latest time until which one of them stays open.
    pub until: Option<Timestamp>,
}

/// State of one exchange.
#[derive(Debug, Default)]
pub struct Held {
    /// The circuit that its call counts for.
    call: Option<CountedCall>,
    probe: Option<Probe>,
}

#[derive(Debug, Clone, Copy)]
struct CountedCall {
    key: GroupKey,
    /// Turn of the circuit when the call was admitted.
    turn: u64,
}

/// A probe call. Dropping it allows another probe.
#[derive(Debug)]
struct Probe {
    circuits: Arc<Groups<Circuit>>,
    call: CountedCall,
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.circuits.look(self.call.key, |circuit| {
            if let Phase::HalfOpen { in_flight, .. } = &mut circuit.phase
                && circuit.turn == self.call.turn
            {
                *in_flight = in_flight.saturating_sub(1);
            }
        });
    }
}

impl Remedy for CircuitBreaker {
    type Config = CircuitBreakerConfig;
    type Held = Held;

    fn compile(config: &CircuitBreakerConfig, context: &mut CompileContext<'_>) -> Option<Self> {
        let before = context.problems.len();
        context.check_refusal_status(config.status);
        for (key, problem) in problems(config) {
            context.problem(key, problem);
        }
        let grouping = Grouping::compile(config.group_by.as_ref(), context)?;
        if context.problems.len() > before {
            return None;
        }
        let circuits = context.states.keep(|_| true, Groups::default);
        Some(Self { config: config.clone(), grouping, circuits })
    }

    fn describe(&self) -> String {
        let CircuitBreakerConfig { consecutive, ratio, window, open, .. } = &self.config;
        let in_a_row = consecutive.map(|calls| format!("{calls} failures in a row"));
        let share = ratio.map(|ratio| format!("a share of {ratio} failed calls in {window}"));
        let when: Vec<String> = in_a_row.into_iter().chain(share).collect();
        format!("refuses requests for {open} after {}", when.join(" or "))
    }

    fn request(&self, exchange: &mut Exchange<'_>, held: &mut Held, _cx: &mut Context<'_>) -> Poll<Step> {
        Poll::Ready(self.admit(exchange, held).unwrap_or_else(Step::Fail))
    }

    fn response(&self, exchange: &mut Exchange<'_>, held: &mut Held) -> Reaction {
        if let Some(call) = held.call.take()
            && exchange.local_kind.is_none()
        {
            self.record_outcome(exchange, call);
        }
        held.probe = None;
        Reaction::Pass
    }
}

/// Returns the problems of `config`, by key.
fn problems(config: &CircuitBreakerConfig) -> impl Iterator<Item = (&'static str, &'static str)> {
    let calls = 1..=CALLS_MAX;
    let checks = [
        ("on", !config.on.is_empty(), "must list at least one outcome, like `5xx`"),
        (
            "consecutive",
            config.consecutive.is_some() || config.ratio.is_some(),
            "one of `consecutive` and `ratio` is required",
        ),
        (
            "consecutive",
            config.consecutive.is_none_or(|count| calls.contains(&count)),
            "must be from 1 to 1000000",
        ),
        (
            "ratio",
            config.ratio.is_none_or(|ratio| ratio > 0.0 && ratio <= 1.0),
            "must be above 0 and at most 1",
        ),
        (
            "window",
            (SLOTS_TIME_MIN..=WINDOW_MAX).contains(&config.window.get()),
            "must be from `10ms` to an hour (`1h`)",
        ),
        ("min_calls", calls.contains(&config.min_calls), "must be from 1 to 1000000"),
        ("open", !config.open.is_zero(), "must be greater than 0"),
        (
            "open_max",
            config.open_max >= config.open && config.open_max.get() <= OPEN_MAX,
            "must be from `open` to a day (`24h`)",
        ),
        ("probes", calls.contains(&config.probes), "must be from 1 to 1000000"),
        ("successes", calls.contains(&config.successes), "must be from 1 to 1000000"),
    ];
    checks.into_iter().filter(|(_, is_good, _)| !is_good).map(|(key, _, problem)| (key, problem))
}

impl CircuitBreaker {
    /// Returns the state of the circuits at `now`.
    pub(crate) fn snapshot(&self, now: Timestamp) -> CircuitsSnapshot {
        let mut snapshot = CircuitsSnapshot::default();
        self.circuits.each(|circuit| {
            snapshot.circuits += 1;
            match circuit.phase {
                Phase::Closed => {}
                Phase::Open { until } if now < until => {
                    snapshot.open += 1;
                    snapshot.until = snapshot.until.max(Some(until));
                }
                // The next request is a probe.
                Phase::Open { .. } | Phase::HalfOpen { .. } => snapshot.half_open += 1,
            }
        });
        snapshot
    }

    fn admit(&self, exchange: &Exchange<'_>, held: &mut Held) -> Result<Step, Fault> {
        let now = exchange.now;
        let key = self.grouping.key(&self.circuits, exchange)?;
        let admitted = self.circuits.with(key, Circuit::is_new, |circuit| circuit.admit(now, &self.config));
        let (turn, tries) = match admitted {
            Ok(admitted) => admitted,
            Err(retry_at) => {
                let detail =
                    "the provider has failed too often recently: try again after the time in `Retry-After`";
                let refused = Refused::new(Reason::CircuitOpen, detail);
                return Ok(Refused { status: self.config.status, retry_at: Some(retry_at), ..refused }.into());
            }
        };
        let call = CountedCall { key, turn };
        held.call = Some(call);
        held.probe = tries.then(|| Probe { circuits: Arc::clone(&self.circuits), call });
        Ok(Step::Next)
    }

    fn record_outcome(&self, exchange: &Exchange<'_>, call: CountedCall) {
        let now = exchange.now;
        let requested = self
            .config
            .retry_after_min
            .and_then(|least| exchange.retry_after().filter(|at| at.since(now) >= least.get()));
        let failed = requested.is_some() || any_meets(&self.config.on, &exchange.outcome);
        if !failed && exchange.response().is_none() {
            // Neither a failure that counts nor a success.
            return;
        }
        self.circuits.look(call.key, |circuit| {
            if circuit.turn != call.turn {
                return;
            }
            match requested {
                Some(until) => circuit.open_until(until.min(now + self.config.open_max.get())),
                None => circuit.record_outcome(now, failed, &self.config),
            }
        });
    }
}

/// Number of steps of the window.
const SLOTS: usize = 10;
/// Minimum length of the window: one millisecond per step.
const SLOTS_TIME_MIN: std::time::Duration = std::time::Duration::from_millis(10);

/// The circuit of one group.
#[derive(Debug, Default)]
struct Circuit {
    phase: Phase,
    /// Number of phase changes, so a late response of an earlier phase does not count for this one.
    turn: u64,
    /// Number of consecutive failed probing phases.
    failed_probes: u32,
    consecutive: u32,
    /// The last step that was counted.
    step: u64,
    /// Number of calls and of failures, by step modulo [`SLOTS`].
    counts: [(u32, u32); SLOTS],
}

#[derive(Debug, Clone, Copy, Default)]
enum Phase {
    /// Calls pass.
    #[default]
    Closed,
    /// Requests are refused.
    Open { until: Timestamp },
    /// Probes pass.
    HalfOpen { in_flight: u32, successes: u32 },
}

impl Circuit {
    /// Returns `true` if it is equivalent to a new circuit.
    fn is_new(&self) -> bool {
        matches!(self.phase, Phase::Closed)
            && self.consecutive == 0
            && self.counts.iter().all(|(_, failed)| *failed == 0)
    }

    /// Admits a call and returns its turn and whether it is a probe. Otherwise returns the time at which a
    /// retry makes sense.
    fn admit(&mut self, now: Timestamp, config: &CircuitBreakerConfig) -> Result<(u64, bool), Timestamp> {
        match &mut self.phase {
            Phase::Closed => Ok((self.turn, false)),
            Phase::Open { until } if now < *until => Err(*until),
            Phase::Open { .. } => {
                self.enter(Phase::HalfOpen { in_flight: 1, successes: 0 });
                Ok((self.turn, true))
            }
            Phase::HalfOpen { in_flight, .. } if *in_flight >= config.probes => Err(now + TRY_AGAIN),
            Phase::HalfOpen { in_flight, .. } => {
                *in_flight += 1;
                Ok((self.turn, true))
            }
        }
    }

    /// Records the outcome of a call of the current turn.
    fn record_outcome(&mut self, now: Timestamp, failed: bool, config: &CircuitBreakerConfig) {
        match &mut self.phase {
            Phase::Closed => {
                self.count(now, failed, config);
                if failed && self.is_too_much(config) {
                    self.open(now, config);
                }
            }
            Phase::HalfOpen { .. } if failed => {
                self.failed_probes = self.failed_probes.saturating_add(1);
                self.open(now, config);
            }
            Phase::HalfOpen { successes, .. } => {
                *successes += 1;
                if *successes >= config.successes {
                    *self = Self { turn: self.turn + 1, ..Self::default() };
                }
            }
            Phase::Open { .. } => {}
        }
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.turn += 1;
    }

    fn open(&mut self, now: Timestamp, config: &CircuitBreakerConfig) {
        let factor = 1_u32.checked_shl(self.failed_probes).unwrap_or(u32::MAX);
        self.open_until(now + config.open.get().saturating_mul(factor).min(config.open_max.get()));
    }

    fn open_until(&mut self, until: Timestamp) {
        self.enter(Phase::Open { until });
    }

    fn count(&mut self, now: Timestamp, failed: bool, config: &CircuitBreakerConfig) {
        self.consecutive = if failed { self.consecutive.saturating_add(1) } else { 0 };
        let step_us = (config.window.as_millis() * 1_000 / SLOTS as u64).max(1);
        // A clock that is set back or a window that grows must not revive old counts.
        let step = now.as_micros() / step_us;
        if step.abs_diff(self.step) >= SLOTS as u64 {
            self.counts = Default::default();
        } else {
            for passed in self.step + 1..=step {
                self.counts[slot(passed)] = (0, 0);
            }
        }
        self.step = step;
        let (calls, failures) = &mut self.counts[slot(step)];
        *calls = calls.saturating_add(1);
        *failures = failures.saturating_add(u32::from(failed));
    }

    fn is_too_much(&self, config: &CircuitBreakerConfig) -> bool {
        let in_a_row = config.consecutive.is_some_and(|most| self.consecutive >= most);
        let (calls, failures) = self.counts.iter().fold((0_u64, 0_u64), |(calls, failures), slot| {
            (calls + u64::from(slot.0), failures + u64::from(slot.1))
        });
        in_a_row
            || config
                .ratio
                .is_some_and(|ratio| calls >= u64::from(config.min_calls) && share(failures, calls) >= ratio)
    }
}

/// Returns the index of a step in the counts.
fn slot(step: u64) -> usize {
    usize::try_from(step % SLOTS as u64).unwrap_or_default()
}

/// Returns `part / whole`. Both saturate at `u32::MAX`.
fn share(part: u64, whole: u64) -> f64 {
    let number = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    number(part) / number(whole).max(1.0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use egret_fixture::{TestFlows, TestStep, problems};
    use egret_message::FailureKind;

    const GET: &str = "GET https://one.example/";

    fn config(breaker: &Value) -> Value {
        json!({ "flows": [{ "name": "f", "remedies": [{ "circuit-breaker": breaker }] }] })
    }

    fn harness(breaker: &Value) -> TestFlows {
        TestFlows::new(config(breaker))
    }

    fn calls(harness: &TestFlows, status: &str, count: u32) {
        for _ in 0..count {
            assert!(matches!(harness.exchange(GET, status), TestStep::Response(_)));
        }
    }

    /// Returns the number of milliseconds until a retry makes sense, or `None` if calls pass.
    fn open_ms(harness: &TestFlows) -> Option<u128> {
        match harness.send(GET).poll(harness) {
            TestStep::Call => None,
            refused => {
                assert_eq!(refused.refusal(harness).0, Reason::CircuitOpen);
                refused.refusal(harness).1
            }
        }
    }

    #[test]
    fn failures_in_a_row_open_it_and_a_success_in_between_does_not() {
        let harness = harness(&json!({}));
        calls(&harness, "500", 4);
        calls(&harness, "200", 1);
        calls(&harness, "503", 4);
        assert_eq!(open_ms(&harness), None);
        calls(&harness, "503", 1);
        assert_eq!(open_ms(&harness), Some(5_000));
        let mut other = harness.send("GET https://two.example/");
        assert_eq!(other.poll(&harness), TestStep::Call);
    }

    #[test]
    fn failed_calls_count_as_named_and_what_the_gateway_refuses_does_not() {
        let harness = harness(&json!({ "consecutive": 2, "on": ["reset"] }));
        for kind in [FailureKind::Refused, FailureKind::Timeout, FailureKind::Reset] {
            let mut exchange = harness.send(GET);
            exchange.poll(&harness);
            exchange.failure(&harness, kind);
        }
        calls(&harness, "200", 1);
        assert_eq!(open_ms(&harness), None);
        for _ in 0..2 {
            let mut exchange = harness.send(GET);
            exchange.poll(&harness);
            exchange.failure(&harness, FailureKind::Reset);
        }
        assert_eq!(open_ms(&harness), Some(5_000));
    }

    #[test]
    fn the_share_counts_over_the_window_from_a_minimum_on() {
        let mut harness =
            harness(&json!({ "consecutive": null, "ratio": 0.5, "min_calls": 10, "window": "10s" }));
        calls(&harness, "500", 9);
        assert_eq!(open_ms(&harness), None);
        harness.pass_ms(11_000);
        calls(&harness, "200", 6);
        calls(&harness, "500", 5);
        assert_eq!(open_ms(&harness), None);
        calls(&harness, "500", 1);
        assert_eq!(open_ms(&harness), Some(5_000));
    }

    #[test]
    fn it_tries_closes_on_success_and_stays_open_longer_each_time_that_trying_fails() {
        let mut harness =
            harness(&json!({ "consecutive": 1, "open": "1s", "open_max": "3s", "successes": 2 }));
        calls(&harness, "500", 1);
        for open in [1_000, 2_000, 3_000, 3_000] {
            assert_eq!(open_ms(&harness), Some(open.into()));
            harness.pass_ms(open);
            let mut probe = harness.send(GET);
            assert_eq!(probe.poll(&harness), TestStep::Call);
            assert_eq!(open_ms(&harness), Some(1_000));
            assert_eq!(probe.response(&harness, "502"), TestStep::Response(502));
        }
        harness.pass_ms(3_000);
        calls(&harness, "200", 2);
        let (mut one, mut other) = (harness.send(GET), harness.send(GET));
        assert_eq!((one.poll(&harness), other.poll(&harness)), (TestStep::Call, TestStep::Call));
        one.response(&harness, "500");
        assert_eq!(open_ms(&harness), Some(1_000));
        // A call of an earlier turn does not count.
        harness.pass_ms(1_000);
        let mut probe = harness.send(GET);
        assert_eq!(probe.poll(&harness), TestStep::Call);
        other.response(&harness, "500");
        assert_eq!(open_ms(&harness), Some(1_000));
        drop(probe);
        assert_eq!(open_ms(&harness), None);
    }

    #[test]
    fn a_long_retry_after_opens_it_at_once() {
        let harness = harness(&json!({ "retry_after_min": "10s" }));
        calls(&harness, "429\nRetry-After: 9", 1);
        assert_eq!(open_ms(&harness), None);
        calls(&harness, "429\nRetry-After: 20", 1);
        assert_eq!(open_ms(&harness), Some(20_000));
    }

    #[test]
    fn a_reload_keeps_it_open() {
        let mut harness = harness(&json!({ "consecutive": 1 }));
        calls(&harness, "500", 1);
        harness.reload(config(&json!({ "consecutive": 3 })));
        assert_eq!(open_ms(&harness), Some(5_000));
    }

    #[test]
    fn nonsense_is_refused() {
        let found = problems(&json!([{ "circuit-breaker": {
            "on": [], "consecutive": null, "open": "2s", "open_max": "1s", "probes": 0,
        } }]));
        assert_eq!(found.len(), 4, "{found:?}");
    }
}

//! `circuit-breaker`: responds in place of a failing provider, and probes from time to time whether it has
//! recovered.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use egret_clock::Timestamp;
use egret_config::Duration;
use egret_message::grpc::{GrpcOutcome, GrpcStatus};
use egret_message::{Condition, ErrorKind, Fault, OTHER_HOSTS, Outcome, Refused};
use egret_quota::GroupBy;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::exchange::Exchange;
use crate::grouping::{GroupKey, Grouping, Groups};
use crate::remedy::{CompileContext, Needs, Reaction, Remedy, Step};

/// `Retry-After` of requests refused while probes are in flight, since the duration of a probe is unknown.
const TRY_AGAIN: std::time::Duration = std::time::Duration::from_secs(1);
/// Maximum time for which a circuit may stay open.
const OPEN_MAX: std::time::Duration = std::time::Duration::from_hours(24);
/// Maximum length of the window over which failures are counted.
const WINDOW_MAX: std::time::Duration = std::time::Duration::from_hours(1);
/// Maximum number of calls in a threshold.
const CALLS_MAX: u32 = 1_000_000;
/// Number of transitions that a breaker remembers, over all its circuits.
const TRANSITIONS_MAX: usize = 50;

egret_config::keys! {
    /// Conditions under which a circuit opens and closes.
    pub struct CircuitBreakerConfig {
        /// Outcomes of a call that count as failures. If a status of gRPC is among them, a gRPC call counts
        /// at its end, where its status is.
        pub on: Vec<Condition> = Condition::provider_failures(),
        /// Number of consecutive failures that opens the circuit; `null` disables this condition.
        #[schemars(range(min = 1, max = 1_000_000))]
        pub consecutive: Option<u32> = Some(5),
        /// Share of failed calls in `window` that opens the circuit, above 0 and up to 1.
        pub ratio: Option<f64>,
        /// Window over which `ratio` is calculated, in ten steps.
        pub window: Duration = Duration::from_secs(10),
        /// Minimum number of calls in `window` for `ratio` to apply.
        #[schemars(range(min = 1, max = 1_000_000))]
        pub min_calls: u32 = 20,
        /// Time for which the circuit first stays open and requests are refused. It doubles each time that
        /// probing fails.
        pub open: Duration = Duration::from_secs(5),
        /// Maximum time for which the circuit stays open, up to `24h`.
        pub open_max: Duration = Duration::from_secs(60),
        /// Number of concurrent probes after that time.
        #[schemars(range(min = 1, max = 1_000_000))]
        pub probes: u32 = 1,
        /// Number of successful probes that closes the circuit.
        #[schemars(range(min = 1, max = 1_000_000))]
        pub successes: u32 = 1,
        /// A response whose `Retry-After` is at least this far ahead opens the circuit at once, until that
        /// time, for at most `open_max`.
        pub retry_after_min: Option<Duration>,
        /// Keeps one circuit per group within each provider: `header:NAME`, `consumer`, `param:NAME` or
        /// `cel:EXPRESSION`.
        pub group_by: Option<GroupBy>,
        /// Status code of a refusal, 400 to 599. Default: 503.
        #[schemars(range(min = 400, max = 599))]
        pub status: Option<u16>,
    }
}

/// Responds in place of a failing provider.
#[derive(Debug)]
pub struct CircuitBreaker {
    config: CircuitBreakerConfig,
    grouping: Grouping,
    circuits: Arc<Circuits>,
}

/// The circuits of a breaker: one for each provider or group that calls have failed for lately.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CircuitsSnapshot {
    /// Number of circuits that count failures.
    pub circuits: usize,
    /// Number of those that are open.
    pub open: usize,
    /// Number of those whose probes decide.
    pub half_open: usize,
    /// The latest time until which one of them stays open.
    pub until: Option<Timestamp>,
    /// Number of transitions so far, including those that are no longer remembered.
    pub transitions_count: u64,
    /// The last transitions, the oldest first.
    pub transitions: Vec<Transition>,
}

/// The circuits of a breaker as one process hands them over to the next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CircuitsState {
    /// Length of the window in which calls are counted.
    window_ms: u64,
    circuits: Vec<HandedCircuit>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct HandedCircuit {
    /// Name of its group.
    name: Vec<u8>,
    /// Time until which it is open, if it is.
    open_until_us: Option<u64>,
    failed_probes: u32,
    consecutive: u32,
    step: u64,
    counts: [(u32, u32); SLOTS],
}

/// A change of a circuit's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// Its time.
    pub at: Timestamp,
    /// The provider whose calls the circuit counts, or the host if it has none.
    pub provider: Box<str>,
    /// The new state.
    pub to: CircuitState,
    /// The reason.
    pub reason: TransitionReason,
    /// The outcome of the call that led to it, if one did.
    pub outcome: Option<CallOutcome>,
}

/// State of a circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CircuitState {
    /// Calls pass.
    Closed,
    /// Requests are refused until that time.
    Open(Timestamp),
    /// Probes pass.
    HalfOpen,
}

/// The reason for a transition. Its `Display` is a clause for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransitionReason {
    /// So many calls have failed in a row.
    InARow(u32),
    /// Too large a share of the calls in the window has failed.
    Share {
        /// Number of failed calls.
        failed: u64,
        /// Number of calls.
        calls: u64,
    },
    /// The provider asked for a pause with `Retry-After`.
    RetryAfter,
    /// A probe has failed.
    ProbeFailed,
    /// The circuit was open for long enough.
    Due,
    /// So many probes have succeeded.
    Probed(u32),
}

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallOutcome {
    /// The status code of its response.
    Status(u16),
    /// The status of the gRPC call.
    Grpc(GrpcStatus),
    /// The slug of the error that prevented a response.
    Failed(&'static str),
}

impl CircuitState {
    /// Name of the state in the API.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open(_) => "open",
            Self::HalfOpen => "half-open",
        }
    }
}

impl fmt::Display for TransitionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InARow(1) => f.write_str("a call failed"),
            Self::InARow(calls) => write!(f, "{calls} calls in a row failed"),
            Self::Share { failed, calls } => write!(f, "{failed} of {calls} calls failed"),
            Self::RetryAfter => f.write_str("the provider asked for a pause"),
            Self::ProbeFailed => f.write_str("a probe failed"),
            Self::Due => f.write_str("the pause was over, so a probe was sent"),
            Self::Probed(1) => f.write_str("a probe succeeded"),
            Self::Probed(probes) => write!(f, "{probes} probes succeeded"),
        }
    }
}

impl fmt::Display for CallOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "{status}"),
            Self::Grpc(status) => write!(f, "{}", Condition::Grpc(*status)),
            Self::Failed(slug) => f.write_str(slug),
        }
    }
}

impl CallOutcome {
    fn of(exchange: &Exchange<'_>) -> Option<Self> {
        if let Some(status) = exchange.grpc.status() {
            return Some(Self::Grpc(status));
        }
        match exchange.outcome {
            Outcome::None => None,
            Outcome::Response(_) => exchange.response().map(|response| Self::Status(response.status)),
            Outcome::Failure(failure) => Some(Self::Failed(failure.slug)),
        }
    }
}

/// The circuits of a breaker and their last transitions.
#[derive(Debug, Default)]
struct Circuits {
    groups: Groups<Circuit>,
    history: Mutex<TransitionHistory>,
}

/// The last transitions. They are rare: a circuit changes a few times per second at most.
#[derive(Debug, Default)]
struct TransitionHistory {
    count: u64,
    /// The oldest first.
    last: VecDeque<Transition>,
}

impl Circuits {
    fn note(&self, transition: Transition) {
        let mut history = self.history.lock();
        history.count += 1;
        if history.last.len() >= TRANSITIONS_MAX {
            history.last.pop_front();
        }
        history.last.push_back(transition);
    }
}

/// State of one exchange.
#[derive(Debug, Default)]
pub struct BreakerRun {
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
    circuits: Arc<Circuits>,
    call: CountedCall,
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.circuits.groups.look(self.call.key, |circuit| {
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
    type Run = BreakerRun;

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
        let circuits = context.states.keep(|_| true, Circuits::default);
        Some(Self { config: config.clone(), grouping, circuits })
    }

    fn describe(&self) -> String {
        let CircuitBreakerConfig { consecutive, ratio, window, open, .. } = &self.config;
        let in_a_row = consecutive.map(|calls| format!("{calls} failures in a row"));
        let share = ratio.map(|ratio| format!("a share of {ratio} failed calls in {window}"));
        let when: Vec<String> = in_a_row.into_iter().chain(share).collect();
        format!("refuses requests for {open} after {}", when.join(" or "))
    }

    fn request(
        &self,
        exchange: &mut Exchange<'_>,
        held: &mut BreakerRun,
        _cx: &mut Context<'_>,
    ) -> Poll<Step> {
        Poll::Ready(self.admit(exchange, held).unwrap_or_else(Step::Fail))
    }

    fn needs(&self) -> Needs {
        Needs { grpc_status: self.counts_grpc(), ..Needs::default() }
    }

    fn response(&self, exchange: &mut Exchange<'_>, held: &mut BreakerRun) -> Reaction {
        // It has answered, so others may try, also while a stream of hours still runs.
        held.probe = None;
        if self.counts_at_end(exchange) {
            return Reaction::Pass;
        }
        if let Some(call) = held.call.take()
            && !exchange.is_local()
        {
            self.record_outcome(exchange, call);
        }
        Reaction::Pass
    }

    fn end(&self, exchange: &mut Exchange<'_>, held: &mut BreakerRun) -> Result<(), Fault> {
        // A call that ends without a status is neither a failure that counts nor a success.
        if let (Some(call), Some(_)) = (held.call.take(), exchange.grpc.status()) {
            self.record_outcome(exchange, call);
        }
        Ok(())
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
            "must be above 0 and at most 1: 50 % is `0.5`",
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
        let history = self.circuits.history.lock();
        let mut snapshot = CircuitsSnapshot {
            transitions_count: history.count,
            transitions: history.last.iter().cloned().collect(),
            ..CircuitsSnapshot::default()
        };
        drop(history);
        self.circuits.groups.each(|circuit| {
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

    /// Returns the circuits for the next process, except those that are like new.
    pub(crate) fn hand_over(&self) -> CircuitsState {
        let mut circuits = Vec::new();
        self.circuits.groups.each_named(|name, circuit| {
            if !name.is_empty() && !circuit.is_new() {
                circuits.push(circuit.handed(name));
            }
        });
        CircuitsState { window_ms: self.config.window.as_millis(), circuits }
    }

    /// Takes over the circuits of an earlier process.
    pub(crate) fn inherit(&self, now: Timestamp, state: &CircuitsState) {
        // Counts of another window have another meaning.
        let is_counted_alike = state.window_ms == self.config.window.as_millis();
        let open_max = now + self.config.open_max.get();
        for handed in &state.circuits {
            let Some(key) = self.circuits.groups.key_of_bytes(&handed.name) else { continue };
            let name = || handed.name.clone().into();
            self.circuits.groups.with(key, name, Circuit::is_new, |circuit| {
                *circuit = Circuit::inherited(handed, open_max);
                if !is_counted_alike {
                    (circuit.consecutive, circuit.counts) = (0, Default::default());
                }
            });
        }
    }

    fn admit(&self, exchange: &Exchange<'_>, held: &mut BreakerRun) -> Result<Step, Fault> {
        let now = exchange.now;
        let key = self.grouping.key(&self.circuits.groups, exchange)?;
        let (admitted, change) = self.circuits.groups.with(
            key,
            || self.grouping.name(exchange),
            Circuit::is_new,
            |circuit| {
                let turn = circuit.turn;
                let admitted = circuit.admit(now, &self.config);
                (admitted, (circuit.turn != turn).then_some((circuit.state(), TransitionReason::Due)))
            },
        );
        self.note_change(exchange, change, None);
        let (turn, tries) = match admitted {
            Ok(admitted) => admitted,
            Err(retry_at) => {
                let detail =
                    "the provider has failed too often recently: try again after the time in `Retry-After`";
                let refused = Refused::new(ErrorKind::CircuitOpen, detail);
                return Ok(Refused { status: self.config.status, retry_at: Some(retry_at), ..refused }.into());
            }
        };
        let call = CountedCall { key, turn };
        held.call = Some(call);
        held.probe = tries.then(|| Probe { circuits: Arc::clone(&self.circuits), call });
        Ok(Step::Next)
    }

    /// Returns `true` if statuses of gRPC calls count.
    fn counts_grpc(&self) -> bool {
        self.config.on.iter().any(|on| on.is_of_grpc())
    }

    /// Returns `true` if the outcome of the call is known at its end only: it is a gRPC call whose messages
    /// come before its status.
    fn counts_at_end(&self, exchange: &Exchange<'_>) -> bool {
        exchange.grpc == GrpcOutcome::Pending
            && exchange.local_kind.is_none()
            && exchange.response().is_some_and(|response| response.status == 200)
            && self.counts_grpc()
    }

    fn record_outcome(&self, exchange: &Exchange<'_>, call: CountedCall) {
        let now = exchange.now;
        let requested = self
            .config
            .retry_after_min
            .and_then(|least| exchange.retry_after().filter(|at| at.since(now) >= least.get()));
        let failed = requested.is_some() || exchange.meets_any(&self.config.on);
        if !failed && exchange.response().is_none() && exchange.grpc.status().is_none() {
            // Neither a failure that counts nor a success.
            return;
        }
        let change = self.circuits.groups.look(call.key, |circuit| {
            if circuit.turn != call.turn {
                return None;
            }
            let reason = match requested {
                Some(until) => {
                    circuit.open_until(until.min(now + self.config.open_max.get()));
                    TransitionReason::RetryAfter
                }
                None => circuit.record_outcome(now, failed, &self.config)?,
            };
            Some((circuit.state(), reason))
        });
        self.note_change(exchange, change.flatten(), CallOutcome::of(exchange));
    }

    fn note_change(
        &self,
        exchange: &Exchange<'_>,
        change: Option<(CircuitState, TransitionReason)>,
        outcome: Option<CallOutcome>,
    ) {
        let Some((to, reason)) = change else { return };
        let provider = match self.grouping.provider(exchange) {
            OTHER_HOSTS => exchange.destination.host,
            provider => provider,
        };
        self.circuits.note(Transition { at: exchange.now, provider: provider.into(), to, reason, outcome });
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

    /// Records the outcome of a call of the current turn. Returns the reason for a change of the phase.
    fn record_outcome(
        &mut self,
        now: Timestamp,
        failed: bool,
        config: &CircuitBreakerConfig,
    ) -> Option<TransitionReason> {
        match &mut self.phase {
            Phase::Closed => {
                self.count(now, failed, config);
                let reason = self.reason_to_open(config).filter(|_| failed)?;
                self.open(now, config);
                Some(reason)
            }
            Phase::HalfOpen { .. } if failed => {
                self.failed_probes = self.failed_probes.saturating_add(1);
                self.open(now, config);
                Some(TransitionReason::ProbeFailed)
            }
            Phase::HalfOpen { successes, .. } => {
                *successes += 1;
                let successes = *successes;
                if successes < config.successes {
                    return None;
                }
                *self = Self { turn: self.turn + 1, ..Self::default() };
                Some(TransitionReason::Probed(successes))
            }
            Phase::Open { .. } => None,
        }
    }

    fn handed(&self, name: &[u8]) -> HandedCircuit {
        let Self { failed_probes, consecutive, step, counts, .. } = *self;
        let open_until_us = match self.phase {
            Phase::Closed => None,
            Phase::Open { until } => Some(until.as_micros()),
            // Its probes are known to this process only: the next request is a probe.
            Phase::HalfOpen { .. } => Some(0),
        };
        HandedCircuit { name: name.into(), open_until_us, failed_probes, consecutive, step, counts }
    }

    fn inherited(handed: &HandedCircuit, open_max: Timestamp) -> Self {
        let HandedCircuit { open_until_us, failed_probes, consecutive, step, counts, .. } = *handed;
        let until = open_until_us.map(|until| Timestamp::from_micros(until).min(open_max));
        let phase = until.map_or(Phase::Closed, |until| Phase::Open { until });
        Self { phase, turn: 0, failed_probes, consecutive, step, counts }
    }

    fn state(&self) -> CircuitState {
        match self.phase {
            Phase::Closed => CircuitState::Closed,
            Phase::Open { until } => CircuitState::Open(until),
            Phase::HalfOpen { .. } => CircuitState::HalfOpen,
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

    /// Returns the reason to open the circuit, if there is one.
    fn reason_to_open(&self, config: &CircuitBreakerConfig) -> Option<TransitionReason> {
        if config.consecutive.is_some_and(|max| self.consecutive >= max) {
            return Some(TransitionReason::InARow(self.consecutive));
        }
        let (calls, failed) = self.counts.iter().fold((0_u64, 0_u64), |(calls, failures), slot| {
            (calls + u64::from(slot.0), failures + u64::from(slot.1))
        });
        let is_too_much = |ratio| calls >= u64::from(config.min_calls) && share(failed, calls) >= ratio;
        config.ratio.is_some_and(is_too_much).then_some(TransitionReason::Share { failed, calls })
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
                assert_eq!(refused.refusal(harness).0, ErrorKind::CircuitOpen);
                refused.refusal(harness).1
            }
        }
    }

    #[test]
    fn a_grpc_call_counts_where_its_status_is() {
        let harness = harness(&json!({ "on": ["grpc-unavailable"], "consecutive": 2 }));
        let ended = |head: &str, status: Option<GrpcStatus>| {
            let mut call = harness.send("POST https://one.example/a.B/C\nContent-Type: application/grpc");
            assert_eq!(call.poll(&harness), TestStep::Call);
            assert_eq!(call.response(&harness, head), TestStep::Response(200));
            match status {
                Some(status) => call.end_with(&harness, status),
                None => call.end(&harness),
            }
        };
        for between in [GrpcStatus::Ok, GrpcStatus::NotFound] {
            ended("200", Some(GrpcStatus::Unavailable));
            ended("200", Some(between));
        }
        ended("200", Some(GrpcStatus::Unavailable));
        // Cut short: neither a success nor a failure that counts.
        ended("200", None);
        assert_eq!(open_ms(&harness), None);
        ended("200\nGrpc-Status: 14", None);
        assert_eq!(open_ms(&harness), Some(5_000));
    }

    #[test]
    fn only_consecutive_failures_open_the_circuit() {
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
    fn the_next_process_goes_on_with_the_same_circuits() {
        let (old, new) = (harness(&json!({})), harness(&json!({})));
        let take_over = |old: &TestFlows, new: &TestFlows| {
            let message = serde_json::to_string(&old.flows.hand_over(old.now, 0)).unwrap();
            new.flows.inherit(new.now, &serde_json::from_str(&message).unwrap());
        };
        calls(&old, "500", 4);
        take_over(&old, &new);
        assert_eq!(open_ms(&new), None);
        calls(&new, "500", 1);
        assert_eq!(open_ms(&new), Some(5_000), "the failures before the hand-over count");
        let mut third = harness(&json!({}));
        take_over(&new, &third);
        assert_eq!(open_ms(&third), Some(5_000));
        assert_eq!(third.send("GET https://two.example/").poll(&third), TestStep::Call);
        third.pass_ms(5_000);
        let fourth = harness(&json!({ "window": "20s" }));
        let probe = third.send(GET).poll(&third);
        assert_eq!(probe, TestStep::Call);
        take_over(&third, &fourth);
        assert_eq!(open_ms(&fourth), None, "the probe of the process before is not waited for");
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
    fn a_failed_probe_extends_the_open_time() {
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

    /// The transitions in words, the oldest first.
    fn told(harness: &TestFlows) -> Vec<String> {
        let mut snapshot = harness.flows.snapshot(harness.now, 0);
        let circuits = snapshot.flows[0].remedies[0].state.circuits.take().unwrap();
        assert!(circuits.transitions.len() <= TRANSITIONS_MAX);
        assert!(circuits.transitions_count >= circuits.transitions.len() as u64);
        let in_words = circuits.transitions.iter().map(|transition| {
            let outcome = transition.outcome.map(|outcome| format!(" ({outcome})")).unwrap_or_default();
            format!("{} {}: {}{outcome}", transition.provider, transition.to.word(), transition.reason)
        });
        in_words.collect()
    }

    #[test]
    fn each_transition_is_remembered_with_its_reason() {
        let mut harness = harness(&json!({ "consecutive": 2, "open": "1s", "retry_after_min": "10s" }));
        calls(&harness, "500", 1);
        assert_eq!(told(&harness), [] as [&str; 0]);
        calls(&harness, "503", 1);
        harness.pass_ms(1_000);
        let mut probe = harness.send(GET);
        probe.poll(&harness);
        probe.failure(&harness, FailureKind::Reset);
        harness.pass_ms(2_000);
        calls(&harness, "200", 1);
        calls(&harness, "429\nRetry-After: 20", 1);
        assert_eq!(
            told(&harness),
            [
                "one open: 2 calls in a row failed (503)",
                "one half-open: the pause was over, so a probe was sent",
                "one open: a probe failed (failed)",
                "one half-open: the pause was over, so a probe was sent",
                "one closed: a probe succeeded (200)",
                "one open: the provider asked for a pause (429)",
            ]
        );
    }

    #[test]
    fn the_share_is_told_and_only_the_last_transitions_are_kept() {
        let mut harness =
            harness(&json!({ "consecutive": null, "ratio": 0.5, "min_calls": 4, "open": "1s" }));
        calls(&harness, "200", 2);
        calls(&harness, "500", 2);
        assert_eq!(told(&harness), ["one open: 2 of 4 calls failed (500)"]);
        for _ in 0..TRANSITIONS_MAX {
            harness.pass_ms(60_000);
            calls(&harness, "500", 1);
        }
        assert_eq!(told(&harness).len(), TRANSITIONS_MAX);
    }

    #[test]
    fn a_reload_keeps_it_open() {
        let mut harness = harness(&json!({ "consecutive": 1 }));
        calls(&harness, "500", 1);
        harness.reload(config(&json!({ "consecutive": 3 })));
        assert_eq!(open_ms(&harness), Some(5_000));
        assert_eq!(told(&harness).len(), 1);
    }

    #[test]
    fn nonsense_is_refused() {
        let found = problems(&json!([{ "circuit-breaker": {
            "on": [], "consecutive": null, "open": "2s", "open_max": "1s", "probes": 0,
        } }]));
        assert_eq!(found.len(), 4, "{found:?}");
    }
}

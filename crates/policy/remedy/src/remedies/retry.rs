//! `retry`: repeats a failed call if that is safe.
//!
//! A call is repeated only if no part of its response has been forwarded, if the provider may safely see the
//! request twice, and within a budget. A provider that is down must not get more calls because of retries.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use egret_clock::Timestamp;
use egret_config::{Duration, Size};
use egret_message::{Condition, FLOW_BODY_BYTES_MAX, any_meets};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::exchange::Exchange;
use crate::remedies::timeout::shorter;
use crate::remedy::{CompileContext, Needs, Reaction, Remedy, Step};

/// Maximum number of calls per request.
const ATTEMPTS_MAX: u32 = 20;
/// Conditions, number and timing of retries. A number alone is its `attempts`.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[serde(rename = "short form: attempts")]
#[schemars(rename = "RetryConfig", transform = egret_config::or_number)]
pub struct RetryConfig {
    /// Maximum number of calls, including the first.
    pub attempts: u32,
    /// Outcomes of a call that are retried.
    pub on: Vec<Condition>,
    /// Wait before a retry.
    pub backoff: BackoffConfig,
    /// Longest `Retry-After` that is obeyed. If the provider asks for more, its response is forwarded. `0s`
    /// ignores the field.
    pub retry_after_max: Duration,
    /// Methods that may be retried in addition to the idempotent ones (RFC 9110 §9.2.2).
    pub methods: BTreeSet<String>,
    /// Header field whose presence means that the provider recognises a repeated call, so any method may be
    /// retried.
    pub idempotency_key: String,
    /// Maximum length of a request body that is kept for a retry. Requests with longer bodies are not
    /// retried.
    pub body: Size,
    /// Time limit for each call, until the head of its response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_try: Option<Duration>,
    /// Time limit for all calls together. No call starts later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overall: Option<Duration>,
    /// Budget of retries.
    pub budget: BudgetConfig,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self {
            attempts: 3,
            on: vec![
                Condition::Connect,
                Condition::Timeout,
                Condition::Reset,
                Condition::Status(429, 429),
                Condition::Status(502, 504),
            ],
            backoff: BackoffConfig::default(),
            retry_after_max: Duration::from_secs(30),
            methods: BTreeSet::new(),
            idempotency_key: "idempotency-key".to_owned(),
            body: Size::from_kib(64),
            per_try: None,
            overall: None,
            budget: BudgetConfig::default(),
        }
    }
}

/// Wait before a retry: a random time up to `base`, then up to `factor` times that, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BackoffConfig {
    /// Maximum wait before the first retry.
    pub base: Duration,
    /// Factor by which the maximum grows with each retry.
    pub factor: f64,
    /// Upper limit of all waits.
    pub max: Duration,
    /// Distribution of waits. Jitter keeps many clients from retrying at the same time.
    pub jitter: Jitter,
}

impl Default for BackoffConfig {
    fn default() -> Self {
        Self {
            base: Duration::from_millis(100),
            factor: 2.0,
            max: Duration::from_secs(5),
            jitter: Jitter::Full,
        }
    }
}

/// Distribution of waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Jitter {
    /// Between zero and the maximum.
    #[default]
    Full,
    /// Between half of the maximum and the maximum.
    Half,
    /// No jitter: always the maximum.
    None,
}

/// Budget of repeated calls, over the last ten seconds.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetConfig {
    /// Number of repeated calls per first call: 0.2 is one in five.
    pub ratio: f64,
    /// Number of repeated calls per second that are always allowed, for times with few first calls.
    pub min_per_second: u32,
}

impl Default for BudgetConfig {
    fn default() -> Self {
        Self { ratio: 0.2, min_per_second: 3 }
    }
}

/// Repeats a failed call.
#[derive(Debug)]
pub struct Retry {
    config: RetryConfig,
    budget: Arc<Mutex<Budget>>,
}

/// State of one exchange.
#[derive(Debug, Default)]
pub struct RetryRun {
    calls: u32,
    started: Timestamp,
}

impl Remedy for Retry {
    type Config = RetryConfig;
    type Run = RetryRun;

    fn compile(config: &RetryConfig, context: &mut CompileContext<'_>) -> Option<Self> {
        let before = context.problems.len();
        let mut check = |key: &str, good: bool, message: &str| {
            if !good {
                context.problem(key, message);
            }
        };
        check(
            "attempts",
            (2..=ATTEMPTS_MAX).contains(&config.attempts),
            "must be from 2 to 20, including the first call",
        );
        check("on", !config.on.is_empty(), "must list at least one outcome, like `5xx`");
        check("backoff.factor", (1.0..=10.0).contains(&config.backoff.factor), "must be from 1 to 10");
        check("backoff.max", config.backoff.max >= config.backoff.base, "must not be less than `base`");
        check(
            "body",
            config.body.bytes() <= FLOW_BODY_BYTES_MAX,
            "must be at most `16MiB`: it is kept in memory for each exchange",
        );
        check("per_try", config.per_try.is_none_or(|limit| !limit.is_zero()), "must be greater than 0");
        check("overall", config.overall.is_none_or(|limit| !limit.is_zero()), "must be greater than 0");
        check("budget.ratio", (0.0..=10.0).contains(&config.budget.ratio), "must be from 0 to 10");
        context.check_methods(&config.methods);
        if context.problems.len() > before {
            return None;
        }
        let budget = context.states.keep(|_| true, || Mutex::new(Budget::default()));
        Some(Self { config: config.clone(), budget })
    }

    fn describe(&self) -> String {
        let on: Vec<String> = self.config.on.iter().map(ToString::to_string).collect();
        format!("up to {} calls, repeated after {}", self.config.attempts, on.join(", "))
    }

    fn needs(&self) -> Needs {
        Needs { replay: usize::try_from(self.config.body.bytes()).unwrap_or(usize::MAX), ..Needs::default() }
    }

    fn request(&self, exchange: &mut Exchange<'_>, held: &mut RetryRun, _cx: &mut Context<'_>) -> Poll<Step> {
        held.started = exchange.now;
        self.budget(|budget| budget.first_call(exchange.now));
        let call = &mut exchange.draft.call;
        call.first_byte = shorter(call.first_byte, self.config.per_try.map(Duration::get));
        Poll::Ready(Step::Next)
    }

    fn response(&self, exchange: &mut Exchange<'_>, held: &mut RetryRun) -> Reaction {
        held.calls += 1;
        // An inner remedy that refused the call would refuse it again.
        if exchange.local_kind.is_some()
            || held.calls >= self.config.attempts
            || !any_meets(&self.config.on, &exchange.outcome)
            || !self.may_repeat(exchange)
        {
            return Reaction::Pass;
        }
        let Some(wait) = self.wait(exchange, held.calls) else { return Reaction::Pass };
        let at = exchange.now + wait;
        let in_time = self.config.overall.is_none_or(|overall| at < held.started + overall.get());
        if in_time && self.budget(|budget| budget.repeat(exchange.now, self.config.budget)) {
            Reaction::Repeat(at)
        } else {
            Reaction::Pass
        }
    }
}

impl Retry {
    fn budget<T>(&self, act: impl FnOnce(&mut Budget) -> T) -> T {
        act(&mut self.budget.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns `true` if the provider may see the request again, or has seen nothing of it.
    fn may_repeat(&self, exchange: &Exchange<'_>) -> bool {
        let key = self.config.idempotency_key.as_bytes();
        let has_key = || exchange.request().fields.get(key).is_some_and(|key| !key.is_empty());
        exchange.may_repeat(&self.config.methods) || exchange.repeatable && has_key()
    }

    /// Returns the wait before call number `calls` + 1, or `None` if the provider asks for a longer one than
    /// is obeyed.
    fn wait(&self, exchange: &mut Exchange<'_>, calls: u32) -> Option<std::time::Duration> {
        let backoff = self.config.backoff.wait(calls, exchange);
        let Some(retry_at) = exchange.retry_after() else { return Some(backoff) };
        let max = self.config.retry_after_max.get();
        if max.is_zero() {
            return Some(backoff);
        }
        let requested = retry_at.since(exchange.now);
        (requested <= max).then(|| requested.max(backoff))
    }
}

impl BackoffConfig {
    /// Returns a random wait before the retry with that number, counted from 1.
    fn wait(&self, repetition: u32, exchange: &mut Exchange<'_>) -> std::time::Duration {
        let longest = self.longest_ms(repetition);
        let random = &mut exchange.draft.random;
        let wait_ms = match self.jitter {
            Jitter::Full => random.up_to(longest),
            Jitter::Half => longest.div_ceil(2) + random.up_to(longest / 2),
            Jitter::None => longest,
        };
        std::time::Duration::from_millis(wait_ms)
    }

    fn longest_ms(&self, repetition: u32) -> u64 {
        let exponent = i32::try_from(repetition.saturating_sub(1)).unwrap_or(i32::MAX);
        let factor = self.factor.powi(exponent);
        // Rounding to whole milliseconds is harmless, and `min` limits an excessive product.
        let longest = (self.base.get().as_secs_f64() * factor).min(self.max.get().as_secs_f64());
        u64::try_from(std::time::Duration::from_secs_f64(longest).as_millis()).unwrap_or(u64::MAX)
    }
}

/// Number of seconds over which the budget is counted.
const BUDGET_SECONDS: usize = 10;
const BUDGET_SECONDS_F64: f64 = 10.0;

/// First and repeated calls of the last seconds.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    /// The last second that was counted.
    second: u64,
    /// Counts by second, modulo [`BUDGET_SECONDS`].
    first_calls: [u32; BUDGET_SECONDS],
    repeats: [u32; BUDGET_SECONDS],
}

impl Budget {
    /// Counts a first call.
    pub fn first_call(&mut self, now: Timestamp) {
        let slot = self.slot(now);
        self.first_calls[slot] = self.first_calls[slot].saturating_add(1);
    }

    /// Takes one repeated call from the budget. Returns `true` if the budget had room for it.
    pub fn repeat(&mut self, now: Timestamp, config: BudgetConfig) -> bool {
        let granted = self.has_room(now, config);
        if granted {
            self.count_repeat(now);
        }
        granted
    }

    /// Counts a repeated call.
    pub fn count_repeat(&mut self, now: Timestamp) {
        let slot = self.slot(now);
        self.repeats[slot] = self.repeats[slot].saturating_add(1);
    }

    /// Returns `true` if the budget has room for a repeated call.
    pub fn has_room(&mut self, now: Timestamp, config: BudgetConfig) -> bool {
        self.slot(now);
        let sum = |counts: &[u32; BUDGET_SECONDS]| counts.iter().copied().map(f64::from).sum::<f64>();
        let by_ratio = sum(&self.first_calls) * config.ratio;
        let always = f64::from(config.min_per_second) * BUDGET_SECONDS_F64;
        sum(&self.repeats) < by_ratio.max(always)
    }

    /// Returns the slot of the current second. Clears the slots of the seconds since the last count.
    fn slot(&mut self, now: Timestamp) -> usize {
        let second = now.as_secs().max(self.second);
        let slots = BUDGET_SECONDS as u64;
        for passed in (self.second + 1..=second).take(BUDGET_SECONDS) {
            let slot = usize::try_from(passed % slots).unwrap_or_default();
            (self.first_calls[slot], self.repeats[slot]) = (0, 0);
        }
        if second - self.second >= slots {
            (self.first_calls, self.repeats) = Default::default();
        }
        self.second = second;
        usize::try_from(second % slots).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use egret_fixture::{TestExchange, TestFlows, TestStep, problems};
    use egret_message::FailureKind;

    const GET: &str = "GET https://one.example/";

    fn harness(retry: &Value) -> TestFlows {
        TestFlows::with(&json!([{ "retry": retry }]))
    }

    fn repeats(harness: &TestFlows, lines: &str, response: &str) -> bool {
        matches!(harness.exchange(lines, response), TestStep::Repeat(_))
    }

    #[test]
    fn a_call_is_made_as_often_as_allowed() {
        let mut harness = harness(&json!({ "attempts": 3 }));
        let mut exchange = harness.send(GET);
        for _ in 0..2 {
            assert_eq!(exchange.poll(&harness), TestStep::Call);
            let TestStep::Repeat(at) = exchange.response(&harness, "503") else { panic!() };
            harness.now = at;
        }
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        assert_eq!(exchange.response(&harness, "503"), TestStep::Response(503));
        assert_eq!(exchange.draft.calls, 3);
    }

    #[test]
    fn only_what_was_named_is_repeated() {
        let harness = harness(&json!({ "on": ["reset", "502-503"] }));
        assert!(
            repeats(&harness, GET, "503") && !repeats(&harness, GET, "504") && !repeats(&harness, GET, "200")
        );
        let failed = |kind| {
            let mut exchange = harness.send(GET);
            exchange.poll(&harness);
            matches!(exchange.failure(&harness, kind), TestStep::Repeat(_))
        };
        assert!(failed(FailureKind::Reset) && !failed(FailureKind::Timeout) && !failed(FailureKind::Refused));
    }

    #[test]
    fn an_unsafe_request_is_not_retried() {
        let harness = harness(&json!({ "methods": ["PATCH"] }));
        let with = |method: &str, fields: &str| format!("{method} https://one.example/{fields}");
        assert!(!repeats(&harness, &with("POST", ""), "503"));
        assert!(!repeats(&harness, &with("POST", "\nIdempotency-Key:"), "503"));
        assert!(repeats(&harness, &with("POST", "\nIdempotency-Key: 1"), "503"));
        assert!(repeats(&harness, &with("PATCH", ""), "503"));
        assert!(repeats(&harness, &with("DELETE", ""), "503"));
        let failed = |kind| {
            let mut exchange = harness.send(&with("POST", ""));
            exchange.poll(&harness);
            matches!(exchange.failure(&harness, kind), TestStep::Repeat(_))
        };
        assert!(failed(FailureKind::Connect) && !failed(FailureKind::Reset) && !failed(FailureKind::Timeout));
        let mut gone = harness.send(GET);
        gone.repeatable = false;
        gone.poll(&harness);
        assert_eq!(gone.response(&harness, "503"), TestStep::Response(503));
    }

    #[test]
    fn a_provider_that_asks_for_time_gets_it_within_bounds() {
        let harness = harness(&json!({ "retry_after_max": "10s", "backoff": { "base": "1s", "max": "1s" } }));
        let after = |seconds: u64| harness.exchange(GET, &format!("503\nRetry-After: {seconds}"));
        assert_eq!(after(7), TestStep::Repeat(harness.now + std::time::Duration::from_secs(7)));
        assert_eq!(after(11), TestStep::Response(503));
    }

    #[test]
    fn no_call_starts_after_the_overall_deadline() {
        let backoff = json!({ "base": "1s", "max": "1s", "jitter": "none" });
        let mut harness = harness(&json!({ "overall": "2500ms", "attempts": 20, "backoff": backoff }));
        let mut exchange = harness.send(GET);
        for _ in 0..2 {
            exchange.poll(&harness);
            let TestStep::Repeat(at) = exchange.response(&harness, "503") else { panic!() };
            harness.now = at;
        }
        exchange.poll(&harness);
        assert_eq!(exchange.response(&harness, "503"), TestStep::Response(503));
    }

    #[test]
    fn retry_stops_at_the_budget() {
        let mut harness = harness(&json!({ "budget": { "ratio": 0.2, "min_per_second": 0 } }));
        let (mut first_calls, mut repeated) = (0_u32, 0_u32);
        for _ in 0..60 * 50 {
            first_calls += 1;
            repeated += u32::from(repeats(&harness, GET, "503"));
            harness.pass_ms(20);
        }
        assert!(repeated <= first_calls / 5 + 1, "{repeated} of {first_calls}");
        assert!(repeated > first_calls / 6, "{repeated} of {first_calls}");
    }

    #[test]
    fn quiet_times_can_repeat_too() {
        let harness = harness(&json!({ "budget": { "ratio": 0.0, "min_per_second": 1 } }));
        let repeated = (0..100).filter(|_| repeats(&harness, GET, "503")).count();
        assert_eq!(repeated, 10);
    }

    #[test]
    fn nonsense_is_refused() {
        let found = problems(
            &json!([{ "retry": { "attempts": 1, "on": [], "methods": ["post"], "backoff": { "factor": 0.5 } } }]),
        );
        assert_eq!(found.len(), 4, "{found:?}");
    }

    proptest::proptest! {
        /// For any seed, waits are between zero (or half) and the maximum of their retry.
        #[test]
        fn waits_keep_within_their_bounds(seed in 0_u64.., base_ms in 1_u64..2_000, half in proptest::bool::ANY) {
            let jitter = if half { "half" } else { "full" };
            let backoff = json!({ "base": format!("{base_ms}ms"), "max": "5s", "jitter": jitter });
            let mut harness = harness(&json!({ "attempts": 10, "backoff": backoff }));
            let mut exchange = TestExchange::new(&harness, GET, seed);
            for repetition in 0..9 {
                exchange.poll(&harness);
                let TestStep::Repeat(at) = exchange.response(&harness, "503") else { panic!() };
                let longest_ms = (base_ms << repetition).min(5_000);
                let wait_ms = u64::try_from(at.since(harness.now).as_millis()).unwrap();
                let least_ms = if half { longest_ms / 2 } else { 0 };
                proptest::prop_assert!((least_ms..=longest_ms).contains(&wait_ms), "{wait_ms} of {longest_ms}");
                harness.now = at;
            }
        }
    }
}

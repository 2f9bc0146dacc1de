//! `retry`: repeats a failed call if that is safe.
//!
//! A call is repeated only if no part of its response has been forwarded, if the provider may safely see the
//! request twice, and within a budget. A provider that is down must not get more calls because of retries.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::{Context, Poll};

use egret_clock::Timestamp;
use egret_config::{Duration, Size};
use egret_message::{Condition, FLOW_BODY_BYTES_MAX};
use egret_presets::RetryAdvice;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::exchange::{Exchange, new_uuid};
use crate::message_templates::field_name_problem;
use crate::remedies::timeout::shorter;
use crate::remedy::{CompileContext, Needs, Reaction, Remedy, Step};

/// Maximum number of calls per request.
const ATTEMPTS_MAX: u32 = 20;
egret_config::keys! {
    /// Conditions, number and timing of retries. A number alone is its `attempts`.
    #[serde(rename = "short form: attempts")]
    #[schemars(rename = "RetryConfig", transform = egret_config::or_number)]
    pub struct RetryConfig {
        /// Maximum number of calls, including the first.
        #[schemars(extend("x-tier" = "everyday"))]
        #[schemars(range(min = 2, max = 20))]
        pub attempts: u32 = 3,
        /// Outcomes of a call that are retried. A status of gRPC counts if no message precedes it: a call
        /// whose first message has been forwarded is not repeated.
        #[schemars(extend("x-tier" = "everyday"))]
        pub on: Vec<Condition> = vec![
            Condition::Connect,
            Condition::Timeout,
            Condition::Reset,
            Condition::Status(429, 429),
            Condition::Status(502, 504),
        ],
        /// Wait before a retry.
        #[schemars(extend("x-tier" = "everyday"))]
        pub backoff: BackoffConfig,
        /// Longest `Retry-After` that is obeyed. If the provider asks for more, its response is forwarded.
        /// `0s` ignores the field.
        pub retry_after_max: Duration = Duration::from_secs(30),
        /// Methods that may be retried in addition to the idempotent ones (RFC 9110 §9.2.2).
        pub methods: BTreeSet<String>,
        /// Keys by which the provider recognises a repeated call.
        pub idempotency_key: IdempotencyKeyConfig,
        /// Maximum length of a request body that is kept for a retry. Requests with longer bodies are not
        /// retried.
        pub body: Size = Size::from_kib(64),
        /// Time limit for each call, until the head of its response.
        pub per_try: Option<Duration>,
        /// Time limit for all calls together. No call starts later.
        pub overall: Option<Duration>,
        /// Budget of retries.
        pub budget: BudgetConfig,
    }
}

egret_config::keys! {
    /// Keys by which the provider recognises a repeated call. A text alone is its `header`.
    #[derive(Eq)]
    #[serde(rename = "short form: header")]
    #[schemars(rename = "IdempotencyKeyConfig", transform = egret_config::or_text)]
    pub struct IdempotencyKeyConfig {
        /// Header field whose presence means that the provider recognises a repeated call, so any method may
        /// be retried. Default: that of the provider's `preset`, otherwise `idempotency-key`.
        pub header: Option<String>,
        /// Makes a key for a request without one whose method is not idempotent: one for each request of a
        /// client, the same for all its calls. Only for providers that are known to recognise it: those whose
        /// `preset` has a field for the key, and all others only if `header` is set.
        pub make: bool,
    }
}

egret_config::keys! {
    /// Wait before a retry: a random time up to `base`, then up to `factor` times that, and so on.
    #[derive(Copy)]
    pub struct BackoffConfig {
        /// Maximum wait before the first retry.
        #[schemars(extend("x-tier" = "everyday"))]
        pub base: Duration = Duration::from_millis(100),
        /// Factor by which the maximum grows with each retry.
        pub factor: f64 = 2.0,
        /// Upper limit of all waits.
        #[schemars(extend("x-tier" = "everyday"))]
        pub max: Duration = Duration::from_secs(5),
        /// Distribution of waits. Jitter keeps many clients from retrying at the same time.
        pub jitter: Jitter = Jitter::Full,
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

egret_config::keys! {
    /// Budget of repeated calls, over the last ten seconds.
    #[derive(Copy)]
    pub struct BudgetConfig {
        /// Number of repeated calls per first call: 0.2 is one in five.
        pub ratio: f64 = 0.2,
        /// Number of repeated calls per second that are always allowed, for times with few first calls.
        pub min_per_second: u32 = 3,
    }
}

/// Field of the key of a provider of which nothing else is known.
const KEY_FIELD: &str = "idempotency-key";

/// Repeats a failed call.
#[derive(Debug)]
pub struct Retry {
    config: RetryConfig,
    /// `true` if `on` is the default, to which the statuses of presets are added.
    is_default_on: bool,
    /// Bytes of a refusal that presets need to know what it means.
    refusal_bytes: usize,
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
        if let Some(problem) = config.idempotency_key.header.as_deref().and_then(field_name_problem) {
            context.problem("idempotency_key.header", problem);
        }
        if context.problems.len() > before {
            return None;
        }
        let budget = context.states.keep(|_| true, || Mutex::new(Budget::default()));
        Some(Self {
            config: config.clone(),
            is_default_on: config.on == RetryConfig::default().on,
            refusal_bytes: context.conventions.refusal_bytes(),
            budget,
        })
    }

    fn describe(&self) -> String {
        let on: Vec<String> = self.config.on.iter().map(ToString::to_string).collect();
        format!("up to {} calls, repeated after {}", self.config.attempts, on.join(", "))
    }

    fn needs(&self) -> Needs {
        Needs {
            replay: usize::try_from(self.config.body.bytes()).unwrap_or(usize::MAX),
            grpc_status: self.config.on.iter().any(|on| on.is_of_grpc()),
            refusal_json: self.refusal_bytes,
            ..Needs::default()
        }
    }

    fn request(&self, exchange: &mut Exchange<'_>, held: &mut RetryRun, _cx: &mut Context<'_>) -> Poll<Step> {
        held.started = exchange.now;
        self.budget(|budget| budget.first_call(exchange.now));
        let call = &mut exchange.draft.call;
        call.first_byte = shorter(call.first_byte, self.config.per_try.map(Duration::get));
        if self.config.idempotency_key.make {
            self.make_key(exchange);
        }
        Poll::Ready(Step::Next)
    }

    fn response(&self, exchange: &mut Exchange<'_>, held: &mut RetryRun) -> Reaction {
        held.calls += 1;
        // An inner remedy that refused the call would refuse it again.
        if exchange.is_local()
            || held.calls >= self.config.attempts
            || !self.is_mended_by_waiting(exchange)
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
        act(&mut self.budget.lock())
    }

    /// Returns `true` if the outcome is one that is retried. What the provider says itself goes first.
    fn is_mended_by_waiting(&self, exchange: &Exchange<'_>) -> bool {
        match exchange.retry_advice() {
            RetryAdvice::Stop => false,
            _ if exchange.is_lasting_refusal() => false,
            RetryAdvice::Repeat => true,
            RetryAdvice::Unspecified => {
                exchange.meets_any(&self.config.on) || self.is_default_on && exchange.is_passing_refusal()
            }
        }
    }

    /// Returns `true` if the provider may see the request again, or has seen nothing of it, or has not acted
    /// on it.
    fn may_repeat(&self, exchange: &Exchange<'_>) -> bool {
        let key = self.key_field(exchange).unwrap_or(KEY_FIELD);
        let has_key = || has_field(exchange, key);
        exchange.may_repeat(&self.config.methods)
            || exchange.repeatable && (has_key() || exchange.has_not_acted())
    }

    /// Returns the field by which the provider recognises a repeated call, if it is known to do so.
    fn key_field<'a>(&'a self, exchange: &Exchange<'a>) -> Option<&'a str> {
        let own = self.config.idempotency_key.header.as_deref();
        own.or_else(|| exchange.conventions()?.preset.idempotency_key.as_deref())
    }

    /// Adds a key to a request that has none and needs one.
    fn make_key(&self, exchange: &mut Exchange<'_>) {
        let Some(field) = self.key_field(exchange).map(str::to_owned) else { return };
        if exchange.method().is_idempotent() || has_field(exchange, &field) {
            return;
        }
        // Without random numbers the request goes out as it came.
        if let Some(key) = new_uuid() {
            exchange.draft.request.set(field.as_bytes(), key.as_bytes());
        }
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

/// Returns `true` if the request has a field with this name that is not empty.
fn has_field(exchange: &Exchange<'_>, name: &str) -> bool {
    exchange.request().fields.get(name.as_bytes()).is_some_and(|value| !value.is_empty())
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
    fn a_status_of_grpc_is_retried_if_named() {
        let harness = harness(&json!({ "on": ["grpc-unavailable"], "methods": ["POST"] }));
        let call = "POST https://one.example/a.B/C\nContent-Type: application/grpc";
        assert!(repeats(&harness, call, "200\nGrpc-Status: 14"));
        for response in ["200\nGrpc-Status: 13", "200\nGrpc-Status: 0", "200", "503"] {
            assert!(!repeats(&harness, call, response), "{response}");
        }
        assert!(!repeats(&harness, "POST https://one.example/a.B/C", "200\nGrpc-Status: 14"));
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

    /// A harness whose provider `one` has a preset.
    fn with_preset(preset: &str, retry: &Value) -> TestFlows {
        TestFlows::new(json!({
            "presets": { "one": preset },
            "flows": [{ "name": "f", "remedies": [{ "retry": retry }] }],
        }))
    }

    const POST: &str = "POST https://one.example/";

    #[test]
    fn a_refusal_is_treated_as_its_provider_documents_it() {
        let quota = "\n\n{\"error\":{\"code\":\"insufficient_quota\"}}";
        let spent = "\n\n{\"error\":{\"details\":{\"error_code\":\"enforced_spend_limit_reached\"}}}";
        let secondary = "\n\n{\"message\":\"You have exceeded a secondary rate limit.\"}";
        for (preset, response, expected) in [
            ("openai", "429".to_owned(), true),
            ("openai", "503".to_owned(), true),
            ("openai", format!("429{quota}"), false),
            ("openai", "429\nx-should-retry: false".to_owned(), false),
            ("openai", "409\nx-should-retry: true".to_owned(), false),
            ("openai", "500".to_owned(), false),
            ("anthropic", "529".to_owned(), true),
            ("anthropic", format!("429{spent}"), false),
            ("anthropic", format!("429\nretry-after: 1{spent}"), true),
            ("gemini", "529".to_owned(), false),
            ("deepseek", "402".to_owned(), false),
            ("twilio", "429".to_owned(), true),
            ("twilio", "503".to_owned(), false),
            ("groq", "503\nx-should-retry: false".to_owned(), false),
            ("github", "403\nx-ratelimit-remaining: 0".to_owned(), true),
            ("github", "403\nx-ratelimit-remaining: 1".to_owned(), false),
            // It stands for a minute, which is longer than is waited.
            ("github", format!("403{secondary}"), false),
        ] {
            let harness = with_preset(preset, &json!({}));
            assert_eq!(repeats(&harness, POST, &response), expected, "{preset} {response}");
        }
        let unknown = harness(&json!({}));
        assert!(!repeats(&unknown, POST, "429") && !repeats(&unknown, GET, "529"));
        assert!(repeats(&unknown, GET, &format!("429{quota}")));
    }

    #[test]
    fn a_key_of_the_config_wins_over_the_preset() {
        let harness = with_preset("anthropic", &json!({ "on": ["503"] }));
        assert!(!repeats(&harness, GET, "529") && repeats(&harness, GET, "503"));
        let harness = with_preset("stripe", &json!({ "idempotency_key": { "header": "x-once" } }));
        assert!(!repeats(&harness, &format!("{POST}\nIdempotency-Key: 1"), "503"));
        assert!(repeats(&harness, &format!("{POST}\nX-Once: 1"), "503"));
    }

    #[test]
    fn waits_are_those_that_the_provider_tells() {
        let backoff = json!({ "backoff": { "base": "1ms", "max": "1ms" } });
        let details = "\n\n{\"error\":{\"details\":[{\"retryDelay\":\"12s\"}]}}";
        for (preset, response, wait_ms) in [
            ("openai", "429\nretry-after-ms: 1500\nretry-after: 9".to_owned(), 1_500),
            ("anthropic", "429\nretry-after: 9".to_owned(), 9_000),
            ("gemini", format!("429{details}"), 12_000),
            ("bedrock", "429\nx-amz-retry-after: 1500".to_owned(), 1_500),
            ("hubspot", "429\n\n{\"policyName\":\"TEN_SECONDLY_ROLLING\"}".to_owned(), 10_000),
            ("github", "403\nx-ratelimit-remaining: 0\nretry-after: 2".to_owned(), 2_000),
        ] {
            let harness = with_preset(preset, &backoff);
            let expected = harness.now + std::time::Duration::from_millis(wait_ms);
            assert_eq!(harness.exchange(GET, &response), TestStep::Repeat(expected), "{preset}");
        }
    }

    #[test]
    fn a_key_is_made_once_for_all_calls_of_a_request() {
        let mut harness = with_preset("stripe", &json!({ "idempotency_key": { "make": true } }));
        let key_of = |exchange: &TestExchange| {
            let added = exchange.draft.request.added();
            let mut keys = added.filter(|(name, _)| *name == b"idempotency-key").map(|(_, key)| key.to_vec());
            (keys.next(), keys.next())
        };
        let mut exchange = harness.send(POST);
        exchange.poll(&harness);
        let (Some(first), None) = key_of(&exchange) else { panic!() };
        assert_eq!(first.len(), 36);
        assert_eq!(first[14], b'4', "a UUID of version 4");
        let TestStep::Repeat(at) = exchange.response(&harness, "503") else { panic!() };
        harness.now = at;
        exchange.poll(&harness);
        assert_eq!(key_of(&exchange), (Some(first.clone()), None));
        let mut other = harness.send(POST);
        other.poll(&harness);
        assert_ne!(key_of(&other).0, Some(first));
    }

    #[test]
    fn a_key_is_made_only_where_the_provider_knows_it() {
        let made = |harness: &TestFlows, lines: &str| {
            let mut exchange = harness.send(lines);
            exchange.poll(harness);
            exchange.draft.request.added().map(|(name, _)| name.to_vec()).next()
        };
        let make = json!({ "idempotency_key": { "make": true } });
        let stripe = with_preset("stripe", &make);
        assert_eq!(made(&stripe, POST), Some(b"idempotency-key".to_vec()));
        assert_eq!(made(&stripe, &format!("{POST}\nIdempotency-Key: mine")), None);
        assert_eq!(made(&stripe, GET), None);
        assert_eq!(made(&stripe, "POST https://two.example/"), None);
        assert_eq!(made(&with_preset("openai", &make), POST), None);
        assert_eq!(made(&with_preset("stripe", &json!({})), POST), None);
        let named = harness(&json!({ "idempotency_key": { "header": "x-once", "make": true } }));
        assert_eq!(made(&named, POST), Some(b"x-once".to_vec()));
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

//! `retry`: makes a failed call again, where that does no harm.
//!
//! A call is only made again while nothing of its response has gone out, where the provider may safely see the request twice, and
//! while few enough others are: a provider that is down must not be called more for it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use egret_config::{Duration, Size};
use egret_http1::Method;
use egret_store::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conditions::{Condition, any_meets, failure_of};
use crate::exchange::{Exchange, FailureKind};
use crate::remedies::timeout::shorter;
use crate::remedy::{Needs, Reaction, Remedy, Site, Step};

/// The most calls that one request may become.
const ATTEMPTS_MAX: u32 = 20;
/// The largest body that is kept for another call.
const BODY_BYTES_MAX: u64 = 16 << 20;

/// When a call is made again, how often, and how soon.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetryConfig {
    /// Calls in all, the first one included.
    pub attempts: u32,
    /// How a call has to end to be made again.
    pub on: Vec<Condition>,
    /// How long to wait before it is.
    pub backoff: BackoffConfig,
    /// The longest `Retry-After` that is obeyed; a provider that asks for more gets its response passed on. `0s` ignores the field.
    pub retry_after_max: Duration,
    /// Methods whose calls may be made again besides the idempotent ones (RFC 9110 §9.2.2).
    pub methods: BTreeSet<String>,
    /// The field whose presence says that the provider recognises a repeated call, so that any method may be repeated.
    pub idempotency_key: String,
    /// The longest body that is kept so that it can be sent again; requests with longer ones are not repeated.
    pub body: Size,
    /// How long each call may take until the head of its response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_try: Option<Duration>,
    /// How long all calls together may take: none starts later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overall: Option<Duration>,
    /// How many calls may be repeated ones.
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

/// How long to wait before a call is made again: a random time up to `base`, then up to twice that, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BackoffConfig {
    /// The longest wait before the first repetition.
    pub base: Duration,
    /// How much longer each next wait may be.
    pub factor: f64,
    /// The longest wait of all.
    pub max: Duration,
    /// How waits are spread, so that many clients do not come back at once.
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

/// How waits are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Jitter {
    /// Over all of the time from nothing to the longest.
    #[default]
    Full,
    /// Over the second half of it.
    Half,
    /// Not: always the longest.
    None,
}

/// How many calls may be repeated ones, over the last ten seconds.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetConfig {
    /// Repeated calls for each first one: 0.2 is one in five.
    pub ratio: f64,
    /// Repeated calls a second that are allowed whatever the ratio, so that quiet times can repeat too.
    pub min_per_second: u32,
}

impl Default for BudgetConfig {
    fn default() -> Self {
        Self { ratio: 0.2, min_per_second: 3 }
    }
}

/// Makes a failed call again.
#[derive(Debug)]
pub struct Retry {
    config: RetryConfig,
    budget: Arc<Mutex<Budget>>,
}

/// What is kept of one exchange.
#[derive(Debug, Default)]
pub struct Held {
    calls: u32,
    started: Timestamp,
}

impl Remedy for Retry {
    type Config = RetryConfig;
    type Held = Held;

    fn compile(config: &RetryConfig, site: &mut Site<'_>) -> Option<Self> {
        let before = site.problems.len();
        let mut check = |key: &str, good: bool, message: &str| {
            if !good {
                site.problem(key, message);
            }
        };
        check(
            "attempts",
            (2..=ATTEMPTS_MAX).contains(&config.attempts),
            "from 2, the first call included, to 20",
        );
        check(
            "on",
            !config.on.is_empty(),
            "with no way to end, no call is ever repeated: name one, like `5xx`",
        );
        check("backoff.factor", (1.0..=10.0).contains(&config.backoff.factor), "from 1 to 10");
        check("backoff.max", config.backoff.max >= config.backoff.base, "not below `base`");
        check(
            "body",
            config.body.bytes() <= BODY_BYTES_MAX,
            "at most `16MiB`: it is kept in memory for each exchange",
        );
        check(
            "per_try",
            config.per_try.is_none_or(|limit| !limit.is_zero()),
            "nothing can be done in no time",
        );
        check(
            "overall",
            config.overall.is_none_or(|limit| !limit.is_zero()),
            "nothing can be done in no time",
        );
        check("budget.ratio", (0.0..=10.0).contains(&config.budget.ratio), "from 0 to 10");
        for method in &config.methods {
            check(
                "methods",
                Method::of(method.as_bytes()).name() == method,
                "methods are written in capitals, like `POST`",
            );
        }
        if site.problems.len() > before {
            return None;
        }
        let budget = site.keep(|_| true, || Mutex::new(Budget::default()));
        Some(Self { config: config.clone(), budget })
    }

    fn describe(&self) -> String {
        let on: Vec<String> = self.config.on.iter().map(ToString::to_string).collect();
        format!("up to {} calls while they end with {}", self.config.attempts, on.join(", "))
    }

    fn needs(&self) -> Needs {
        Needs { replay: usize::try_from(self.config.body.bytes()).unwrap_or(usize::MAX), ..Needs::default() }
    }

    fn request(&self, exchange: &mut Exchange<'_>, held: &mut Held, _cx: &mut Context<'_>) -> Poll<Step> {
        held.started = exchange.now;
        self.budget(|budget| budget.first_call(exchange.now));
        let call = &mut exchange.draft.call;
        call.first_byte = shorter(call.first_byte, self.config.per_try.map(Duration::get));
        Poll::Ready(Step::Next)
    }

    fn response(&self, exchange: &mut Exchange<'_>, held: &mut Held) -> Reaction {
        held.calls += 1;
        if held.calls >= self.config.attempts
            || !any_meets(&self.config.on, exchange)
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

    /// Whether the provider may see the request again.
    fn may_repeat(&self, exchange: &Exchange<'_>) -> bool {
        let unseen =
            failure_of(exchange).is_some_and(|failure| failure.kind == FailureKind::Connect && !failure.sent);
        exchange.repeatable && (unseen || self.is_harmless(exchange))
    }

    /// Whether seeing the request twice does no more than seeing it once.
    fn is_harmless(&self, exchange: &Exchange<'_>) -> bool {
        let method = exchange.method();
        let key = self.config.idempotency_key.as_bytes();
        method.is_idempotent()
            || self.config.methods.contains(method.name())
            || exchange.request().fields.get(key).is_some_and(|key| !key.is_empty())
    }

    /// How long to wait before call number `calls` + 1; nothing if the provider asks for longer than is obeyed.
    fn wait(&self, exchange: &mut Exchange<'_>, calls: u32) -> Option<std::time::Duration> {
        let backoff = self.config.backoff.wait(calls, exchange);
        let Some(asked) = exchange.retry_after() else { return Some(backoff) };
        let max = self.config.retry_after_max.get();
        if max.is_zero() {
            return Some(backoff);
        }
        let asked = asked.since(exchange.now);
        (asked <= max).then(|| asked.max(backoff))
    }
}

impl BackoffConfig {
    /// A wait before the repetition with that number, counted from 1.
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
        // Rounding a few milliseconds of many does no harm, and a product beyond all bounds is cut.
        let longest = (self.base.get().as_secs_f64() * factor).min(self.max.get().as_secs_f64());
        u64::try_from(std::time::Duration::from_secs_f64(longest).as_millis()).unwrap_or(u64::MAX)
    }
}

/// Seconds over which the budget is counted.
const BUDGET_SECONDS: usize = 10;
const BUDGET_SECONDS_F64: f64 = 10.0;

/// First and repeated calls of the last seconds.
#[derive(Debug, Default)]
struct Budget {
    /// The second that was counted last.
    second: u64,
    /// By second, modulo their number.
    first_calls: [u32; BUDGET_SECONDS],
    repeats: [u32; BUDGET_SECONDS],
}

impl Budget {
    fn first_call(&mut self, now: Timestamp) {
        let slot = self.slot(now);
        self.first_calls[slot] = self.first_calls[slot].saturating_add(1);
    }

    /// Takes one repeated call out of the budget, if there is one in it.
    fn repeat(&mut self, now: Timestamp, config: BudgetConfig) -> bool {
        let slot = self.slot(now);
        let sum = |counts: &[u32; BUDGET_SECONDS]| counts.iter().copied().map(f64::from).sum::<f64>();
        let by_ratio = sum(&self.first_calls) * config.ratio;
        let always = f64::from(config.min_per_second) * BUDGET_SECONDS_F64;
        let granted = sum(&self.repeats) < by_ratio.max(always);
        if granted {
            self.repeats[slot] = self.repeats[slot].saturating_add(1);
        }
        granted
    }

    /// The slot of this second; those of the seconds since the last count are emptied.
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

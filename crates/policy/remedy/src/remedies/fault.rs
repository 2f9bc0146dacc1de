//! `fault`: lets a share of the calls fail, so that people can test how an application copes.
//!
//! Outer remedies take an injected failure for the provider's own. The provider does not see a call that is
//! aborted or reset. What is cut or slowed is the response on its way to the client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::SystemTime;

use egret_clock::{Timestamp, mixed, rfc3339, unit_interval};
use egret_config::{ByteRate, Duration, Size};
use egret_message::{ErrorKind, Outcome, Refused};
use serde::{Deserialize, Serialize};

use crate::body_fault::{BodyFault, Cut, FaultKind, FaultSignal};
use crate::exchange::Exchange;
use crate::local_response::LocalResponse;
use crate::remedy::{CompileContext, Reaction, Remedy, Step};

/// Interval at which a delayed call checks whether the fault was switched off.
const SWITCH_INTERVAL: std::time::Duration = std::time::Duration::from_millis(50);
/// Maximum delay of a call.
const DELAY_MAX: std::time::Duration = std::time::Duration::from_hours(1);
/// Maximum number of events before a cut.
const EVENTS_MAX: u64 = 1_000_000;
/// Step of the sequence from which calls are chosen: that of `SplitMix64`.
const SEQUENCE_STEP: u64 = 0x9e37_79b9_7f4a_7c15;
/// An end that is not known before the fault is first looked at.
const END_UNKNOWN: u64 = 0;

egret_config::keys! {
    /// Failures for a share of the calls, to test how an application copes. Several of them can be combined:
    /// a delay comes first.
    pub struct FaultConfig {
        /// Share of the calls that fail, above 0 and up to 1. A call that another remedy repeats counts
        /// again.
        pub share: f64 = 1.0,
        /// Seed of the choice. The same seed chooses the same calls, in the order in which they arrive.
        pub seed: u64 = 0,
        /// Time that a call waits before it goes on, up to `1h`.
        pub delay: Option<Duration>,
        /// Status code, 400 to 599, of an error response in place of the provider's. The provider is not
        /// called.
        #[schemars(range(min = 400, max = 599))]
        pub abort: Option<u16>,
        /// Resets the client's connection, or its stream in HTTP/2, without a response. The provider is not
        /// called.
        pub reset: bool,
        /// Place where the body of the provider's response breaks off.
        pub cut: Option<CutConfig>,
        /// Bytes per second at which the body of the provider's response is sent to the client.
        pub slow: Option<ByteRate>,
        /// Time at which the fault ends, as in `2027-03-01T18:00:00Z` (RFC 3339). Not together with `for`.
        pub until: Option<String>,
        /// Time after which the fault ends, from the load of this config or from the moment that it is
        /// switched on over the API. Not together with `until`.
        #[serde(rename = "for")]
        pub duration: Option<Duration>,
        /// `true` if the fault is on before it is switched over the API. Default: `true`. Without this key, a
        /// fault without an end is warned of.
        pub enabled: Option<bool>,
    }
}

egret_config::keys! {
    /// The place where a body breaks off: exactly one of both.
    #[derive(Copy, Eq)]
    pub struct CutConfig {
        /// Number of bytes of the body after which it breaks off. A shorter body is whole.
        pub after: Option<Size>,
        /// Number of events after which an event stream (`text/event-stream`) breaks off, 1 to 1,000,000.
        /// Other bodies are whole.
        #[schemars(range(min = 1, max = 1_000_000))]
        pub events: Option<u64>,
    }
}

impl FaultConfig {
    /// Returns `true` if nothing in the config ends the fault or shows that it is meant to stay.
    pub fn is_endless(&self) -> bool {
        self.until.is_none() && self.duration.is_none() && self.enabled.is_none()
    }
}

/// State of a fault at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultSnapshot {
    /// `true` if calls fail now.
    pub is_active: bool,
    /// `true` if it is switched on. It may have ended nevertheless.
    pub is_on: bool,
    /// The time at which it ends or has ended, if it is switched on and has an end.
    pub end: Option<Timestamp>,
    /// Number of injected failures by kind, in the order of [`FaultKind::ALL`].
    pub counts: [u64; FaultKind::ALL.len()],
}

/// A change of a fault's switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultSwitch {
    /// Calls fail from now on: for this time, or until the end that the config says.
    On(Option<std::time::Duration>),
    /// No call fails any more, nor does a response that has begun.
    Off,
}

/// The state of a fault as one process hands it over to the next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedFault {
    is_on: bool,
    end_us: u64,
    number: u64,
}

/// The switch of a fault and its counts. It outlives a reload that does not change the fault.
#[derive(Debug)]
pub struct FaultState {
    config: FaultConfig,
    signal: Arc<FaultSignal>,
    end_us: AtomicU64,
    /// Number of calls that were chosen or spared since the fault was switched on.
    number: AtomicU64,
}

impl FaultState {
    fn new(config: &FaultConfig) -> Self {
        Self {
            config: config.clone(),
            signal: Arc::new(FaultSignal::new(config.enabled.unwrap_or(true))),
            end_us: AtomicU64::new(END_UNKNOWN),
            number: AtomicU64::default(),
        }
    }
}

/// Lets a share of the calls fail.
#[derive(Debug)]
pub struct FaultInjection {
    config: FaultConfig,
    until: Option<Timestamp>,
    cut: Option<Cut>,
    state: Arc<FaultState>,
}

/// State of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FaultRun {
    /// It has not been seen yet.
    #[default]
    New,
    /// It goes on as if there were no fault.
    Spared,
    /// It waits until this time.
    Delayed(Timestamp),
    /// It was sent, and its response gets the fault.
    Chosen,
}

impl Remedy for FaultInjection {
    type Config = FaultConfig;
    type Run = FaultRun;

    fn compile(config: &FaultConfig, context: &mut CompileContext<'_>) -> Option<Self> {
        let before = context.problems.len();
        for (key, problem) in problems(config) {
            context.problem(key, problem);
        }
        let until = config.until.as_deref().map(read_time);
        if until == Some(None) {
            let message = "must be a date and time with a zone, like `2027-03-01T18:00:00Z`";
            context.problem("until", message);
        }
        if context.problems.len() > before {
            return None;
        }
        let cut = config.cut.and_then(|cut| match (cut.after, cut.events) {
            (Some(bytes), _) => Some(Cut::Bytes(bytes.bytes())),
            (None, events) => events.map(Cut::Events),
        });
        let fits = |state: &FaultState| state.config == *config;
        let state = context.states.keep(fits, || FaultState::new(config));
        Some(Self { config: config.clone(), until: until.flatten(), cut, state })
    }

    fn describe(&self) -> String {
        let FaultConfig { share, seed, delay, abort, reset, cut, slow, until, duration, .. } = &self.config;
        let cut = cut.map(|cut| match (cut.after, cut.events) {
            (Some(size), _) => format!("a cut after {size}"),
            (None, events) => format!("a cut after {} events", events.unwrap_or_default()),
        });
        let faults = [
            delay.map(|delay| format!("a delay of {delay}")),
            abort.map(|status| format!("status {status}")),
            reset.then(|| "a reset".to_owned()),
            slow.map(|rate| format!("a body at {rate}")),
            cut,
        ];
        let faults: Vec<String> = faults.into_iter().flatten().collect();
        let end = match (until, duration) {
            (Some(until), _) => format!(", until {until}"),
            (None, Some(duration)) => format!(", for {duration}"),
            (None, None) => String::new(),
        };
        let off = if self.state.signal.is_on() { "" } else { " (switched off)" };
        let percent = (share * 1e6).round() / 1e4;
        format!("{} for {percent} % of the calls, seed {seed}{end}{off}", faults.join(", then "))
    }

    fn request(&self, exchange: &mut Exchange<'_>, held: &mut FaultRun, _cx: &mut Context<'_>) -> Poll<Step> {
        if !self.is_active(exchange.now) {
            *held = FaultRun::Spared;
        }
        if *held == FaultRun::New {
            *held = self.choose(exchange.now);
        }
        match *held {
            FaultRun::Delayed(until) if exchange.now < until => {
                exchange.poll_at(until.min(exchange.now + SWITCH_INTERVAL));
                Poll::Pending
            }
            FaultRun::Delayed(_) => Poll::Ready(self.inject(exchange, held)),
            FaultRun::New | FaultRun::Spared | FaultRun::Chosen => Poll::Ready(Step::Next),
        }
    }

    fn response(&self, exchange: &mut Exchange<'_>, held: &mut FaultRun) -> Reaction {
        let slow = self.config.slow.map(ByteRate::bytes_per_second);
        let is_of_provider =
            matches!(exchange.outcome, Outcome::Response(_)) && exchange.local_kind.is_none();
        if *held == FaultRun::Chosen
            && is_of_provider
            && (slow.is_some() || self.cut.is_some())
            && self.is_active(exchange.now)
        {
            if slow.is_some() {
                self.state.signal.count(FaultKind::Slow);
            }
            let ends_in = self.end(exchange.now).since(exchange.now);
            let fault = BodyFault::new(self.cut, slow, ends_in, &self.state.signal);
            exchange.draft.body_fault = Some(Arc::new(fault));
        }
        Reaction::Pass
    }
}

impl FaultInjection {
    /// Returns the time at which the fault ends, or the end of time.
    fn end(&self, now: Timestamp) -> Timestamp {
        let end_us = self.state.end_us.load(Relaxed);
        if end_us != END_UNKNOWN {
            return Timestamp::from_micros(end_us);
        }
        let end = self.configured_end(now);
        // If another thread was first, both ends are as good.
        self.state.end_us.store(end.as_micros(), Relaxed);
        end
    }

    /// Returns the end that the config says, if the fault is switched on at `now`.
    fn configured_end(&self, now: Timestamp) -> Timestamp {
        let after = self.config.duration.map(|duration| now + duration.get());
        self.until.or(after).unwrap_or(Timestamp::NEVER)
    }

    fn is_active(&self, now: Timestamp) -> bool {
        self.state.signal.is_on() && now < self.end(now)
    }

    /// Decides about the next call: it is spared, or waits for its delay, which may be 0.
    fn choose(&self, now: Timestamp) -> FaultRun {
        let number = self.state.number.fetch_add(1, Relaxed).wrapping_add(1);
        let drawn = mixed(self.config.seed.wrapping_add(number.wrapping_mul(SEQUENCE_STEP)));
        if unit_interval(drawn) >= self.config.share {
            return FaultRun::Spared;
        }
        let delay = self.config.delay.map(Duration::get);
        if delay.is_some() {
            self.state.signal.count(FaultKind::Delay);
        }
        FaultRun::Delayed(now + delay.unwrap_or_default())
    }

    /// Lets a chosen call fail, or go on.
    fn inject(&self, exchange: &mut Exchange<'_>, held: &mut FaultRun) -> Step {
        if let Some(status) = self.config.abort {
            self.state.signal.count(FaultKind::Abort);
            let detail = "the remedy `fault` has aborted this call to test how the application copes; the provider was not called";
            let refused = Refused { status: Some(status), ..Refused::new(ErrorKind::FaultInjected, detail) };
            return Step::LocalResponse(Box::new(LocalResponse::Aborted(refused)));
        }
        if self.config.reset {
            self.state.signal.count(FaultKind::Reset);
            return Step::LocalResponse(Box::new(LocalResponse::Reset));
        }
        if let Some(Cut::Events(_)) = self.cut {
            // The ends of events cannot be seen in a coded body.
            exchange.draft.request.set(b"accept-encoding", b"identity");
        }
        *held = FaultRun::Chosen;
        Step::Next
    }

    /// Switches the fault at `now`.
    pub fn switch(&self, now: Timestamp, switch: FaultSwitch) {
        let FaultState { signal, end_us, number, .. } = &*self.state;
        match switch {
            FaultSwitch::Off => signal.switch(false),
            FaultSwitch::On(time) => {
                let end = time.map_or_else(|| self.configured_end(now), |time| now + time);
                number.store(0, Relaxed);
                end_us.store(end.as_micros(), Relaxed);
                signal.switch(true);
            }
        }
    }

    /// Returns the state of the fault at `now`.
    pub(crate) fn snapshot(&self, now: Timestamp) -> FaultSnapshot {
        let is_on = self.state.signal.is_on();
        let end = is_on.then(|| self.end(now)).filter(|end| *end != Timestamp::NEVER);
        FaultSnapshot { is_active: self.is_active(now), is_on, end, counts: self.state.signal.counts() }
    }

    /// Returns the state that the next process takes over.
    pub(crate) fn hand_over(&self) -> HandedFault {
        let FaultState { signal, end_us, number, .. } = &*self.state;
        HandedFault { is_on: signal.is_on(), end_us: end_us.load(Relaxed), number: number.load(Relaxed) }
    }

    /// Takes over the state of an earlier process.
    pub(crate) fn inherit(&self, handed: &HandedFault) {
        let FaultState { signal, end_us, number, .. } = &*self.state;
        number.store(handed.number, Relaxed);
        end_us.store(handed.end_us, Relaxed);
        signal.switch(handed.is_on);
    }
}

/// Reads a time of RFC 3339.
fn read_time(text: &str) -> Option<Timestamp> {
    let since = rfc3339::read(text)?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(Timestamp::from_micros(u64::try_from(since.as_micros()).ok()?))
}

/// Returns the mistakes in the config, each with its key.
fn problems(config: &FaultConfig) -> Vec<(&'static str, &'static str)> {
    let FaultConfig { share, delay, abort, reset, cut, slow, until, duration, .. } = config;
    let has_fault = delay.is_some() || abort.is_some() || *reset || cut.is_some() || slow.is_some();
    let is_zero = |duration: &Option<Duration>| duration.is_some_and(Duration::is_zero);
    let cut_problem = cut.and_then(|cut| match (cut.after, cut.events) {
        (Some(_), Some(_)) | (None, None) => Some("exactly one of `after` and `events` is required"),
        (None, Some(events)) if !(1..=EVENTS_MAX).contains(&events) => {
            Some("`events` must be from 1 to 1000000")
        }
        _ => None,
    });
    [
        (!(*share > 0.0 && *share <= 1.0)).then_some(("share", "must be above 0 and at most 1")),
        (!has_fault).then_some(("", "one of `delay`, `abort`, `reset`, `cut` and `slow` is required")),
        abort
            .is_some_and(|status| !(400..=599).contains(&status))
            .then_some(("abort", "the status of an injected error must be from 400 to 599")),
        (abort.is_some() && *reset)
            .then_some(("reset", "a call that is reset has no response: remove `abort` or `reset`")),
        ((abort.is_some() || *reset) && (cut.is_some() || slow.is_some())).then_some((
            if cut.is_some() { "cut" } else { "slow" },
            "the provider is not called, so there is no body: remove `abort` and `reset`, or use another `fault`",
        )),
        is_zero(delay).then_some(("delay", "must be greater than 0")),
        delay
            .is_some_and(|delay| delay.get() > DELAY_MAX)
            .then_some(("delay", "must be at most `1h`")),
        slow.is_some_and(|rate| rate.bytes_per_second() == 0)
            .then_some(("slow", "must be greater than 0")),
        is_zero(duration).then_some(("for", "must be greater than 0")),
        (until.is_some() && duration.is_some())
            .then_some(("for", "`until` says already when the fault ends")),
        cut_problem.map(|problem| ("cut", problem)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use egret_fixture::{FaultSnapshot, FaultSwitch, TestFlows, TestStep, problems};
    use egret_message::ErrorKind;

    const GET: &str = "GET https://one.example/";

    fn fault(config: &Value) -> TestFlows {
        TestFlows::with(&json!([{ "fault": config }]))
    }

    fn state(harness: &TestFlows) -> FaultSnapshot {
        harness.flows.snapshot(harness.now, 0).flows[0].remedies[0].state.fault.unwrap()
    }

    /// Plays `count` exchanges, and returns for each whether it was aborted.
    fn aborted(harness: &TestFlows, count: usize) -> Vec<bool> {
        (0..count).map(|_| harness.exchange(GET, "200") != TestStep::Response(200)).collect()
    }

    #[test]
    fn a_seed_chooses_the_same_share_of_calls_each_time() {
        let config = |seed: u64| json!({ "share": 0.2, "seed": seed, "abort": 503 });
        let first = aborted(&fault(&config(7)), 10_000);
        // Five standard deviations of a binomial distribution: 5 · √(10,000 · 0.2 · 0.8) = 200.
        let count = first.iter().filter(|is_aborted| **is_aborted).count();
        assert!((1_800..=2_200).contains(&count), "{count}");
        assert_eq!(first, aborted(&fault(&config(7)), 10_000));
        assert_ne!(first, aborted(&fault(&config(8)), 10_000));
    }

    #[test]
    fn an_aborted_call_has_the_status_and_slug_of_the_fault() {
        let harness = fault(&json!({ "abort": 429 }));
        let step = harness.exchange(GET, "200");
        assert_eq!(step.refusal(&harness).0, ErrorKind::FaultInjected);
        assert_eq!(state(&harness).counts, [0, 1, 0, 0, 0]);
    }

    #[test]
    fn a_delayed_call_waits_until_the_fault_is_switched_off() {
        let mut harness = fault(&json!({ "delay": "2s" }));
        let mut exchange = harness.send(GET);
        for _ in 0..3 {
            assert!(matches!(exchange.poll(&harness), TestStep::Wait(Some(_))));
            harness.pass_ms(50);
        }
        assert!(harness.flows.switch_faults(Some("f"), None, harness.now, FaultSwitch::Off).is_ok());
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        exchange.end(&harness);

        assert!(
            harness.flows.switch_faults(Some("f"), Some("fault"), harness.now, FaultSwitch::On(None)).is_ok()
        );
        let mut exchange = harness.send(GET);
        assert!(matches!(exchange.poll(&harness), TestStep::Wait(Some(_))));
        harness.pass_ms(2_000);
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        exchange.end(&harness);
    }

    #[test]
    fn a_fault_spares_calls_after_its_end_until_switched_on() {
        let mut harness = fault(&json!({ "abort": 500, "for": "10s" }));
        assert_eq!(aborted(&harness, 3), [true; 3]);
        harness.pass_ms(9_999);
        assert_eq!(aborted(&harness, 3), [true; 3]);
        harness.pass_ms(1);
        assert_eq!(aborted(&harness, 3), [false; 3]);
        assert!(!state(&harness).is_active && state(&harness).is_on);

        let time = Some(std::time::Duration::from_secs(1));
        assert!(harness.flows.switch_faults(Some("f"), None, harness.now, FaultSwitch::On(time)).is_ok());
        assert_eq!(aborted(&harness, 1), [true]);
        assert_eq!(state(&harness).end, Some(harness.now + std::time::Duration::from_secs(1)));
        harness.pass_ms(1_000);
        assert_eq!(aborted(&harness, 1), [false]);
        assert!(harness.flows.switch_faults(Some("g"), None, harness.now, FaultSwitch::Off).is_err());
    }

    #[test]
    fn a_fault_that_is_not_enabled_waits_for_its_switch() {
        let harness = fault(&json!({ "abort": 500, "enabled": false }));
        assert_eq!(aborted(&harness, 2), [false; 2]);
        assert!(harness.flows.switch_faults(Some("f"), None, harness.now, FaultSwitch::On(None)).is_ok());
        assert_eq!(aborted(&harness, 2), [true; 2]);
    }

    #[test]
    fn a_reload_keeps_the_switch_of_an_unchanged_fault() {
        let config = |status: u16| json!({ "flows": [{ "name": "f", "remedies": [{ "fault": { "abort": status } }] }] });
        let mut harness = TestFlows::new(config(500));
        assert!(harness.flows.switch_faults(Some("f"), None, harness.now, FaultSwitch::Off).is_ok());
        harness.reload(config(500));
        assert_eq!(aborted(&harness, 1), [false]);
        harness.reload(config(501));
        assert_eq!(aborted(&harness, 1), [true]);
    }

    #[test]
    fn an_outer_retry_repeats_an_injected_failure() {
        let harness = TestFlows::with(&json!([
            { "retry": { "on": ["5xx"], "attempts": 2, "backoff": { "base": "1ms", "max": "1ms" } } },
            { "fault": { "abort": 503 } },
        ]));
        let mut exchange = harness.send(&GET.replace("GET", "POST"));
        assert!(matches!(exchange.poll(&harness), TestStep::Repeat(_)), "the provider has seen nothing");
        exchange.end(&harness);
    }

    #[test]
    fn mistakes_are_found_where_they_stand() {
        let found = problems(&json!([
            { "fault": {} },
            { "fault": { "abort": 200 } },
            { "fault": { "abort": 500, "share": 0 } },
            { "fault": { "abort": 500, "cut": { "after": "1B" } } },
            { "fault": { "cut": { "after": "1B", "events": 1 } } },
            { "fault": { "cut": { "events": 0 } } },
            { "fault": { "reset": true, "until": "tomorrow" } },
            { "fault": { "reset": true, "until": "2027-03-01T18:00:00Z", "for": "1s" } },
            { "fault": { "delay": "2h" } },
            { "fault": { "slow": "0B/s" } },
        ]));
        let places: Vec<_> = found.iter().map(|problem| problem.split(": ").next().unwrap()).collect();
        let keys = [".abort", ".share", ".cut", ".cut", ".cut", ".until", ".for", ".delay", ".slow"];
        let expected = [""].into_iter().chain(keys).enumerate();
        let expected: Vec<_> =
            expected.map(|(at, key)| format!("flows[0].remedies[{at}].fault{key}")).collect();
        assert_eq!(places, expected, "{found:#?}");
    }
}

//! `provider-throttle`: stops calling a provider that has asked for a pause, and resumes gradually.
//!
//! When the pause is over, one call is sent as a probe. The others follow when its response is not a refusal.
//! If all were sent at once, the requests that have accumulated would be the next burst to be refused. A
//! probe without a result within some seconds makes room for another.
//!
//! The gateways of a cluster share pauses, and send one probe between them. Only the call that would be the
//! probe waits for the store to permit it, for a fourth of a second at most.

mod throttled;

use std::sync::Arc;
use std::task::{Context, Poll};

use egret_clock::Timestamp;
use egret_config::Duration;
use egret_message::{Condition, ErrorKind, Fault, Refused};
use egret_quota::GroupBy;

use crate::exchange::Exchange;
use crate::grouping::{Grouping, Groups};
use crate::message_templates::field_name_problem;
use crate::remedy::{CompileContext, Mode, Reaction, Remedy, Step};
pub use throttled::HandedPause;
use throttled::{Admission, Probe, Throttled};

/// Maximum pause that any provider can ask for.
const WAIT_MAX: std::time::Duration = std::time::Duration::from_hours(24 * 31);

egret_config::keys! {
    /// Stops calling a provider for as long as it asks for.
    #[derive(Eq)]
    pub struct ProviderThrottleConfig {
        /// Responses with which the provider asks for a pause.
        pub on: Vec<Condition> = vec![Condition::Status(429, 429), Condition::Status(503, 503)],
        /// Header field with the end of the pause: seconds from now, a date, seconds or milliseconds since
        /// 1970, or a duration like `6m0s`. With the default, a provider with a `preset` tells it in its own
        /// form.
        pub header: String = "retry-after".to_owned(),
        /// Header field with the remaining allowance. A value of 0 also asks for a pause, whatever the status
        /// code.
        pub remaining_header: Option<String>,
        /// Header field with the time at which the allowance of `remaining_header` is restored.
        pub reset_header: Option<String>,
        /// Pause if the provider names no time. `0s` means no pause.
        pub default_wait: Duration = Duration::from_secs(0),
        /// Maximum pause, up to `744h`.
        pub wait_max: Duration = Duration::from_secs(3_600),
        /// Pauses per group within each provider: `header:NAME`, `consumer`, `param:NAME` or
        /// `cel:EXPRESSION`.
        pub group_by: Option<GroupBy>,
        /// Status code of a refusal, 400 to 599. Default: 429.
        #[schemars(range(min = 400, max = 599))]
        pub status: Option<u16>,
    }
}

impl ProviderThrottleConfig {
    /// A name for the remedy in a cluster: the same for all gateways whose flow of that name has this config.
    /// The status code of refusals does not matter.
    fn scope(&self, flow: &str) -> Vec<u8> {
        let config = serde_json::to_vec(&Self { status: None, ..self.clone() }).unwrap_or_default();
        [b"provider-throttle\0", flow.as_bytes(), b"\0", &config].concat()
    }
}

/// Stops calling a provider for as long as it asks for.
#[derive(Debug)]
pub struct ProviderThrottle {
    config: ProviderThrottleConfig,
    grouping: Grouping,
    throttled: Arc<Throttled>,
}

/// State of one exchange.
#[derive(Debug, Default)]
pub struct ThrottleRun {
    /// The probe that this exchange is, if any.
    probe: Option<Probe>,
}

impl Remedy for ProviderThrottle {
    type Config = ProviderThrottleConfig;
    type Run = ThrottleRun;

    fn compile(config: &ProviderThrottleConfig, context: &mut CompileContext<'_>) -> Option<Self> {
        let before = context.problems.len();
        context.check_refusal_status(config.status);
        let names = [
            ("header", Some(&config.header)),
            ("remaining_header", config.remaining_header.as_ref()),
            ("reset_header", config.reset_header.as_ref()),
        ];
        for (key, name) in names {
            if let Some(problem) = name.and_then(|name| field_name_problem(name)) {
                context.problem(key, problem);
            }
        }
        if config.remaining_header.is_some() != config.reset_header.is_some() {
            context.problem("reset_header", "`remaining_header` and `reset_header` require each other");
        }
        if config.on.is_empty() && config.remaining_header.is_none() {
            context
                .problem("on", "must list at least one status, like `429`, unless `remaining_header` is set");
        }
        if config.wait_max.is_zero() || config.wait_max.get() > WAIT_MAX {
            context.problem("wait_max", "must be greater than 0 and at most 31 days (`744h`)");
        }
        if config.default_wait > config.wait_max {
            context.problem("default_wait", "must not exceed `wait_max`");
        }
        let grouping = Grouping::compile(config.group_by.as_ref(), context)?;
        if context.problems.len() > before {
            return None;
        }
        let sink = context.shared.marks.filter(|_| context.mode == Mode::Enforce);
        let states = context.states.keep(|states: &Groups<_>| states.are_of(sink), || Groups::new(sink));
        let cluster = sink.map(|sink| (sink.clone(), sink.digest(&config.scope(context.flow()))));
        let throttled = Throttled::new(states, cluster, config.wait_max.get());
        Some(Self { config: config.clone(), grouping, throttled })
    }

    fn describe(&self) -> String {
        format!("stops calling the provider for as long as it asks, up to {}", self.config.wait_max)
    }

    fn request(
        &self,
        exchange: &mut Exchange<'_>,
        held: &mut ThrottleRun,
        cx: &mut Context<'_>,
    ) -> Poll<Step> {
        if held.probe.as_ref().is_none_or(Probe::is_decided) {
            held.probe = None;
            if self.throttled.states().is_empty() {
                return Poll::Ready(Step::Next);
            }
            match self.admit(exchange) {
                Ok(Admission::Free) => return Poll::Ready(Step::Next),
                Ok(Admission::Paused(retry_at)) => return Poll::Ready(self.refusal(retry_at)),
                Ok(Admission::Probe(probe)) => held.probe = Some(probe),
                Err(fault) => return Poll::Ready(Step::Fail(fault)),
            }
        }
        self.poll_probe(exchange, held, cx)
    }

    fn response(&self, exchange: &mut Exchange<'_>, held: &mut ThrottleRun) -> Reaction {
        match self.record_outcome(exchange, held) {
            Ok(()) => Reaction::Pass,
            Err(fault) => Reaction::Fail(fault),
        }
    }
}

impl ProviderThrottle {
    /// Returns the pauses for the next process.
    pub(crate) fn hand_over(&self) -> Vec<HandedPause> {
        self.throttled.hand_over()
    }

    /// Takes over the pauses of an earlier process.
    pub(crate) fn inherit(&self, now: Timestamp, pauses: &[HandedPause]) {
        self.throttled.inherit(now, pauses);
    }

    fn admit(&self, exchange: &Exchange<'_>) -> Result<Admission, Fault> {
        let key = self.grouping.key(self.throttled.states(), exchange)?;
        Ok(self.throttled.admit(key, exchange.now))
    }

    fn refusal(&self, retry_at: Timestamp) -> Step {
        let detail = "the provider has asked not to be called before the time in `Retry-After`";
        let refused = Refused::new(ErrorKind::ProviderThrottled, detail);
        Step::from(Refused { status: self.config.status, retry_at: Some(retry_at), ..refused })
    }

    /// Sends the probe once it is permitted.
    fn poll_probe(
        &self,
        exchange: &mut Exchange<'_>,
        held: &mut ThrottleRun,
        cx: &Context<'_>,
    ) -> Poll<Step> {
        let Some(probe) = &mut held.probe else { return Poll::Ready(Step::Next) };
        match probe.poll(exchange.now, cx) {
            Poll::Ready(Ok(())) => Poll::Ready(Step::Next),
            Poll::Ready(Err(retry_at)) => {
                held.probe = None;
                Poll::Ready(self.refusal(retry_at))
            }
            Poll::Pending => {
                exchange.poll_at(probe.answer_due());
                Poll::Pending
            }
        }
    }

    /// Evaluates the provider's response.
    fn record_outcome(&self, exchange: &Exchange<'_>, held: &mut ThrottleRun) -> Result<(), Fault> {
        if exchange.local_kind.is_some() || exchange.response().is_none() {
            held.probe = None;
            return Ok(());
        }
        match self.requested_pause(exchange) {
            Some(until) => {
                let until = until.min(exchange.now + self.config.wait_max.get());
                let key = self.grouping.key(self.throttled.states(), exchange)?;
                self.throttled.pause(key, || self.grouping.name(exchange), until, exchange.now);
                held.probe = None;
            }
            None if exchange.meets_any(&self.config.on) => held.probe = None,
            None => {
                if let Some(probe) = held.probe.take() {
                    self.throttled.succeed(&probe, exchange.now);
                }
            }
        }
        Ok(())
    }

    /// Returns the end of the pause that the provider asks for, if it asks for one.
    fn requested_pause(&self, exchange: &Exchange<'_>) -> Option<Timestamp> {
        let fields = exchange.response()?.fields;
        let time = |name: &str| egret_clock::retry_after::read(fields.get(name.as_bytes())?, exchange.now);
        let config = &self.config;
        let is_named = config.header != ProviderThrottleConfig::default().header;
        let by_status = exchange.meets_any(&config.on).then(|| {
            let otherwise = Some(config.default_wait.get()).filter(|wait| !wait.is_zero());
            let told = if is_named { time(&config.header) } else { exchange.retry_after() };
            told.or_else(|| otherwise.map(|wait| exchange.now + wait))
        });
        let remaining = config.remaining_header.as_ref().and_then(|name| fields.get(name.as_bytes()));
        let by_allowance = remaining
            .filter(|remaining| !remaining.is_empty() && remaining.iter().all(|digit| *digit == b'0'))
            .and_then(|_| time(config.reset_header.as_ref()?));
        by_status.flatten().max(by_allowance).filter(|until| *until > exchange.now)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use throttled::ANSWER_MAX;

    use egret_fixture::{TestCluster, TestFlows, TestStep, problems};

    const GET: &str = "GET https://one.example/";

    fn config(throttle: &Value) -> Value {
        json!({ "flows": [{ "name": "f", "remedies": [{ "provider-throttle": throttle }] }] })
    }

    fn wait_ms(harness: &TestFlows, lines: &str) -> Option<u128> {
        match harness.send(lines).poll(harness) {
            TestStep::Call => None,
            refused => {
                assert_eq!(refused.refusal(harness).0, ErrorKind::ProviderThrottled);
                refused.refusal(harness).1
            }
        }
    }

    #[test]
    fn a_provider_that_asks_for_it_is_left_alone_until_then() {
        let mut harness = TestFlows::new(config(&json!({})));
        assert_eq!(harness.exchange(GET, "429\nRetry-After: 30"), TestStep::Response(429));
        harness.pass_ms(10_000);
        assert_eq!(wait_ms(&harness, GET), Some(20_000));
        assert_eq!(wait_ms(&harness, "GET https://two.example/"), None);
        harness.pass_ms(20_000);
        assert_eq!(wait_ms(&harness, GET), None);
    }

    #[test]
    fn the_next_process_keeps_the_pauses() {
        let [old, new] = [(), ()].map(|()| TestFlows::new(config(&json!({}))));
        old.exchange(GET, "429\nRetry-After: 30");
        let message = serde_json::to_string(&old.flows.hand_over(old.now, 0)).unwrap();
        new.flows.inherit(new.now, &serde_json::from_str(&message).unwrap());
        assert_eq!(wait_ms(&new, GET), Some(30_000));
        assert_eq!(wait_ms(&new, "GET https://two.example/"), None);
    }

    #[test]
    fn one_call_finds_out_and_the_others_follow() {
        let mut harness = TestFlows::new(config(&json!({})));
        harness.exchange(GET, "503\nRetry-After: 1");
        harness.pass_ms(1_000);
        let mut probe = harness.send(GET);
        assert_eq!(probe.poll(&harness), TestStep::Call);
        assert_eq!(wait_ms(&harness, GET), Some(10_000));
        assert_eq!(probe.response(&harness, "429\nRetry-After: 2"), TestStep::Response(429));
        assert_eq!(wait_ms(&harness, GET), Some(2_000));
        harness.pass_ms(2_000);
        assert_eq!(harness.exchange(GET, "200"), TestStep::Response(200));
        let (mut one, mut other) = (harness.send(GET), harness.send(GET));
        assert_eq!((one.poll(&harness), other.poll(&harness)), (TestStep::Call, TestStep::Call));
    }

    #[test]
    fn a_probe_whose_client_leaves_makes_room_for_another() {
        let mut harness = TestFlows::new(config(&json!({})));
        harness.exchange(GET, "429\nRetry-After: 1");
        harness.pass_ms(1_000);
        let mut probe = harness.send(GET);
        assert_eq!(probe.poll(&harness), TestStep::Call);
        drop(probe);
        let mut lost = harness.send(GET);
        assert_eq!(lost.poll(&harness), TestStep::Call);
        harness.pass_ms(10_000);
        let mut next = harness.send(GET);
        assert_eq!(next.poll(&harness), TestStep::Call);
        drop(lost);
        assert_eq!(wait_ms(&harness, GET), Some(10_000));
    }

    #[test]
    fn groups_pause_separately_and_within_the_limit() {
        let harness = TestFlows::new(config(&json!({ "group_by": "header:x-account", "wait_max": "1m" })));
        let account = |name: &str| format!("{GET}\nX-Account: {name}");
        harness.exchange(&account("a"), "429\nRetry-After: 99999");
        assert_eq!(wait_ms(&harness, &account("a")), Some(60_000));
        assert_eq!(wait_ms(&harness, &account("b")), None);
        assert_eq!(wait_ms(&harness, GET), None);
    }

    #[test]
    fn an_allowance_that_is_used_up_counts_too() {
        let harness = TestFlows::new(config(&json!({
            "remaining_header": "x-ratelimit-remaining", "reset_header": "x-ratelimit-reset",
        })));
        harness.exchange(GET, "200\nX-RateLimit-Remaining: 1\nX-RateLimit-Reset: 6m0s");
        assert_eq!(wait_ms(&harness, GET), None);
        harness.exchange(GET, "200\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 6m0s");
        assert_eq!(wait_ms(&harness, GET), Some(360_000));
    }

    #[test]
    fn a_refusal_without_a_time_pauses_by_default_wait() {
        let harness = TestFlows::new(config(&json!({})));
        for response in ["429", "429\nRetry-After: soon", "500\nRetry-After: 9", "200\nRetry-After: 9"] {
            harness.exchange(GET, response);
            assert_eq!(wait_ms(&harness, GET), None);
        }
        let harness = TestFlows::new(config(&json!({ "default_wait": "5s" })));
        harness.exchange(GET, "429");
        assert_eq!(wait_ms(&harness, GET), Some(5_000));
    }

    #[test]
    fn refusals_of_remedies_further_in_are_not_the_provider_asking() {
        let harness = TestFlows::new(json!({
            "quotas": { "q": { "limit": 1, "window": "10s", "group_by": "header:x-a" } },
            "flows": [{ "name": "f", "remedies": [{ "provider-throttle": {} }, { "limit": { "quota": "q" } }] }],
        }));
        assert_eq!(harness.exchange(GET, "200"), TestStep::Response(200));
        assert_eq!(harness.exchange(GET, "200").refusal(&harness).0, ErrorKind::QuotaExceeded);
        assert_eq!(wait_ms(&harness, &format!("{GET}\nX-A: other")), None);
    }

    #[test]
    fn a_reload_does_not_forget() {
        let mut harness = TestFlows::new(config(&json!({})));
        harness.exchange(GET, "429\nRetry-After: 30");
        harness.reload(config(&json!({ "wait_max": "2m" })));
        assert_eq!(wait_ms(&harness, GET), Some(30_000));
    }

    fn members(cluster: &TestCluster) -> [TestFlows; 2] {
        [(), ()].map(|()| TestFlows::in_cluster(config(&json!({})), cluster))
    }

    /// Two members, just after a pause.
    fn resumed(cluster: &TestCluster) -> [TestFlows; 2] {
        let mut members = members(cluster);
        members[0].exchange(GET, "429\nRetry-After: 1");
        cluster.pass(members[0].now);
        for member in &mut members {
            member.pass_ms(1_000);
        }
        members
    }

    #[test]
    fn a_refusal_of_one_gateway_stops_all_of_its_cluster() {
        let cluster = TestCluster::default();
        let [one, two] = members(&cluster);
        one.exchange(GET, "429\nRetry-After: 30");
        assert_eq!(wait_ms(&two, GET), None);
        assert_eq!(cluster.pass(one.now), 1);
        assert_eq!(wait_ms(&two, GET), Some(30_000));
        assert_eq!(wait_ms(&two, "GET https://two.example/"), None);
        one.exchange("GET https://two.example/", "429");
        assert_eq!(cluster.pass(one.now), 0, "it names no time");
    }

    #[test]
    fn one_call_in_the_cluster_finds_out() {
        let cluster = TestCluster::default();
        let [one, two] = resumed(&cluster);
        let (mut probe, mut other) = (one.send(GET), two.send(GET));
        let due = one.now + ANSWER_MAX;
        assert_eq!(probe.poll(&one), TestStep::Wait(Some(due)));
        assert_eq!(other.poll(&two), TestStep::Wait(Some(due)));
        assert_eq!(wait_ms(&one, GET), Some(10_000), "nobody else waits");
        cluster.pass(one.now);
        assert_eq!(probe.poll(&one), TestStep::Call);
        assert_eq!(other.poll(&two).refusal(&two), (ErrorKind::ProviderThrottled, Some(7_000)));
        assert_eq!(wait_ms(&two, GET), Some(7_000));
        assert_eq!(probe.response(&one, "200"), TestStep::Response(200));
        cluster.pass(one.now);
        assert_eq!((wait_ms(&one, GET), wait_ms(&two, GET)), (None, None));
    }

    #[test]
    fn a_probe_that_is_refused_pauses_all_again() {
        let cluster = TestCluster::default();
        let [one, two] = resumed(&cluster);
        let mut probe = one.send(GET);
        assert_eq!(probe.poll(&one), TestStep::Wait(Some(one.now + ANSWER_MAX)));
        cluster.pass(one.now);
        assert_eq!(probe.poll(&one), TestStep::Call);
        assert_eq!(probe.response(&one, "429\nRetry-After: 2"), TestStep::Response(429));
        cluster.pass(one.now);
        assert_eq!((wait_ms(&one, GET), wait_ms(&two, GET)), (Some(2_000), Some(2_000)));
    }

    #[test]
    fn a_probe_whose_client_leaves_makes_room_in_the_cluster() {
        let cluster = TestCluster::default();
        let [one, two] = resumed(&cluster);
        let (mut probe, mut other) = (one.send(GET), two.send(GET));
        assert_eq!(probe.poll(&one), TestStep::Wait(Some(one.now + ANSWER_MAX)));
        assert_eq!(other.poll(&two), TestStep::Wait(Some(one.now + ANSWER_MAX)));
        cluster.pass(one.now);
        drop(probe);
        assert_eq!(other.poll(&two).refusal(&two).0, ErrorKind::ProviderThrottled);
        cluster.pass(one.now);
        let mut next = two.send(GET);
        assert_eq!(next.poll(&two), TestStep::Wait(Some(two.now + ANSWER_MAX)));
        cluster.pass(two.now);
        assert_eq!(next.poll(&two), TestStep::Call);
    }

    #[test]
    fn without_the_store_each_gateway_goes_on_by_itself() {
        let cluster = TestCluster::default();
        let [mut one, two] = resumed(&cluster);
        let (mut lost, mut late) = (two.send(GET), one.send(GET));
        assert_eq!(lost.poll(&two), TestStep::Wait(Some(two.now + ANSWER_MAX)));
        cluster.lose();
        assert_eq!(lost.poll(&two), TestStep::Call);
        assert_eq!(late.poll(&one), TestStep::Wait(Some(one.now + ANSWER_MAX)));
        one.pass_ms(250);
        assert_eq!(late.poll(&one), TestStep::Call, "no answer has arrived");
        assert_eq!(late.response(&one, "200"), TestStep::Response(200));
        assert_eq!(wait_ms(&one, GET), None);
    }

    #[test]
    fn only_equal_throttles_of_flows_with_the_same_name_are_shared() {
        let wait = |name: &str, throttle: &Value, mode: &str| {
            let cluster = TestCluster::default();
            let config = |name: &str, throttle: &Value, mode: &str| {
                let flow =
                    json!({ "name": name, "remedies": [{ "provider-throttle": throttle, "mode": mode }] });
                json!({ "flows": [flow] })
            };
            let one = TestFlows::in_cluster(config("f", &json!({ "status": 503 }), "enforce"), &cluster);
            let two = TestFlows::in_cluster(config(name, throttle, mode), &cluster);
            one.exchange(GET, "429\nRetry-After: 30");
            cluster.pass(one.now);
            wait_ms(&two, GET)
        };
        assert_eq!(wait("f", &json!({}), "enforce"), Some(30_000));
        assert_eq!(wait("g", &json!({}), "enforce"), None);
        assert_eq!(wait("f", &json!({ "wait_max": "1m" }), "enforce"), None);
        assert_eq!(wait("f", &json!({}), "report"), None);
    }

    #[test]
    fn nonsense_is_refused() {
        let found = problems(&json!([{ "provider-throttle": {
            "on": [], "header": "two words", "wait_max": "0s", "default_wait": "1s", "group_by": "cel:1 +",
        } }]));
        assert_eq!(found.len(), 5, "{found:?}");
    }
}

//! `limit`: refuses or queues requests that exceed a quota.

use std::task::{Context, Poll};

use egret_message::{ErrorKind, Fault};
use egret_quota::{Grant, Why};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::exchange::Exchange;
use crate::quota_draw::Draw;
use crate::remedies::queue::{Queue, QueueConfig, Ticket};
use crate::remedy::{CompileContext, NamedPart, Needs, Reaction, Remedy, Step};

egret_config::keys! {
    /// Limits exchanges by a quota. A text alone is its `quota`.
    #[derive(Eq)]
    #[serde(rename = "short form: quota")]
    #[schemars(rename = "LimitConfig", transform = egret_config::or_text)]
    pub struct LimitConfig {
        /// Name of the quota, under `quotas`.
        #[schemars(extend("x-tier" = "everyday"))]
        pub quota: String,
        /// Action on exchanges that exceed the quota.
        pub on_exceed: OnExceed,
        /// Status code of a refusal, 400 to 599. Default: 429.
        #[schemars(range(min = 400, max = 599))]
        pub status: Option<u16>,
        /// Adds `RateLimit` and `RateLimit-Policy` with the state of the quota to responses. Refusals always
        /// have them, except those of a quota of money.
        pub headers: bool,
    }
}

/// The action on exchanges that exceed a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnExceed {
    /// Refuse them, with the time at which allowance is available again.
    #[default]
    Reject,
    /// Queue them with the default settings of `queue`. For other settings, use the remedy `queue`.
    Queue,
}

/// Refuses or queues requests that exceed a quota.
#[derive(Debug)]
pub struct Limit {
    draw: Draw,
    queue: Option<Queue>,
    status: Option<u16>,
    headers: bool,
}

/// State of one exchange.
#[derive(Debug, Default)]
pub struct LimitTicket {
    grant: Option<Grant>,
    ticket: Ticket,
}

impl Remedy for Limit {
    type Config = LimitConfig;
    type Run = LimitTicket;

    fn names(config: &LimitConfig) -> Vec<NamedPart<'_>> {
        vec![NamedPart::Quota(&config.quota)]
    }

    fn compile(config: &LimitConfig, context: &mut CompileContext<'_>) -> Option<Self> {
        context.check_refusal_status(config.status);
        let draw = Draw::named(&config.quota, "quota", context)?;
        let queue = match config.on_exceed {
            OnExceed::Reject => None,
            OnExceed::Queue => Some(Queue::compile(
                &QueueConfig { quota: config.quota.clone(), ..QueueConfig::default() },
                context,
            )?),
        };
        Some(Self { draw, queue, status: config.status, headers: config.headers })
    }

    fn describe(&self) -> String {
        let above =
            if self.queue.is_some() { "further requests wait" } else { "further requests are refused" };
        format!("at most {}; {above}", self.draw.describe())
    }

    fn rehearse(&self, exchange: &mut Exchange<'_>) -> String {
        self.draw.rehearse(exchange)
    }

    fn needs(&self) -> Needs {
        self.draw.needs()
    }

    fn request(
        &self,
        exchange: &mut Exchange<'_>,
        held: &mut LimitTicket,
        cx: &mut Context<'_>,
    ) -> Poll<Step> {
        self.draw.want_report(exchange);
        match &self.queue {
            Some(queue) => queue.wait(exchange, &mut held.ticket, &mut held.grant, cx),
            None => self.take(exchange, held, cx),
        }
    }

    fn response(&self, exchange: &mut Exchange<'_>, held: &mut LimitTicket) -> Reaction {
        if let Err(fault) = self.draw.responded(&mut held.grant, exchange) {
            return Reaction::Fail(fault);
        }
        if self.headers
            && !self.draw.is_money()
            && let Err(fault) = self.add_status_fields(exchange)
        {
            return Reaction::Fail(fault);
        }
        Reaction::Pass
    }

    fn grant(held: &mut LimitTicket) -> Option<&mut Option<Grant>> {
        Some(&mut held.grant)
    }

    fn end(&self, exchange: &mut Exchange<'_>, held: &mut LimitTicket) -> Result<(), Fault> {
        self.draw.end(&mut held.grant, exchange)
    }
}

impl Limit {
    /// Name of the quota.
    pub(crate) fn quota(&self) -> &str {
        self.draw.quota_name()
    }

    /// The queue of exchanges that exceed the quota, if they wait.
    pub(crate) fn queue(&self) -> Option<&Queue> {
        self.queue.as_ref()
    }

    fn take(&self, exchange: &mut Exchange<'_>, held: &mut LimitTicket, cx: &Context<'_>) -> Poll<Step> {
        let now = exchange.now;
        let (refused, retry_at) = {
            let request;
            let charge = if let Some(charge) = self.draw.plain_charge() {
                charge
            } else {
                request = exchange.request();
                match self.draw.charge_request(exchange, &request) {
                    Ok(charge) => charge,
                    Err(fault) => return Poll::Ready(Step::Fail(fault)),
                }
            };
            match self.draw.take_or_watch(now, &charge, cx.waker()) {
                Ok(grant) => {
                    held.grant = Some(grant);
                    return Poll::Ready(Step::Next);
                }
                Err(refusal) if refusal.why == Why::Fetching => (None, refusal.retry_at),
                Err(refusal) => {
                    let reason = ErrorKind::QuotaExceeded;
                    (Some(self.draw.refused(reason, self.status, &refusal, now, &charge)), None)
                }
            }
        };
        match (refused, retry_at) {
            (Some(refused), _) => Poll::Ready(refused.into()),
            (None, Some(at)) => {
                exchange.poll_at(at);
                Poll::Pending
            }
            (None, None) => Poll::Pending,
        }
    }

    /// Adds the state of the quota to the response.
    fn add_status_fields(&self, exchange: &mut Exchange<'_>) -> Result<(), Fault> {
        let fields = {
            let request = exchange.request();
            let charge = self.draw.charge_request(exchange, &request)?;
            self.draw.fields(exchange.now, &charge)
        };
        for (name, value) in fields {
            exchange.draft.response.set(name.as_bytes(), &value);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use egret_fixture::{Decision, TestFlows, TestStep, problems};
    use egret_message::FailureKind;
    use egret_prices::Prices;
    use egret_usage::UsageRecord;

    const GET: &str = "GET https://one.example/";

    fn harness(limit: &Value) -> TestFlows {
        TestFlows::new(json!({
            "quotas": { "q": { "limit": 2, "window": "10s", "kind": "fixed", "starts": "first" } },
            "flows": [{ "name": "f", "remedies": [limit] }],
        }))
    }

    #[test]
    fn exactly_what_is_above_is_refused_until_the_window_ends() {
        let mut harness = harness(&json!({ "limit": { "quota": "q" } }));
        assert_eq!(harness.exchange(GET, "200"), TestStep::Response(200));
        assert_eq!(harness.exchange(GET, "200"), TestStep::Response(200));
        harness.pass_ms(4_000);
        let refused = harness.exchange(GET, "200");
        assert_eq!(refused.refusal(&harness), (ErrorKind::QuotaExceeded, Some(6_000)));
        let TestStep::Refused(refused) = refused else { panic!() };
        let field = |name: &str| {
            let field = refused.fields.iter().find(|(other, _)| other == name);
            String::from_utf8(field.unwrap().1.clone()).unwrap()
        };
        assert_eq!(field("RateLimit-Policy"), "\"q\";q=2;w=10");
        assert_eq!(field("RateLimit"), "\"q\";r=0;t=6");
        harness.pass_ms(6_000);
        assert_eq!(harness.exchange(GET, "200"), TestStep::Response(200));
        assert_eq!(harness.decided(0, Decision::Next), 3);
        assert_eq!(harness.decided(0, Decision::LocalResponse), 1);
    }

    #[test]
    fn responses_tell_how_the_quota_stands_where_that_is_asked_for() {
        let harness = harness(&json!({ "limit": { "quota": "q", "headers": true } }));
        let mut exchange = harness.send(GET);
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        assert_eq!(exchange.response(&harness, "200"), TestStep::Response(200));
        let stands = ("RateLimit".to_owned(), "\"q\";r=1;t=10".to_owned());
        assert!(exchange.added().contains(&stands), "{:?}", exchange.added());
    }

    #[test]
    fn a_call_that_the_provider_never_saw_costs_nothing() {
        let harness = harness(&json!({ "limit": { "quota": "q" } }));
        for _ in 0..5 {
            let mut exchange = harness.send(GET);
            assert_eq!(exchange.poll(&harness), TestStep::Call);
            assert_eq!(
                exchange.failure(&harness, FailureKind::Connect),
                TestStep::Failure(FailureKind::Connect)
            );
        }
        assert_eq!(harness.exchange(GET, "200"), TestStep::Response(200));
    }

    #[test]
    fn a_call_that_a_remedy_further_in_responds_costs_nothing() {
        let harness = TestFlows::new(json!({
            "quotas": { "q": { "limit": 2, "window": "10s" } },
            "flows": [{ "name": "f", "remedies": [{ "limit": { "quota": "q" } }, { "fixed-response": { "status": 204 } }] }],
        }));
        for _ in 0..5 {
            assert!(matches!(harness.send(GET).poll(&harness), TestStep::Fixed(_)));
        }
    }

    #[test]
    fn a_retry_further_out_does_not_repeat_a_refusal() {
        let harness = TestFlows::new(json!({
            "quotas": { "q": { "limit": 1, "window": "10s" } },
            "flows": [{ "name": "f", "remedies": [{ "retry": { "on": [429] } }, { "limit": { "quota": "q" } }] }],
        }));
        assert_eq!(harness.exchange(GET, "200"), TestStep::Response(200));
        assert_eq!(harness.exchange(GET, "200").refusal(&harness).0, ErrorKind::QuotaExceeded);
        assert_eq!(harness.decided(0, Decision::Repeat), 0);
    }

    #[test]
    fn in_report_mode_it_decides_and_is_counted_and_does_not_act() {
        let harness = harness(&json!({ "limit": { "quota": "q", "headers": true }, "mode": "report" }));
        for _ in 0..5 {
            let mut exchange = harness.send(GET);
            assert_eq!(exchange.poll(&harness), TestStep::Call);
            assert_eq!(exchange.response(&harness, "200"), TestStep::Response(200));
            assert_eq!(exchange.added(), []);
        }
        assert_eq!(harness.decided(0, Decision::Next), 2);
        assert_eq!(harness.decided(0, Decision::LocalResponse), 3);
        let mut exchange = harness.send(GET);
        exchange.poll(&harness);
        assert_eq!(exchange.trace(), "f/limit=answer;report");
    }

    #[test]
    fn groups_and_costs_see_the_parameters_of_the_flow_that_draws() {
        for group_by in ["param:team", "cel:request.params.team"] {
            let harness = TestFlows::new(json!({
                "quotas": { "q": {
                    "limit": 3, "window": "10s", "group_by": group_by,
                    "cost": { "request": "request.params.kind == 'bulk' ? 2 : 1" },
                } },
                "flows": [
                    { "name": "teams", "match": { "path": "/teams/{team}/{kind}" }, "remedies": [{ "limit": { "quota": "q" } }] },
                    { "name": "rest", "match": { "path": "/rest" }, "remedies": [{ "limit": { "quota": "q" } }] },
                ],
            }));
            let passes = |path: &str| {
                let lines = format!("GET https://one.example{path}");
                harness.exchange(&lines, "200") == TestStep::Response(200)
            };
            assert!(
                passes("/teams/a/bulk") && !passes("/teams/a/bulk") && passes("/teams/a/one"),
                "{group_by}"
            );
            assert!(passes("/teams/b/bulk") && !passes("/teams/a/one"), "{group_by}");
            // A flow without the parameter uses the group of requests without a value.
            assert!(passes("/rest") && passes("/rest") && passes("/rest") && !passes("/rest"), "{group_by}");
        }
    }

    #[test]
    fn a_priced_model_without_tokens_keeps_its_charge() {
        let config = json!({ "overrides": { "m": { "input": 1, "output": 1 } } });
        let prices = Prices::compile(&serde_json::from_value(config.clone()).unwrap()).unwrap();
        let harness = TestFlows::new(json!({
            "prices": config,
            "quotas": { "q": { "limit": 1, "window": "1h", "unit": "usd", "cost": { "usage": "usd" } } },
            "flows": [{ "name": "f", "remedies": [{ "limit": { "quota": "q" } }] }],
        }));
        let mut exchange =
            harness.send("POST https://one.example/v1/chat/completions\ncontent-type: application/json");
        exchange.body = Some(br#"{"model":"m","max_tokens":9}"#.to_vec());
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        exchange.response(&harness, "200");
        let mut usage = UsageRecord { model: Some("m".into()), ..UsageRecord::default() };
        prices.price(&mut usage, None);
        exchange.end_with_usage(&harness, usage);
        assert_eq!(harness.decided(0, Decision::Fail), 1);
    }

    #[test]
    fn a_reload_keeps_what_is_counted() {
        let config = json!({
            "quotas": { "q": { "limit": 1, "window": "10s" } },
            "flows": [{ "name": "f", "remedies": [{ "limit": { "quota": "q", "status": 503 } }] }],
        });
        let mut harness = TestFlows::new(config.clone());
        assert_eq!(harness.exchange(GET, "200"), TestStep::Response(200));
        harness.reload(config);
        let TestStep::Refused(refused) = harness.exchange(GET, "200") else { panic!() };
        assert_eq!(refused.status, Some(503));
    }

    #[test]
    fn a_quota_that_is_not_there_is_refused() {
        let found = problems(&json!([{ "limit": { "quota": "nope" } }]));
        assert_eq!(
            found,
            ["flows[0].remedies[0].limit.quota: no quota is called `nope`: define it under `quotas`"]
        );
    }
}

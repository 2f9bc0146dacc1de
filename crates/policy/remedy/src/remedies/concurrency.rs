//! `concurrency`: limits the number of concurrent exchanges. An exchange counts until the last byte of its
//! response. The limit may follow the provider's latency.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};

use egret_config::Problem;
use egret_message::ErrorKind;
use egret_quota::{AdaptiveConfig, Grant, GroupBy, Quota, QuotaConfig, QuotaKind, Quotas, Stores};

use crate::exchange::Exchange;
use crate::quota_draw::Draw;
use crate::remedy::{CompileContext, Needs, Reaction, Remedy, Step};

egret_config::keys! {
    /// Limits the number of concurrent exchanges. A number alone is its `max`.
    #[serde(rename = "short form: max")]
    #[schemars(rename = "ConcurrencyConfig", transform = egret_config::or_number)]
    pub struct ConcurrencyConfig {
        /// Maximum number of concurrent exchanges.
        pub max: u64,
        /// Lets the limit follow the provider's latency, up to `max`.
        pub adaptive: Option<AdaptiveConfig>,
        /// Counts per group, as a quota's `group_by` does: `header:NAME`, `consumer`, `param:NAME`,
        /// `provider` or `cel:EXPRESSION`.
        pub group_by: Option<GroupBy>,
        /// Status code of a refusal, 400 to 599. Default: 429.
        #[schemars(range(min = 400, max = 599))]
        pub status: Option<u16>,
    }
}

/// Limits the number of concurrent exchanges.
#[derive(Debug)]
pub struct Concurrency {
    draw: Draw,
    status: Option<u16>,
}

impl Remedy for Concurrency {
    type Config = ConcurrencyConfig;
    /// The permit, released when dropped.
    type Run = Option<Grant>;

    fn compile(config: &ConcurrencyConfig, context: &mut CompileContext<'_>) -> Option<Self> {
        context.check_refusal_status(config.status);
        // A fixed name, because a flow's name may contain characters that a quota's may not. These quotas are
        // private.
        let name = "concurrency".to_owned();
        let quota = QuotaConfig {
            limit: config.max,
            adaptive: config.adaptive,
            kind: QuotaKind::Concurrency,
            window: None,
            group_by: config.group_by.clone(),
            ..QuotaConfig::default()
        };
        let configs = BTreeMap::from([(name.clone(), quota)]);
        let before: Option<Arc<Quotas>> = context.states.before();
        let mut problems = Vec::new();
        let quotas = Quotas::compile(
            &configs,
            before.as_deref(),
            Stores::default(),
            context.parameters,
            &mut problems,
        );
        for problem in problems {
            let key = ["group_by", "adaptive", "adaptive.min", "adaptive.tolerance"]
                .into_iter()
                .find(|key| problem.path.ends_with(key));
            let path = context.path_of(key.unwrap_or("max"));
            context.problems.push(Problem { path, ..problem });
        }
        let quota = Arc::clone(quotas.get(&name)?);
        context.states.insert(Arc::new(quotas));
        Some(Self { draw: Draw::of(quota), status: config.status })
    }

    fn describe(&self) -> String {
        let at_once = if self.quota().is_adaptive() { "" } else { " at once" };
        format!("at most {}{at_once}", self.draw.describe())
    }

    fn needs(&self) -> Needs {
        self.draw.needs()
    }

    fn request(
        &self,
        exchange: &mut Exchange<'_>,
        held: &mut Option<Grant>,
        _cx: &mut Context<'_>,
    ) -> Poll<Step> {
        let now = exchange.now;
        let request = exchange.request();
        let charge = match self.draw.charge_request(exchange, &request) {
            Ok(charge) => charge,
            Err(fault) => return Poll::Ready(Step::Fail(fault)),
        };
        Poll::Ready(match self.draw.take(now, &charge) {
            Ok(grant) => {
                *held = Some(grant);
                Step::Next
            }
            Err(refusal) => {
                self.draw.refused(ErrorKind::TooManyInFlight, self.status, &refusal, now, &charge).into()
            }
        })
    }

    fn response(&self, exchange: &mut Exchange<'_>, held: &mut Option<Grant>) -> Reaction {
        self.draw.adapt(held.as_ref(), exchange);
        Reaction::Pass
    }
}

impl Concurrency {
    /// The quota that counts the exchanges, which no other remedy draws from.
    pub fn quota(&self) -> &Quota {
        self.draw.quota()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use egret_fixture::{TestFlows, TestStep, problems};

    const GET: &str = "GET https://one.example/";

    fn config(max: u64) -> Value {
        json!({ "flows": [{ "name": "f", "remedies": [{ "concurrency": { "max": max } }] }] })
    }

    #[test]
    fn a_slot_is_held_until_the_end_or_until_the_client_leaves() {
        let harness = TestFlows::new(config(1));
        let mut first = harness.send(GET);
        assert_eq!(first.poll(&harness), TestStep::Call);
        assert_eq!(harness.send(GET).poll(&harness).refusal(&harness).0, ErrorKind::TooManyInFlight);
        assert_eq!(first.response(&harness, "200"), TestStep::Response(200));
        assert_eq!(harness.send(GET).poll(&harness).refusal(&harness).0, ErrorKind::TooManyInFlight);
        first.end(&harness);
        let mut second = harness.send(GET);
        assert_eq!(second.poll(&harness), TestStep::Call);
        drop(second);
        assert_eq!(harness.send(GET).poll(&harness), TestStep::Call);
    }

    #[test]
    fn a_reload_knows_who_is_under_way() {
        let mut harness = TestFlows::new(config(1));
        let mut first = harness.send(GET);
        assert_eq!(first.poll(&harness), TestStep::Call);
        harness.reload(config(2));
        let mut second = harness.send(GET);
        assert_eq!(second.poll(&harness), TestStep::Call);
        assert_eq!(harness.send(GET).poll(&harness).refusal(&harness).0, ErrorKind::TooManyInFlight);
        drop((first, second));
        assert_eq!(harness.send(GET).poll(&harness), TestStep::Call);
    }

    #[test]
    fn an_adaptive_limit_follows_the_latency() {
        let mut harness = TestFlows::new(json!({
            "flows": [{ "name": "f", "remedies": [{ "concurrency": { "max": 100, "adaptive": { "min": 2 } } }] }],
        }));
        // Makes all calls that the limit allows, ten times, and returns their number in the end.
        let mut rounds = |latency_ms: fn(u64) -> u64, response: &str| {
            let mut limit = 0;
            for _ in 0..10 {
                let mut calls = Vec::new();
                let refused = loop {
                    let mut call = harness.send(GET);
                    match call.poll(&harness) {
                        TestStep::Call => calls.push(call),
                        refused => break refused.refusal(&harness).0,
                    }
                };
                assert_eq!(refused, ErrorKind::TooManyInFlight);
                limit = u64::try_from(calls.len()).unwrap();
                harness.pass_ms(latency_ms(limit));
                for mut call in calls {
                    call.response(&harness, response);
                    call.end(&harness);
                }
            }
            limit
        };
        assert_eq!(rounds(|_| 100, "200"), 100);
        // Each call in flight delays all others: 75 of them take half as long again as before.
        let slow = rounds(|calls| 2 * calls, "200");
        assert!((70..90).contains(&slow), "{slow}");
        let failing = rounds(|_| 1, "500");
        assert_eq!(rounds(|_| 1, "404"), failing, "quick failures do not raise it");
        assert!(failing < 100);
        assert!(rounds(|_| 100, "503") < 40);
    }

    #[test]
    fn bounds_of_an_adaptive_limit_are_checked() {
        let found =
            problems(&json!([{ "concurrency": { "max": 5, "adaptive": { "min": 6, "tolerance": 1.0 } } }]));
        let path = "flows[0].remedies[0].concurrency.adaptive";
        assert_eq!(found[0], format!("{path}.min: expected 1 to the `limit`, 5, found `6`"));
        assert_eq!(found[1], format!("{path}.tolerance: expected 1.1 to 10, found `1`"));
    }

    #[test]
    fn none_at_all_is_refused() {
        assert!(
            problems(&json!([{ "concurrency": {} }]))[0].starts_with("flows[0].remedies[0].concurrency.max")
        );
    }
}

//! `queue`: queues exchanges that exceed a quota, and immediately refuses those that cannot be served in
//! time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};

use egret_clock::Timestamp;
use egret_config::Duration;
use egret_match::expression::Expression;
use egret_message::{ErrorKind, Fault, Refused, Request};
use egret_quota::{Forecast, Grant, Refusal, Why};

use crate::exchange::Exchange;
use crate::quota_draw::{ChargeRequest, Draw};
use crate::remedy::{CompileContext, NamedPart, Needs, Reaction, Remedy, Step};
use crate::wait_line::{Arrival, QueuePlace, QueuePosition, Queues};

/// Maximum length of a queue.
const SIZE_MAX: u32 = 100_000;
/// Maximum number of priority classes.
const CLASSES_MAX: usize = 16;

egret_config::keys! {
    /// Queues exchanges that exceed a quota. A text alone is its `quota`.
    #[derive(Eq)]
    #[serde(rename = "short form: quota")]
    #[schemars(rename = "QueueConfig", transform = egret_config::or_text)]
    pub struct QueueConfig {
        /// Name of the quota, under `quotas`.
        #[schemars(extend("x-tier" = "everyday"))]
        pub quota: String,
        /// Maximum number of waiting exchanges, in all groups together.
        #[schemars(range(min = 1, max = 100_000))]
        pub size: u32 = 1_000,
        /// Maximum wait. An exchange that would have to wait longer is refused at once.
        #[schemars(extend("x-tier" = "everyday"))]
        pub max_wait: Duration = Duration::from_secs(30),
        /// Priority of exchanges. Default: first come, first served.
        pub priority: Option<PriorityConfig>,
        /// Status code of a refusal, 400 to 599. Default: 429.
        #[schemars(range(min = 400, max = 599))]
        pub status: Option<u16>,
    }
}

egret_config::keys! {
    /// Priority classes of a queue. A text alone is its `by`.
    #[derive(Eq)]
    #[serde(rename = "short form: by")]
    #[schemars(rename = "PriorityConfig", transform = egret_config::or_text)]
    pub struct PriorityConfig {
        /// Source of the class of an exchange: `consumer`, `header:NAME`, or `cel:EXPRESSION` for text.
        pub by: String,
        /// Classes, highest priority first. A class that is not listed has the lowest priority.
        pub classes: Vec<String>,
        /// Time after which a waiting exchange overtakes newcomers of the next higher class. It keeps any
        /// class from starving.
        pub ageing: Duration = Duration::from_secs(5),
    }
}

/// Queues exchanges that exceed a quota.
#[derive(Debug)]
pub struct Queue {
    draw: Draw,
    queues: Arc<Queues>,
    priority: Option<Priority>,
    size: usize,
    max_wait: std::time::Duration,
    status: Option<u16>,
}

#[derive(Debug)]
struct Priority {
    by: ClassBy,
    classes: BTreeMap<Vec<u8>, u32>,
    ageing: std::time::Duration,
}

#[derive(Debug)]
enum ClassBy {
    Consumer,
    Header(String),
    Cel(Expression<String>),
}

/// The place of an exchange in the queue.
#[derive(Debug, Default)]
pub struct Ticket {
    place: Option<QueuePlace>,
    /// Latest time until which it waits.
    deadline: Timestamp,
    /// The money to hold for it, or the reason why it must not be made, once it is computed.
    held: Option<Result<u64, Why>>,
}

/// The exchanges that wait in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSnapshot {
    /// Their number.
    pub waiting: usize,
    /// Maximum number.
    pub size: usize,
    /// Time for which the oldest of them has waited.
    pub oldest: std::time::Duration,
}

/// State of one exchange.
#[derive(Debug, Default)]
pub struct QueueTicket {
    grant: Option<Grant>,
    ticket: Ticket,
}

impl Remedy for Queue {
    type Config = QueueConfig;
    type Run = QueueTicket;

    fn names(config: &QueueConfig) -> Vec<NamedPart<'_>> {
        vec![NamedPart::Quota(&config.quota)]
    }

    fn compile(config: &QueueConfig, context: &mut CompileContext<'_>) -> Option<Self> {
        let before = context.problems.len();
        context.check_refusal_status(config.status);
        if !(1..=SIZE_MAX).contains(&config.size) {
            context.problem("size", format!("must be from 1 to {SIZE_MAX}"));
        }
        if config.max_wait.is_zero() {
            context.problem("max_wait", "must be greater than 0: use `limit` to refuse at once");
        }
        let priority = config.priority.as_ref().map(|priority| Priority::compile(priority, context));
        let draw = Draw::named(&config.quota, "quota", context);
        if context.problems.len() > before {
            return None;
        }
        let queues = context.states.keep(|_| true, Queues::default);
        Some(Self {
            draw: draw?,
            queues,
            priority: priority.flatten(),
            size: usize::try_from(config.size).unwrap_or(usize::MAX),
            max_wait: config.max_wait.get(),
            status: config.status,
        })
    }

    fn describe(&self) -> String {
        format!(
            "at most {}; up to {} further exchanges wait up to {:?}",
            self.draw.describe(),
            self.size,
            self.max_wait
        )
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
        held: &mut QueueTicket,
        cx: &mut Context<'_>,
    ) -> Poll<Step> {
        self.draw.want_report(exchange);
        self.wait(exchange, &mut held.ticket, &mut held.grant, cx)
    }

    fn response(&self, exchange: &mut Exchange<'_>, held: &mut QueueTicket) -> Reaction {
        match self.draw.responded(&mut held.grant, exchange) {
            Ok(()) => Reaction::Pass,
            Err(fault) => Reaction::Fail(fault),
        }
    }

    fn grant(held: &mut QueueTicket) -> Option<&mut Option<Grant>> {
        Some(&mut held.grant)
    }

    fn end(&self, exchange: &mut Exchange<'_>, held: &mut QueueTicket) -> Result<(), Fault> {
        self.draw.end(&mut held.grant, exchange)
    }
}

/// The result of an attempt to pass.
enum Attempt {
    Through(Grant),
    /// Not yet: ask again at this time, or when woken.
    Wait(Option<Timestamp>),
    Refuse(Refused),
}

impl Queue {
    /// Returns the exchanges that wait at `now`.
    pub(crate) fn snapshot(&self, now: Timestamp) -> QueueSnapshot {
        let oldest = self.queues.oldest().map(|since| now.since(since)).unwrap_or_default();
        QueueSnapshot { waiting: self.queues.len(), size: self.size, oldest }
    }

    /// Name of the quota.
    pub(crate) fn quota(&self) -> &str {
        self.draw.quota_name()
    }

    /// Lets an exchange pass, puts it into the queue, or refuses it.
    pub(crate) fn wait(
        &self,
        exchange: &mut Exchange<'_>,
        ticket: &mut Ticket,
        grant: &mut Option<Grant>,
        cx: &Context<'_>,
    ) -> Poll<Step> {
        let attempt = {
            let request = exchange.request();
            match self.draw.charge_again(exchange, &request, &mut ticket.held) {
                Ok(charge) if ticket.place.is_none() => self.arrive(exchange, &request, &charge, ticket, cx),
                Ok(charge) => Ok(self.try_pass(exchange.now, &charge, ticket, cx)),
                Err(fault) => Err(fault),
            }
        };
        match attempt {
            Ok(Attempt::Through(granted)) => {
                ticket.place = None;
                *grant = Some(granted);
                Poll::Ready(Step::Next)
            }
            Ok(Attempt::Wait(at)) => {
                exchange.poll_at(at.map_or(ticket.deadline, |at| at.min(ticket.deadline)));
                Poll::Pending
            }
            Ok(Attempt::Refuse(refused)) => {
                ticket.place = None;
                Poll::Ready(refused.into())
            }
            Err(fault) => Poll::Ready(Step::Fail(fault)),
        }
    }

    /// Handles an exchange that is not queued yet. It passes at once if the queue is empty and allowance is
    /// available; otherwise it is queued.
    fn arrive(
        &self,
        exchange: &Exchange<'_>,
        request: &Request<'_>,
        charge: &ChargeRequest<'_>,
        ticket: &mut Ticket,
        cx: &Context<'_>,
    ) -> Result<Attempt, Fault> {
        let now = exchange.now;
        if self.queues.is_empty() {
            match self.draw.take(now, charge) {
                Ok(grant) => return Ok(Attempt::Through(grant)),
                Err(refusal) if is_hopeless(&refusal) => {
                    return Ok(Attempt::Refuse(self.hopeless(&refusal, now, charge)));
                }
                Err(_) => {}
            }
        }
        let handicap = match &self.priority {
            Some(priority) => priority.handicap(exchange, request)?,
            None => std::time::Duration::ZERO,
        };
        let deadline = now + self.max_wait;
        let arrival = Arrival { now, handicap, cost: charge.cost, deadline };
        let Some((place, ahead)) = self.queues.join(charge.key(), arrival, self.size, cx.waker()) else {
            // Those that wait may be of other groups, but a spent budget has no room for anybody.
            let turn = self.draw.forecast(now, charge, charge.cost, 0);
            if let Some(refusal) = self.draw.spent_budget(turn, deadline) {
                return Ok(Attempt::Refuse(self.hopeless(&refusal, now, charge)));
            }
            let detail = "the queue for this quota is full: try again after the time in `Retry-After`";
            let waiting = u64::try_from(self.queues.len()).unwrap_or(u64::MAX);
            let all = waiting.saturating_mul(charge.cost);
            let retry_at = self.draw.forecast(now, charge, charge.cost, all).map(|turn| turn.at);
            let refused = Refused::new(ErrorKind::QueueFull, detail);
            return Ok(Attempt::Refuse(Refused { status: self.status, retry_at, ..refused }));
        };
        let turn = self.draw.forecast(now, charge, charge.cost, ahead);
        ticket.place = Some(place);
        ticket.deadline = deadline;
        match turn.filter(|turn| turn.is_after(deadline)) {
            Some(turn) => Ok(Attempt::Refuse(self.too_late(now, charge, ticket, Some(turn)))),
            None => Ok(self.try_pass(now, charge, ticket, cx)),
        }
    }

    /// Handles a queued exchange. It passes if it is first and allowance is available.
    fn try_pass(
        &self,
        now: Timestamp,
        charge: &ChargeRequest<'_>,
        ticket: &Ticket,
        cx: &Context<'_>,
    ) -> Attempt {
        let alone = QueuePosition::First { units: charge.cost };
        let position = ticket.place.as_ref().map_or(alone, |place| place.position(cx.waker()));
        match position {
            QueuePosition::First { units } => self.try_pass_first(now, charge, ticket, units, cx),
            QueuePosition::Behind if now < ticket.deadline => Attempt::Wait(None),
            QueuePosition::Behind => {
                let turn = self.draw.forecast(now, charge, charge.cost, 0);
                Attempt::Refuse(self.too_late(now, charge, ticket, turn))
            }
            QueuePosition::Late(turn) => Attempt::Refuse(self.too_late(now, charge, ticket, Some(turn))),
        }
    }

    /// Handles the first exchange in the queue. It passes if allowance is available. `waiting` is the number
    /// of units that the whole queue needs.
    fn try_pass_first(
        &self,
        now: Timestamp,
        charge: &ChargeRequest<'_>,
        ticket: &Ticket,
        waiting: u64,
        cx: &Context<'_>,
    ) -> Attempt {
        if let Ok(grant) = self.draw.take(now, charge) {
            return Attempt::Through(grant);
        }
        // Register before the next attempt, so no release in between is missed.
        let delays = self.draw.watch(now, charge, waiting, cx.waker());
        let refusal = match self.draw.take(now, charge) {
            Ok(grant) => return Attempt::Through(grant),
            Err(refusal) => refusal,
        };
        if is_hopeless(&refusal) {
            return Attempt::Refuse(self.hopeless(&refusal, now, charge));
        }
        let is_late =
            refusal.why == Why::Exhausted && refusal.retry_at.is_some_and(|at| at > ticket.deadline);
        if is_late || now >= ticket.deadline {
            let turn = self.draw.forecast(now, charge, charge.cost, 0);
            return Attempt::Refuse(self.too_late(now, charge, ticket, turn));
        }
        if let Some(place) = &ticket.place {
            place.review(delays, |cost, ahead| self.draw.forecast(now, charge, cost, ahead));
        }
        Attempt::Wait(refusal.retry_at)
    }

    /// Returns the refusal of an exchange whose turn comes too late. If a budget is spent until then, no
    /// client shall try again.
    fn too_late(
        &self,
        now: Timestamp,
        charge: &ChargeRequest<'_>,
        ticket: &Ticket,
        turn: Option<Forecast>,
    ) -> Refused {
        if let Some(refusal) = self.draw.spent_budget(turn, ticket.deadline) {
            return self.hopeless(&refusal, now, charge);
        }
        let retry_at = turn.map(|turn| turn.at);
        let detail = format!(
            "the quota does not admit this request within {:?} (`max_wait`): try again after the time in \
             `Retry-After`",
            self.max_wait
        );
        let fields = self.draw.fields(now, charge);
        Refused { status: self.status, retry_at, fields, ..Refused::new(ErrorKind::QueueTimeout, detail) }
    }

    fn hopeless(&self, refusal: &Refusal, now: Timestamp, charge: &ChargeRequest<'_>) -> Refused {
        self.draw.refused(ErrorKind::QuotaExceeded, self.status, refusal, now, charge)
    }
}

/// Returns `true` if waiting cannot help.
fn is_hopeless(refusal: &Refusal) -> bool {
    let why = refusal.why;
    matches!(why, Why::ShareBlocked | Why::CostAboveLimit | Why::Unbounded | Why::Unpriced | Why::StoreDown)
}

impl Priority {
    fn compile(config: &PriorityConfig, context: &mut CompileContext<'_>) -> Option<Self> {
        if config.classes.is_empty() || config.classes.len() > CLASSES_MAX {
            context.problem("priority.classes", format!("must have 1 to {CLASSES_MAX} classes"));
        }
        if config.ageing.is_zero() {
            context.problem("priority.ageing", "must be greater than 0: otherwise all classes are equal");
        }
        let by = match config.by.split_once(':') {
            None if config.by == "consumer" => Some(ClassBy::Consumer),
            Some(("header", name)) if egret_http1::is_token(name.as_bytes()) => {
                Some(ClassBy::Header(name.to_owned()))
            }
            Some(("cel", source)) => {
                context.expression("priority.by", source.trim(), false).map(ClassBy::Cel)
            }
            _ => {
                context.problem("priority.by", "expected `consumer`, `header:NAME` or `cel:EXPRESSION`");
                None
            }
        };
        let classes =
            (0..).zip(&config.classes).map(|(class, name)| (name.clone().into_bytes(), class)).collect();
        Some(Self { by: by?, classes, ageing: config.ageing.get() })
    }

    /// Returns the penalty of the exchange's class: the time by which it ranks behind an exchange of the
    /// first class.
    fn handicap(&self, exchange: &Exchange<'_>, request: &Request<'_>) -> Result<std::time::Duration, Fault> {
        let last = u32::try_from(self.classes.len()).unwrap_or(u32::MAX);
        let class = match &self.by {
            ClassBy::Consumer => request.consumer().and_then(|class| self.classes.get(class)),
            ClassBy::Header(name) => {
                request.fields.get(name.as_bytes()).and_then(|class| self.classes.get(class))
            }
            ClassBy::Cel(expression) => self.classes.get(exchange.evaluate(expression)?.as_bytes()),
        };
        Ok(self.ageing * class.copied().unwrap_or(last))
    }
}

#[cfg(test)]
mod allowance;
#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use egret_fixture::{TestExchange, TestFlows, TestStep};
    use egret_usage::{UsageDialect, UsageRecord, UsageSource};

    const GET: &str = "GET https://one.example/";

    /// A quota of one exchange per second.
    fn harness(queue: &Value) -> TestFlows {
        let mut config = json!({
            "quotas": { "q": { "limit": 1, "kind": "fixed", "window": "1s", "starts": "first" } },
            "flows": [{ "name": "f", "remedies": [{ "queue": queue }] }],
        });
        config["flows"][0]["remedies"][0]["queue"]["quota"] = "q".into();
        TestFlows::new(config)
    }

    fn waiting(harness: &TestFlows, queues: &str) -> TestExchange {
        let mut exchange = harness.send(queues);
        assert!(matches!(exchange.poll(harness), TestStep::Wait(_)));
        exchange
    }

    /// Returns the numbers of the exchanges in the order in which they pass.
    fn order(harness: &mut TestFlows, visits: Vec<TestExchange>) -> Vec<usize> {
        let mut visits: Vec<(usize, TestExchange)> = visits.into_iter().enumerate().collect();
        let mut order = Vec::new();
        for _ in 0..100 {
            harness.pass_ms(500);
            visits.retain_mut(|(number, exchange)| {
                let through = exchange.poll(harness) == TestStep::Call;
                if through {
                    order.push(*number);
                }
                !through
            });
        }
        assert!(visits.is_empty());
        order
    }

    #[test]
    fn requests_are_served_in_their_order_of_arrival() {
        let mut harness = harness(&json!({}));
        assert_eq!(harness.exchange(GET, "200"), TestStep::Response(200));
        let visits = (0..5).map(|_| waiting(&harness, GET)).collect();
        assert_eq!(order(&mut harness, visits), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn calls_that_are_given_up_without_a_response_come_back() {
        let mut harness = harness(&json!({}));
        assert_eq!(harness.exchange(GET, "200"), TestStep::Response(200));
        let visits = (0..5).map(|_| waiting(&harness, GET)).collect();
        order(&mut harness, visits);
        harness.pass_ms(2_000);
        // The provider may or may not have counted the last call, so a full window is waited for.
        let mut exchange = waiting(&harness, GET);
        harness.pass_ms(1_000);
        assert_eq!(exchange.poll(&harness), TestStep::Call);
    }

    #[test]
    fn high_classes_go_first() {
        for (by, field) in [("header:x-class", "X-Class"), ("consumer", "X-Egret-Consumer")] {
            let mut harness = harness(&json!({
                "priority": { "by": by, "classes": ["high", "mid"], "ageing": "3s" },
            }));
            assert_eq!(harness.exchange(GET, "200"), TestStep::Response(200));
            let classed = |class: &str| format!("{GET}\n{field}: {class}");
            let mut visits = vec![
                waiting(&harness, &classed("unheard-of")),
                waiting(&harness, &classed("mid")),
                waiting(&harness, &classed("high")),
            ];
            harness.pass_ms(100);
            visits.push(waiting(&harness, &classed("high")));
            assert_eq!(order(&mut harness, visits), [2, 3, 1, 0], "{by}");
        }
    }

    #[test]
    fn low_classes_go_before_those_that_came_when_they_had_aged() {
        let mut harness = harness(
            &json!({ "priority": { "by": "header:x-class", "classes": ["high", "mid"], "ageing": "100ms" } }),
        );
        assert_eq!(harness.exchange(GET, "200"), TestStep::Response(200));
        let classed = |class: &str| format!("{GET}\nX-Class: {class}");
        let low = waiting(&harness, &classed("low"));
        // Longer than the penalty of two classes.
        harness.pass_ms(201);
        let high = waiting(&harness, &classed("high"));
        assert_eq!(order(&mut harness, vec![high, low]), [1, 0]);
    }

    #[test]
    fn a_request_that_cannot_wait_is_refused_immediately() {
        let harness = harness(&json!({ "max_wait": "2s" }));
        assert_eq!(harness.exchange(GET, "200"), TestStep::Response(200));
        let _waiting = [waiting(&harness, GET), waiting(&harness, GET)];
        assert_eq!(
            harness.send(GET).poll(&harness).refusal(&harness),
            (ErrorKind::QueueTimeout, Some(3_000))
        );
    }

    #[test]
    fn a_spent_budget_is_waited_for_only_if_it_renews_in_time() {
        for remedy in
            [json!({ "queue": { "quota": "q" } }), json!({ "limit": { "quota": "q", "on_exceed": "queue" } })]
        {
            let mut harness = TestFlows::new(json!({
                "quotas": { "q": {
                    "limit": 100, "kind": "calendar", "period": "day",
                    "cost": { "request": "60", "usage": "tokens" },
                } },
                "flows": [{ "name": "f", "remedies": [remedy] }],
            }));
            let midnight = Timestamp::from_secs(20_000 * 86_400);
            harness.now = Timestamp::from_micros(midnight.as_micros() - 60_000_000);
            assert_eq!(harness.exchange(GET, "200"), TestStep::Response(200));
            let refused = harness.send(GET).poll(&harness);
            assert_eq!(refused.refusal(&harness), (ErrorKind::BudgetExceeded, None));
            // The default wait is 30 seconds.
            harness.pass_ms(31_000);
            let mut exchange = waiting(&harness, GET);
            harness.pass_ms(29_000);
            assert_eq!(exchange.poll(&harness), TestStep::Call);
        }
    }

    #[test]
    fn units_that_calls_hold_are_waited_for_until_they_are_spent() {
        let harness = TestFlows::new(json!({
            "quotas": { "q": {
                "limit": 100, "kind": "calendar", "period": "month",
                "cost": { "request": "60", "usage": "tokens" },
            } },
            "flows": [
                { "name": "q", "match": { "path": "/queued" }, "remedies": [{ "queue": { "quota": "q" } }] },
                { "name": "l", "match": { "path": "/limited" }, "remedies": [{ "limit": { "quota": "q" } }] },
            ],
        }));
        let queued = "GET https://one.example/queued";
        let end = |exchange: &mut TestExchange, output| {
            exchange.response(&harness, "200");
            let dialect = Some(UsageDialect::Chat);
            exchange.end_with_usage(
                &harness,
                UsageRecord { output, dialect, source: UsageSource::Reported, ..UsageRecord::default() },
            );
        };
        let mut first = harness.send(queued);
        assert_eq!(first.poll(&harness), TestStep::Call);
        let mut others: Vec<_> = (0..3).map(|_| waiting(&harness, queued)).collect();
        let refused = harness.send("GET https://one.example/limited").poll(&harness);
        assert_eq!(refused.refusal(&harness), (ErrorKind::QuotaExceeded, Some(1_000)));
        // Most of the first call's estimate comes back, so there is room for one of those that wait.
        end(&mut first, 10);
        assert_eq!(others[0].poll(&harness), TestStep::Call);
        assert!(matches!(others[1].poll(&harness), TestStep::Wait(_)));
        // Nothing of the second one's does, so the budget has no room before the next month.
        end(&mut others[0], 60);
        for refused in &mut others[1..] {
            assert_eq!(refused.poll(&harness).refusal(&harness), (ErrorKind::BudgetExceeded, None));
        }
    }

    #[test]
    fn a_client_that_leaves_frees_its_place() {
        let mut harness = harness(&json!({ "size": 2 }));
        assert_eq!(harness.exchange(GET, "200"), TestStep::Response(200));
        let (first, mut second) = (waiting(&harness, GET), waiting(&harness, GET));
        assert_eq!(harness.send(GET).poll(&harness).refusal(&harness).0, ErrorKind::QueueFull);
        drop(first);
        let _third = waiting(&harness, GET);
        harness.pass_ms(1_000);
        assert_eq!(second.poll(&harness), TestStep::Call);
    }
}

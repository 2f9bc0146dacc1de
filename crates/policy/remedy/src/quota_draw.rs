//! Draws from a quota for an exchange: finds its groups, computes its cost, and evaluates its response.

use std::borrow::Cow;
use std::sync::Arc;
use std::task::Waker;

use egret_clock::Timestamp;
use egret_match::expression::{EXPRESSION_BODY_BYTES_MAX, Expression};
use egret_match::is_event_stream;
use egret_message::{ErrorKind, FLOW_BODY_BYTES_MAX, FailureKind, Fault, Outcome, Refused, Request};
use egret_prices::{Prices, UnpricedCall};
use egret_quota::{
    Forecast, Grant, LoadSign, OnLeave, Overshoot, Quota, QuotaKind, QuotaUnit, Refusal, UsageCost,
    UsageReport, Why,
};
use egret_usage::UsageSource;
use smallvec::SmallVec;

use crate::exchange::Exchange;
use crate::grouping;
use crate::remedy::{CompileContext, Needs};
use crate::reservation::{LearnedOutput, reservation};

/// A quota that a remedy draws from.
#[derive(Debug, Clone)]
pub(crate) struct Draw {
    quota: Arc<Quota>,
    needs: Needs,
    /// The one who asks for a report of usage.
    report: UsageReport,
    /// `true` if each call costs one unit of the same group.
    is_plain: bool,
    /// `true` if a limit follows the provider's latency.
    is_adaptive: bool,
    /// The prices by which a quota of money is charged before a call.
    pricing: Option<Pricing>,
}

/// The prices by which a quota of money is charged before a call.
#[derive(Debug, Clone)]
struct Pricing {
    prices: Arc<Prices>,
    learned: Arc<LearnedOutput>,
}

/// The charge for one call.
pub(crate) struct ChargeRequest<'a> {
    /// The call's group in the quota and in each ancestor. Empty if all calls have the same.
    names: SmallVec<[Cow<'a, [u8]>; 3]>,
    /// Cost in units.
    pub cost: u64,
    /// The reason why the call must not be made, whatever is left.
    refused: Option<Why>,
}

impl Draw {
    /// Returns a draw from the quota `name`, which is set in `key` of the remedy's config. Adds a problem if
    /// there is no such quota.
    pub fn named(name: &str, key: &str, context: &mut CompileContext<'_>) -> Option<Self> {
        if let Some(quota) = context.quotas.get(name) {
            let is_money = quota.config().unit == QuotaUnit::Usd;
            let pricing = is_money.then(|| Pricing {
                prices: Arc::clone(context.prices),
                learned: context.states.keep(|_| true, LearnedOutput::default),
            });
            let draw = Self::of(Arc::clone(quota));
            let body = if is_money { EXPRESSION_BODY_BYTES_MAX } else { 0 };
            let needs = Needs { request_body: draw.needs.request_body.max(body), ..draw.needs };
            return Some(Self { needs, is_plain: draw.is_plain && !is_money, pricing, ..draw });
        }
        if !context.quotas.is_invalid(name) {
            context.unknown_name(key, name, "quota");
        }
        None
    }

    /// Returns a draw from `quota`.
    pub fn of(quota: Arc<Quota>) -> Self {
        let is_plain = quota.parent().is_none()
            && quota.config().group_by.is_none()
            && quota.expressions().request_cost.is_none();
        let report = report_of(&quota);
        let is_adaptive = quota.is_adaptive();
        Self { needs: needs_of(&quota), report, is_plain, is_adaptive, quota, pricing: None }
    }

    /// Describes the quota: `100 per 1s (quota stripe-live)`.
    pub fn describe(&self) -> String {
        let config = self.quota.config();
        let unit = if config.unit == QuotaUnit::Usd { " USD" } else { "" };
        match config.window {
            None if config.adaptive.is_some() => {
                let min = config.adaptive.unwrap_or_default().min;
                format!("{min} to {} at once, as latency allows (quota {})", config.limit, self.quota.name())
            }
            Some(window) => format!("{}{unit} per {window} (quota {})", config.limit, self.quota.name()),
            None => format!("{}{unit} (quota {})", config.limit, self.quota.name()),
        }
    }

    /// The quota.
    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Name of the quota.
    pub fn quota_name(&self) -> &str {
        self.quota.name()
    }

    /// The parts of messages that the quota's expressions need.
    pub fn needs(&self) -> Needs {
        self.needs
    }

    /// Has the call of `exchange` ask for a report of usage, if Egret is to ask.
    pub fn want_report(&self, exchange: &mut Exchange<'_>) {
        exchange.draft.call.usage.want(self.report);
    }

    /// Returns the charge for any call, if all calls are charged alike. Then the request need not be read.
    pub fn plain_charge<'a>(&self) -> Option<ChargeRequest<'a>> {
        self.is_plain.then(|| ChargeRequest { names: SmallVec::new(), cost: 1, refused: None })
    }

    /// Computes the groups and the cost of `exchange`.
    pub fn charge_request<'a>(
        &self,
        exchange: &'a Exchange<'_>,
        request: &'a Request<'a>,
    ) -> Result<ChargeRequest<'a>, Fault> {
        self.charge_again(exchange, request, &mut None)
    }

    /// Does the same for a call that may be charged several times. The amount of money to hold is computed
    /// once, and `held` from then on.
    pub fn charge_again<'a>(
        &self,
        exchange: &'a Exchange<'_>,
        request: &'a Request<'a>,
        held: &mut Option<Result<u64, Why>>,
    ) -> Result<ChargeRequest<'a>, Fault> {
        let mut names = SmallVec::new();
        for quota in self.quota.lineage() {
            names.push(group(quota, exchange, request)?);
        }
        if let Some(pricing) = &self.pricing {
            let (family, overshoot) = (family_of(exchange), self.overshoot());
            let compute = || reservation(request, &pricing.prices, family, overshoot, &pricing.learned);
            let (cost, refused) =
                held.get_or_insert_with(compute).map_or_else(|why| (0, Some(why)), |cost| (cost, None));
            return Ok(ChargeRequest { names, cost, refused });
        }
        let cost = match &self.quota.expressions().request_cost {
            Some(cost) => exchange.evaluate(cost).map_err(|fault| self.fault_in("cost.request", &fault))?,
            None => 1,
        };
        Ok(ChargeRequest { names, cost, refused: None })
    }

    /// The amount to hold for a call: what the strictest quota that it draws from wants.
    fn overshoot(&self) -> Overshoot {
        let never = self.quota.lineage().any(|quota| quota.config().overshoot == Overshoot::Never);
        if never { Overshoot::Never } else { Overshoot::Bounded }
    }

    /// Tells how much money is held for a call, and by how much the call may exceed that. Empty if the quota
    /// counts anything else.
    pub fn rehearse(&self, exchange: &Exchange<'_>) -> String {
        let Some(pricing) = &self.pricing else { return String::new() };
        let (request, family) = (exchange.request(), family_of(exchange));
        let held = |overshoot| reservation(&request, &pricing.prices, family, overshoot, &pricing.learned);
        match (held(self.overshoot()), held(Overshoot::Never)) {
            (Err(why), _) => Refusal { quota: self.quota.name().into(), why, retry_at: None }.to_string(),
            (Ok(held), Ok(bound)) if held < bound => format!(
                "holds {}, an estimate, until its cost is known; that is at most {}, so each such call under \
                 way can exceed the limit by {}",
                dollars(held),
                dollars(bound),
                dollars(bound - held)
            ),
            (Ok(held), Ok(_)) => {
                format!("holds {} until its cost is known, which is not more", dollars(held))
            }
            (Ok(held), Err(_)) => format!(
                "holds {}, an estimate, until its cost is known; nothing bounds that, so calls under way can \
                 exceed the limit by any amount",
                dollars(held)
            ),
        }
    }

    /// Returns `true` if the quota counts money.
    pub fn is_money(&self) -> bool {
        self.pricing.is_some()
    }

    /// Takes the units of `charge`, or none.
    pub fn take(&self, now: Timestamp, charge: &ChargeRequest<'_>) -> Result<Grant, Refusal> {
        self.refused_before(charge)?;
        self.quota.take(now, &charge.names(), charge.cost)
    }

    /// Estimates when `cost` units are available in the groups of `charge`, if `ahead` units are taken before
    /// them; `None` if there is no estimate.
    pub fn forecast(
        &self,
        now: Timestamp,
        charge: &ChargeRequest<'_>,
        cost: u64,
        ahead: u64,
    ) -> Option<Forecast> {
        self.quota.forecast(now, &charge.names(), cost, ahead)
    }

    /// Returns the refusal of a call that would have to wait beyond `deadline` for the next window of a
    /// budget; `None` if its turn comes earlier, or another kind of quota delays it.
    pub fn spent_budget(&self, turn: Option<Forecast>, deadline: Timestamp) -> Option<Refusal> {
        let turn = turn.filter(|turn| turn.is_after(deadline))?;
        let quota = self.quota.lineage().nth(turn.level.into()).filter(|quota| self.is_budget(quota))?;
        Some(Refusal { quota: quota.name().into(), why: Why::Exhausted, retry_at: Some(turn.at) })
    }

    /// Wakes `waker` when units become free for a reason other than time. Returns a number that changes when
    /// they turn out to come back later than [`forecast`](Self::forecast) has estimated. `waiting` is the
    /// number of units that all waiting calls need.
    pub fn watch(&self, now: Timestamp, charge: &ChargeRequest<'_>, waiting: u64, waker: &Waker) -> u64 {
        self.quota.watch(now, &charge.names(), waiting, waker)
    }

    /// Takes the units of `charge`, or none. Wakes `waker` when units arrive that a store is asked for.
    pub fn take_or_watch(
        &self,
        now: Timestamp,
        charge: &ChargeRequest<'_>,
        waker: &Waker,
    ) -> Result<Grant, Refusal> {
        self.refused_before(charge)?;
        self.quota.take_or_watch(now, &charge.names(), charge.cost, Some(waker))
    }

    /// Returns the refusal of a call that must not be made, whatever is left.
    fn refused_before(&self, charge: &ChargeRequest<'_>) -> Result<(), Refusal> {
        let refusal = |why| Refusal { quota: self.quota.name().into(), why, retry_at: None };
        charge.refused.map_or(Ok(()), |why| Err(refusal(why)))
    }

    /// Handles the response or the failure of the call that `grant` was taken for.
    pub fn responded(&self, grant: &mut Option<Grant>, exchange: &Exchange<'_>) -> Result<(), Fault> {
        self.adapt(grant.as_ref(), exchange);
        let counted = self.count_response(grant, exchange);
        self.raise_alerts(grant.as_ref(), exchange);
        counted
    }

    /// Lets adaptive limits learn from the response or the failure of the call that `grant` was taken for.
    pub fn adapt(&self, grant: Option<&Grant>, exchange: &Exchange<'_>) {
        if self.is_adaptive
            && let (Some(grant), Some(sign)) = (grant, load_sign(exchange))
        {
            grant.ended(exchange.now, sign);
        }
    }

    fn raise_alerts(&self, grant: Option<&Grant>, exchange: &Exchange<'_>) {
        if let Some(grant) = grant {
            self.quota.raise_alerts(exchange.now, grant);
        }
    }

    fn count_response(&self, grant: &mut Option<Grant>, exchange: &Exchange<'_>) -> Result<(), Fault> {
        match &exchange.outcome {
            Outcome::Failure(failure) if !failure.sent => {
                if let Some(grant) = grant.take() {
                    grant.cancel(exchange.now);
                }
            }
            // An inner remedy has responded before any call was made.
            Outcome::Response(_) if exchange.local_kind.is_some() && exchange.draft.calls == 0 => {
                if let Some(grant) = grant.take() {
                    grant.cancel(exchange.now);
                }
            }
            Outcome::None | Outcome::Failure(_) => {}
            Outcome::Response(_) => {
                let (Some(grant), Some(response)) = (grant, exchange.response()) else { return Ok(()) };
                if self.is_by_usage() {
                    // A stream may take longer than a window: its units come back after its end.
                    if exchange.local_kind.is_none() && is_refusal(response.status) {
                        grant.settle(exchange.now, 0);
                    }
                } else {
                    grant.responded(exchange.now);
                }
                let readers = || Some(&exchange.conventions()?.readers);
                grant.learn(exchange.now, &self.quota, response.status, &response.fields.iter(), readers);
                if !self.settles_at_end() {
                    return self.settle(grant, exchange);
                }
            }
        }
        Ok(())
    }

    /// Handles the end of the response.
    pub fn end(&self, grant: &mut Option<Grant>, exchange: &Exchange<'_>) -> Result<(), Fault> {
        match grant {
            Some(grant) if self.settles_at_end() && exchange.response().is_some() => {
                let settled = self.settle(grant, exchange);
                self.raise_alerts(Some(grant), exchange);
                settled?;
                if exchange.shows_hidden_usage() {
                    let why = "the response is coded, so the client has got the chunk with its usage";
                    return Err(self.fault_in("cost.report", &Fault(why.into())));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Returns `true` if the cost is known only at the end of the response.
    fn settles_at_end(&self) -> bool {
        self.needs.response_tail > 0 || self.needs.usage
    }

    fn is_by_usage(&self) -> bool {
        self.quota.config().cost.usage.is_some()
    }

    /// Settles a call by the tokens that its response has reported.
    fn settle_by_usage(
        &self,
        cost: UsageCost,
        grant: &mut Grant,
        exchange: &Exchange<'_>,
    ) -> Result<(), Fault> {
        let usage = exchange.usage;
        if let (Some(pricing), Some(usage)) = (&self.pricing, usage.filter(|usage| usage.dialect.is_some())) {
            pricing.learned.learn(usage.output);
        }
        match usage.and_then(|usage| usage.units(cost.kind())) {
            Some(units) if usage.is_some_and(|usage| usage.source == UsageSource::Reported) => {
                grant.settle(exchange.now, units);
            }
            // More may have been used than was reported before the response broke off.
            Some(units) => grant.settle_at_least(exchange.now, units),
            None => {
                grant.responded(exchange.now);
                let is_refused = exchange.response().is_some_and(|response| is_refusal(response.status));
                if !is_refused {
                    return Err(self.unknown_usage(exchange));
                }
            }
        }
        Ok(())
    }

    /// Explains why a response does not show its usage.
    fn unknown_usage(&self, exchange: &Exchange<'_>) -> Fault {
        let has_tokens = exchange.usage.is_some_and(|usage| usage.dialect.is_some());
        let advice = match self.unpriced(exchange) {
            Some(unpriced) if has_tokens => unpriced.to_string(),
            _ if exchange.is_cut => "the response broke off before it reported its usage".to_owned(),
            _ => format!("the response reports no tokens; {}", exchange.draft.call.usage.advice()),
        };
        self.fault_in("cost.usage", &Fault(format!("{advice}; the call costs its initial charge").into()))
    }

    /// Returns the reason why the call has no price.
    fn unpriced(&self, exchange: &Exchange<'_>) -> Option<UnpricedCall> {
        let (pricing, usage) = (self.pricing.as_ref()?, exchange.usage?);
        pricing.prices.cost(usage, family_of(exchange)).err()
    }

    fn settle(&self, grant: &mut Grant, exchange: &Exchange<'_>) -> Result<(), Fault> {
        if let Some(cost) = self.quota.config().cost.usage {
            return self.settle_by_usage(cost, grant, exchange);
        }
        let Some(cost) = &self.quota.expressions().response_cost else { return Ok(()) };
        match exchange.evaluate(cost) {
            // More may have been used than was reported before the response broke off.
            Ok(cost) if exchange.is_cut => grant.settle_at_least(exchange.now, cost),
            Ok(cost) => grant.settle(exchange.now, cost),
            Err(fault) => return Err(self.unknown_cost(&fault, exchange)),
        }
        Ok(())
    }

    /// Explains why the response does not show its cost, if it is a stream of events.
    fn unknown_cost(&self, fault: &Fault, exchange: &Exchange<'_>) -> Fault {
        let is_stream = exchange.response().is_some_and(|response| is_event_stream(response.fields));
        let advice = match (is_stream, exchange.is_cut) {
            (false, _) => return self.fault_in("cost.response", fault),
            (true, false) => format!(
                "no event of the stream reports it, so the call costs its initial charge; {}",
                exchange.draft.call.usage.advice()
            ),
            (true, true) => {
                "the stream broke off before it reported its usage, so the call costs its initial charge"
                    .to_owned()
            }
        };
        self.fault_in("cost.response", &Fault(format!("{}; {advice}", fault.0).into()))
    }

    /// Returns `true` if `quota`, of the lineage, is a budget: an amount of money or tokens for a day or a
    /// month. One that learns is none, because its provider may have room at any time.
    fn is_budget(&self, quota: &Quota) -> bool {
        let config = quota.config();
        self.is_by_usage() && config.kind == QuotaKind::Calendar && config.learn.is_none()
    }

    /// Returns `true` if a client does not gain by waiting: a budget is spent, or money refuses the call
    /// whatever is left.
    fn is_beyond_budget(&self, refusal: &Refusal) -> bool {
        let of_budget = || {
            let refusing = self.quota.lineage().find(|quota| *quota.name() == *refusal.quota);
            refusing.is_some_and(|quota| self.is_budget(quota))
        };
        match refusal.why {
            Why::Exhausted => of_budget(),
            Why::CostAboveLimit => self.is_money() || of_budget(),
            Why::Unbounded | Why::Unpriced => true,
            Why::Fetching | Why::Held | Why::StoreDown | Why::ShareBlocked => false,
        }
    }

    /// Adds the location in the config to a fault.
    fn fault_in(&self, key: &str, fault: &Fault) -> Fault {
        Fault(format!("`{key}` of the quota `{}`: {}", self.quota.name(), fault.0).into())
    }

    /// Returns the header fields with the quota's status (`RateLimit` of
    /// draft-ietf-httpapi-ratelimit-headers).
    pub fn fields(&self, now: Timestamp, charge: &ChargeRequest<'_>) -> Vec<(Cow<'static, str>, Vec<u8>)> {
        // Nano-dollars would tell clients little, and the budget of others much.
        if self.pricing.is_some() {
            return Vec::new();
        }
        let Some(status) = self.quota.status(now, &charge.names()) else { return Vec::new() };
        // Rounded up, so no client comes back too early.
        let reset_s = status.reset.since(now).as_millis().div_ceil(1_000);
        let name = &status.quota;
        let window =
            status.window.map_or_else(String::new, |window| format!(";w={}", window.as_secs().max(1)));
        vec![
            ("RateLimit-Policy".into(), format!("\"{name}\";q={}{window}", status.limit).into_bytes()),
            ("RateLimit".into(), format!("\"{name}\";r={};t={reset_s}", status.remaining).into_bytes()),
        ]
    }

    /// Returns the rejection of a call for `reason`, with `status` if the config overrides that of the error.
    /// A store that does not respond is another error: nobody knows that the quota is used up.
    pub fn refused(
        &self,
        reason: ErrorKind,
        status: Option<u16>,
        refusal: &Refusal,
        now: Timestamp,
        charge: &ChargeRequest<'_>,
    ) -> Refused {
        let retry_at = refusal.retry_at;
        if refusal.why == Why::StoreDown {
            let detail = format!("{refusal}, so Egret cannot count this call (`on_store_error`)");
            return Refused { retry_at, ..Refused::new(ErrorKind::StoreUnavailable, detail) };
        }
        if self.is_beyond_budget(refusal) {
            let mut fields = self.fields(now, charge);
            fields.push(("x-should-retry".into(), b"false".to_vec()));
            return Refused {
                status,
                fields,
                ..Refused::new(ErrorKind::BudgetExceeded, refusal.to_string())
            };
        }
        let detail = match refusal.why {
            Why::Exhausted | Why::Fetching | Why::Held | Why::StoreDown => {
                format!("{refusal}; retry after the time in `Retry-After`")
            }
            Why::ShareBlocked | Why::CostAboveLimit | Why::Unbounded | Why::Unpriced => refusal.to_string(),
        };
        Refused { status, retry_at, fields: self.fields(now, charge), ..Refused::new(reason, detail) }
    }
}

impl ChargeRequest<'_> {
    fn names(&self) -> SmallVec<[&[u8]; 3]> {
        self.names.iter().map(AsRef::as_ref).collect()
    }

    /// Returns one key for all groups together.
    pub fn key(&self) -> Box<[u8]> {
        let mut key = Vec::new();
        for name in &self.names {
            key.extend_from_slice(&name.len().to_le_bytes());
            key.extend_from_slice(name);
        }
        key.into()
    }
}

/// Returns `true` if a provider that answers with this status has not worked for the call: the request was
/// refused, or the provider was too busy for it.
fn is_refusal(status: u16) -> bool {
    matches!(status, 400..=499 | 503 | 529)
}

/// Returns what the end of a call shows of the provider's load. Errors that a provider finds at once show
/// nothing.
fn load_sign(exchange: &Exchange<'_>) -> Option<LoadSign> {
    match &exchange.outcome {
        Outcome::Failure(failure) => (failure.kind == FailureKind::Timeout).then_some(LoadSign::Refused),
        Outcome::Response(_) if exchange.local_kind.is_none() => match exchange.response()?.status {
            ..400 => Some(LoadSign::Served),
            429 | 503 | 504 | 529 => Some(LoadSign::Refused),
            _ => None,
        },
        Outcome::None | Outcome::Response(_) => None,
    }
}

/// Returns the parts of messages that the expressions of `quota` and of its ancestors need.
fn needs_of(quota: &Quota) -> Needs {
    let expressions = || quota.lineage().map(Quota::expressions);
    let request = expressions().any(|all| {
        all.group.as_ref().is_some_and(Expression::needs_request_body)
            || all.request_cost.as_ref().is_some_and(Expression::needs_request_body)
    });
    let response =
        expressions().filter_map(|all| all.response_cost.as_ref()).any(Expression::needs_response_body);
    let asks = report_of(quota) != UsageReport::Client;
    let usage = asks
        || quota.config().cost.usage.is_some()
        || expressions().filter_map(|all| all.response_cost.as_ref()).any(Expression::needs_usage);
    Needs {
        request_json: if asks { usize::try_from(FLOW_BODY_BYTES_MAX).unwrap_or(usize::MAX) } else { 0 },
        request_body: if request { EXPRESSION_BODY_BYTES_MAX } else { 0 },
        response_tail: if response { EXPRESSION_BODY_BYTES_MAX } else { 0 },
        usage,
        whole_response: quota.lineage().any(|quota| quota.config().cost.on_leave == OnLeave::Drain),
        permit: quota.needs_permit(),
        ..Needs::default()
    }
}

/// The one who asks for a report of usage, by the strictest wish of `quota` and its ancestors.
fn report_of(quota: &Quota) -> UsageReport {
    quota.lineage().map(|quota| quota.config().cost.report).max().unwrap_or_default()
}

/// Returns the group of an exchange in one quota; empty if it has none.
fn group<'a>(
    quota: &Quota,
    exchange: &'a Exchange<'_>,
    request: &'a Request<'a>,
) -> Result<Cow<'a, [u8]>, Fault> {
    match &quota.config().group_by {
        None => Ok(Cow::Borrowed(b"")),
        Some(by) => grouping::group(by, quota.expressions().group.as_ref(), exchange, request),
    }
}

/// Writes nano-dollars as dollars, in millionths and rounded up.
fn dollars(nanodollars: u64) -> String {
    let micros = nanodollars.div_ceil(1_000);
    format!("${}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

/// The word for the called provider in the source of prices.
fn family_of(exchange: &Exchange<'_>) -> Option<&'static str> {
    exchange.conventions().and_then(|conventions| conventions.preset.family())
}

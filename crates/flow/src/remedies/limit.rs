//! `limit`: refuses what is above a quota, or lets it wait.

use std::task::{Context, Poll};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::answer::{Reason, Refused};
use crate::draw::Draw;
use crate::exchange::Exchange;
use crate::quota::{Grant, Why};
use crate::remedies::queue::{Queue, QueueConfig, Ticket};
use crate::remedy::{Fault, Needs, Reaction, Remedy, Site, Step};

/// What is above a quota is refused, or waits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LimitConfig {
    /// The quota that is drawn from, a name under `quotas`.
    pub quota: String,
    /// What becomes of exchanges above it.
    pub on_exceed: OnExceed,
    /// The status of a refusal, 400 to 599; 429 where nothing is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Whether responses tell the client how the quota stands, in `RateLimit` and `RateLimit-Policy`. Refusals always do.
    pub headers: bool,
}

/// What becomes of exchanges above a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnExceed {
    /// They are refused, with the time at which there is allowance again.
    #[default]
    Reject,
    /// They wait as in a `queue` without further settings; one that has settings is a remedy of its own.
    Queue,
}

/// Refuses what is above a quota, or lets it wait.
#[derive(Debug)]
pub struct Limit {
    draw: Draw,
    queue: Option<Queue>,
    status: Option<u16>,
    headers: bool,
}

/// What is held of one exchange.
#[derive(Debug, Default)]
pub struct Held {
    grant: Option<Grant>,
    ticket: Ticket,
}

impl Remedy for Limit {
    type Config = LimitConfig;
    type Held = Held;

    fn compile(config: &LimitConfig, site: &mut Site<'_>) -> Option<Self> {
        site.check_refusal_status(config.status);
        let draw = Draw::named(&config.quota, "quota", site)?;
        let queue = match config.on_exceed {
            OnExceed::Reject => None,
            OnExceed::Queue => Some(Queue::compile(
                &QueueConfig { quota: config.quota.clone(), ..QueueConfig::default() },
                site,
            )?),
        };
        Some(Self { draw, queue, status: config.status, headers: config.headers })
    }

    fn describe(&self) -> String {
        let above = if self.queue.is_some() { "what is above waits" } else { "what is above is refused" };
        format!("at most {}; {above}", self.draw.describe())
    }

    fn needs(&self) -> Needs {
        self.draw.needs()
    }

    fn request(&self, exchange: &mut Exchange<'_>, held: &mut Held, cx: &mut Context<'_>) -> Poll<Step> {
        match &self.queue {
            Some(queue) => queue.wait(exchange, &mut held.ticket, &mut held.grant, cx),
            None => self.take(exchange, held, cx),
        }
    }

    fn response(&self, exchange: &mut Exchange<'_>, held: &mut Held) -> Reaction {
        if let Err(fault) = self.draw.answered(&mut held.grant, exchange) {
            return Reaction::Fail(fault);
        }
        if self.headers
            && let Err(fault) = self.tell(exchange)
        {
            return Reaction::Fail(fault);
        }
        Reaction::Pass
    }

    fn end(&self, exchange: &mut Exchange<'_>, held: &mut Held) -> Result<(), Fault> {
        self.draw.end(&mut held.grant, exchange)
    }
}

impl Limit {
    fn take(&self, exchange: &mut Exchange<'_>, held: &mut Held, cx: &Context<'_>) -> Poll<Step> {
        let now = exchange.now;
        let (refused, retry_at) = {
            let request = exchange.request();
            let claim = match self.draw.claim(exchange, &request) {
                Ok(claim) => claim,
                Err(fault) => return Poll::Ready(Step::Fail(fault)),
            };
            self.draw.watch_if_stored(now, &claim, cx.waker());
            match self.draw.take(now, &claim) {
                Ok(grant) => {
                    held.grant = Some(grant);
                    return Poll::Ready(Step::Next);
                }
                Err(refusal) if refusal.why == Why::Fetching => (None, refusal.retry_at),
                Err(refusal) => {
                    let refused = self.draw.refused(Reason::QuotaExceeded, &refusal, now, &claim);
                    (Some(Refused { status: self.status, ..refused }), None)
                }
            }
        };
        match (refused, retry_at) {
            (Some(refused), _) => Poll::Ready(refused.into()),
            (None, Some(at)) => {
                exchange.wake_at(at);
                Poll::Pending
            }
            (None, None) => Poll::Pending,
        }
    }

    /// Tells the client how the quota stands.
    fn tell(&self, exchange: &mut Exchange<'_>) -> Result<(), Fault> {
        let fields = {
            let request = exchange.request();
            let claim = self.draw.claim(exchange, &request)?;
            self.draw.fields(exchange.now, &claim)
        };
        for (name, value) in fields {
            exchange.draft.response.set(name.as_bytes(), &value);
        }
        Ok(())
    }
}

//! The common part of providers that speak either version of HTTP: the check of a request, and the choice of
//! its response.

use std::time::Duration;

use egret_clock::Moment;

use crate::ledger::{CallKey, Ledger};
use crate::message::body;
use crate::scenario::{Dice, PROVIDERS, RequestPlan, Trouble};

/// Longest time for which a provider stalls, in milliseconds: longer than any time limit.
pub const STALL_MS: u64 = 20_000;

/// A request, as its head has it.
#[derive(Debug)]
pub struct Asked<'a> {
    /// The number that its client has given it.
    pub id: Option<u64>,
    /// Its method.
    pub method: &'a str,
    /// Its path.
    pub path: &'a str,
    /// The host that it is for.
    pub host: Option<&'a str>,
}

impl Asked<'_> {
    /// Notes that it has reached provider `number`, and compares it with the one that was sent.
    ///
    /// # Errors
    ///
    /// Fails if nobody has sent it, or not so.
    pub fn arrive(
        &self,
        number: usize,
        key: CallKey,
        now: Moment,
        ledger: &mut Ledger,
    ) -> Result<RequestPlan, String> {
        let id = self.id.ok_or("a request without its number")?;
        let Some(plan) = ledger.arrive(id, number, key, now) else {
            return Err(format!("the unknown request {id}"));
        };
        let host = format!("{}.example", PROVIDERS[number]);
        if (self.method, self.path, self.host) != (plan.method, plan.path().as_str(), Some(host.as_str())) {
            return Err(format!("request {id} arrived as {self:?}, and was {} {}", plan.method, plan.path()));
        }
        Ok(plan)
    }
}

/// The time before a response.
#[derive(Debug, Clone, Copy)]
pub struct Delay {
    /// It waits for all of the request.
    pub awaits_body: bool,
    /// It waits for this time.
    pub pause: Option<Duration>,
}

impl Delay {
    /// Chooses one.
    pub fn draw(dice: &mut Dice, trouble: Trouble) -> Self {
        let awaits_body = !dice.percent(trouble.early);
        let pause = dice.percent(50).then(|| dice.pause(400));
        Self { awaits_body, pause }
    }
}

/// A response.
#[derive(Debug, Clone, Copy)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Length of its body.
    pub len: usize,
    /// The number of its body.
    pub number: u64,
}

impl Answer {
    /// Chooses one.
    pub fn draw(dice: &mut Dice, trouble: Trouble) -> Self {
        let status = if dice.percent(trouble.status) { dice.pick(&[500, 503, 429, 404]) } else { 200 };
        Self { status, len: dice.length(), number: dice.seed() >> 8 }
    }

    /// The fields by which a client knows what it gets.
    pub fn fields(&self, plan: &RequestPlan) -> Vec<(&'static str, u64)> {
        let mut fields = vec![("x-answers", plan.id), ("x-body", self.number)];
        fields.extend(plan.shared.map(|resource| ("x-resource", resource)));
        fields
    }

    /// The body.
    pub fn content(&self, plan: &RequestPlan) -> Vec<u8> {
        if plan.method == "HEAD" { Vec::new() } else { body(self.number, self.len) }
    }
}

//! A response as a client reads it, with the checks that hold in each version of HTTP.

use std::collections::VecDeque;

use crate::ledger::{Ledger, Outcome};
use crate::message::{BodyReader, Framing, Head, byte_at};
use crate::scenario::RequestPlan;

/// A response under way.
#[derive(Debug)]
pub struct Reading {
    status: u16,
    is_generated: bool,
    /// The number of its body, unless the gateway has made it.
    body: Option<u64>,
    /// The connection ends with it.
    pub closes: bool,
    /// It has a body.
    pub has_body: bool,
    /// Reads the body.
    pub reader: BodyReader,
}

impl Reading {
    /// Begins to read a response to a request. `None` if it is an informational one.
    pub fn begin(
        head: &Head,
        plan: &RequestPlan,
        is_head: bool,
        ledger: &Ledger,
    ) -> Result<Option<Self>, String> {
        let status = head.status().ok_or_else(|| format!("the line {:?}", head.start))?;
        if status < 200 {
            return Ok(None);
        }
        let is_generated = head.field("x-egret-generated").is_some();
        let number = head.number("x-body");
        if !is_generated {
            let answers = head.number("x-answers");
            let is_own = answers == Some(plan.id);
            let is_shared = ledger.may_share(plan) && head.number("x-resource") == plan.shared;
            if !is_own && !is_shared {
                return Err(format!("request {} got the response to {answers:?}", plan.id));
            }
            if number.and_then(|number| ledger.sent(number)).is_none() {
                return Err(format!("request {} got a body that no provider has sent", plan.id));
            }
        }
        let has_body = !is_head && status != 204 && status != 304;
        let framing = if has_body { head.framing(true)? } else { Framing::Length(0) };
        let reader = BodyReader::new(framing);
        let body = number.filter(|_| !is_generated);
        Ok(Some(Self { status, is_generated, body, closes: head.closes(), has_body, reader }))
    }

    /// Takes what belongs to the body from `bytes`, and compares it with what was sent.
    pub fn take(&mut self, bytes: &mut VecDeque<u8>) -> Result<(), String> {
        let number = self.body;
        self.reader.take(bytes, |place, byte| match number {
            Some(number) if byte_at(number, place) != byte => {
                Err(format!("byte {place} of body {number} differs"))
            }
            _ => Ok(()),
        })
    }

    /// Checks the length of a body that has ended.
    pub fn check_len(&self, ledger: &Ledger) -> Result<(), String> {
        if self.has_body
            && let Some(number) = self.body
            && let Some(sent) = ledger.sent(number)
        {
            let is_short = sent.may_be_short && self.reader.len < sent.len;
            if sent.len != self.reader.len && !is_short {
                return Err(format!("body {number} has {} bytes, of {}", self.reader.len, sent.len));
            }
            if sent.is_cut {
                return Err(format!("body {number} was cut, and is taken for whole"));
            }
        }
        Ok(())
    }

    /// The end of the request, once the response is whole.
    pub fn outcome(&self) -> Outcome {
        if self.is_generated { Outcome::Refused(self.status) } else { Outcome::Answered(self.status) }
    }
}

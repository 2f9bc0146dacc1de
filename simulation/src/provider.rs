//! A provider's end of a connection: it reads requests, checks them, and responds well or badly.

mod script;

use std::collections::VecDeque;
use std::time::Duration;

use egret_clock::Moment;
use egret_kernel::outside;
use script::script;

use crate::answer::Asked;
use crate::ledger::{CallKey, Ledger};
use crate::link::{Link, LinkState};
use crate::message::{BodyReader, Head, byte_at};
use crate::scenario::{Dice, FIRST_BYTE_S, RequestPlan, Trouble};

/// Time beyond a limit after which it was not kept: the gateway's timers are coarse, and sockets are slow.
const SLACK: Duration = Duration::from_secs(3);

/// A thing that it does next.
#[derive(Debug)]
enum Step {
    /// Wait until all of the request has arrived.
    AwaitBody,
    Pause(Duration),
    Write(VecDeque<u8>),
    /// The response is complete.
    Done,
    /// The connection ends, over TLS with a word about it or without.
    Close(bool),
    Reset,
}

impl Step {
    /// A part of the response that was not sent.
    fn is_unsent(&self) -> bool {
        matches!(self, Self::Write(bytes) if !bytes.is_empty())
    }

    fn describe(&self) -> String {
        match self {
            Self::Write(bytes) => format!("Write({})", bytes.len()),
            other => format!("{other:?}"),
        }
    }
}

/// The request in hand.
#[derive(Debug)]
struct Call {
    plan: RequestPlan,
    reader: BodyReader,
    /// The time at which all of it had arrived.
    whole_at: Option<Moment>,
    /// Some of the response was sent.
    is_begun: bool,
    /// The number of the response's body, if only the end of the connection ends it.
    unframed: Option<u64>,
}

/// A provider's end of a connection.
pub struct Provider {
    /// The connection.
    link: Link,
    number: usize,
    input: VecDeque<u8>,
    call: Option<Call>,
    steps: VecDeque<Step>,
    /// Time up to which it does nothing.
    paused_until: Moment,
    /// Time at which it closes an idle connection.
    closes_at: Moment,
    /// Longest piece that it sends and reads.
    piece: u64,
    /// It is gone.
    pub is_done: bool,
}

impl Provider {
    /// Begins a connection to provider `number`.
    pub fn new(number: usize, link: Link, dice: &mut Dice) -> Self {
        Self {
            link,
            number,
            input: VecDeque::new(),
            call: None,
            steps: VecDeque::new(),
            paused_until: Moment::from_nanos(0),
            closes_at: Moment::NEVER,
            piece: dice.room() as u64,
            is_done: false,
        }
    }

    /// Goes on. Returns the time at which it wants to go on by itself.
    pub fn act(
        &mut self,
        now: Moment,
        dice: &mut Dice,
        trouble: Trouble,
        ledger: &mut Ledger,
    ) -> Option<Moment> {
        if self.is_done {
            return None;
        }
        if self.call.is_none() && self.input.is_empty() && now >= self.closes_at {
            self.finish(true, ledger);
            return None;
        }
        // Behind a whole request, nothing may come in a pause.
        let is_whole = self.call.as_ref().is_some_and(|call| call.reader.is_complete());
        if now < self.paused_until && !(is_whole && self.link.unread() > 0) {
            return Some(self.paused_until);
        }
        if let Err(error) = self.read(now, dice, trouble, ledger) {
            ledger.accuse(format!("a provider got what is no request: {error}"));
            self.finish(false, ledger);
        }
        if self.is_done {
            return None;
        }
        self.check_wait(now, ledger);
        let again = if now < self.paused_until {
            Some(self.paused_until)
        } else {
            self.go_on(now, dice, trouble, ledger)
        };
        if self.is_done {
            return None;
        }
        // The next request may have arrived while the last response was on its way.
        let has_unread = self.link.unread() > 0 || (self.call.is_none() && !self.input.is_empty());
        let closes = (self.closes_at != Moment::NEVER).then_some(self.closes_at);
        [again, has_unread.then_some(now), closes, self.link.due()].into_iter().flatten().min()
    }

    /// Its state in a line.
    pub fn describe(&self) -> String {
        let call = self.call.as_ref().map(|call| (call.plan.id, call.reader.len));
        let steps: Vec<String> = self.steps.iter().map(Step::describe).collect();
        let end = self.link.end;
        format!("{end:?} of {}, call {call:?}, then {steps:?}, done {}", self.number, self.is_done)
    }

    /// Checks that the gateway does not wait longer for a response than it may.
    fn check_wait(&mut self, now: Moment, ledger: &mut Ledger) {
        let Some(call) = &mut self.call else { return };
        if !call.reader.is_complete() || call.is_begun || outside::is_left(self.link.end) {
            return;
        }
        let since = *call.whole_at.get_or_insert(now);
        if now >= since + Duration::from_secs(FIRST_BYTE_S) + SLACK {
            ledger.accuse(format!("request {} waits longer than {FIRST_BYTE_S} s", call.plan.id));
        }
    }

    fn key(&self) -> CallKey {
        CallKey::of(self.link.end)
    }

    /// Closes the connection, and says so before if it `notifies` and uses TLS. Otherwise a response that
    /// only ends with its connection has no end.
    fn finish(&mut self, notifies: bool, ledger: &mut Ledger) {
        ledger.end_call(self.key());
        let is_told = self.link.close(notifies);
        if let Some(body) = self.call.as_ref().and_then(|call| call.unframed) {
            ledger.end_unframed(body, is_told);
        }
        self.is_done = true;
    }

    fn read(
        &mut self,
        now: Moment,
        dice: &mut Dice,
        trouble: Trouble,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let most = self.piece.max(2_000) * 4;
        let (bytes, state) = self.link.read(usize::try_from(most).unwrap_or(usize::MAX));
        self.input.extend(bytes);
        if let Some(violation) = self.link.violation.take() {
            ledger.accuse(violation);
        }
        if self.call.is_none()
            && let Some(head) = Head::take(&mut self.input)?
        {
            self.closes_at = Moment::NEVER;
            self.begin(&head, now, dice, trouble, ledger)?;
        }
        if let Some(call) = &mut self.call {
            let id = call.plan.id;
            call.reader.take(&mut self.input, |place, byte| {
                if byte_at(id, place) == byte {
                    Ok(())
                } else {
                    Err(format!("byte {place} of request {id} differs"))
                }
            })?;
            if call.reader.is_complete() && call.reader.len != call.plan.body_len as u64 {
                let (len, whole) = (call.reader.len, call.plan.body_len);
                return Err(format!("the body of request {id} has {len} bytes, of {whole}"));
            }
            // A gateway does not send the next request before it has received all of a response.
            if call.reader.is_complete() && !self.input.is_empty() && self.steps.iter().any(Step::is_unsent) {
                return Err(format!("a request behind {id}, the response to which has not ended"));
            }
        }
        if state != LinkState::Open {
            self.finish(false, ledger);
        }
        Ok(())
    }

    /// Begins a request, and decides what becomes of it.
    fn begin(
        &mut self,
        head: &Head,
        now: Moment,
        dice: &mut Dice,
        trouble: Trouble,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let line = head.start.strip_suffix(" HTTP/1.1").and_then(|line| line.split_once(' '));
        let (method, path) = line.ok_or_else(|| format!("the line {:?}", head.start))?;
        let asked = Asked { id: head.number("x-id"), method, path, host: head.field("host") };
        let plan = asked.arrive(self.number, self.key(), now, ledger)?;
        ledger.check_certificate(self.link.has_expired());
        let reader = BodyReader::new(head.framing(false)?);
        let script = script(&plan, self.link.is_secured(), dice, trouble, ledger);
        self.steps = script.steps;
        self.call = Some(Call { plan, reader, whole_at: None, is_begun: false, unframed: script.unframed });
        Ok(())
    }

    fn go_on(
        &mut self,
        now: Moment,
        dice: &mut Dice,
        trouble: Trouble,
        ledger: &mut Ledger,
    ) -> Option<Moment> {
        loop {
            match self.steps.front_mut()? {
                Step::AwaitBody => {
                    if !self.call.as_ref().is_some_and(|call| call.reader.is_complete()) {
                        return None;
                    }
                }
                Step::Pause(time) => {
                    self.paused_until = now + *time;
                    self.steps.pop_front();
                    return Some(self.paused_until);
                }
                Step::Write(bytes) if bytes.is_empty() => {
                    if !self.link.flush() {
                        return None;
                    }
                }
                Step::Write(bytes) => {
                    let most = usize::try_from(dice.between(1, self.piece)).unwrap_or(1);
                    let piece: Vec<u8> = bytes.iter().copied().take(most).collect();
                    match self.link.write(&piece) {
                        None => self.steps = VecDeque::from([Step::Close(false)]),
                        Some(sent) => {
                            bytes.drain(..sent);
                            if let Some(call) = &mut self.call {
                                call.is_begun |= sent > 0;
                            }
                            let pause_ms = if bytes.len() as u64 > 20 * self.piece { 0 } else { 5 };
                            // The gateway may have all of it before the next step.
                            if !self.steps.iter().any(Step::is_unsent) {
                                ledger.end_call(self.key());
                            }
                            return (sent == piece.len()).then(|| now + dice.pause(pause_ms));
                        }
                    }
                    continue;
                }
                Step::Done => {
                    ledger.end_call(self.key());
                    // What it has not read of the body comes before the next request.
                    if !self.call.as_ref().is_some_and(|call| call.reader.is_complete()) {
                        return None;
                    }
                    self.call = None;
                    if dice.percent(trouble.idle_close) {
                        self.closes_at = now + dice.pause(8_000);
                        self.steps.pop_front();
                        return Some(self.closes_at);
                    }
                }
                Step::Close(notifies) => {
                    let notifies = *notifies;
                    if notifies && !self.link.notify() {
                        return None;
                    }
                    self.finish(notifies, ledger);
                    return None;
                }
                Step::Reset => {
                    self.link.reset();
                    self.finish(false, ledger);
                    return None;
                }
            }
            self.steps.pop_front();
        }
    }
}

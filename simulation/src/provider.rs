//! A provider's end of a connection: it reads requests, checks them, and responds well or badly.

use std::collections::VecDeque;
use std::time::Duration;

use egret_clock::Moment;
use egret_kernel::outside::{self, EndId, State};

use crate::ledger::{CallKey, Ledger, Sent};
use crate::message::{BodyReader, Head, body, byte_at, chunked};
use crate::scenario::{Dice, FIRST_BYTE_S, PROVIDERS, RequestPlan, Trouble};

/// Longest time for which a provider stalls, in milliseconds: longer than any time limit.
pub const STALL_MS: u64 = 20_000;
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
    Close,
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
}

/// A provider's end of a connection.
#[derive(Debug)]
pub struct Provider {
    /// The connection.
    pub end: EndId,
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
    pub fn new(number: usize, end: EndId, dice: &mut Dice) -> Self {
        Self {
            end,
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
            self.finish(ledger);
            return None;
        }
        // Behind a whole request, nothing may come in a pause.
        let is_whole = self.call.as_ref().is_some_and(|call| call.reader.is_complete());
        if now < self.paused_until && !(is_whole && outside::unread(self.end) > 0) {
            return Some(self.paused_until);
        }
        if let Err(error) = self.read(now, dice, trouble, ledger) {
            ledger.accuse(format!("a provider got what is no request: {error}"));
            self.finish(ledger);
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
        let has_unread = outside::unread(self.end) > 0 || (self.call.is_none() && !self.input.is_empty());
        let closes = (self.closes_at != Moment::NEVER).then_some(self.closes_at);
        [again, has_unread.then_some(now), closes].into_iter().flatten().min()
    }

    /// Its state in a line.
    pub fn describe(&self) -> String {
        let call = self.call.as_ref().map(|call| (call.plan.id, call.reader.len));
        let steps: Vec<String> = self.steps.iter().map(Step::describe).collect();
        format!("{:?} of {}, call {call:?}, then {steps:?}, done {}", self.end, self.number, self.is_done)
    }

    /// Checks that the gateway does not wait longer for a response than it may.
    fn check_wait(&mut self, now: Moment, ledger: &mut Ledger) {
        let Some(call) = &mut self.call else { return };
        if !call.reader.is_complete() || call.is_begun || outside::is_left(self.end) {
            return;
        }
        let since = *call.whole_at.get_or_insert(now);
        if now >= since + Duration::from_secs(FIRST_BYTE_S) + SLACK {
            ledger.accuse(format!("request {} waits longer than {FIRST_BYTE_S} s", call.plan.id));
        }
    }

    fn finish(&mut self, ledger: &mut Ledger) {
        ledger.end_call(CallKey::of(self.end));
        outside::close(self.end);
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
        let (bytes, state) = outside::read(self.end, usize::try_from(most).unwrap_or(usize::MAX));
        self.input.extend(bytes);
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
        if state != State::Open {
            self.finish(ledger);
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
        let id = head.number("x-id").ok_or("a request without its number")?;
        let Some(plan) = ledger.arrive(id, self.number, CallKey::of(self.end), now) else {
            return Err(format!("the unknown request {id}"));
        };
        let line = format!("{} {} HTTP/1.1", plan.method, plan.path());
        if head.start != line {
            return Err(format!("request {id} arrived as {:?}, and was {line:?}", head.start));
        }
        let host = format!("{}.example", PROVIDERS[self.number]);
        if head.field("host") != Some(host.as_str()) {
            return Err(format!("request {id} arrived with the host {:?}", head.field("host")));
        }
        let reader = BodyReader::new(head.framing(false)?);
        self.steps = script(&plan, dice, trouble, ledger);
        self.call = Some(Call { plan, reader, whole_at: None, is_begun: false });
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
                Step::Write(bytes) if bytes.is_empty() => {}
                Step::Write(bytes) => {
                    let most = usize::try_from(dice.between(1, self.piece)).unwrap_or(1);
                    let piece: Vec<u8> = bytes.iter().copied().take(most).collect();
                    match outside::write(self.end, &piece) {
                        None => self.steps = VecDeque::from([Step::Close]),
                        Some(sent) => {
                            bytes.drain(..sent);
                            if let Some(call) = &mut self.call {
                                call.is_begun |= sent > 0;
                            }
                            let pause_ms = if bytes.len() as u64 > 20 * self.piece { 0 } else { 5 };
                            // The gateway may have all of it before the next step.
                            if !self.steps.iter().any(Step::is_unsent) {
                                ledger.end_call(CallKey::of(self.end));
                            }
                            return (sent == piece.len()).then(|| now + dice.pause(pause_ms));
                        }
                    }
                    continue;
                }
                Step::Done => {
                    ledger.end_call(CallKey::of(self.end));
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
                Step::Close => {
                    self.finish(ledger);
                    return None;
                }
                Step::Reset => {
                    ledger.end_call(CallKey::of(self.end));
                    outside::reset(self.end);
                    self.is_done = true;
                    return None;
                }
            }
            self.steps.pop_front();
        }
    }
}

/// Decides how a provider responds to a request.
fn script(plan: &RequestPlan, dice: &mut Dice, trouble: Trouble, ledger: &mut Ledger) -> VecDeque<Step> {
    let mut steps = VecDeque::new();
    if dice.percent(trouble.nonsense) {
        let nonsense =
            dice.pick(&["SSH-2.0-x\r\n", "HTTP/1.1 2x0 no\r\n\r\n", "HTTP/1.1 200 OK\r\nno colon\r\n\r\n"]);
        steps.push_back(Step::Write(nonsense.bytes().collect()));
        steps.push_back(Step::Close);
        return steps;
    }
    if !dice.percent(trouble.early) {
        steps.push_back(Step::AwaitBody);
    }
    if dice.percent(50) {
        steps.push_back(Step::Pause(dice.pause(400)));
    }
    let mut written = response(plan, dice, trouble, ledger);
    let closes = written.1;
    let bytes = &mut written.0;
    if dice.percent(trouble.cut) {
        // Often nothing of it is sent.
        let most = if dice.percent(40) { 0 } else { bytes.len() as u64 };
        bytes.truncate(usize::try_from(dice.between(0, most)).unwrap_or_default());
        let cut = if dice.percent(50) { Step::Close } else { Step::Reset };
        steps.extend([Step::Write(std::mem::take(bytes).into()), cut]);
        return steps;
    }
    if dice.percent(trouble.stall) {
        // Often before the first byte.
        let most = if dice.percent(40) { 0 } else { bytes.len() as u64 };
        let rest = bytes.split_off(usize::try_from(dice.between(0, most)).unwrap_or_default());
        steps.extend([
            Step::Write(std::mem::take(bytes).into()),
            Step::Pause(Duration::from_millis(dice.between(0, STALL_MS))),
            Step::Write(rest.into()),
        ]);
    } else if dice.percent(trouble.late_body) {
        let head = bytes.windows(4).position(|window| window == b"\r\n\r\n").map_or(0, |end| end + 4);
        let rest = bytes.split_off(head);
        steps.extend([
            Step::Write(std::mem::take(bytes).into()),
            Step::Pause(dice.pause(2_000)),
            Step::Write(rest.into()),
        ]);
    } else {
        steps.push_back(Step::Write(std::mem::take(bytes).into()));
    }
    steps.push_back(if closes { Step::Close } else { Step::Done });
    steps
}

/// Writes a response. Returns it, and whether the connection closes behind it.
fn response(plan: &RequestPlan, dice: &mut Dice, trouble: Trouble, ledger: &mut Ledger) -> (Vec<u8>, bool) {
    let status = if dice.percent(trouble.status) { dice.pick(&[500, 503, 429, 404]) } else { 200 };
    let len = dice.length();
    let number = dice.seed() >> 8;
    let content = body(number, len);
    let kind = dice.pick(&["length", "length", "length", "chunked", "chunked", "close"]);
    ledger.respond(number, Sent { len: len as u64, until_close: kind == "close" });
    let mut text = String::new();
    if dice.percent(10) {
        text.push_str("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n");
    }
    text.push_str(&format!("HTTP/1.1 {status} Some\r\nx-answers: {}\r\nx-body: {number}\r\n", plan.id));
    if let Some(resource) = plan.shared {
        text.push_str(&format!("x-resource: {resource}\r\n"));
    }
    if status == 503 && dice.percent(50) {
        text.push_str("retry-after: 1\r\n");
    }
    let closes = kind == "close" || dice.percent(10);
    if closes {
        text.push_str("connection: close\r\n");
    }
    match kind {
        "length" => text.push_str(&format!("content-length: {len}\r\n\r\n")),
        "chunked" => text.push_str("transfer-encoding: chunked\r\n\r\n"),
        _ => text.push_str("\r\n"),
    }
    let mut written = text.into_bytes();
    if plan.method != "HEAD" {
        if kind == "chunked" {
            let size = dice.pick(&[1_000, 10_000, 100_000]);
            written.extend(chunked(&content, size));
        } else {
            written.extend(content);
        }
    }
    (written, closes)
}

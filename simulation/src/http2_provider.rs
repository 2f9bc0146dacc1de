//! A provider's end of a connection of HTTP/2, by an implementation that is not the gateway's.

use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use egret_clock::Moment;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response};

use crate::answer::{Answer, Asked, Delay, STALL_MS};
use crate::ledger::{CallKey, Ledger, Sent as SentBody};
use crate::link::Link;
use crate::message::byte_at;
use crate::scenario::{Dice, RequestPlan, Trouble};
use crate::wire::{self, News, Sent, Turn, Wire};

type Opened = Connection<Wire, Bytes>;
type Opening = Pin<Box<dyn Future<Output = Result<Opened, h2::Error>>>>;

/// The connection, as far as it has come.
enum Line {
    Opening(Opening),
    Open(Box<Opened>),
}

/// A thing that it does next for a request.
enum Step {
    /// Wait until all of the request has arrived.
    AwaitBody,
    Pause(Duration),
    Head(Response<()>),
    Data(Bytes),
    End,
    ResetStream(Reason),
    Close,
    Reset,
}

/// The side of a stream that sends.
enum Sending {
    Before(SendResponse<Bytes>),
    Within(SendStream<Bytes>),
}

/// A request in hand.
struct Call {
    plan: RequestPlan,
    key: CallKey,
    body: RecvStream,
    received: u64,
    is_whole: bool,
    sending: Sending,
    steps: VecDeque<Step>,
    paused_until: Moment,
}

/// The progress of a call.
enum Progress {
    Waits,
    Goes,
    Over,
    /// The connection ends, with a reset or in order.
    Hangs(bool),
}

/// A provider's end of a connection.
pub struct Http2Provider {
    number: usize,
    line: Option<Line>,
    turn: Rc<Turn>,
    calls: Vec<Call>,
    /// It is gone.
    pub is_done: bool,
}

impl Http2Provider {
    /// Begins a connection to provider `number`.
    pub fn new(number: usize, link: Link, is_calm: bool, dice: &mut Dice) -> Self {
        let piece = dice.room();
        let streams = dice.pick(&[1, 2, 100]);
        // Calls begin before the settings have arrived. Those beyond the maximum are refused, and not all can
        // be repeated.
        let streams = if is_calm { 100 } else { streams };
        let (wire, turn) = Wire::new(link, dice.split(), piece);
        let mut builder = Builder::new();
        // With a window below that of the beginning, h2 never again opens one that has had more before its
        // settings arrived.
        builder
            .initial_window_size(dice.pick(&[65_535, 65_535, 80_000, 1 << 20]))
            .max_concurrent_streams(streams);
        let line = Some(Line::Opening(Box::pin(builder.handshake(wire))));
        Self { number, line, turn, calls: Vec::new(), is_done: false }
    }

    /// Its state in a line.
    pub fn describe(&self) -> String {
        let calls: Vec<_> = self.calls.iter().map(|call| (call.plan.id, call.received)).collect();
        format!("{:?} of {}, HTTP/2, calls {calls:?}, done {}", self.turn.end(), self.number, self.is_done)
    }

    /// Goes on. Returns the time at which it wants to go on by itself.
    pub fn act(
        &mut self,
        now: Moment,
        dice: &mut Dice,
        trouble: Trouble,
        ledger: &mut Ledger,
    ) -> Option<Moment> {
        let mut line = self.line.take()?;
        self.turn.begin();
        let lives = self.go_on(&mut line, now, dice, trouble, ledger);
        if let Some(violation) = self.turn.violation() {
            ledger.accuse(violation);
        }
        if !lives {
            self.finish(ledger);
            return None;
        }
        self.line = Some(line);
        let paused = self.calls.iter().map(|call| call.paused_until).filter(|until| *until > now).min();
        let spent = self.turn.is_spent().then(|| now + dice.pause(5));
        [paused, spent, self.turn.due()].into_iter().flatten().min()
    }

    fn finish(&mut self, ledger: &mut Ledger) {
        for call in self.calls.drain(..) {
            ledger.end_call(call.key);
        }
        self.turn.leave(false);
        self.is_done = true;
    }

    /// Lets the connection and its calls go on as far as they can. Returns `false` once it has ended.
    fn go_on(
        &mut self,
        line: &mut Line,
        now: Moment,
        dice: &mut Dice,
        trouble: Trouble,
        ledger: &mut Ledger,
    ) -> bool {
        let news = Arc::new(News::default());
        let waker = Waker::from(Arc::clone(&news));
        let mut cx = Context::from_waker(&waker);
        if let Line::Opening(opening) = line {
            match opening.as_mut().poll(&mut cx) {
                Poll::Pending => return true,
                Poll::Ready(Err(error)) => {
                    judge(&error, ledger);
                    return false;
                }
                Poll::Ready(Ok(opened)) => *line = Line::Open(Box::new(opened)),
            }
        }
        let Line::Open(connection) = line else { return true };
        loop {
            let mut goes = match connection.poll_accept(&mut cx) {
                Poll::Pending => false,
                Poll::Ready(None) => return false,
                Poll::Ready(Some(Err(error))) => {
                    judge(&error, ledger);
                    return false;
                }
                Poll::Ready(Some(Ok((request, respond)))) => {
                    self.begin(request, respond, now, dice, trouble, ledger);
                    true
                }
            };
            let mut number = 0;
            while let Some(call) = self.calls.get_mut(number) {
                match call.go_on(&mut cx, now, ledger) {
                    Progress::Waits => number += 1,
                    Progress::Goes => goes = true,
                    Progress::Over => {
                        goes = true;
                        ledger.end_call(call.key);
                        self.calls.remove(number);
                        if dice.percent(trouble.idle_close / 4) {
                            connection.graceful_shutdown();
                        }
                    }
                    Progress::Hangs(resets) => {
                        if resets {
                            self.turn.leave(true);
                        }
                        return false;
                    }
                }
            }
            if !news.take() && !goes {
                return true;
            }
        }
    }

    /// Begins a request, and decides what becomes of it.
    fn begin(
        &mut self,
        request: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
        now: Moment,
        dice: &mut Dice,
        trouble: Trouble,
        ledger: &mut Ledger,
    ) {
        if dice.percent(trouble.nonsense) {
            // It was not looked at, so it may be sent again.
            return respond.send_reset(Reason::REFUSED_STREAM);
        }
        let (parts, body) = request.into_parts();
        let key = CallKey { end: self.turn.end(), stream: respond.stream_id().as_u32() };
        let id = parts.headers.get("x-id").and_then(|id| id.to_str().ok()?.parse().ok());
        let host = parts.uri.authority().map(http::uri::Authority::as_str);
        let asked = Asked { id, method: parts.method.as_str(), path: parts.uri.path(), host };
        let plan = match asked.arrive(self.number, key, now, ledger) {
            Ok(plan) => plan,
            Err(error) => return ledger.accuse(format!("a provider got what is no request: {error}")),
        };
        ledger.check_certificate(self.turn.has_expired());
        let steps = script(&plan, dice, trouble, ledger);
        self.calls.push(Call {
            plan,
            key,
            body,
            received: 0,
            is_whole: false,
            sending: Sending::Before(respond),
            steps,
            paused_until: now,
        });
    }
}

impl Call {
    fn go_on(&mut self, cx: &mut Context<'_>, now: Moment, ledger: &mut Ledger) -> Progress {
        if !self.receive(cx, ledger) {
            return Progress::Over;
        }
        if now < self.paused_until {
            return Progress::Waits;
        }
        let Some(step) = self.steps.front_mut() else { return Progress::Over };
        match (step, &mut self.sending) {
            (Step::AwaitBody, _) if !self.is_whole => return Progress::Waits,
            (Step::AwaitBody, _) => {}
            (Step::Pause(time), _) => self.paused_until = now + *time,
            (Step::Head(head), Sending::Before(respond)) => {
                let Ok(send) = respond.send_response(head.clone(), false) else { return Progress::Over };
                self.sending = Sending::Within(send);
            }
            (Step::Data(bytes), Sending::Within(send)) => match wire::send(send, bytes, false, cx) {
                Sent::Nothing => return Progress::Waits,
                Sent::Part => return Progress::Goes,
                Sent::All => {}
                Sent::Lost => return Progress::Over,
            },
            (Step::End, Sending::Within(send)) => {
                // The gateway may have given it up.
                let _ = send.send_data(Bytes::new(), true);
                return Progress::Over;
            }
            (Step::ResetStream(reason), sending) => {
                match sending {
                    Sending::Before(respond) => respond.send_reset(*reason),
                    Sending::Within(send) => send.send_reset(*reason),
                }
                return Progress::Over;
            }
            (Step::Close, _) => return Progress::Hangs(false),
            (Step::Reset, _) => return Progress::Hangs(true),
            (Step::Head(_), Sending::Within(_)) | (Step::Data(_) | Step::End, Sending::Before(_)) => {}
        }
        self.steps.pop_front();
        Progress::Goes
    }

    /// Receives what has arrived of the request. Returns `false` if the gateway has given it up.
    fn receive(&mut self, cx: &mut Context<'_>, ledger: &mut Ledger) -> bool {
        while !self.is_whole {
            let Poll::Ready(piece) = self.body.poll_data(cx) else { return true };
            match piece {
                Some(Ok(piece)) => {
                    let places = self.received..;
                    let id = self.plan.id;
                    if let Some((place, _)) =
                        places.zip(&piece).find(|(place, byte)| byte_at(id, *place) != **byte)
                    {
                        ledger.accuse(format!("byte {place} of request {id} differs"));
                    }
                    self.received += piece.len() as u64;
                    // The stream may have ended.
                    let _ = self.body.flow_control().release_capacity(piece.len());
                }
                Some(Err(error)) => {
                    judge(&error, ledger);
                    return false;
                }
                None => {
                    self.is_whole = true;
                    let (len, whole) = (self.received, self.plan.body_len);
                    if len != whole as u64 {
                        let id = self.plan.id;
                        ledger.accuse(format!("the body of request {id} has {len} bytes, of {whole}"));
                    }
                }
            }
        }
        // A stream that was reset after its whole request is seen when something is sent on it.
        match &mut self.sending {
            Sending::Before(respond) => respond.poll_reset(cx).is_pending(),
            Sending::Within(send) => send.poll_reset(cx).is_pending(),
        }
    }
}

/// Accuses the gateway, if the error is that it has broken a rule of HTTP/2.
fn judge(error: &h2::Error, ledger: &mut Ledger) {
    if error.is_library() {
        ledger.accuse(format!("the gateway breaks a rule of HTTP/2 to a provider: {error}"));
    }
}

/// Decides how a provider responds to a request.
fn script(plan: &RequestPlan, dice: &mut Dice, trouble: Trouble, ledger: &mut Ledger) -> VecDeque<Step> {
    let mut steps = VecDeque::new();
    let Delay { awaits_body, pause } = Delay::draw(dice, trouble);
    steps.extend(awaits_body.then_some(Step::AwaitBody));
    steps.extend(pause.map(Step::Pause));
    let answer = Answer::draw(dice, trouble);
    let len = answer.len;
    ledger.respond(answer.number, SentBody { len: len as u64, ..SentBody::default() });
    let mut head = Response::builder().status(answer.status);
    for (name, value) in answer.fields(plan) {
        head = head.header(name, value);
    }
    if dice.percent(50) {
        head = head.header("content-length", len);
    }
    let Ok(head) = head.body(()) else { return VecDeque::from([Step::Close]) };
    let mut content = Bytes::from(answer.content(plan));
    let begins = !dice.percent(trouble.cut / 2);
    if begins {
        steps.push_back(Step::Head(head));
    }
    let middle = usize::try_from(dice.between(0, content.len() as u64)).unwrap_or_default();
    let is_cut = !begins || dice.percent(trouble.cut);
    if begins && (is_cut || dice.percent(trouble.stall) || dice.percent(trouble.late_body)) {
        steps.push_back(Step::Data(content.split_to(middle)));
        let stalls = dice.percent(trouble.stall);
        steps.push_back(Step::Pause(Duration::from_millis(
            dice.between(0, if stalls { STALL_MS } else { 500 }),
        )));
    }
    if is_cut {
        steps.push_back(match dice.between(0, 3) {
            0 => Step::Close,
            1 => Step::Reset,
            _ => Step::ResetStream(dice.pick(&[Reason::INTERNAL_ERROR, Reason::CANCEL, Reason::NO_ERROR])),
        });
        return steps;
    }
    steps.extend([Step::Data(content), Step::End]);
    steps
}

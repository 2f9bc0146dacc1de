//! A client that speaks HTTP/2, by an implementation that is not the gateway's. Its requests are streams of
//! one connection.

use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use egret_clock::Moment;
use egret_kernel::outside::EndId;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Version};

use crate::caller::{Caller, target};
use crate::ledger::{Ledger, Outcome};
use crate::message::{Head, body};
use crate::reading::Reading;
use crate::scenario::{Dice, Leave, RequestPlan};
use crate::wire::{self, News, Sent, Turn, Wire};

/// Number of streams at once.
const STREAMS_MAX: usize = 4;

type Opened = (SendRequest<Bytes>, Connection<Wire, Bytes>);
type Opening = Pin<Box<dyn Future<Output = Result<Opened, h2::Error>>>>;

/// The connection, as far as it has come.
enum Line {
    Opening(Opening),
    Open(Box<Opened>),
}

/// The response of a stream.
enum Answer {
    Awaited(ResponseFuture),
    Body(Reading, RecvStream),
}

/// A request under way.
struct Stream {
    index: usize,
    since: Moment,
    send: SendStream<Bytes>,
    /// The part of its body that was not sent. `None` once it has ended.
    unsent: Option<Bytes>,
    answer: Answer,
}

/// A client.
pub struct Http2Client {
    /// The part that it has in common with other clients.
    pub caller: Caller,
    line: Option<(Line, Rc<Turn>)>,
    streams: Vec<Stream>,
}

impl Http2Client {
    /// Creates a client.
    pub fn new(caller: Caller) -> Self {
        Self { caller, line: None, streams: Vec::new() }
    }

    /// Its connection.
    pub fn end(&self) -> Option<EndId> {
        self.line.as_ref().map(|(_, turn)| turn.end())
    }

    /// Its state in a line.
    pub fn describe(&self) -> String {
        let open = self.caller.ids(self.streams.iter().map(|stream| stream.index));
        format!("{:?}, HTTP/2, waits for {open:?}, done {}", self.end(), self.caller.is_done)
    }

    /// Goes on. Returns the time at which it wants to go on by itself.
    pub fn act(&mut self, now: Moment, dice: &mut Dice, ledger: &mut Ledger) -> Option<Moment> {
        if self.caller.is_done {
            return None;
        }
        if self.line.is_none()
            && let Err(again) = self.connect(now, dice)
        {
            return again;
        }
        if now < self.caller.stalled_until {
            return Some(self.caller.stalled_until);
        }
        let (mut line, turn) = self.line.take()?;
        turn.begin();
        let lives = self.go_on(&mut line, now, dice, ledger);
        if let Some(violation) = turn.violation() {
            ledger.accuse(violation);
        }
        self.misbehave(&turn, now, ledger);
        if self.caller.is_done {
            return None;
        }
        self.check_time(&turn, now, ledger);
        let is_spent = turn.is_spent();
        if lives && !(self.streams.is_empty() && !self.caller.has_more()) {
            let link_due = turn.due();
            self.line = Some((line, turn));
            let due = |stream: &Stream| Some(Caller::due(stream.since));
            let late = self.streams.iter().filter_map(due).filter(|due| *due > now).min();
            let (next_at, stalled_until) = (self.caller.next_at, self.caller.stalled_until);
            let next = (self.may_begin() && next_at > now).then_some(next_at);
            let spent = is_spent.then(|| now + dice.pause(self.caller.plan.pause_ms));
            let stalled = (stalled_until > now).then_some(stalled_until);
            return [late, next, spent, stalled, link_due].into_iter().flatten().min();
        }
        self.leave_connection(&turn, ledger);
        (!self.caller.is_done).then_some(self.caller.next_at.max(now))
    }

    fn connect(&mut self, now: Moment, dice: &mut Dice) -> Result<(), Option<Moment>> {
        let link = self.caller.connect(now, dice)?;
        let plan = &self.caller.plan;
        let (wire, turn) = Wire::new(link, dice.split(), plan.piece.max(plan.read));
        let mut builder = Builder::new();
        builder.initial_window_size(dice.pick(&[100, 2_000, 65_535, 1 << 20])).enable_push(false);
        self.line = Some((Line::Opening(Box::pin(builder.handshake(wire))), turn));
        Ok(())
    }

    /// Lets the connection and its streams go on as far as they can. Returns `false` once it has ended.
    fn go_on(&mut self, line: &mut Line, now: Moment, dice: &mut Dice, ledger: &mut Ledger) -> bool {
        let news = Arc::new(News::default());
        let waker = Waker::from(Arc::clone(&news));
        let mut cx = Context::from_waker(&waker);
        if let Line::Opening(opening) = line {
            match opening.as_mut().poll(&mut cx) {
                Poll::Pending => return true,
                Poll::Ready(Err(_)) => return false,
                Poll::Ready(Ok(opened)) => *line = Line::Open(Box::new(opened)),
            }
        }
        let Line::Open(opened) = line else { return true };
        let (requests, connection) = &mut **opened;
        loop {
            let ended = Pin::new(&mut *connection).poll(&mut cx);
            if let Poll::Ready(Err(error)) = &ended
                && error.is_library()
            {
                ledger.accuse(format!("the gateway breaks a rule of HTTP/2: {error}"));
            }
            let ended = ended.is_ready();
            let mut has_changed = self.advance(&mut cx, ledger);
            if ended {
                return false;
            }
            has_changed |= self.begin(requests, &mut cx, now, dice, ledger);
            if !news.take() && !has_changed {
                return true;
            }
        }
    }

    fn may_begin(&self) -> bool {
        let most = if self.caller.plan.pipelines { STREAMS_MAX } else { 1 };
        self.caller.has_more() && self.streams.len() < most
    }

    /// Begins the next request, if it is time for it.
    fn begin(
        &mut self,
        requests: &mut SendRequest<Bytes>,
        cx: &mut Context<'_>,
        now: Moment,
        dice: &mut Dice,
        ledger: &mut Ledger,
    ) -> bool {
        let is_time = self.may_begin() && now >= self.caller.next_at;
        if !is_time || !matches!(requests.poll_ready(cx), Poll::Ready(Ok(()))) {
            return false;
        }
        let caller = &mut self.caller;
        let plan = &caller.plan.requests[caller.next];
        let has_body = plan.body_len > 0;
        let Ok(request) = request(plan, caller.has_tls()) else {
            ledger.accuse("a request of the simulation is not valid");
            return false;
        };
        let Ok((answer, send)) = requests.send_request(request, !has_body) else { return false };
        ledger.begin(plan);
        let content = Bytes::from(body(plan.id, plan.body_len));
        self.streams.push(Stream {
            index: caller.next,
            since: now,
            send,
            unsent: has_body.then_some(content),
            answer: Answer::Awaited(answer),
        });
        caller.next += 1;
        if let Some(following) = caller.plan.requests.get(caller.next) {
            let think = if caller.plan.pipelines { dice.pause(20) } else { following.think };
            caller.next_at = now + think;
        }
        true
    }

    /// Lets each stream go on. Returns `true` if something has changed.
    fn advance(&mut self, cx: &mut Context<'_>, ledger: &mut Ledger) -> bool {
        let mut has_changed = false;
        let plan = &self.caller.plan;
        self.streams.retain_mut(|stream| {
            let request = &plan.requests[stream.index];
            has_changed |= stream.send(cx);
            match stream.receive(cx, request, ledger) {
                Ok(None) => true,
                Ok(Some(outcome)) => {
                    has_changed = true;
                    ledger.close(request.id, outcome);
                    false
                }
                Err(error) => {
                    ledger.accuse(format!("a client of HTTP/2 got what is no response: {error}"));
                    false
                }
            }
        });
        has_changed
    }

    /// Leaves, gives a request up, or stalls, if it is time for that.
    fn misbehave(&mut self, turn: &Turn, now: Moment, ledger: &mut Ledger) {
        let moved = turn.moved.get();
        match self.caller.leaves(moved) {
            None => {}
            Some(Leave::Half) => {
                if let Some(mut given_up) = self.streams.pop() {
                    given_up.send.send_reset(Reason::CANCEL);
                    ledger.close(self.caller.plan.requests[given_up.index].id, Outcome::Closed);
                }
            }
            Some(leave @ (Leave::Close | Leave::Reset)) => {
                turn.leave(leave == Leave::Reset);
                self.close_streams(ledger);
                self.caller.is_done = true;
            }
        }
        if !self.streams.is_empty() {
            self.caller.stalls(moved, now);
        }
    }

    fn check_time(&mut self, turn: &Turn, now: Moment, ledger: &mut Ledger) {
        if let Some(late) = self.streams.iter().find(|stream| now >= Caller::due(stream.since))
            && turn.unread() == 0
        {
            self.caller.accuse_late(Some(late.index), ledger);
        }
    }

    fn close_streams(&mut self, ledger: &mut Ledger) {
        for stream in std::mem::take(&mut self.streams) {
            ledger.close(self.caller.plan.requests[stream.index].id, stream.lost());
        }
    }

    /// Ends the connection, and begins another one for what is left.
    fn leave_connection(&mut self, turn: &Turn, ledger: &mut Ledger) {
        self.close_streams(ledger);
        turn.leave(false);
        self.caller.is_done = !self.caller.has_more();
    }
}

impl Stream {
    /// Sends what the peer has room for. Returns `true` if it has sent something.
    fn send(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(unsent) = &mut self.unsent else { return false };
        let sent = wire::send(&mut self.send, unsent, true, cx);
        if matches!(sent, Sent::All | Sent::Lost) {
            self.unsent = None;
        }
        sent != Sent::Nothing
    }

    /// Receives. Returns the end of the request once it is there.
    fn receive(
        &mut self,
        cx: &mut Context<'_>,
        plan: &RequestPlan,
        ledger: &Ledger,
    ) -> Result<Option<Outcome>, String> {
        if let Answer::Awaited(awaited) = &mut self.answer {
            let Poll::Ready(answer) = Pin::new(awaited).poll(cx) else { return Ok(None) };
            let answer = match answer {
                Ok(answer) => answer,
                Err(error) => return lost(&error, Outcome::Closed),
            };
            let (parts, body) = answer.into_parts();
            let head = Head::new(parts.status.as_u16(), fields(&parts.headers));
            let Some(reading) = Reading::begin(&head, plan, plan.method == "HEAD", ledger)? else {
                return Err("an informational response in the place of the final one".to_owned());
            };
            self.answer = Answer::Body(reading, body);
        }
        let Answer::Body(reading, body) = &mut self.answer else { return Ok(None) };
        loop {
            let Poll::Ready(piece) = body.poll_data(cx) else { return Ok(None) };
            match piece {
                Some(Ok(piece)) => {
                    // The stream may have ended.
                    let _ = body.flow_control().release_capacity(piece.len());
                    let mut bytes = VecDeque::from(piece.to_vec());
                    if !bytes.is_empty() && !reading.has_body {
                        return Err(format!("a body of {} bytes to {}", bytes.len(), plan.method));
                    }
                    reading.take(&mut bytes)?;
                }
                Some(Err(error)) => return lost(&error, Outcome::Cut),
                None => {
                    reading.check_len(ledger)?;
                    return Ok(Some(reading.outcome()));
                }
            }
        }
    }

    /// The end of the request, if its connection is lost.
    fn lost(&self) -> Outcome {
        if matches!(self.answer, Answer::Body(..)) { Outcome::Cut } else { Outcome::Closed }
    }
}

/// The end of a request whose stream was lost, unless the gateway has broken a rule.
fn lost(error: &h2::Error, outcome: Outcome) -> Result<Option<Outcome>, String> {
    if error.is_library() { Err(error.to_string()) } else { Ok(Some(outcome)) }
}

/// The fields of a response. Its length is that of its stream.
fn fields(of: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let field = of.iter().map(|(name, value)| (name.as_str().to_owned(), text(value)));
    field.filter(|(name, _)| name != "content-length").collect()
}

fn request(plan: &RequestPlan, has_tls: bool) -> Result<Request<()>, http::Error> {
    let (scheme, authority, path) = target(plan, has_tls);
    let uri = format!("{scheme}://{authority}{path}");
    let mut request = Request::builder().method(plan.method).uri(uri).version(Version::HTTP_2);
    request = request.header("x-id", plan.id);
    if plan.has_key {
        request = request.header("idempotency-key", format!("k{}", plan.id));
    }
    if plan.chunk == 0 && plan.body_len > 0 {
        request = request.header("content-length", plan.body_len);
    }
    request.body(())
}

//! A client that speaks HTTP/2, by an implementation that is not the gateway's. Its requests are streams of
//! one connection.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use egret_clock::Moment;
use egret_kernel::outside::{self, EndId};
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Version};

use crate::client::{CONNECTIONS_MAX, GATEWAY, SLACK};
use crate::ledger::{Ledger, Outcome};
use crate::message::{Head, body};
use crate::reading::Reading;
use crate::scenario::{ClientPlan, Dice, Leave, PROVIDERS, RequestPlan, TOTAL_S};
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
    number: u8,
    plan: ClientPlan,
    /// Its connection.
    pub end: Option<EndId>,
    line: Option<(Line, Rc<Turn>)>,
    connections: u32,
    next: usize,
    next_at: Moment,
    stalled_until: Moment,
    streams: Vec<Stream>,
    /// It has nothing more to do.
    pub is_done: bool,
}

impl Http2Client {
    /// Creates a client.
    pub fn new(number: u8, plan: ClientPlan, now: Moment) -> Self {
        Self {
            number,
            next_at: now + plan.after,
            plan,
            end: None,
            line: None,
            connections: 0,
            next: 0,
            stalled_until: Moment::from_nanos(0),
            streams: Vec::new(),
            is_done: false,
        }
    }

    /// Its state in a line.
    pub fn describe(&self) -> String {
        let open: Vec<u64> = self.streams.iter().map(|stream| self.plan.requests[stream.index].id).collect();
        format!("{:?}, HTTP/2, waits for {open:?}, done {}", self.end, self.is_done)
    }

    /// Goes on. Returns the time at which it wants to go on by itself.
    pub fn act(&mut self, now: Moment, dice: &mut Dice, ledger: &mut Ledger) -> Option<Moment> {
        if self.is_done {
            return None;
        }
        if self.end.is_none()
            && let Err(again) = self.connect(now, dice)
        {
            return again;
        }
        if now < self.stalled_until {
            return Some(self.stalled_until);
        }
        let Some((mut line, turn)) = self.line.take() else { return None };
        turn.begin();
        let lives = self.go_on(&mut line, now, dice, ledger);
        let moved = turn.moved.get();
        self.misbehave(moved, now, ledger);
        if self.is_done {
            return None;
        }
        self.check_time(now, ledger);
        let is_spent = turn.is_spent();
        if lives && !(self.streams.is_empty() && self.next >= self.plan.requests.len()) {
            self.line = Some((line, turn));
            let due = |stream: &Stream| Some(stream.since + Duration::from_secs(TOTAL_S) + SLACK);
            let late = self.streams.iter().filter_map(due).filter(|due| *due > now).min();
            let next = (self.may_begin() && self.next_at > now).then_some(self.next_at);
            let spent = is_spent.then(|| now + dice.pause(self.plan.pause_ms));
            let stalled = (self.stalled_until > now).then_some(self.stalled_until);
            return [late, next, spent, stalled].into_iter().flatten().min();
        }
        self.leave_connection(ledger);
        (!self.is_done).then_some(self.next_at.max(now))
    }

    fn connect(&mut self, now: Moment, dice: &mut Dice) -> Result<(), Option<Moment>> {
        if now < self.next_at {
            return Err(Some(self.next_at));
        }
        if self.next >= self.plan.requests.len() || self.connections == CONNECTIONS_MAX {
            self.is_done = true;
            return Err(None);
        }
        self.connections += 1;
        let port = u16::try_from(dice.between(1_024, 29_999)).unwrap_or(1_024);
        let from = SocketAddr::from(([127, 0, 0, self.number], port));
        let (plan, to) = (&self.plan, SocketAddr::from(GATEWAY));
        let Some(end) = outside::connect(from, to, plan.room, plan.gateway_room) else {
            self.is_done = true;
            return Err(None);
        };
        self.end = Some(end);
        let (wire, turn) = Wire::new(end, dice.split(), plan.piece.max(plan.read));
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
        let most = if self.plan.pipelines { STREAMS_MAX } else { 1 };
        self.next < self.plan.requests.len() && self.streams.len() < most
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
        if !self.may_begin() || now < self.next_at || !matches!(requests.poll_ready(cx), Poll::Ready(Ok(())))
        {
            return false;
        }
        let plan = &self.plan.requests[self.next];
        let has_body = plan.body_len > 0;
        let Ok(request) = request(plan) else {
            ledger.accuse("a request of the simulation is not valid");
            return false;
        };
        let Ok((answer, send)) = requests.send_request(request, !has_body) else { return false };
        ledger.begin(plan);
        let content = Bytes::from(body(plan.id, plan.body_len));
        self.streams.push(Stream {
            index: self.next,
            since: now,
            send,
            unsent: has_body.then_some(content),
            answer: Answer::Awaited(answer),
        });
        self.next += 1;
        if let Some(following) = self.plan.requests.get(self.next) {
            let think = if self.plan.pipelines { dice.pause(20) } else { following.think };
            self.next_at = now + think;
        }
        true
    }

    /// Lets each stream go on. Returns `true` if something has changed.
    fn advance(&mut self, cx: &mut Context<'_>, ledger: &mut Ledger) -> bool {
        let mut has_changed = false;
        let plan = &self.plan;
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
    fn misbehave(&mut self, moved: u64, now: Moment, ledger: &mut Ledger) {
        if let Some((after, leave)) = self.plan.leave
            && moved >= after
            && let Some(end) = self.end
        {
            self.plan.leave = None;
            match leave {
                Leave::Half => {
                    if let Some(mut given_up) = self.streams.pop() {
                        given_up.send.send_reset(Reason::CANCEL);
                        ledger.close(self.plan.requests[given_up.index].id, Outcome::Closed);
                    }
                }
                Leave::Close | Leave::Reset => {
                    if leave == Leave::Close {
                        outside::close(end)
                    } else {
                        outside::reset(end)
                    }
                    self.close_streams(ledger);
                    self.is_done = true;
                }
            }
        }
        if let Some((after, time)) = self.plan.stall
            && moved >= after
            && !self.streams.is_empty()
        {
            self.plan.stall = None;
            self.stalled_until = now + time;
        }
    }

    fn check_time(&mut self, now: Moment, ledger: &mut Ledger) {
        let limit = Duration::from_secs(TOTAL_S) + SLACK;
        if let Some(late) = self.streams.iter().find(|stream| now >= stream.since + limit)
            && self.end.is_some_and(|end| outside::unread(end) == 0)
        {
            let id = self.plan.requests[late.index].id;
            ledger.accuse(format!("request {id} of HTTP/2 has outlived its time limit of {TOTAL_S} s"));
        }
    }

    fn close_streams(&mut self, ledger: &mut Ledger) {
        for stream in std::mem::take(&mut self.streams) {
            ledger.close(self.plan.requests[stream.index].id, stream.lost());
        }
    }

    /// Ends the connection, and begins another one for what is left.
    fn leave_connection(&mut self, ledger: &mut Ledger) {
        self.close_streams(ledger);
        if let Some(end) = self.end.take() {
            outside::close(end);
        }
        self.is_done = self.next >= self.plan.requests.len();
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

fn request(plan: &RequestPlan) -> Result<Request<()>, http::Error> {
    let (provider, path) = (PROVIDERS[plan.provider], plan.path());
    let uri = if plan.is_absolute {
        format!("http://{provider}.example{path}")
    } else {
        format!("http://127.0.0.1:8000/{provider}{path}")
    };
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

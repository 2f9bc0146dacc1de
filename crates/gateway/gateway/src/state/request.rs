//! The state of one exchange while it runs: the buffers and tables of request and response, the upload, the
//! clock and the deadlines.

use std::cell::RefCell;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use egret_clients::JwtMemory;
use egret_clock::{Moment, planted};
use egret_http1::{Edits, RequestFraming, RequestHead, ResponseFraming, ResponseHead, Span};
use egret_leg::{Framing, Leg};
use egret_message::RequestId;
use egret_net::budget::Budget;
use egret_net::buffer::{Buffer, BufferPool};
use egret_net::deadline::Timer;
use egret_net::pace::{RATE_WINDOW, RateWindow, Taking};

use egret_body::{Kept, Pipe, PipeError, Shared};
use egret_upstream::DialTimes;

/// Number of spare request states that a worker keeps.
const SPARE_STATES: usize = 1024;

/// Buffers and tables for one request. A worker lends one to each connection with an exchange in progress.
#[derive(Debug, Default)]
pub(crate) struct RequestState {
    /// Bytes received from the client: the request's head, then its body or the next request.
    pub input: Buffer,
    pub request: RequestHead,
    pub request_id: RequestId,
    /// The name that the client gives itself; empty if it gives none.
    pub consumer: Span,
    /// The request's body.
    pub up: Pipe,
    /// The state of the response. Empty until [`take_response_state`](Self::take_response_state).
    pub response_state: Box<ResponseState>,
    has_response_state: bool,
}

/// Buffers and tables for one response.
#[derive(Debug, Default)]
pub(crate) struct ResponseState {
    /// Bytes received from the provider.
    pub output: Buffer,
    pub response: ResponseHead,
    /// The response's body.
    pub down: Pipe,
}

impl RequestState {
    /// Prepares for a response. Swaps in the response state that the worker used last. Most responses are
    /// received and sent in one turn of the event loop, so a hundred exchanges in progress touch the memory
    /// of one.
    pub fn take_response_state(&mut self, pools: &Pools) {
        if !self.has_response_state {
            self.has_response_state = true;
            mem::swap(&mut self.response_state, &mut pools.response_state.borrow_mut());
            pools.buffers.lend(&mut self.response_state.output);
        }
    }

    /// Takes over a response that was received elsewhere.
    pub fn set_response_state(&mut self, response_state: Box<ResponseState>) {
        self.has_response_state = true;
        self.response_state = response_state;
    }

    /// Returns `true` if a response state has been taken for this exchange.
    pub fn has_response_state(&self) -> bool {
        self.has_response_state
    }

    /// Drops the response.
    pub fn return_response_state(&mut self, pools: &Pools) {
        if self.has_response_state {
            self.has_response_state = false;
            pools.buffers.take_back(&mut self.response_state.output);
            self.response_state.response.reset();
            self.response_state.down.reset(ResponseFraming::None, Framing::Length);
            mem::swap(&mut self.response_state, &mut pools.response_state.borrow_mut());
        }
    }

    /// Prepares to send the request that was just parsed.
    pub fn reset_up(&mut self) {
        let framing = self.request.framing;
        self.up.reset(framing, Framing::for_provider(framing));
    }
}

/// The memory that the exchanges of one worker share.
#[derive(Debug)]
pub(crate) struct Pools {
    pub buffers: BufferPool,
    /// Spare request states.
    #[expect(clippy::vec_box, reason = "a state is large and is moved more often than it is created")]
    states: RefCell<Vec<Box<RequestState>>>,
    /// The response state used last, see [`RequestState::take_response_state`].
    response_state: RefCell<Box<ResponseState>>,
    /// The changes to the head that is being sent. All exchanges share one list, so it stays in the
    /// processor's cache.
    pub edits: RefCell<Edits>,
    /// The tokens of clients that were verified.
    pub jwts: RefCell<JwtMemory>,
}

impl Pools {
    /// Creates empty pools, whose gathered bodies are charged to `gathered`.
    pub fn new(gathered: Arc<Budget>) -> Self {
        Self {
            buffers: BufferPool::new(gathered),
            states: RefCell::default(),
            response_state: RefCell::default(),
            edits: RefCell::default(),
            jwts: RefCell::default(),
        }
    }

    /// Takes a spare request state, or creates one.
    pub fn take_state(&self) -> Box<RequestState> {
        self.states.borrow_mut().pop().unwrap_or_default()
    }

    /// Returns a request state to the spare ones.
    pub fn return_state(&self, mut state: Box<RequestState>) {
        self.buffers.take_back(&mut state.input);
        state.request_id.clear();
        let mut states = self.states.borrow_mut();
        if states.len() < SPARE_STATES {
            states.push(state);
        }
    }
}

/// The part of the body that has been sent but can be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// All of it is in the input, behind the head, in this number of bytes.
    Kept(usize),
    /// Some of it has left the input.
    Lost,
}

/// The request's body on its way to the provider, over all calls of an exchange. Its pipe is that of the
/// request state.
///
/// These hold at all times:
///
/// - The input holds at least the head and `kept` bytes behind it: `request.len + kept ≤ input.len`.
/// - Once part of the body has left the input, none of it is kept, and no further call begins.
/// - After the provider has stopped reading, bytes sent to it ≤ 0.
#[derive(Debug)]
pub(crate) struct Upload {
    sent: Sent,
    /// `true` once the provider has stopped reading the request. It may still respond.
    is_refused: bool,
    /// Number of bytes of the body to keep, so the request can be sent again.
    replay_max: usize,
    /// Number of bytes that earlier calls have sent.
    before: u64,
}

impl Upload {
    /// Creates the upload of a request that has not been sent.
    pub fn new() -> Self {
        Self { sent: Sent::Kept(0), is_refused: false, replay_max: 0, before: 0 }
    }

    /// Keeps up to `max` bytes of the body for a further call.
    pub fn keep_for_replay(&mut self, max: usize) {
        self.replay_max = max;
    }

    /// Returns `true` if the whole request can be sent again, as far as it has been sent.
    pub fn is_repeatable(&self) -> bool {
        self.sent != Sent::Lost
    }

    /// Returns `true` while part of the request is still to be sent.
    pub fn is_going_on(&self, state: &RequestState) -> bool {
        !self.is_refused && !state.up.is_complete()
    }

    /// Returns `true` if the provider has received the whole request.
    pub fn is_complete(&self, state: &RequestState) -> bool {
        !self.is_refused && state.up.is_complete()
    }

    /// Returns `true` if the provider has stopped reading the request.
    pub fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Number of bytes sent in all calls.
    pub fn sent_bytes(&self, state: &RequestState) -> u64 {
        self.before + state.up.moved_bytes
    }

    /// Notes that a call has begun with the first `used` bytes behind the head.
    pub fn begin(&mut self, state: &RequestState, used: usize) {
        debug_assert!(self.is_repeatable() && !self.is_refused);
        self.keep(state, used);
    }

    /// Notes that the provider has stopped reading the request.
    pub fn refuse(&mut self) {
        self.is_refused = true;
    }

    /// Forwards more of the body to the provider.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Leg,
        state: &mut RequestState,
        sink: &mut Leg,
        shared: Shared<'_>,
    ) -> Poll<Result<(), PipeError>> {
        debug_assert!(!self.is_refused);
        let RequestState { input, request, up, .. } = &mut *state;
        let mut kept = match self.sent {
            Sent::Kept(len) if len <= self.replay_max => {
                Kept { len: request.len + len, max: request.len + self.replay_max, has_gap: false }
            }
            Sent::Kept(len) if up.is_received() => Kept { len: request.len + len, max: 0, has_gap: false },
            // From here on the body only passes through the input.
            Sent::Kept(len) => {
                input.remove(request.len, request.len + len);
                self.sent = Sent::Lost;
                Kept::first(request.len)
            }
            Sent::Lost => Kept { has_gap: true, ..Kept::first(request.len) },
        };
        let polled = up.poll(cx, source, input, &mut kept, sink, shared);
        if kept.has_gap {
            if kept.len > request.len {
                // With a gap in it, the kept part of the body is useless.
                input.remove(request.len, kept.len);
            }
            self.sent = Sent::Lost;
        } else if self.is_repeatable() {
            let len = kept.len - request.len;
            self.keep(state, len);
        }
        polled
    }

    /// Prepares for a further call.
    pub fn repeat(&mut self, state: &mut RequestState) {
        debug_assert!(self.is_repeatable());
        self.before += state.up.moved_bytes;
        self.is_refused = false;
        state.reset_up();
        if planted!(RepeatShortened) && state.input.filled().len() > state.request.len {
            state.input.remove(state.request.len, state.request.len + 1);
        }
        self.keep(state, 0);
    }

    /// Returns the number of bytes sent so far, which count no more.
    pub fn take_sent_bytes(&mut self) -> u64 {
        mem::take(&mut self.before)
    }

    /// Passes over the body, which no provider receives. Returns `false` if the input does not hold all of
    /// it, so the start of the next request is unknown.
    pub fn skip(&mut self, state: &mut RequestState) -> bool {
        debug_assert!(self.is_repeatable());
        let RequestState { input, request, up, .. } = &mut *state;
        let Some(used) = up.skip(&input.filled()[request.len..]) else { return false };
        self.keep(state, used);
        true
    }

    /// Returns the sent part of the body, if all of it is still there.
    pub fn kept_body<'a>(&self, state: &'a RequestState) -> &'a [u8] {
        let body = &state.input.filled()[state.request.len..];
        match (self.sent, state.request.framing) {
            (Sent::Kept(len), RequestFraming::Length(_)) => &body[..len],
            _ => &[],
        }
    }

    /// Removes the request from the input. Bytes after it stay.
    pub fn drop_request(&mut self, state: &mut RequestState, pools: &Pools) {
        let RequestState { input, request, .. } = &mut *state;
        let kept = match self.sent {
            Sent::Kept(len) => len,
            Sent::Lost => 0,
        };
        input.remove(0, request.len + kept);
        pools.buffers.shrink(input);
        self.sent = Sent::Kept(0);
    }

    fn keep(&mut self, state: &RequestState, len: usize) {
        debug_assert!(state.request.len + len <= state.input.filled().len());
        self.sent = Sent::Kept(len);
    }
}

/// The moments of an exchange.
#[derive(Debug)]
pub(crate) struct Clock {
    /// The worker turned to the request, before its head was completely received.
    pub begun: Moment,
    /// Duration of obtaining a connection.
    pub dial: DialTimes,
    /// Time that the request waited for a connection, for its remedies, and for calls that failed.
    pub waited_nanos: u64,
    /// The last call's head was written to the socket, or the attempt to connect began that has failed.
    pub sent: Moment,
    /// The rest of the request's body, if any, was written to the socket.
    pub uploaded: Moment,
    /// The worker turned to the response, or to its first byte.
    pub first_byte: Moment,
    /// The response's head, and the part of its body received by then, was written to the socket.
    pub forwarded: Moment,
}

impl Clock {
    /// Creates the clock of an exchange that began at `begun`.
    pub fn new(begun: Moment) -> Self {
        let dial = DialTimes::default();
        Self {
            begun,
            dial,
            waited_nanos: 0,
            sent: begun,
            uploaded: begun,
            first_byte: begun,
            forwarded: begun,
        }
    }

    /// Returns the part of the latency that the gateway itself added.
    pub fn footprint_nanos(&self) -> u64 {
        let there = self.sent.nanos_since(self.begun).saturating_sub(self.waited_nanos);
        there + self.forwarded.nanos_since(self.first_byte)
    }
}

/// The deadlines of an exchange. The connection's only timer is set to the nearest.
pub(crate) struct Deadlines {
    /// The end of the whole exchange.
    pub total: Moment,
    /// The time at which a client that has half-closed its connection counts as gone.
    pub half_close: Moment,
    /// Number of response bytes sent when `half_close` was set.
    pub half_close_moved_bytes: u64,
    /// The deadline of the current wait: for the first byte, or for the next one.
    pub phase: Moment,
    /// The rate of the client's upload.
    pub rate: RateWindow,
    /// The rate at which the client reads the response.
    pub taking: Taking,
    /// The time from which the client is watched while the exchange waits for the provider. `NEVER` once it
    /// is watched.
    pub watch: Moment,
}

impl Deadlines {
    /// Creates deadlines that hold only the end of the whole exchange, if it has one.
    pub fn new(total: Moment) -> Self {
        let never = Moment::NEVER;
        Self {
            total,
            half_close: never,
            half_close_moved_bytes: 0,
            phase: never,
            rate: RateWindow::NONE,
            taking: Taking::NOTHING,
            watch: never,
        }
    }

    /// Returns `true` if the client's socket is being watched for a disconnect.
    pub fn watches_client(&self) -> bool {
        self.watch == Moment::NEVER
    }

    /// Sets the connection's timer to the nearest deadline.
    pub fn arm(&self, timer: &Timer) {
        let nearest = self.total.min(self.half_close).min(self.phase);
        timer.set_at(nearest.min(self.rate.ends).min(self.taking.ends()).min(self.watch));
    }

    /// Sets the timer to the next deadline and registers the waker, after the timer expired without
    /// consequence.
    pub fn rearm(&mut self, timer: &Timer, cx: &Context<'_>, now: Moment) {
        if self.watch <= now {
            self.watch = Moment::NEVER;
        }
        if self.rate.ends <= now {
            self.rate.ends = now + RATE_WINDOW;
        }
        self.arm(timer);
        timer.poll_expired(cx);
    }
}

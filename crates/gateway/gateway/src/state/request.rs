//! The state of one exchange while it runs: the call's target, the buffers and tables of request and
//! response, the clock and the deadlines.

use std::cell::RefCell;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Context;

use egret_clients::JwtMemory;
use egret_clock::Moment;
use egret_http1::{Edits, RequestHead, ResponseFraming, ResponseHead, Span};
use egret_leg::Framing;
use egret_message::{Destination, RequestId};
use egret_net::budget::Budget;
use egret_net::buffer::{Buffer, BufferPool};
use egret_net::deadline::Timer;
use egret_net::pace::{RATE_WINDOW, RateWindow, Taking};

use egret_body::Pipe;
use egret_upstream::{DialTimes, Upstream};

/// Number of spare request states that a worker keeps.
const SPARE_STATES: usize = 1024;

/// A call to make: the destination and the request to send. All ways of routing lead to this.
#[derive(Debug, Clone)]
pub(crate) struct CallTarget {
    /// The provider that the call belongs to, or a host that no configured provider has.
    pub upstream: Rc<Upstream>,
    /// The upstream whose base path precedes the target, if it is not `upstream`: a remedy has changed the
    /// target to one that belongs to another provider.
    pub based_on: Option<Rc<Upstream>>,
    /// Path and query, relative to the provider's URL: a part of the received target.
    pub target: Span,
    /// The way in which an empty path is sent.
    pub empty_path: EmptyPath,
    /// `true` if the target differs from the received one.
    pub new_target: bool,
    /// The `Host` sent to the provider, if the client chose one that is not the provider's own.
    pub kept_host: Option<Box<KeptHost>>,
    /// `true` if the received `Host` is the provider's own.
    pub has_own_host: bool,
    /// `true` if the client named the provider by base URL, so the response is rewritten to match.
    pub is_rewritten: bool,
}

/// The form in which an empty path, relative to the provider's URL, is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EmptyPath {
    /// A slash behind the base path.
    Slash,
    /// Nothing: the client requested the base path itself, without a slash at its end.
    Bare,
    /// An asterisk: the request is about the server as a whole (RFC 9112 §3.2.4).
    Asterisk,
}

/// A host that the client chose for a provider with a different one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptHost {
    /// The host as the client wrote it.
    pub sent: Span,
    /// The host in lower case.
    pub name: Box<str>,
    pub port: u16,
    /// `true` if the config lists the host as one of the provider's.
    pub is_known: bool,
}

impl CallTarget {
    /// Creates a call of `target`, the whole target, at `upstream`.
    pub fn whole(upstream: Rc<Upstream>, target: Span) -> Self {
        Self {
            upstream,
            based_on: None,
            target,
            empty_path: EmptyPath::Slash,
            new_target: false,
            kept_host: None,
            has_own_host: false,
            is_rewritten: false,
        }
    }

    /// Returns the path that precedes the target.
    pub fn base(&self) -> &[u8] {
        &self.based_on.as_ref().unwrap_or(&self.upstream).plan.path_prefix
    }

    /// Returns the `Host` to send to the provider, if it differs from the received one.
    pub fn host_field<'a>(&'a self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        match &self.kept_host {
            Some(kept) => Some(kept.sent.of(bytes)),
            None if self.has_own_host => None,
            None => Some(&self.upstream.plan.host_field),
        }
    }

    /// Returns the destination as flows see it.
    pub fn destination(&self) -> Destination<'_> {
        let plan = &self.upstream.plan;
        let kept = self.kept_host.as_ref();
        Destination {
            provider: plan.provider(),
            tls: plan.origin.tls,
            host: plan.host_text(),
            port: plan.origin.authority.port,
            base: self.base(),
            has_bare_base: self.empty_path == EmptyPath::Bare,
            kept_host: kept.map(|kept| (&*kept.name, kept.port)),
            takes_credentials: kept.is_none_or(|kept| kept.is_known),
        }
    }
}

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

//! Buffers and tables of one exchange, and the pools from which a worker lends them.

use std::cell::RefCell;
use std::mem;
use std::sync::Arc;

use egret_http1::{Edits, RequestFraming, RequestHead, ResponseFraming, ResponseHead};
use egret_net::budget::Budget;
use egret_net::buffer::{Buffer, BufferPool};

use crate::state::body::Pipe;

/// Number of spare request states that a worker keeps.
const SPARE_STATES: usize = 256;

/// Buffers and tables for one request. A worker lends one to each connection with an exchange in progress.
#[derive(Debug, Default)]
pub(crate) struct RequestState {
    /// Bytes received from the client: the request's head, then its body or the next request.
    pub input: Buffer,
    pub request: RequestHead,
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
            self.response_state.down.reset(ResponseFraming::None, false);
            mem::swap(&mut self.response_state, &mut pools.response_state.borrow_mut());
        }
    }

    /// Prepares to send the request that was just parsed.
    pub fn reset_up(&mut self) {
        let framing = self.request.framing;
        self.up.reset(framing, framing == RequestFraming::Chunked);
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
}

impl Pools {
    /// Creates empty pools, whose gathered bodies are charged to `gathered`.
    pub fn new(gathered: Arc<Budget>) -> Self {
        Self {
            buffers: BufferPool::new(gathered),
            states: RefCell::default(),
            response_state: RefCell::default(),
            edits: RefCell::default(),
        }
    }

    /// Takes a spare request state, or creates one.
    pub fn take_state(&self) -> Box<RequestState> {
        self.states.borrow_mut().pop().unwrap_or_default()
    }

    /// Returns a request state to the spare ones.
    pub fn return_state(&self, mut state: Box<RequestState>) {
        self.buffers.take_back(&mut state.input);
        let mut states = self.states.borrow_mut();
        if states.len() < SPARE_STATES {
            states.push(state);
        }
    }
}

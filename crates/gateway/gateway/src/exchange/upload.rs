//! The upload: the request's body on its way to the provider, over all calls of an exchange.
//!
//! These hold at all times:
//!
//! - The input holds at least the head and `kept` bytes behind it: `request.len + kept ≤ input.len`.
//! - Once part of the body has left the input, none of it is kept, and no further call begins.
//! - After the provider has stopped reading, bytes sent to it ≤ 0.

use std::task::{Context, Poll};

use egret_clock::planted;
use egret_http1::RequestFraming;
use egret_leg::Leg;

use crate::state::request::{Pools, RequestState};
use egret_body::{Kept, PipeError, Shared};

/// The part of the body that has been sent but can be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// All of it is in the input, behind the head, in this number of bytes.
    Kept(usize),
    /// Some of it has left the input.
    Lost,
}

/// The state of the upload. Its pipe is that of the request state.
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
        std::mem::take(&mut self.before)
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

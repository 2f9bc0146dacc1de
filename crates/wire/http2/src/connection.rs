//! A connection: receives frames and sends the output, in turns of its task.
//!
//! The streams that frames have woken run before what they and the frames have added to the output is sent.
//! So a turn of many streams costs one call of the system in each direction. These hold at all times:
//!
//! - Bytes received in a turn ≤ `TURN_BYTES`.
//! - Bytes in `partial` ≤ one frame, unless answers to the peer's frames wait for the socket.

use std::io::{self, ErrorKind, IoSlice};
use std::task::{Context, Poll, Waker};

use egret_clock::Moment;
use egret_net::stream::Stream;

use crate::frame::{HEAD_BYTES, PAYLOAD_BYTES_MAX};
use crate::scratch::{INPUT_BYTES, give_input, take_input};
use crate::state::{ConnectionPhase, Core, Ending, Role, SharedCore};

/// Number of bytes that are received before the streams have their turn.
const TURN_BYTES: usize = 64 << 10;
/// Number of calls of the system that send, in one turn.
const SENDS_IN_TURN: usize = 4;

const _: () = assert!(TURN_BYTES >= HEAD_BYTES + PAYLOAD_BYTES_MAX && INPUT_BYTES >= TURN_BYTES);

/// The outcome of receiving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// All that has arrived was handled, and the task is woken once there is more.
    All,
    /// There may be more.
    More,
    /// No more is handled before answers are sent.
    Stalled,
}

/// A connection.
pub(crate) struct Transport {
    stream: Stream,
    shared: SharedCore,
    /// Reading bytes that were not handled.
    partial: Vec<u8>,
    /// The error of sending, after which what was received is still handled.
    send_error: Option<ErrorKind>,
    /// The time when something was received last.
    pub received: Moment,
}

impl Transport {
    /// Takes a connection, of which the bytes `ahead` have been received.
    pub fn new(stream: Stream, core: Core, ahead: &[u8]) -> Self {
        let (partial, received) = (ahead.to_vec(), Moment::now());
        Self { stream, shared: SharedCore::new(core), partial, send_error: None, received }
    }

    /// Returns the state that the streams share.
    pub fn shared(&self) -> &SharedCore {
        &self.shared
    }

    /// Sends the first frames, and waits until the peer has sent `expected`. Returns `false` if it sends
    /// something else, or leaves.
    pub fn poll_expect(&mut self, cx: &mut Context<'_>, expected: &[u8]) -> Poll<bool> {
        loop {
            if let Some(rest) = self.partial.strip_prefix(expected) {
                self.partial = rest.to_vec();
                return Poll::Ready(true);
            }
            if !expected.starts_with(&self.partial) {
                return Poll::Ready(false);
            }
            let mut buffer = [0; 1 << 10];
            match self.stream.poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(count @ 1..)) => self.partial.extend_from_slice(&buffer[..count]),
                Poll::Ready(_) => return Poll::Ready(false),
                Poll::Pending => {
                    self.send(cx);
                    return if self.send_error.is_some() { Poll::Ready(false) } else { Poll::Pending };
                }
            }
        }
    }

    /// Runs a turn of the connection's task. Returns the reason why the connection has ended, if it has.
    pub fn turn(&mut self, cx: &mut Context<'_>) -> Option<Ending> {
        let was_receiving = self.shared.turn(|core| {
            core.begin_turn(cx.waker());
            core.is_receiving()
        });
        self.send(cx);
        let received = self.receive(cx);
        let mut is_unfinished = received == Reading::More;
        let is_unused = self.shared.is_alone();
        let is_early = self.shared.turn(|core| {
            core.close_if_unused(is_unused);
            // What the streams are about to add is sent together with this, and a client that is sent away
            // learns it after this side.
            let is_receiving = core.is_receiving();
            let is_sent_away = was_receiving && !is_receiving && core.terms.role == Role::Server;
            is_sent_away || (is_receiving && (!core.woken.is_empty() || !core.arrived.is_empty()))
        });
        if is_early && !self.is_all_sent() {
            is_unfinished = true;
        } else {
            is_unfinished |= self.send(cx);
        }
        let is_free = || self.shared.read(|core| !core.output.is_full_of_answers());
        is_unfinished |= received == Reading::Stalled && is_free();
        let ending = self.poll_end(cx);
        if is_unfinished && ending.is_none() {
            cx.waker().wake_by_ref();
        }
        self.shared.turn(|core| core.end_turn(is_unfinished)).into_iter().for_each(Waker::wake);
        ending
    }

    fn is_all_sent(&self) -> bool {
        self.shared.read(|core| core.output.is_empty()) && !self.stream.is_holding()
    }

    /// Sends the output, as far as the socket accepts it. Returns `true` if it may accept more.
    fn send(&mut self, cx: &mut Context<'_>) -> bool {
        for _ in 0..SENDS_IN_TURN {
            match self.poll_send(cx) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) | Poll::Pending => return false,
                Poll::Ready(Err(error)) => {
                    self.send_error.get_or_insert(error.kind());
                    self.shared.turn(|core| core.output.clear());
                    return false;
                }
            }
        }
        true
    }

    /// Sends output in one call of the system. Ready with `false` if there was none.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let Self { stream, shared, send_error, .. } = self;
        shared.turn(|core| {
            core.pump();
            if core.output.is_empty() || send_error.is_some() {
                return if stream.is_holding() {
                    stream.poll_flush(cx).map_ok(|()| false)
                } else {
                    Poll::Ready(Ok(false))
                };
            }
            stream.poll_write(cx, &[IoSlice::new(core.output.waiting())]).map(|sent| match sent? {
                0 => Err(ErrorKind::WriteZero.into()),
                count => {
                    core.output.note_sent(count);
                    core.gate.note_sent(count);
                    Ok(true)
                }
            })
        })
    }

    /// Receives what has arrived, and handles whole frames.
    fn receive(&mut self, cx: &mut Context<'_>) -> Reading {
        if !self.shared.read(Core::is_receiving) {
            return Reading::All;
        }
        let mut buffer = take_input();
        let (filled, end) = self.fill(cx, &mut buffer);
        let (bytes, now) = (&buffer[..filled], self.received);
        let (used, is_stalled) = self.shared.turn(|core| {
            let used = core.receive(bytes, now);
            (used, core.output.is_full_of_answers())
        });
        self.keep(&bytes[used..], used);
        give_input(buffer);
        if is_stalled {
            return Reading::Stalled;
        }
        // What a peer sent before it closed the connection, such as GOAWAY, is still to be received, up to
        // its end.
        let failed = self
            .send_error
            .filter(|kind| !matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe));
        if let Some(ending) = end.or(failed.map(Ending::Failed)) {
            self.shared.turn(|core| core.end(ending));
        }
        if filled >= TURN_BYTES { Reading::More } else { Reading::All }
    }

    /// Keeps the `rest` behind the `used` bytes.
    fn keep(&mut self, rest: &[u8], used: usize) {
        if self.partial.len() > INPUT_BYTES {
            self.partial.drain(..used);
        } else if rest.is_empty() {
            self.partial = Vec::new();
        } else {
            self.partial.clear();
            self.partial.extend_from_slice(rest);
        }
    }

    /// Receives into `buffer`, behind what is left of before. Returns the number of bytes in it, and the
    /// reason why nothing follows, if so.
    fn fill(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> (usize, Option<Ending>) {
        let before = self.partial.len().min(buffer.len());
        buffer[..before].copy_from_slice(&self.partial[..before]);
        let mut filled = before;
        let end = loop {
            if filled >= TURN_BYTES {
                break None;
            }
            match self.stream.poll_read(cx, &mut buffer[filled..]) {
                Poll::Pending => break None,
                Poll::Ready(Ok(0)) => break Some(Ending::Closed),
                Poll::Ready(Ok(count)) => filled += count,
                Poll::Ready(Err(error)) => break Some(Ending::Failed(error.kind())),
            }
        };
        if filled > before {
            self.received = Moment::now();
        }
        (filled, end)
    }

    /// Closes the sending side once all is sent. Returns the reason why the connection has ended, if it has.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Option<Ending> {
        let phase = self.shared.read(|core| core.phase);
        if let ConnectionPhase::Closing(ending) = phase
            && ((self.is_all_sent() && self.stream.poll_shutdown(cx).is_ready()) || self.send_error.is_some())
        {
            self.shared.turn(|core| core.end(ending));
            return Some(ending);
        }
        if let ConnectionPhase::Closed(ending) = phase { Some(ending) } else { None }
    }
}

impl Drop for Transport {
    /// All streams end with it.
    fn drop(&mut self) {
        self.shared.act(|core| core.end(Ending::Closed));
    }
}

//! A connection of HTTP/2 to a provider.

use std::fmt;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use egret_clock::Moment;
use egret_net::stream::Stream;

use crate::call::ClientStream;
use crate::connection::Transport;
use crate::frame;
use crate::gate::Flood;
use crate::state::{Bounds, ConnectionPhase, Core, Ending, Role, SIGN_OF_LIFE, SharedCore, Terms};

/// Number of bytes that a provider may send on all streams before they are passed on. Streams that stall one
/// after another, each with the window of its time, do not fill it: 4 MiB twice, then 8 MiB / n for the nth
/// of 100, so they do not hold up the others.
const CONNECTION_WINDOW_BYTES: u32 = 40 << 20;
/// Number of streams that a provider may make this end reset, most of them by frames for streams that were
/// cancelled. Cancelled calls may leave some on their way.
const CAUSED_RESETS_MAX: usize = 1_000_000;

/// The end of a connection.
#[derive(Debug)]
pub enum ConnectionEnd {
    /// It has ended in order, or the provider has closed it.
    Closed,
    /// It has failed.
    Failed(io::Error),
    /// The provider sends a flood of frames.
    Flood(Flood),
}

/// The connection itself. A task polls it to its end, and so moves the bytes of all streams. If it is
/// dropped, all streams end.
pub struct ClientConnection {
    inner: Transport,
}

impl fmt::Debug for ClientConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConnection").finish_non_exhaustive()
    }
}

impl ClientConnection {
    /// Begins HTTP/2 on a new connection. The pool bounds the number of calls at a time. `bounds.streams` is
    /// what the provider is assumed to admit until it says its maximum.
    pub fn begin(stream: Stream, bounds: Bounds) -> (Self, Streams) {
        let terms = Terms {
            role: Role::Client,
            bounds,
            is_tls: matches!(stream, Stream::Tls(_)),
            window_bytes: CONNECTION_WINDOW_BYTES,
            caused_resets_max: CAUSED_RESETS_MAX,
        };
        let inner = Transport::new(stream, Core::new(terms), &[]);
        let streams = Streams { shared: inner.shared().clone() };
        (Self { inner }, streams)
    }

    /// Moves the bytes of all streams. Ready at the end of the connection, which comes by itself once all
    /// [`Streams`] of it are dropped and no stream is left.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionEnd> {
        let ended = self.inner.turn(cx);
        // The provider has been told why, if it reads that.
        let phase = self.inner.shared().read(|core| core.phase);
        let closing = if let ConnectionPhase::Closing(ending) = phase { Some(ending) } else { None };
        match ended.or(closing) {
            None => Poll::Pending,
            Some(Ending::Closed) => Poll::Ready(ConnectionEnd::Closed),
            Some(Ending::Failed(kind)) => Poll::Ready(ConnectionEnd::Failed(kind.into())),
            Some(Ending::Violation(reason)) => {
                Poll::Ready(ConnectionEnd::Failed(io::Error::other(reason.name())))
            }
            Some(Ending::Flood(flood)) => Poll::Ready(ConnectionEnd::Flood(flood)),
        }
    }

    /// Returns the time since anything was received.
    pub fn quiet_for(&self) -> Duration {
        Moment::now().since(self.inner.received)
    }

    /// Asks the provider for a sign of life, unless the last one is unanswered.
    pub fn ping(&mut self) {
        self.inner.shared().act(|core| {
            if !core.is_ping_open && core.is_receiving() {
                core.is_ping_open = true;
                frame::put_ping(core.output.writer(), 0, SIGN_OF_LIFE);
            }
        });
    }
}

/// The means to open streams on a connection, which ends once they and all streams are dropped.
#[derive(Clone)]
pub struct Streams {
    shared: SharedCore,
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").field("shared", &self.shared).finish()
    }
}

impl Streams {
    /// Returns `true` if streams may be opened: the connection is there, the provider has not announced its
    /// end (GOAWAY), and there are numbers left.
    pub fn is_open(&self) -> bool {
        self.shared.read(Core::may_open)
    }

    /// Returns the maximum number of streams at the same time: the assumed one before the provider's settings
    /// have arrived.
    pub fn max(&self) -> usize {
        self.shared.read(|core| core.peer.streams_max)
    }

    /// Returns the maximum that the provider's last settings have announced. `None` before they have arrived.
    pub fn announced(&self) -> Option<usize> {
        self.shared.read(|core| core.peer.is_settled.then_some(core.peer.streams_max))
    }

    /// Returns `true` if a stream may be opened now: the provider may have lowered its maximum meanwhile.
    pub fn has_room(&self) -> bool {
        self.shared.read(Core::has_room)
    }

    /// Returns a stream, which is opened by the head of its request.
    pub fn stream(&self) -> ClientStream {
        ClientStream::new(self.shared.clone())
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.shared.leave();
    }
}

//! A connection of HTTP/2 from a client.

use std::future::poll_fn;
use std::task::{Context, Poll};

use egret_net::stream::Stream;

use crate::connection::Transport;
use crate::frame::{self, MAX_31_BITS, Reason};
use crate::gate::Flood;
use crate::state::{Bounds, ConnectionPhase, Core, Ending, GOODBYE, PREFACE, Role, Terms};
use crate::stream::ServerStream;
use crate::table::StreamSlot;

/// The first line of the client's preface (RFC 9113 §3.4). No request of HTTP/1.1 begins so.
const PREFACE_LINE: &[u8] = b"PRI * HTTP/2.0\r\n";
/// Number of bytes that a client may send on all streams before they are passed on: as many as their windows
/// admit, so stalled streams do not hold up the others.
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
/// Number of streams that a client may make this end reset before its connection ends.
const CAUSED_RESETS_MAX: usize = 1_024;

/// An event on a connection.
#[derive(Debug)]
pub enum Arrived {
    /// A request.
    Stream(ServerStream),
    /// The client sends a flood of frames. The connection ends by itself, which must not take long.
    Flood(Flood),
    /// The connection has ended.
    End,
}

/// Returns `true` if `bytes`, the first ones of a connection, begin HTTP/2.
pub fn is_preface(bytes: &[u8]) -> bool {
    bytes.starts_with(PREFACE_LINE)
}

/// A client's connection.
pub struct ServerConnection {
    inner: Transport,
    /// `true` once the task has had its turn, and what has arrived is taken.
    has_run: bool,
    ending: Option<Ending>,
    is_flood_told: bool,
}

impl std::fmt::Debug for ServerConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerConnection").field("ending", &self.ending).finish_non_exhaustive()
    }
}

impl ServerConnection {
    /// Waits for the preface of a client, of whose bytes `ahead` have been received. It waits for the client,
    /// so set a timeout. `None` if the client does not speak HTTP/2, or has left.
    pub async fn accept(stream: Stream, ahead: &[u8], bounds: Bounds) -> Option<Self> {
        let terms = Terms {
            role: Role::Server,
            bounds,
            is_tls: matches!(stream, Stream::Tls(_)),
            window_bytes: CONNECTION_WINDOW_BYTES,
            caused_resets_max: CAUSED_RESETS_MAX,
        };
        let mut inner = Transport::new(stream, Core::new(terms), ahead);
        let begins = poll_fn(|cx| inner.poll_expect(cx, PREFACE)).await;
        begins.then_some(Self { inner, has_run: false, ending: None, is_flood_told: false })
    }

    /// Moves the bytes of all streams, and waits for the next request.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Arrived> {
        if !self.has_run {
            self.has_run = true;
            self.ending = self.inner.turn(cx);
        }
        while let Some((slot, is_lost)) = self.next() {
            let stream = ServerStream::new(self.inner.shared().clone(), slot);
            // One that the client has reset is nobody's business.
            if !is_lost {
                return Poll::Ready(Arrived::Stream(stream));
            }
        }
        if let ConnectionPhase::Closing(Ending::Flood(flood)) | ConnectionPhase::Closed(Ending::Flood(flood)) =
            self.inner.shared().read(|core| core.phase)
            && !self.is_flood_told
        {
            self.is_flood_told = true;
            return Poll::Ready(Arrived::Flood(flood));
        }
        self.has_run = false;
        if self.ending.is_some() { Poll::Ready(Arrived::End) } else { Poll::Pending }
    }

    /// Takes the next stream that has arrived, and whether it is lost already.
    fn next(&self) -> Option<(StreamSlot, bool)> {
        self.inner.shared().turn(|core| {
            let slot = core.arrived.pop_front()?;
            Some((slot, core.table[slot].lost.is_some()))
        })
    }

    /// Tells the client to open no more streams, and ends the connection after those in flight (RFC 9113
    /// §6.8).
    pub fn drain(&mut self) {
        self.inner.shared().act(|core| {
            if core.phase == ConnectionPhase::Open {
                core.phase = ConnectionPhase::Leaving;
                let out = core.output.writer();
                frame::put_go_away(out, MAX_31_BITS, Reason::NO_ERROR);
                frame::put_ping(out, 0, GOODBYE);
                core.wake_task();
            }
        });
    }
}

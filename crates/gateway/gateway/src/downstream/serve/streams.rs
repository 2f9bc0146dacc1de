//! Serves a client's HTTP/2 connection: each stream is an exchange in a task of its own.
//!
//! These hold at all times:
//!
//! - Exchanges in flight on the connection ≤ `STREAMS_MAX`, also those whose stream the client has reset: a
//!   client cannot have more work done than it waits for ("Rapid Reset").
//! - Without exchanges in flight, the connection has a deadline.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use egret_clock::Moment;
use egret_http2::{Arrived, Bounds, Flood, ServerConnection, ServerStream};
use egret_leg::Leg;
use egret_message::ClientAddress;
use egret_net::deadline::Timer;
use egret_net::event_loop::{self, spawn};
use tracing::{debug, warn};

use super::{DRAIN_LINGER, serve_stream};
use crate::downstream::connection::{ClientConnection, ClientLeg};
use crate::downstream::intercept;

/// Maximum number of exchanges at the same time on a connection: what RFC 9113 §6.5.2 recommends at least.
const STREAMS_MAX: u32 = 100;
/// Number of bytes that a field counts more than it has (RFC 9113 §6.5.2).
const FIELD_OVERHEAD_BYTES: usize = 32;
/// Time in which the connection of a flooding client is closed.
const FLOOD_LINGER: Duration = Duration::from_secs(1);

/// Serves the connection of `client` to its end. The bytes `ahead` of it have been received.
pub(super) async fn serve(client: ClientLeg, ahead: Box<[u8]>) {
    client.note_addresses();
    let ClientLeg { leg, timer, connection, .. } = client;
    let Some(stream) = leg.into_connection() else { return };
    let view = connection.worker.view();
    let limits = &view.plan.head_limits;
    let header_list = limits.head + limits.fields * FIELD_OVERHEAD_BYTES;
    let bounds = Bounds {
        streams: STREAMS_MAX,
        header_list: u32::try_from(header_list).unwrap_or(u32::MAX),
        fields: limits.fields,
    };
    let patience = view.plan.timeouts.head.unwrap_or(Duration::MAX);
    let accepted = event_loop::timeout(patience, ServerConnection::accept(stream, &ahead, bounds)).await;
    let Ok(Some(inner)) = accepted else {
        debug!("a client's HTTP/2 connection does not begin as it must");
        // A client that dislikes the certificate may have closed it.
        return intercept::note_end(&ClientLeg::of(connection, Leg::None));
    };
    // A first request may have arrived already, and an exchange has no deadline of its connection's.
    timer.set(Moment::now(), None);
    let mut streams =
        Streams { inner, connection, timer, in_flight: Rc::default(), phase: Phase::Serving, is_idle: false };
    poll_fn(|cx| streams.poll(cx)).await;
    streams.note_end();
}

/// The phases of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serving,
    /// The client has been told to open no more streams.
    Draining,
    /// The client has sent a flood: the connection ends.
    Flooded,
}

/// The exchanges in flight.
#[derive(Debug, Default)]
struct InFlight {
    count: Cell<u32>,
    /// The task of the connection.
    waker: RefCell<Option<Waker>>,
}

/// One exchange in flight.
#[derive(Debug)]
struct StreamSlot(Rc<InFlight>);

impl StreamSlot {
    fn take(in_flight: &Rc<InFlight>) -> Option<Self> {
        let count = in_flight.count.get();
        (count < STREAMS_MAX).then(|| {
            in_flight.count.set(count + 1);
            Self(Rc::clone(in_flight))
        })
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let left = self.0.count.get().saturating_sub(1);
        self.0.count.set(left);
        // The deadline of a connection without exchanges begins.
        if left == 0
            && let Some(waker) = &*self.0.waker.borrow()
        {
            waker.wake_by_ref();
        }
    }
}

/// A client's HTTP/2 connection.
struct Streams {
    inner: ServerConnection,
    connection: Rc<ClientConnection>,
    timer: Timer,
    in_flight: Rc<InFlight>,
    phase: Phase,
    /// `true` while no exchange is in flight, which is counted.
    is_idle: bool,
}

impl Streams {
    /// Moves the bytes of all streams, and starts their exchanges. Ready at the connection's end.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.note_waker(cx);
        loop {
            if self.phase == Phase::Serving && self.is_to_drain() {
                self.drain();
            }
            match self.inner.poll(cx) {
                Poll::Ready(Arrived::Stream(stream)) => self.start(stream),
                Poll::Ready(Arrived::Flood(flood)) => self.note_flood(flood),
                Poll::Ready(Arrived::End) => return Poll::Ready(()),
                Poll::Pending => {
                    self.note_idle();
                    if !self.timer.poll_expired(cx) {
                        return Poll::Pending;
                    }
                    if self.phase != Phase::Serving {
                        return Poll::Ready(());
                    }
                    self.drain();
                }
            }
        }
    }

    fn note_waker(&self, cx: &Context<'_>) {
        let mut waker = self.in_flight.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
    }

    /// Returns `true` if the client must open no more streams.
    fn is_to_drain(&self) -> bool {
        let worker = &self.connection.worker;
        let max = worker.view().plan.limits.requests_per_connection;
        worker.draining.get() || !self.connection.may_go_on(max)
    }

    fn drain(&mut self) {
        self.inner.drain();
        self.phase = Phase::Draining;
        if self.is_idle {
            self.timer.set(Moment::now(), Some(DRAIN_LINGER));
        }
    }

    fn start(&mut self, stream: ServerStream) {
        let Some(slot) = StreamSlot::take(&self.in_flight) else { return stream.refuse() };
        let client = ClientLeg::of(Rc::clone(&self.connection), Leg::stream(stream));
        spawn(async move {
            serve_stream(client).await;
            drop(slot);
        });
    }

    fn note_flood(&mut self, flood: Flood) {
        let now = Moment::now();
        self.connection.worker.counters().flood(flood);
        if self.connection.worker.shared.flooded.is_due(now) {
            let client = self.connection.noted_peer().and_then(ClientAddress::ip);
            warn!(?client, "the HTTP/2 connection of a client is closed: {flood}");
        }
        self.phase = Phase::Flooded;
        self.timer.set(now, Some(FLOOD_LINGER));
    }

    /// Notes whether exchanges are in flight. Without, the connection has a deadline.
    fn note_idle(&mut self) {
        let is_idle = self.in_flight.count.get() == 0;
        if self.is_idle == is_idle {
            return;
        }
        self.is_idle = is_idle;
        let worker = &self.connection.worker;
        let deadline = match self.phase {
            _ if !is_idle => None,
            Phase::Serving => worker.view().plan.timeouts.keep_alive,
            Phase::Draining | Phase::Flooded => Some(DRAIN_LINGER),
        };
        if self.phase != Phase::Flooded {
            self.timer.set(Moment::now(), deadline);
        }
        if is_idle {
            worker.counters().idle.add(1);
        } else {
            worker.counters().idle.sub(1);
        }
    }

    /// Notes that the connection has ended.
    fn note_end(self) {
        if self.is_idle {
            self.connection.worker.counters().idle.sub(1);
        }
        intercept::note_end(&ClientLeg::of(self.connection, Leg::None));
    }
}

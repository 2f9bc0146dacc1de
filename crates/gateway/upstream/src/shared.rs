//! One worker's HTTP/2 connections to a provider. Each is shared by many calls, and a task of the worker
//! moves its bytes.
//!
//! These hold at all times:
//!
//! - Calls on a connection ≤ the least of the provider's maximum and `pool.streams_per_connection`, as far as
//!   the provider's settings were known when they began.
//! - If calls wait, `dials` > 0.
//! - A connection that takes no further calls has no `streams`, so it ends with its last call.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::mem;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use egret_clock::Moment;
use egret_http2::{ClientConnection, ConnectionEnd, Streams};
use egret_leg::Leg;
use egret_net::event_loop::{Alarm, sleep, spawn};
use egret_observe::failure::Failure;
use egret_plan::OpenPlace;
use tokio::sync::oneshot;
use tracing::{debug, warn};

use super::{Connection, Counted, DialTimes, Place};

/// Time in which nothing has been received on a connection with calls, after which the provider is asked for
/// a sign of life. Servers of gRPC take offence at more frequent pings.
const QUIET: Duration = Duration::from_secs(30);
/// Time in which the provider has to give it.
const ANSWER: Duration = Duration::from_secs(15);

/// A place for a call.
#[derive(Debug)]
pub(super) enum Offer {
    /// A stream, or a connection that turned out to speak HTTP/1.1, with the times of its dial if the call
    /// was the first to wait for it.
    Connection(Box<Connection>, DialTimes),
    /// The provider speaks HTTP/1.1.
    Http1,
}

/// The connections to a provider.
#[derive(Debug, Default)]
pub(super) struct SharedConnections {
    open: RefCell<Vec<Rc<SharedConnection>>>,
    /// The calls that wait for a place. Bounded by the number of exchanges.
    waiting: RefCell<VecDeque<oneshot::Sender<Result<Offer, Failure>>>>,
    /// Number of connections that are being opened.
    dials: Cell<usize>,
}

/// A connection that calls share.
#[derive(Debug)]
pub(super) struct SharedConnection {
    id: u64,
    peer: SocketAddr,
    /// `None` once it takes no further calls.
    streams: RefCell<Option<Streams>>,
    /// Number of calls in progress.
    calls: Cell<u32>,
    /// `true` once it has carried a call.
    is_used: Cell<bool>,
    /// The time when the last call ended.
    idle_since: Cell<Moment>,
    /// Released when it is closed, so that another may be opened at once.
    open: RefCell<Option<OpenPlace>>,
    _counted: Counted,
}

/// The parts of a new connection that its calls have to know.
#[derive(Debug)]
pub(super) struct NewConnection {
    pub id: u64,
    pub peer: SocketAddr,
    pub inner: ClientConnection,
    pub streams: Streams,
    pub open: OpenPlace,
    pub counted: Counted,
}

/// One call on a connection.
#[derive(Debug)]
pub(super) struct StreamPlace {
    connection: Rc<SharedConnection>,
    pool: Weak<SharedConnections>,
    calls_max: u32,
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let connection = &self.connection;
        connection.calls.set(connection.calls.get().saturating_sub(1));
        connection.idle_since.set(Moment::now());
        if let Some(pool) = self.pool.upgrade() {
            pool.offer(self.calls_max, &mut DialTimes::default());
        }
    }
}

impl SharedConnection {
    /// Returns `true` if it takes further calls.
    fn is_open(&self) -> bool {
        self.streams.borrow().as_ref().is_some_and(Streams::is_open)
    }

    fn is_closed(&self) -> bool {
        self.streams.borrow().is_none()
    }

    fn has_room(&self, calls_max: u32) -> bool {
        let streams = self.streams.borrow();
        let allowed = streams.as_ref().map_or(0, |streams| streams.max().max(1));
        self.calls.get() < calls_max.min(u32::try_from(allowed).unwrap_or(u32::MAX))
    }

    /// Takes no further calls. It ends with its last one.
    fn close(&self) {
        *self.streams.borrow_mut() = None;
        if self.calls.get() == 0 {
            *self.open.borrow_mut() = None;
        }
    }

    fn is_idle_since(&self, before: Moment) -> bool {
        self.calls.get() == 0 && self.idle_since.get() <= before
    }
}

impl SharedConnections {
    /// Begins a call on the oldest connection that has room for it, if there is one. So the frames of many
    /// calls share reads and writes, and connections that a burst has opened become idle and are closed.
    pub fn take(self: &Rc<Self>, calls_max: u32) -> Option<Box<Connection>> {
        let mut open = self.open.borrow_mut();
        open.retain(|connection| {
            connection.is_open() || {
                connection.close();
                false
            }
        });
        let connection = open.iter().find(|connection| connection.has_room(calls_max))?;
        let stream = connection.streams.borrow().as_ref()?.stream();
        connection.calls.set(connection.calls.get() + 1);
        let place = StreamPlace { connection: Rc::clone(connection), pool: Rc::downgrade(self), calls_max };
        Some(Box::new(Connection {
            leg: Leg::call(stream),
            id: connection.id,
            peer: connection.peer,
            reused: connection.is_used.replace(true),
            place: Place::Shared { _call: place },
        }))
    }

    /// Lets a call wait for a place. Returns `true` if a connection has to be opened for it.
    pub fn wait(&self, calls_max: u32) -> (oneshot::Receiver<Result<Offer, Failure>>, bool) {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.waiting.borrow_mut();
        // Clients may have left meanwhile.
        waiting.retain(|other| !other.is_closed());
        waiting.push_back(sender);
        (receiver, waiting.len() > fitting(self.dials.get(), calls_max))
    }

    /// Notes that a connection is being opened.
    pub fn begin_dial(&self) {
        self.dials.set(self.dials.get() + 1);
    }

    /// Notes that no more is being opened for this dial. Returns `true` if calls wait for which none is.
    pub fn end_dial(&self) -> bool {
        self.dials.set(self.dials.get().saturating_sub(1));
        let mut waiting = self.waiting.borrow_mut();
        waiting.retain(|other| !other.is_closed());
        self.dials.get() == 0 && !waiting.is_empty()
    }

    /// Adds a new connection, and gives places on it to the calls that wait.
    pub fn add(self: &Rc<Self>, new: NewConnection, calls_max: u32, mut times: DialTimes) {
        let NewConnection { id, peer, inner, streams, open, counted } = new;
        let connection = Rc::new(SharedConnection {
            id,
            peer,
            streams: RefCell::new(Some(streams)),
            calls: Cell::new(0),
            is_used: Cell::new(false),
            idle_since: Cell::new(Moment::now()),
            open: RefCell::new(Some(open)),
            _counted: counted,
        });
        self.open.borrow_mut().push(Rc::clone(&connection));
        spawn(drive(inner, connection, Rc::downgrade(self)));
        self.offer(calls_max, &mut times);
    }

    /// Gives places to the calls that wait, in their order. The first one gets the `times`.
    fn offer(self: &Rc<Self>, calls_max: u32, times: &mut DialTimes) {
        while self.waiting.borrow().iter().any(|waiting| !waiting.is_closed()) {
            let Some(connection) = self.take(calls_max) else { return };
            self.give(Offer::Connection(connection, mem::take(times)));
        }
    }

    /// Gives one offer to the first call that waits.
    fn give(&self, offer: Offer) {
        let mut offer = Ok(offer);
        loop {
            let Some(first) = self.waiting.borrow_mut().pop_front() else { return };
            match first.send(offer) {
                Ok(()) => return,
                Err(unsent) => offer = unsent,
            }
        }
    }

    /// Gives a connection that speaks HTTP/1.1 to the first call that waits, and tells the others.
    pub fn give_http1(&self, connection: Box<Connection>, times: DialTimes) {
        self.give(Offer::Connection(connection, times));
        let all = mem::take(&mut *self.waiting.borrow_mut());
        for waiting in all {
            // The client may have left.
            let _ = waiting.send(Ok(Offer::Http1));
        }
    }

    /// Fails the calls that wait for the dial that has failed: those that do not fit on the connections that
    /// are still being opened.
    pub fn fail(&self, calls_max: u32, failure: &Failure) {
        let mut waiting = self.waiting.borrow_mut();
        waiting.retain(|other| !other.is_closed());
        let served = fitting(self.dials.get().saturating_sub(1), calls_max).min(waiting.len());
        let failed = waiting.split_off(served);
        drop(waiting);
        for waiting in failed {
            // The client may have left.
            let _ = waiting.send(Err(failure.clone()));
        }
    }

    /// Closes a connection without calls, if there is one.
    pub fn close_an_idle_one(&self) -> bool {
        let mut open = self.open.borrow_mut();
        let Some(at) = open.iter().position(|connection| connection.calls.get() == 0) else { return false };
        open.swap_remove(at).close();
        true
    }

    /// Closes the connections that have had no call for `timeout`. Returns `true` if any remain.
    pub fn sweep(&self, now: Moment, timeout: Duration) -> bool {
        let mut open = self.open.borrow_mut();
        open.retain(|connection| {
            let is_kept = connection.is_open() && !connection.is_idle_since(now - timeout);
            if !is_kept {
                connection.close();
            }
            is_kept
        });
        !open.is_empty()
    }

    /// Lets all connections end with their last call.
    pub fn close_all(&self) {
        let all = mem::take(&mut *self.open.borrow_mut());
        for connection in all {
            connection.close();
        }
    }

    /// Takes a connection out that takes no further calls.
    fn remove(&self, gone: &Rc<SharedConnection>) {
        self.open.borrow_mut().retain(|connection| !Rc::ptr_eq(connection, gone));
    }
}

/// Number of calls that fit on this number of connections.
fn fitting(connections: usize, calls_max: u32) -> usize {
    connections.saturating_mul(usize::try_from(calls_max).unwrap_or(usize::MAX))
}

/// Moves the bytes of a connection to its end.
async fn drive(mut inner: ClientConnection, connection: Rc<SharedConnection>, pool: Weak<SharedConnections>) {
    let mut liveness = Liveness::default();
    let leave = || {
        connection.close();
        if let Some(pool) = pool.upgrade() {
            pool.remove(&connection);
        }
    };
    let end = poll_fn(|cx| {
        if let Poll::Ready(end) = inner.poll(cx) {
            return Poll::Ready(Some(end));
        }
        // The provider may have announced the end (GOAWAY).
        if !connection.is_closed() && !connection.is_open() {
            leave();
        }
        // A provider that does not read must not keep a connection from ending.
        if liveness.is_dead(cx, &mut inner, connection.calls.get() > 0 || connection.is_closed()) {
            return Poll::Ready(None);
        }
        Poll::Pending
    })
    .await;
    leave();
    let peer = connection.peer;
    match end {
        Some(ConnectionEnd::Closed) => debug!(%peer, "an HTTP/2 connection has ended"),
        Some(ConnectionEnd::Failed(error)) => debug!(%peer, %error, "an HTTP/2 connection has failed"),
        Some(ConnectionEnd::Flood(flood)) => {
            warn!(%peer, "the HTTP/2 connection to a provider is closed: {flood}");
        }
        None => warn!(%peer, "an HTTP/2 connection is closed: the provider does not answer a ping"),
    }
}

/// The watch over a connection with calls: whether the provider is still there. Without calls, nothing is
/// asked.
#[derive(Debug, Default)]
struct Liveness {
    /// The time when the watch began, and the alarm for its next look.
    watch: Option<(Moment, Pin<Box<Alarm>>)>,
    /// `true` while an answer is awaited.
    is_asked: bool,
}

/// The next step of the watch.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    /// Nothing, for this time.
    Again(Duration),
    Ask,
    Dead,
}

impl Look {
    /// Judges a connection on which nothing has been received for `quiet`.
    fn at(quiet: Duration, is_asked: bool) -> Self {
        match (is_asked, quiet) {
            (_, quiet) if quiet < QUIET => Self::Again(QUIET.saturating_sub(quiet)),
            (false, _) => Self::Ask,
            (true, quiet) if quiet < QUIET + ANSWER => Self::Again((QUIET + ANSWER).saturating_sub(quiet)),
            (true, _) => Self::Dead,
        }
    }
}

impl Liveness {
    /// Returns `true` if the provider is gone.
    fn is_dead(&mut self, cx: &mut Context<'_>, inner: &mut ClientConnection, has_calls: bool) -> bool {
        if !has_calls {
            *self = Self::default();
            return false;
        }
        let (since, alarm) = self.watch.get_or_insert_with(|| (Moment::now(), Box::pin(sleep(QUIET))));
        while alarm.as_mut().poll(cx).is_ready() {
            let quiet = inner.quiet_for().min(Moment::now().since(*since));
            match Look::at(quiet, self.is_asked) {
                Look::Again(time) => {
                    self.is_asked &= quiet >= QUIET;
                    alarm.as_mut().set(sleep(time.max(Duration::from_millis(1))));
                }
                Look::Ask => {
                    inner.ping();
                    self.is_asked = true;
                    alarm.as_mut().set(sleep(ANSWER));
                }
                Look::Dead => return true,
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_provider_is_asked_once_and_then_given_up() {
        let seconds = Duration::from_secs;
        assert_eq!(Look::at(seconds(0), false), Look::Again(seconds(30)));
        assert_eq!(Look::at(seconds(29), false), Look::Again(seconds(1)));
        assert_eq!(Look::at(seconds(30), false), Look::Ask);
        assert_eq!(Look::at(seconds(31), true), Look::Again(seconds(14)));
        assert_eq!(Look::at(seconds(45), true), Look::Dead);
        assert_eq!(Look::at(seconds(5), true), Look::Again(seconds(25)));
    }
}

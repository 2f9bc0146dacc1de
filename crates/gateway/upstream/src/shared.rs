//! One worker's HTTP/2 connections to a provider. Each is shared by many calls, and a task of the worker
//! moves its bytes.
//!
//! These hold at all times:
//!
//! - A call begins on a connection only if fewer are in progress on it than the provider admits, as far as
//!   its settings are known, and than `pool.streams_per_connection`.
//! - If calls wait, a connection is open, is being opened or ends with its last call, and none has room. All
//!   that may change this serves them: the end of a call, of a dial and of a connection, and new settings.
//! - No call begins before those that wait.
//! - A connection that takes no further calls has no `streams`, so it ends with its last call.

use std::cell::{Cell, RefCell};
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
use egret_observe::failure::{ErrorKind, Failure};
use egret_plan::OpenPlace;
use tokio::sync::oneshot;
use tracing::{debug, warn};

use super::line::{Answer, Dial, WaitingCalls};
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
#[derive(Debug)]
pub(super) struct SharedConnections {
    /// Maximum number of calls at the same time on a connection, as the config has it.
    calls_max: u32,
    open: RefCell<Vec<Rc<SharedConnection>>>,
    waiting: RefCell<WaitingCalls<Offer>>,
    /// Number of connections that are being opened.
    dials: Cell<usize>,
    /// Number of calls in progress, also on connections that take no further ones.
    calls: Cell<usize>,
    /// The maximum of streams that the provider has announced last, on any connection.
    announced: Cell<Option<usize>>,
}

/// A connection that calls share.
#[derive(Debug)]
pub(super) struct SharedConnection {
    id: u64,
    peer: SocketAddr,
    /// `None` once it takes no further calls.
    streams: RefCell<Option<Streams>>,
    /// The maximum of streams that the provider has announced on it.
    announced: Cell<Option<usize>>,
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
}

impl StreamPlace {
    /// Returns `true` if the provider has lowered its maximum since the place was given, so there is no room
    /// now.
    pub fn is_taken_back(&self) -> bool {
        let streams = self.connection.streams.borrow();
        streams.as_ref().is_some_and(|streams| streams.is_open() && !streams.has_room())
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let connection = &self.connection;
        connection.calls.set(connection.calls.get().saturating_sub(1));
        connection.idle_since.set(Moment::now());
        if connection.is_closed() {
            connection.close();
        }
        if let Some(pool) = self.pool.upgrade() {
            pool.calls.set(pool.calls.get().saturating_sub(1));
            pool.serve(DialTimes::default());
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
        let allowed = streams.as_ref().map_or(0, Streams::max);
        self.calls.get() < calls_max.min(u32::try_from(allowed).unwrap_or(u32::MAX))
    }

    /// Takes no further calls. It ends with its last one.
    fn close(&self) {
        *self.streams.borrow_mut() = None;
        if self.calls.get() == 0 {
            *self.open.borrow_mut() = None;
        }
    }

    /// Returns the maximum that the provider's last settings have announced, if it is a new one.
    fn new_maximum(&self) -> Option<usize> {
        let announced = self.streams.borrow().as_ref().and_then(Streams::announced);
        if self.announced.replace(announced) == announced { None } else { announced }
    }

    fn is_idle_since(&self, before: Moment) -> bool {
        self.calls.get() == 0 && self.idle_since.get() <= before
    }
}

impl SharedConnections {
    /// Creates a pool without connections. Each is to have `calls_max` calls at the same time at most.
    pub fn new(calls_max: u32) -> Self {
        Self {
            calls_max,
            open: RefCell::default(),
            waiting: RefCell::default(),
            dials: Cell::new(0),
            calls: Cell::new(0),
            announced: Cell::new(None),
        }
    }

    /// Number of calls that a new connection will probably admit at the same time.
    pub fn calls_expected(&self) -> u32 {
        let announced = self.announced.get().map_or(u32::MAX, |max| u32::try_from(max).unwrap_or(u32::MAX));
        self.calls_max.min(announced)
    }

    /// Begins a call, if no other one waits and there is room.
    pub fn take(self: &Rc<Self>) -> Option<Box<Connection>> {
        if self.waiting.borrow_mut().is_empty() { self.begin() } else { None }
    }

    /// Begins a call on the oldest connection that has room for it, if there is one. So the frames of many
    /// calls share reads and writes, and connections that a burst has opened become idle and are closed.
    fn begin(self: &Rc<Self>) -> Option<Box<Connection>> {
        let mut open = self.open.borrow_mut();
        open.retain(|connection| {
            connection.is_open() || {
                connection.close();
                false
            }
        });
        let connection = open.iter().find(|connection| connection.has_room(self.calls_max))?;
        let stream = connection.streams.borrow().as_ref()?.stream();
        connection.calls.set(connection.calls.get() + 1);
        self.calls.set(self.calls.get() + 1);
        let place = StreamPlace { connection: Rc::clone(connection), pool: Rc::downgrade(self) };
        Some(Box::new(Connection {
            leg: Leg::call(stream),
            id: connection.id,
            peer: connection.peer,
            reused: connection.is_used.replace(true),
            place: Place::Shared(place),
        }))
    }

    /// Returns a number for a call that may have to wait.
    pub fn next_number(&self) -> u64 {
        self.waiting.borrow_mut().next_number()
    }

    /// Lets a call wait for a place. If one is needed and the pool has a place for it, a connection is
    /// opened.
    pub fn wait(self: &Rc<Self>, number: u64, dial: Dial) -> oneshot::Receiver<Answer<Offer>> {
        let receiver = self.waiting.borrow_mut().join(number, dial);
        self.serve(DialTimes::default());
        receiver
    }

    /// Notes that the time of a call that waits is over. What is being opened has timeouts of its own, and
    /// may still bring a place.
    pub fn note_overdue(self: &Rc<Self>, number: u64, failure: Failure) {
        // A place may have become free elsewhere: a tunnel's, or another worker's.
        self.serve(DialTimes::default());
        let mut waiting = self.waiting.borrow_mut();
        waiting.note_overdue(number, failure);
        if self.dials.get() == 0 {
            waiting.fail_overdue();
        }
    }

    /// Notes that a connection is being opened. One of [`add`](Self::add),
    /// [`give_http1`](Self::give_http1) and [`fail`](Self::fail) follows.
    pub fn begin_dial(&self) {
        self.dials.set(self.dials.get() + 1);
    }

    fn end_dial(&self) {
        self.dials.set(self.dials.get().saturating_sub(1));
    }

    /// Adds a new connection, and gives places on it to the calls that wait.
    pub fn add(self: &Rc<Self>, new: NewConnection, times: DialTimes) {
        self.end_dial();
        let NewConnection { id, peer, inner, streams, open, counted } = new;
        let connection = Rc::new(SharedConnection {
            id,
            peer,
            streams: RefCell::new(Some(streams)),
            announced: Cell::new(None),
            calls: Cell::new(0),
            is_used: Cell::new(false),
            idle_since: Cell::new(Moment::now()),
            open: RefCell::new(Some(open)),
            _counted: counted,
        });
        self.open.borrow_mut().push(Rc::clone(&connection));
        spawn(drive(inner, connection, Rc::downgrade(self)));
        self.serve(times);
    }

    /// Gives places to the calls that wait, in their order, and opens connections for the others. The first
    /// one gets the `times`.
    fn serve(self: &Rc<Self>, mut times: DialTimes) {
        if self.waiting.borrow_mut().is_empty() {
            return;
        }
        while !self.waiting.borrow_mut().is_empty()
            && let Some(connection) = self.begin()
        {
            let offer = Offer::Connection(connection, mem::take(&mut times));
            let unwanted = self.waiting.borrow_mut().give(offer);
            // It serves the others when nothing is borrowed.
            drop(unwanted);
        }
        if self.dials.get() == 0 {
            self.waiting.borrow_mut().fail_overdue();
        }
        while let Some(dial) = self.due_dial() {
            if let Err(failure) = dial() {
                if self.dials.get() == 0 && self.calls.get() == 0 && !self.is_any_open() {
                    self.waiting.borrow_mut().fail_behind(0, &failure);
                }
                break;
            }
        }
    }

    /// Returns the means to open a connection, if calls wait for which none is being opened.
    fn due_dial(&self) -> Option<Dial> {
        let mut waiting = self.waiting.borrow_mut();
        let (dials, calls) = (self.dials.get(), self.calls_expected());
        let is_due = match calls {
            // The provider may admit some later, and tell so on any connection (RFC 9113 §6.5.2).
            0 => dials == 0 && !self.may_admit_later(),
            _ => waiting.len() > fitting(dials, calls),
        };
        if is_due { waiting.dial() } else { None }
    }

    /// Returns `true` if a connection is open that admits no call yet.
    fn may_admit_later(&self) -> bool {
        let admits_none = |connection: &Rc<SharedConnection>| {
            connection.is_open() && connection.announced.get().is_none_or(|max| max == 0)
        };
        self.open.borrow().iter().any(admits_none)
    }

    fn is_any_open(&self) -> bool {
        self.open.borrow().iter().any(|connection| connection.is_open())
    }

    /// Gives a connection that speaks HTTP/1.1 to the first call that waits, and tells the others.
    pub fn give_http1(&self, connection: Box<Connection>, times: DialTimes) {
        self.end_dial();
        let mut waiting = self.waiting.borrow_mut();
        let unwanted = waiting.give(Offer::Connection(connection, times));
        waiting.give_all(|| Ok(Offer::Http1));
        drop((waiting, unwanted));
    }

    /// Fails the calls that wait for the dial that has failed: those that do not fit on the connections that
    /// are still being opened.
    pub fn fail(self: &Rc<Self>, failure: &Failure) {
        self.end_dial();
        let served = fitting(self.dials.get(), self.calls_expected());
        let mut waiting = self.waiting.borrow_mut();
        // Dials for later calls may follow each other without end.
        waiting.fail_overdue_by(failure);
        waiting.fail_behind(served, failure);
        drop(waiting);
        self.serve(DialTimes::default());
    }

    /// Closes a connection without calls, if there is one.
    pub fn close_an_idle_one(&self) -> bool {
        let mut open = self.open.borrow_mut();
        let Some(at) = open.iter().position(|connection| connection.calls.get() == 0) else { return false };
        open.swap_remove(at).close();
        true
    }

    /// Closes the connections that have had no call for `timeout`. Returns `true` if any remain, or may come:
    /// the calls that they are opened for may have left by then.
    pub fn sweep(&self, now: Moment, timeout: Duration) -> bool {
        let mut open = self.open.borrow_mut();
        open.retain(|connection| {
            let is_kept = connection.is_open() && !connection.is_idle_since(now - timeout);
            if !is_kept {
                connection.close();
            }
            is_kept
        });
        !open.is_empty() || self.dials.get() > 0 || !self.waiting.borrow_mut().is_empty()
    }

    /// Lets all connections end with their last call.
    pub fn close_all(&self) {
        let all = mem::take(&mut *self.open.borrow_mut());
        for connection in all {
            connection.close();
        }
    }

    /// Takes a connection out that the provider has ended. One that has never carried a call is like a failed
    /// dial to the calls that wait, so they do not open one after the other.
    fn remove(self: &Rc<Self>, gone: &Rc<SharedConnection>) {
        let mut open = self.open.borrow_mut();
        let before = open.len();
        open.retain(|connection| !Rc::ptr_eq(connection, gone));
        let was_open = open.len() < before;
        drop(open);
        if was_open && !gone.is_used.get() && !self.is_any_open() {
            let detail = "the provider closed a connection before it admitted a call";
            let served = fitting(self.dials.get(), self.calls_expected());
            self.waiting.borrow_mut().fail_behind(served, &Failure::new(ErrorKind::ConnectFailed, detail));
        }
        self.serve(DialTimes::default());
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
        if let (Some(max), Some(pool)) = (connection.new_maximum(), pool.upgrade()) {
            pool.announced.set(Some(max));
            pool.serve(DialTimes::default());
        }
        // A provider that does not read must not keep a connection from ending.
        if liveness.is_dead(cx, &mut inner, connection.calls.get() > 0 || connection.is_closed()) {
            return Poll::Ready(None);
        }
        Poll::Pending
    })
    .await;
    // Its streams are lost, so another one may be opened.
    *connection.open.borrow_mut() = None;
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

    type Call = oneshot::Receiver<Answer<Offer>>;

    /// A pool whose provider has announced this maximum.
    fn pool(announced: Option<usize>) -> Rc<SharedConnections> {
        let pool = Rc::new(SharedConnections::new(10));
        pool.announced.set(announced);
        pool
    }

    /// Lets calls wait. The pool has places for so many connections.
    fn wait(pool: &Rc<SharedConnections>, calls: usize, places: usize) -> Vec<Call> {
        let begin = move |pool: &SharedConnections| {
            if pool.dials.get() == places {
                return Err(failure(ErrorKind::PoolFull));
            }
            pool.begin_dial();
            Ok(())
        };
        let call = |_| {
            let all = Rc::clone(pool);
            pool.wait(pool.next_number(), Rc::new(move || begin(&all)))
        };
        (0..calls).map(call).collect()
    }

    fn failure(kind: ErrorKind) -> Failure {
        Failure::new(kind, "no place")
    }

    /// The errors of the calls, in their order. Those that wait have none.
    fn errors(calls: &mut [Call]) -> Vec<Option<ErrorKind>> {
        let error = |call: &mut Call| call.try_recv().ok()?.err().map(|failure| failure.kind);
        calls.iter_mut().map(error).collect()
    }

    #[test]
    fn a_connection_is_opened_for_all_calls_that_fit_on_it() {
        for (announced, calls, dials) in
            [(None, 10, 1), (None, 11, 2), (Some(4), 9, 3), (Some(100), 21, 3), (Some(0), 9, 1)]
        {
            let pool = pool(announced);
            let mut calls = wait(&pool, calls, 9);
            assert_eq!(pool.dials.get(), dials);
            assert!(errors(&mut calls).iter().all(Option::is_none));
        }
    }

    #[test]
    fn a_pool_is_swept_while_it_opens_a_connection() {
        let (pool, now) = (pool(None), Moment::now());
        let sweep = || pool.sweep(now, Duration::from_secs(1));
        assert!(!sweep());
        let calls = wait(&pool, 1, 1);
        assert!(sweep());
        drop(calls);
        assert!(sweep(), "a connection that no call uses would stay open");
        pool.fail(&failure(ErrorKind::ConnectFailed));
        assert!(!sweep());
    }

    #[test]
    fn calls_fail_once_nothing_that_opens_has_room_for_them() {
        let pool = pool(Some(2));
        let mut calls = wait(&pool, 5, 2);
        assert_eq!((pool.dials.get(), errors(&mut calls)), (2, vec![None; 5]));
        let failed = Some(ErrorKind::TlsFailed);
        pool.fail(&failure(ErrorKind::TlsFailed));
        assert_eq!((pool.dials.get(), errors(&mut calls)), (1, vec![None, None, failed, failed, failed]));
        drop(calls);
        // Nobody waits for the last one.
        pool.fail(&failure(ErrorKind::TlsFailed));
        assert_eq!(pool.dials.get(), 0);
        assert_eq!(errors(&mut wait(&pool, 1, 0)), [Some(ErrorKind::PoolFull)]);
    }

    #[test]
    fn a_call_whose_time_is_over_fails_with_the_next_dial() {
        let pool = pool(Some(2));
        let mut calls = wait(&pool, 3, 2);
        pool.note_overdue(1, failure(ErrorKind::ConnectTimeout));
        pool.fail(&failure(ErrorKind::ConnectFailed));
        let failed = Some(ErrorKind::ConnectFailed);
        assert_eq!((pool.dials.get(), errors(&mut calls)), (1, vec![failed, None, None]));
    }

    #[test]
    fn a_call_whose_time_is_over_waits_for_dials_only() {
        let pool = pool(None);
        let mut calls = wait(&pool, 3, 1);
        pool.note_overdue(2, failure(ErrorKind::ConnectTimeout));
        assert_eq!(errors(&mut calls), [None; 3]);
        pool.end_dial();
        pool.serve(DialTimes::default());
        let over = Some(ErrorKind::ConnectTimeout);
        // Another one is opened for the last call.
        assert_eq!((pool.dials.get(), errors(&mut calls)), (1, vec![over, over, None]));
    }

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

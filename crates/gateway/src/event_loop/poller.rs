//! Sockets as the system tells of them: which can be received from, which can be sent to, and who waits for that.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use egret_store::Moment;
use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};

use super::ahead::{self, Ahead, Received};
use super::now;
use super::tasks::{Tasks, Waiter};

/// Events that the system is asked for at once.
const EVENTS_MAX: usize = 1024;
/// Stands for other threads' wakers. No socket has it: the process runs out of descriptors long before.
const REMOTE: Token = Token(usize::MAX);

/// How soon what comes is received for who waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Haste {
    /// When its task runs.
    Turn,
    /// Before that, where other sockets have something too.
    Ahead,
}

/// A socket, and what is known of it. The system tells of changes alone, so that it is remembered until an attempt shows otherwise.
pub(super) struct Source {
    socket: OwnedFd,
    readable: Cell<bool>,
    writable: Cell<bool>,
    /// Nothing more will come, or go: there is always that to be learnt.
    read_ended: Cell<bool>,
    reader: Cell<Option<Waiter>>,
    writer: Cell<Option<Waiter>>,
    haste: Cell<Haste>,
    /// More came last than is received ahead.
    is_bulky: Cell<bool>,
    /// What has been received and not been taken yet.
    pub ahead: RefCell<Option<Received>>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { socket, readable, writable, read_ended, .. } = self;
        f.debug_struct("Source")
            .field("socket", socket)
            .field("readable", readable)
            .field("writable", writable)
            .field("read_ended", read_ended)
            .finish_non_exhaustive()
    }
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Source {
    fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            readable: Cell::new(false),
            writable: Cell::new(false),
            read_ended: Cell::new(false),
            reader: Cell::default(),
            writer: Cell::default(),
            haste: Cell::new(Haste::Turn),
            is_bulky: Cell::new(false),
            ahead: RefCell::default(),
        }
    }

    /// The socket, where nothing has been received that would be lost with the rest.
    pub fn into_socket(self) -> Option<OwnedFd> {
        self.ahead.into_inner().is_none().then_some(self.socket)
    }

    /// Whether there may be something to receive, an end or an error included.
    pub fn is_readable(&self) -> bool {
        self.readable.get() || self.ahead.borrow().is_some()
    }

    /// Whether there may be something with the system still.
    pub fn has_more(&self) -> bool {
        self.readable.get()
    }

    /// Whether something may be sent, or the error be had that keeps it from being.
    pub fn is_writable(&self) -> bool {
        self.writable.get()
    }

    /// `count` bytes have come where there was place for `most`.
    pub fn has_received(&self, count: usize, most: usize) {
        // A short read tells that there is no more for now, which spares the call that would only say so.
        if 0 < count && count < most {
            self.readable.set(self.read_ended.get());
        }
        self.is_bulky.set(count >= ahead::BYTES_MAX);
    }

    /// An attempt has shown that there is nothing to receive.
    pub fn has_nothing(&self) {
        self.readable.set(false);
        self.read_ended.set(false);
    }

    /// An attempt has shown that nothing can be sent.
    pub fn is_full(&self) {
        self.writable.set(false);
    }

    /// Has `waiter` woken when there is something to receive.
    pub fn wait_to_read(&self, waiter: Waiter, haste: Haste) {
        self.reader.set(Some(waiter));
        self.haste.set(haste);
    }

    /// Has `waiter` woken when something can be sent.
    pub fn wait_to_write(&self, waiter: Waiter) {
        self.writer.set(Some(waiter));
    }

    /// Takes note of an event.
    fn note(&self, event: &Event) {
        let ended = event.is_read_closed() || event.is_error();
        if event.is_readable() || ended {
            self.readable.set(true);
            self.read_ended.set(self.read_ended.get() || ended);
        }
        if event.is_writable() || event.is_write_closed() || event.is_error() {
            self.writable.set(true);
        }
    }

    /// Whether somebody waits who wants what has come received ahead.
    fn is_hasty(&self) -> bool {
        self.haste.get() == Haste::Ahead
            && self.readable.get()
            && !self.is_bulky.get()
            && self.ahead.borrow().is_none()
    }

    /// Wakes those whose waiting is over.
    fn wake(&self, tasks: &Tasks) {
        if self.is_readable()
            && let Some(reader) = self.reader.take()
        {
            self.haste.set(Haste::Turn);
            tasks.wake_waiter(reader);
        }
        if self.is_writable()
            && let Some(writer) = self.writer.take()
        {
            tasks.wake_waiter(writer);
        }
    }
}

/// The system's wait for events, and the sockets that it is for.
#[derive(Debug)]
pub(super) struct Poller {
    poll: RefCell<Poll>,
    events: RefCell<Events>,
    /// The first of them that nobody has been told of yet; none where all have.
    next_event: Cell<Option<usize>>,
    pub ahead: Ahead,
    sockets: RefCell<Vec<Option<Rc<Source>>>>,
    free: RefCell<Vec<usize>>,
    /// Numbers to be free once all events have been delivered that may be of the sockets that had them.
    closed: RefCell<Vec<usize>>,
}

impl Poller {
    /// With no sockets, and the waker that other threads end its wait by.
    pub fn new() -> io::Result<(Self, Waker)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), REMOTE)?;
        let events = RefCell::new(Events::with_capacity(EVENTS_MAX));
        let poll = RefCell::new(poll);
        let poller = Self {
            poll,
            events,
            next_event: Cell::new(None),
            ahead: Ahead::default(),
            sockets: RefCell::default(),
            free: RefCell::default(),
            closed: RefCell::default(),
        };
        Ok((poller, waker))
    }

    /// Adds a socket, and says by what number it is removed. Nothing is known of it yet.
    pub fn add(&self, socket: OwnedFd) -> io::Result<(usize, Rc<Source>)> {
        let mut sockets = self.sockets.borrow_mut();
        let number = self.free.borrow_mut().pop().unwrap_or_else(|| {
            sockets.push(None);
            sockets.len() - 1
        });
        let interest = Interest::READABLE | Interest::WRITABLE;
        let fd = socket.as_raw_fd();
        let added = self.poll.borrow().registry().register(&mut SourceFd(&fd), Token(number), interest);
        if let Err(error) = added {
            self.free.borrow_mut().push(number);
            return Err(error);
        }
        let source = Rc::new(Source::new(socket));
        sockets[number] = Some(Rc::clone(&source));
        Ok((number, source))
    }

    /// Forgets a socket that is about to be closed, which ends what the system tells of it.
    pub fn forget(&self, number: usize) {
        if let Some(place) = self.sockets.borrow_mut().get_mut(number)
            && place.take().is_some()
        {
            self.closed.borrow_mut().push(number);
        }
    }

    /// For how many sockets there is a place.
    #[cfg(test)]
    pub fn places(&self) -> usize {
        self.sockets.borrow().len()
    }

    /// Has the system tell no more of a socket that stays open.
    pub fn remove(&self, source: &Source) -> io::Result<()> {
        self.poll.borrow().registry().deregister(&mut SourceFd(&source.socket.as_raw_fd()))
    }

    /// Waits for events, though not after `until`.
    pub fn wait(&self, until: Option<Moment>) {
        self.free.borrow_mut().append(&mut self.closed.borrow_mut());
        #[cfg(test)]
        let until = until.map(now::skip_to);
        let timeout = until.map(|until| until.since(now::turned()));
        let polled = self.poll.borrow_mut().poll(&mut self.events.borrow_mut(), timeout);
        // Interrupted by a signal: as if nothing had happened.
        self.next_event.set(polled.ok().map(|()| 0));
    }

    /// Whether there are events that nobody has been told of yet.
    pub fn has_events(&self) -> bool {
        self.next_event.get().is_some()
    }

    /// Wakes those whom events are for, and receives ahead for those who want that, for as many as make a batch: their tasks are to run
    /// before this is called again. Says whether another thread has woken somebody.
    pub fn deliver(&self, tasks: &Tasks) -> bool {
        let Some(first) = self.next_event.take() else { return false };
        let (events, sockets) = (self.events.borrow(), self.sockets.borrow());
        let is_alone = events.iter().nth(1).is_none();
        self.ahead.begin(&sockets);
        let mut is_remote = false;
        for (number, event) in events.iter().enumerate().skip(first) {
            if self.ahead.is_full() {
                self.next_event.set(Some(number));
                break;
            }
            match sockets.get(event.token().0) {
                Some(Some(source)) => {
                    source.note(event);
                    if !is_alone && source.is_hasty() {
                        self.ahead.receive(source, event.token().0);
                    }
                    source.wake(tasks);
                }
                Some(None) => {}
                None => is_remote |= event.token() == REMOTE,
            }
        }
        is_remote
    }
}

//! Sockets as the system tells of them: which can be received from, which can be sent to, and who waits for that.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;

use egret_store::Moment;
use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};

use super::now;
use super::tasks::{Tasks, Waiter};

/// Events that the system is asked for at once.
const EVENTS_MAX: usize = 1024;
/// Stands for other threads' wakers. No socket has it: the process runs out of descriptors long before.
const REMOTE: Token = Token(usize::MAX);

/// What is known of a socket. The system tells of changes alone, so that it is remembered until an attempt shows otherwise.
#[derive(Default)]
pub(super) struct Readiness {
    readable: Cell<bool>,
    writable: Cell<bool>,
    /// Nothing more will come, or go: there is always that to be learnt.
    read_ended: Cell<bool>,
    reader: Cell<Option<Waiter>>,
    writer: Cell<Option<Waiter>>,
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { readable, writable, read_ended, .. } = self;
        f.debug_struct("Readiness")
            .field("readable", readable)
            .field("writable", writable)
            .field("read_ended", read_ended)
            .finish_non_exhaustive()
    }
}

impl Readiness {
    /// Whether there may be something to receive, an end or an error included.
    pub fn is_readable(&self) -> bool {
        self.readable.get()
    }

    /// Whether something may be sent, or the error be had that keeps it from being.
    pub fn is_writable(&self) -> bool {
        self.writable.get()
    }

    /// All has been received, as far as can be known without another attempt.
    pub fn has_emptied(&self) {
        self.readable.set(self.read_ended.get());
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
    pub fn wait_to_read(&self, waiter: Waiter) {
        self.reader.set(Some(waiter));
    }

    /// Has `waiter` woken when something can be sent.
    pub fn wait_to_write(&self, waiter: Waiter) {
        self.writer.set(Some(waiter));
    }

    fn take_in(&self, event: &Event, tasks: &Tasks) {
        let ended = event.is_read_closed() || event.is_error();
        if event.is_readable() || ended {
            self.readable.set(true);
            self.read_ended.set(self.read_ended.get() || ended);
            self.reader.take().into_iter().for_each(|waiter| tasks.wake_waiter(waiter));
        }
        if event.is_writable() || event.is_write_closed() || event.is_error() {
            self.writable.set(true);
            self.writer.take().into_iter().for_each(|waiter| tasks.wake_waiter(waiter));
        }
    }
}

/// The system's wait for events, and the sockets that it is for.
#[derive(Debug)]
pub(super) struct Poller {
    poll: RefCell<Poll>,
    events: RefCell<Events>,
    sockets: RefCell<Vec<Option<Rc<Readiness>>>>,
    free: RefCell<Vec<usize>>,
}

impl Poller {
    /// With no sockets, and the waker that other threads end its wait by.
    pub fn new() -> io::Result<(Self, Waker)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), REMOTE)?;
        let events = RefCell::new(Events::with_capacity(EVENTS_MAX));
        let poll = RefCell::new(poll);
        Ok((Self { poll, events, sockets: RefCell::default(), free: RefCell::default() }, waker))
    }

    /// Adds a socket, and says by what number it is removed. Nothing is known of it yet.
    pub fn add(&self, socket: RawFd) -> io::Result<(usize, Rc<Readiness>)> {
        let mut sockets = self.sockets.borrow_mut();
        let number = self.free.borrow_mut().pop().unwrap_or_else(|| {
            sockets.push(None);
            sockets.len() - 1
        });
        let interest = Interest::READABLE | Interest::WRITABLE;
        let added = self.poll.borrow().registry().register(&mut SourceFd(&socket), Token(number), interest);
        if let Err(error) = added {
            self.free.borrow_mut().push(number);
            return Err(error);
        }
        let readiness = Rc::new(Readiness::default());
        sockets[number] = Some(Rc::clone(&readiness));
        Ok((number, readiness))
    }

    /// Forgets a socket that is about to be closed, which ends what the system tells of it.
    pub fn forget(&self, number: usize) {
        if let Some(place) = self.sockets.borrow_mut().get_mut(number)
            && place.take().is_some()
        {
            self.free.borrow_mut().push(number);
        }
    }

    /// For how many sockets there is a place.
    #[cfg(test)]
    pub fn places(&self) -> usize {
        self.sockets.borrow().len()
    }

    /// Has the system tell no more of a socket that stays open.
    pub fn remove(&self, socket: &impl AsRawFd) -> io::Result<()> {
        self.poll.borrow().registry().deregister(&mut SourceFd(&socket.as_raw_fd()))
    }

    /// Waits for events, though not after `until`, and wakes whom they are for. Says whether another thread has woken somebody.
    pub fn wait(&self, until: Option<Moment>, tasks: &Tasks) -> bool {
        #[cfg(test)]
        let until = until.map(now::skip_to);
        let timeout = until.map(|until| until.since(now::turned()));
        let mut events = self.events.borrow_mut();
        if self.poll.borrow_mut().poll(&mut events, timeout).is_err() {
            // Interrupted by a signal: as if nothing had happened.
            return false;
        }
        let sockets = self.sockets.borrow();
        let mut is_remote = false;
        for event in &*events {
            match sockets.get(event.token().0) {
                Some(Some(readiness)) => readiness.take_in(event, tasks),
                Some(None) => {}
                None => is_remote |= event.token() == REMOTE,
            }
        }
        is_remote
    }
}

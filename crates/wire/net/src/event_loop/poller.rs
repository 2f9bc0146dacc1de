//! The wait for events: the sockets registered with the kernel, and the delivery of events to them.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

use egret_clock::Moment;

use super::ahead::Ahead;
use super::now;
use super::source::PolledSocket;
use super::tasks::Tasks;
use crate::os::kernel::{AsFd, AsRawFd, Events, Interest, OwnedFd, Poll, SourceFd, Token, Waker};

/// Maximum number of events per wait.
const EVENTS_MAX: usize = 1024;
/// The token of other threads' wakers. No socket has it, because the process runs out of file descriptors
/// first.
const REMOTE: Token = Token(usize::MAX);

/// The wait for events, and the sockets registered for it.
#[derive(Debug)]
pub(super) struct Poller {
    poll: RefCell<Poll>,
    events: RefCell<Events>,
    /// The index of the first undelivered event, or `None` if all are delivered.
    next_event: Cell<Option<usize>>,
    pub ahead: Ahead,
    sockets: RefCell<Vec<Option<Rc<PolledSocket>>>>,
    free: RefCell<Vec<usize>>,
    /// Numbers of closed sockets. They are reused once no pending event can refer to them.
    closed: RefCell<Vec<usize>>,
}

impl Poller {
    /// Creates a poller without sockets, and the waker with which other threads end its wait.
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

    /// Adds a socket. Returns its state, of which nothing is known yet, and the number by which it is
    /// removed.
    pub fn add(&self, socket: OwnedFd) -> io::Result<(usize, Rc<PolledSocket>)> {
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
        let source = Rc::new(PolledSocket::new(socket));
        sockets[number] = Some(Rc::clone(&source));
        Ok((number, source))
    }

    /// Removes a socket that is about to be closed, which unregisters it.
    pub fn forget(&self, number: usize) {
        if let Some(place) = self.sockets.borrow_mut().get_mut(number)
            && place.take().is_some()
        {
            self.closed.borrow_mut().push(number);
        }
    }

    /// The number by which the simulated kernel knows it.
    #[cfg(feature = "simulated")]
    pub fn number(&self) -> usize {
        self.poll.borrow().number()
    }

    /// Returns the number of slots for sockets.
    #[cfg(test)]
    pub fn places(&self) -> usize {
        self.sockets.borrow().len()
    }

    /// Unregisters a socket that stays open.
    pub fn remove(&self, source: &PolledSocket) -> io::Result<()> {
        self.poll.borrow().registry().deregister(&mut SourceFd(&source.as_fd().as_raw_fd()))
    }

    /// Waits for events, at most until `until`, and notes all of them. So no socket counts as idle after the
    /// kernel has reported an event on it, even if its task is woken later.
    pub fn wait(&self, until: Option<Moment>) {
        self.free.borrow_mut().append(&mut self.closed.borrow_mut());
        #[cfg(test)]
        let until = until.map(now::skip_to);
        let timeout = until.map(|until| until.since(now::turned()));
        let polled = self.poll.borrow_mut().poll(&mut self.events.borrow_mut(), timeout);
        self.next_event.set(polled.ok().map(|()| 0));
        if !self.has_events() {
            // Interrupted by a signal: treated as a wait without events.
            return;
        }
        let sockets = self.sockets.borrow();
        for event in &*self.events.borrow() {
            if let Some(Some(source)) = sockets.get(event.token().0) {
                source.note(event);
            }
        }
    }

    /// Returns `true` if there are undelivered events.
    pub fn has_events(&self) -> bool {
        self.next_event.get().is_some()
    }

    /// Wakes the tasks that the events are for, and receives ahead for those that request it, up to one
    /// batch. Their tasks must run before the next call. Returns `true` if another thread has woken a task.
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

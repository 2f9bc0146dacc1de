//! The system's wait for events: of which sockets it tells, and whom it wakes.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;

use egret_clock::Moment;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};

use super::ahead::Ahead;
use super::now;
use super::source::Source;
use super::tasks::Tasks;

/// Events that the system is asked for at once.
const EVENTS_MAX: usize = 1024;
/// Stands for other threads' wakers. No socket has it: the process runs out of descriptors long before.
const REMOTE: Token = Token(usize::MAX);

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
        self.poll.borrow().registry().deregister(&mut SourceFd(&source.as_fd().as_raw_fd()))
    }

    /// Waits for events, though not after `until`, and takes note of all of them: nobody may hold for silent what the system has told of,
    /// even if who waits for it is woken later.
    pub fn wait(&self, until: Option<Moment>) {
        self.free.borrow_mut().append(&mut self.closed.borrow_mut());
        #[cfg(test)]
        let until = until.map(now::skip_to);
        let timeout = until.map(|until| until.since(now::turned()));
        let polled = self.poll.borrow_mut().poll(&mut self.events.borrow_mut(), timeout);
        self.next_event.set(polled.ok().map(|()| 0));
        if !self.has_events() {
            // Interrupted by a signal: as if nothing had happened.
            return;
        }
        let sockets = self.sockets.borrow();
        for event in &*self.events.borrow() {
            if let Some(Some(source)) = sockets.get(event.token().0) {
                source.note(event);
            }
        }
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

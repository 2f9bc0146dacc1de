//! A socket, with what is known of it: whether it can be received from or sent to, who waits for that, and what has been received already.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use mio::event::Event;
use rustix::io::Errno;

use super::tasks::{Tasks, Waiter};

/// Bytes that are received ahead at once. Where more came last time, nothing is: to copy much costs more than is gained.
pub(super) const AHEAD_BYTES_MAX: usize = 4096;

/// What of a socket has been received ahead.
#[derive(Debug)]
pub(super) enum Received {
    /// Bytes in the memory of the batch.
    Here { start: usize, end: usize },
    /// Bytes that nobody has taken while that memory was theirs.
    Kept(Vec<u8>),
    /// What the system has told instead, which it does only once.
    Failed(Errno),
}

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
    pub fn new(socket: OwnedFd) -> Self {
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

    /// `count` bytes have come, at least one, where there was place for `most`.
    pub fn has_received(&self, count: usize, most: usize) {
        // A short read tells that there is no more for now, which spares the call that would only say so.
        if count < most {
            self.readable.set(self.read_ended.get());
        }
        self.is_bulky.set(count >= AHEAD_BYTES_MAX);
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
    pub fn note(&self, event: &Event) {
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
    pub fn is_hasty(&self) -> bool {
        self.haste.get() == Haste::Ahead
            && self.readable.get()
            && !self.is_bulky.get()
            && self.ahead.borrow().is_none()
    }

    /// Wakes those whose waiting is over.
    pub fn wake(&self, tasks: &Tasks) {
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

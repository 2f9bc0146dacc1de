//! A socket and its state: readiness to receive and to send, the tasks that wait for it, and bytes that were
//! received ahead.

use std::cell::{Cell, RefCell};

use egret_items::opaque;
use rustix::io::Errno;

use super::tasks::{Tasks, Waiter};
use crate::os::kernel::{AsFd, BorrowedFd, Event, OwnedFd};

/// Maximum number of bytes received ahead at once. After a larger receive none are received ahead, because a
/// large copy costs more than it saves.
pub(super) const AHEAD_BYTES_MAX: usize = 4096;

/// Data that was received ahead for a socket.
#[derive(Debug)]
pub(super) enum Received {
    /// Bytes in the memory of the batch.
    Here { start: usize, end: usize },
    /// Bytes that were not read before the batch's memory was reused.
    Kept(Vec<u8>),
    /// An error, which the kernel reports only once.
    Failed(Errno),
}

/// The time at which data is received for a waiting task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Haste {
    /// When the task runs.
    Turn,
    /// Before the task runs, if other sockets are ready too.
    Ahead,
}

/// A socket and its state. The kernel reports only changes, so readiness is remembered until an attempt
/// fails.
pub(super) struct PolledSocket {
    socket: OwnedFd,
    readable: Cell<bool>,
    writable: Cell<bool>,
    /// EOF or an error was signalled: reading and writing are always worth an attempt.
    read_ended: Cell<bool>,
    reader: Cell<Option<Waiter>>,
    writer: Cell<Option<Waiter>>,
    haste: Cell<Haste>,
    /// `true` if the last receive was too large to be received ahead.
    is_bulky: Cell<bool>,
    /// Data that was received ahead and has not been read yet.
    pub ahead: RefCell<Option<Received>>,
}

opaque!(PolledSocket { socket, readable, writable, read_ended });

impl AsFd for PolledSocket {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl PolledSocket {
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

    /// Returns the socket, unless data was received ahead, which would be lost.
    pub fn into_socket(self) -> Option<OwnedFd> {
        self.ahead.into_inner().is_none().then_some(self.socket)
    }

    /// Returns `true` if there may be something to receive, including EOF or an error.
    #[inline]
    pub fn is_readable(&self) -> bool {
        self.readable.get() || self.ahead.borrow().is_some()
    }

    /// Returns `true` if the kernel may have more data.
    pub fn has_more(&self) -> bool {
        self.readable.get()
    }

    /// Returns `true` if an attempt to send is worthwhile. It may also return an error.
    pub fn is_writable(&self) -> bool {
        self.writable.get()
    }

    /// Notes that `count` bytes, at least one, were received into a buffer of `max`.
    pub fn has_received(&self, count: usize, max: usize) {
        // A short read means that there is no more for now, which saves the call that would report `EAGAIN`.
        if count < max {
            self.readable.set(self.read_ended.get());
        }
        self.is_bulky.set(count >= AHEAD_BYTES_MAX);
    }

    /// Notes that an attempt to receive returned `EAGAIN`.
    pub fn has_nothing(&self) {
        self.readable.set(false);
        self.read_ended.set(false);
    }

    /// Notes that an attempt to send returned `EAGAIN`.
    pub fn is_full(&self) {
        self.writable.set(false);
    }

    /// Registers `waiter` to be woken when there is something to receive.
    #[inline]
    pub fn wait_to_read(&self, waiter: Waiter, haste: Haste) {
        self.reader.set(Some(waiter));
        self.haste.set(haste);
    }

    /// Registers `waiter` to be woken when it can send.
    pub fn wait_to_write(&self, waiter: Waiter) {
        self.writer.set(Some(waiter));
    }

    /// Notes an event.
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

    /// Returns `true` if data should be received ahead for a waiting task.
    #[inline]
    pub fn is_hasty(&self) -> bool {
        self.haste.get() == Haste::Ahead
            && self.readable.get()
            && !self.is_bulky.get()
            && self.ahead.borrow().is_none()
    }

    /// Wakes the tasks whose wait is over.
    #[inline]
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

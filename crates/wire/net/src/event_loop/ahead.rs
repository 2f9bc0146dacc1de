//! Receives data before the tasks run that wait for it.
//!
//! If many sockets are ready at once, up to 16 of them are read in a row before their tasks run. So the
//! kernel's code for receiving stays in the processor's caches, and then the tasks' own code does. The bytes
//! are stored in one small block of memory, which every batch reuses, and are copied out of it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use egret_items::opaque;
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::source::{AHEAD_BYTES_MAX, PolledSocket, Received};
use crate::os::kernel::{AsFd, recv};

/// Maximum number of sockets that are received from before their tasks run.
const SOCKETS_MAX: usize = 16;

/// The memory of a batch, and the owners of the bytes in it.
pub(super) struct Ahead {
    memory: RefCell<Box<[u8]>>,
    used: Cell<usize>,
    /// The numbers of the sockets.
    owners: RefCell<Vec<usize>>,
    /// Number of sockets whose bytes have not been read yet, including sockets closed meanwhile.
    waiting: Cell<usize>,
}

opaque!(Ahead { used });

impl Default for Ahead {
    fn default() -> Self {
        let memory = RefCell::new(vec![0; SOCKETS_MAX * AHEAD_BYTES_MAX].into_boxed_slice());
        Self { memory, used: Cell::new(0), owners: RefCell::default(), waiting: Cell::new(0) }
    }
}

impl Ahead {
    /// Begins a new batch. Unread bytes of the last one are moved out of its memory.
    pub fn begin(&self, sockets: &[Option<Rc<PolledSocket>>]) {
        let mut owners = self.owners.borrow_mut();
        if self.waiting.replace(0) > 0 {
            let memory = self.memory.borrow();
            for source in owners.iter().filter_map(|number| sockets.get(*number)?.as_ref()) {
                let mut ahead = source.ahead.borrow_mut();
                if let Some(Received::Here { start, end }) = *ahead {
                    *ahead = Some(Received::Kept(memory[start..end].to_vec()));
                }
            }
        }
        owners.clear();
        self.used.set(0);
    }

    /// Returns `true` if the batch has reached its maximum size.
    pub fn is_full(&self) -> bool {
        self.owners.borrow().len() == SOCKETS_MAX
    }

    /// Receives data for `source`, the socket with that number. Nothing must be stored for it yet.
    #[inline]
    pub fn receive(&self, source: &PolledSocket, number: usize) {
        let start = self.used.get();
        let received = recv(
            source.as_fd(),
            &mut self.memory.borrow_mut()[start..start + AHEAD_BYTES_MAX],
            RecvFlags::empty(),
        );
        let received = match received {
            // EOF, which the kernel reports at every attempt.
            Ok((_, 0)) | Err(Errno::INTR) => return,
            Err(Errno::AGAIN) => return source.has_nothing(),
            Err(error) => Received::Failed(error),
            Ok((_, count)) => {
                source.has_received(count, AHEAD_BYTES_MAX);
                self.used.set(start + count);
                self.waiting.set(self.waiting.get() + 1);
                Received::Here { start, end: start + count }
            }
        };
        *source.ahead.borrow_mut() = Some(received);
        self.owners.borrow_mut().push(number);
    }

    /// Copies data received ahead for `source` to `buffer`, as much as fits. Returns `None` if there is none.
    #[inline]
    pub fn take(&self, source: &PolledSocket, buffer: &mut [u8]) -> Option<Result<usize, Errno>> {
        let mut ahead = source.ahead.borrow_mut();
        match ahead.take()? {
            Received::Here { start, end } => {
                let count = buffer.len().min(end - start);
                buffer[..count].copy_from_slice(&self.memory.borrow()[start..start + count]);
                if start + count < end {
                    *ahead = Some(Received::Here { start: start + count, end });
                } else {
                    self.waiting.set(self.waiting.get().saturating_sub(1));
                }
                Some(Ok(count))
            }
            Received::Kept(mut bytes) => {
                let count = buffer.len().min(bytes.len());
                buffer[..count].copy_from_slice(&bytes[..count]);
                bytes.drain(..count);
                if !bytes.is_empty() {
                    *ahead = Some(Received::Kept(bytes));
                }
                Some(Ok(count))
            }
            Received::Failed(error) => Some(Err(error)),
        }
    }
}

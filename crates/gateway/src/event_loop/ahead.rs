//! What is received before the tasks run that wait for it.
//!
//! Where many sockets have something at once, a dozen of them are received from in a row before their tasks run: the system's code for
//! receiving then stays in the processor's caches, and after it the tasks' own. The bytes lie in one small piece of memory that every
//! batch uses again, and are copied out of it.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::os::fd::AsFd;
use std::rc::Rc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::source::{AHEAD_BYTES_MAX, Received, Source};

/// Sockets that are received from before their tasks run.
const SOCKETS_MAX: usize = 16;

/// The memory of a batch, and whose bytes are in it.
pub(super) struct Ahead {
    memory: RefCell<Box<[u8]>>,
    used: Cell<usize>,
    /// The numbers of the sockets.
    owners: RefCell<Vec<usize>>,
    /// Those whose bytes nobody has taken yet, or that have been closed meanwhile.
    waiting: Cell<usize>,
}

impl fmt::Debug for Ahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ahead").field("used", &self.used).finish_non_exhaustive()
    }
}

impl Default for Ahead {
    fn default() -> Self {
        let memory = RefCell::new(vec![0; SOCKETS_MAX * AHEAD_BYTES_MAX].into_boxed_slice());
        Self { memory, used: Cell::new(0), owners: RefCell::default(), waiting: Cell::new(0) }
    }
}

impl Ahead {
    /// Begins another batch. What nobody has taken yet of the last one moves out of its memory.
    pub fn begin(&self, sockets: &[Option<Rc<Source>>]) {
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

    /// Whether the batch is as large as it may be.
    pub fn is_full(&self) -> bool {
        self.owners.borrow().len() == SOCKETS_MAX
    }

    /// Receives what has come for `source`, the socket of that number, of which nothing is here yet.
    pub fn receive(&self, source: &Source, number: usize) {
        let start = self.used.get();
        let received = recv(
            source.as_fd(),
            &mut self.memory.borrow_mut()[start..start + AHEAD_BYTES_MAX],
            RecvFlags::empty(),
        );
        let received = match received {
            // The end, which is told as often as it is asked for.
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

    /// Copies to `buffer` what was received ahead for `source`, as much as there is place for. Nothing where nothing was.
    pub fn take(&self, source: &Source, buffer: &mut [u8]) -> Option<Result<usize, Errno>> {
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

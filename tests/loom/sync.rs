//! loom's primitives, as the files under test know them: like those of `parking_lot`, `mio` and the standard
//! library.

use std::io;

use loom::sync::{Arc, Condvar, MutexGuard};

pub use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

/// A mutex whose lock is never poisoned, like that of `parking_lot`.
#[derive(Debug, Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
}

/// The waker of a loop, and its wait, as those of `mio` over an event counter: a wake-up during the wait or
/// before it ends the wait, and several end one.
#[derive(Debug, Clone, Default)]
pub struct Waker(Arc<Event>);

#[derive(Debug, Default)]
struct Event {
    is_set: loom::sync::Mutex<bool>,
    changed: Condvar,
}

impl Waker {
    pub fn wake(&self) -> io::Result<()> {
        *self.0.is_set.lock().unwrap() = true;
        self.0.changed.notify_one();
        Ok(())
    }

    /// Waits for a wake-up since the last wait.
    pub fn wait(&self) {
        let mut is_set = self.0.is_set.lock().unwrap();
        while !std::mem::take(&mut *is_set) {
            is_set = self.0.changed.wait(is_set).unwrap();
        }
    }
}

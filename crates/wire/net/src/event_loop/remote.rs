//! Wake-ups of a loop's tasks by other threads.

use std::sync::atomic::Ordering::AcqRel;

use super::tasks::TaskId;
use crate::sync::{AtomicBool, Mutex, Waker};

/// Wake-ups from other threads.
#[derive(Debug)]
pub(super) struct Remote {
    woken: Mutex<Vec<TaskId>>,
    /// `true` once the loop has been notified and has not drained the list yet.
    is_told: AtomicBool,
    waker: Waker,
}

impl Remote {
    pub fn new(waker: Waker) -> Self {
        Self { woken: Mutex::default(), is_told: AtomicBool::new(false), waker }
    }

    /// Wakes `task`.
    pub fn push(&self, task: TaskId) {
        self.woken.lock().push(task);
        if !self.is_told.swap(true, AcqRel) {
            // Fails only if the counter behind it is full. The loop wakes in that case anyway.
            let _ = self.waker.wake();
        }
    }

    /// Passes each woken task to `wake`.
    pub fn drain(&self, wake: impl FnMut(TaskId)) {
        // Cleared before the list is taken, so a later wake-up notifies again.
        self.is_told.swap(false, AcqRel);
        let woken = std::mem::take(&mut *self.woken.lock());
        woken.into_iter().for_each(wake);
    }
}

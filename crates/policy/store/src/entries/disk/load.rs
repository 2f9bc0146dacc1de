//! Entries that are on their way from a disk into memory, and who waits for them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// What is being read under one identity, for all who want it.
#[derive(Debug, Default)]
pub(super) struct Load(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    is_done: bool,
    /// Each in a slot of its own; one that has left leaves it empty.
    wakers: Vec<Option<Waker>>,
}

impl Load {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What can be had is in memory, or nothing can.
    pub fn finish(&self) {
        let mut waiting = self.lock();
        waiting.is_done = true;
        let wakers = std::mem::take(&mut waiting.wakers);
        drop(waiting);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

/// One that waits for a load.
#[derive(Debug)]
pub struct Loading {
    load: Arc<Load>,
    slot: Option<usize>,
}

impl Loading {
    pub(super) fn new(load: &Arc<Load>) -> Self {
        Self { load: Arc::clone(load), slot: None }
    }

    /// Ready when it is in memory, if it could be had.
    pub fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        let mut waiting = self.load.lock();
        if waiting.is_done {
            return Poll::Ready(());
        }
        let slot = *self.slot.get_or_insert_with(|| {
            waiting.wakers.push(None);
            waiting.wakers.len() - 1
        });
        let known = &mut waiting.wakers[slot];
        if known.as_ref().is_none_or(|known| !known.will_wake(cx.waker())) {
            *known = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        let mut waiting = self.load.lock();
        // Once it is over there are no slots any more.
        if let Some(waker) = self.slot.and_then(|slot| waiting.wakers.get_mut(slot)) {
            *waker = None;
        }
    }
}

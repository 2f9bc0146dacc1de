//! Loads of entries from disk into memory, and their waiters.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// A load of the entries under one identity, for all requests that want them.
#[derive(Debug, Default)]
pub(super) struct Load(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    is_done: bool,
    /// One slot for each waiter; a waiter that leaves empties its slot.
    wakers: Vec<Option<Waker>>,
}

impl Load {
    /// Ends the load: everything that could be loaded is in memory.
    pub fn finish(&self) {
        let mut waiting = self.0.lock();
        waiting.is_done = true;
        let wakers = std::mem::take(&mut waiting.wakers);
        drop(waiting);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

/// A request that waits for a load.
#[derive(Debug)]
pub struct Loading {
    load: Arc<Load>,
    slot: Option<usize>,
}

impl Loading {
    pub(super) fn new(load: &Arc<Load>) -> Self {
        Self { load: Arc::clone(load), slot: None }
    }

    /// Returns `Ready` once the load has ended.
    pub fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        let mut waiting = self.load.0.lock();
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
        let mut waiting = self.load.0.lock();
        // After the load has ended there are no slots.
        if let Some(waker) = self.slot.and_then(|slot| waiting.wakers.get_mut(slot)) {
            *waker = None;
        }
    }
}

//! The loop that runs on this thread, as its tasks and sockets see it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use egret_items::opaque;

use super::alarms::Alarms;
use super::poller::Poller;
use super::remote::Remote;
use super::tasks::Tasks;

thread_local! {
    pub(super) static CURRENT: RefCell<Option<Rc<Inner>>> = const { RefCell::new(None) };
}

pub(super) struct Inner {
    pub tasks: Tasks,
    pub poller: Poller,
    pub alarms: Alarms,
    pub remote: Arc<Remote>,
}

opaque!(Inner);

/// Makes its loop the current one of this thread until it is dropped.
pub(super) struct Entered(Option<Rc<Inner>>);

impl Entered {
    pub fn new(inner: &Rc<Inner>) -> Self {
        Self(CURRENT.replace(Some(Rc::clone(inner))))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.replace(self.0.take());
    }
}

/// Calls `act` with this thread's loop. Returns `None` if the thread runs none.
pub(super) fn with_current<T>(act: impl FnOnce(&Rc<Inner>) -> T) -> Option<T> {
    CURRENT.with_borrow(|current| current.as_ref().map(act))
}

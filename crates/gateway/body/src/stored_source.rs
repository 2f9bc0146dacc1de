//! A stored body as one exchange reads it, perhaps while it arrives. The exchange whose response it is leads
//! the others: a body that outgrows the store arrives at its client's pace.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use egret_store::entries::{Next, StoredBody};

/// A stored body that is read from its start to its end.
#[derive(Debug)]
pub struct StoredSource {
    body: Arc<StoredBody>,
    /// Number of bytes that have been read.
    read: u64,
    /// `Some` for the exchange whose response is being stored.
    lead: Option<Rc<Lead>>,
}

impl StoredSource {
    /// Creates the source of an exchange that follows.
    pub fn new(body: &Arc<StoredBody>) -> Self {
        Self { body: Arc::clone(body), read: 0, lead: None }
    }

    /// Creates the source of the exchange that leads, and has passed on all bytes that have arrived.
    pub fn leading(body: &Arc<StoredBody>) -> (Self, Rc<Lead>) {
        let (read, lead) = (body.received(), Rc::<Lead>::default());
        lead.read.set(read);
        (Self { body: Arc::clone(body), read, lead: Some(Rc::clone(&lead)) }, lead)
    }

    /// Returns the next block; wakes the task when it arrives.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        let next = self.body.poll_next(self.read, cx);
        if let Poll::Ready(Next::Block(block)) = &next {
            self.read += block.len() as u64;
            if let Some(lead) = &self.lead {
                lead.read.set(self.read);
                if lead.is_awaited.get() {
                    lead.wake();
                }
            }
        }
        next
    }

    /// Appends the trailers behind the body, of which only the leading exchange gets any.
    pub fn add_trailers(&self, trailers: &mut Vec<u8>) {
        if let Some(lead) = &self.lead {
            trailers.extend_from_slice(&lead.trailers.borrow());
        }
    }

    /// Returns the number of bytes that the provider has sent for the body meanwhile, which count no more.
    pub fn take_received_bytes(&self) -> u64 {
        self.lead.as_ref().map_or(0, |lead| lead.received_bytes.take())
    }
}

impl Drop for StoredSource {
    fn drop(&mut self) {
        if let Some(lead) = &self.lead {
            lead.has_left.set(true);
            lead.wake();
        }
    }
}

/// The tie between the exchange that leads and the task that receives its response.
#[derive(Debug, Default)]
pub struct Lead {
    /// Number of bytes that the exchange has read.
    read: Cell<u64>,
    /// `true` once the exchange has ended.
    has_left: Cell<bool>,
    /// Number of bytes that the provider has sent and nobody has counted.
    pub received_bytes: Cell<u64>,
    /// The trailers behind the body, once it is complete.
    pub trailers: RefCell<Vec<u8>>,
    /// Values that are released once both have ended.
    held: RefCell<Option<Box<dyn Any>>>,
    /// `true` while the task waits until the exchange has read more.
    is_awaited: Cell<bool>,
    task: RefCell<Option<Waker>>,
}

impl Lead {
    /// Returns `true` if the exchange has ended.
    pub fn has_left(&self) -> bool {
        self.has_left.get()
    }

    /// Holds what the exchange would release at its end, like a permit, until the response has been received
    /// too: until then its call is not over at the provider.
    pub fn hold(&self, held: Box<dyn Any>) {
        self.held.replace(Some(held));
    }

    /// Notes the task that receives the response. The end of the exchange wakes it.
    pub fn watch(&self, cx: &Context<'_>) {
        let mut task = self.task.borrow_mut();
        if !task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            *task = Some(cx.waker().clone());
        }
    }

    /// Returns `true` if the exchange goes on and lags behind by `max` of `received` bytes or more. The task
    /// is woken when it has read more.
    pub fn lags(&self, received: u64, max: u64) -> bool {
        debug_assert!(self.read.get() <= received);
        let lags = !self.has_left() && received - self.read.get() >= max;
        self.is_awaited.set(lags);
        lags
    }

    fn wake(&self) {
        if let Some(task) = &*self.task.borrow() {
            task.wake_by_ref();
        }
    }
}

//! The order to run a second call beside a slow one.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// An order for a second call. The first call fills in the request when it has sent all of it.
#[derive(Debug, Clone)]
pub(crate) struct HedgeOrder {
    /// Time without a response after which the second call is made.
    pub after: Duration,
    request: Rc<RefCell<Option<Vec<u8>>>>,
}

impl HedgeOrder {
    /// Creates the order of a second call `after` that time.
    pub fn new(after: Duration) -> Self {
        Self { after, request: Rc::default() }
    }

    /// Stores the request that the first call has sent: head and body.
    pub fn set_request(&self, request: Vec<u8>) {
        *self.request.borrow_mut() = Some(request);
    }

    /// Takes the request, if the first call has sent it since the last call of this function.
    pub fn take_request(&self) -> Option<Vec<u8>> {
        self.request.borrow_mut().take()
    }
}

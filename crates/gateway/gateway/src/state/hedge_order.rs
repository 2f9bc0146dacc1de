//! The order to run a second call beside a slow one.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use egret_clock::Timestamp;
use egret_quota::{Grant, Permit, Redraw};

/// An order for a second call. The first call fills in the request when it has sent all of it.
#[derive(Debug, Clone)]
pub(crate) struct HedgeOrder {
    /// Time without a response after which the second call is made.
    pub after: Duration,
    request: Rc<RefCell<Option<Vec<u8>>>>,
    /// The units that the second call needs.
    redraws: Rc<[Redraw]>,
}

/// The units that a second call has drawn. They are returned when dropped, unless the call was sent.
#[derive(Debug)]
pub(crate) struct SecondDraw {
    grants: Vec<Grant>,
    taken: Timestamp,
}

impl HedgeOrder {
    /// Creates the order of a second call `after` that time, which needs these units.
    pub fn new(after: Duration, redraws: Vec<Redraw>) -> Self {
        Self { after, request: Rc::default(), redraws: redraws.into() }
    }

    /// Stores the request that the first call has sent: head and body.
    pub fn set_request(&self, request: Vec<u8>) {
        *self.request.borrow_mut() = Some(request);
    }

    /// Takes the request, if the first call has sent it since the last call of this function.
    pub fn take_request(&self) -> Option<Vec<u8>> {
        self.request.borrow_mut().take()
    }

    /// Takes the units that the second call needs. `None` if not all of them are there: then it is not made.
    pub fn draw(&self, now: Timestamp) -> Option<SecondDraw> {
        let mut draw = SecondDraw { grants: Vec::new(), taken: now };
        for redraw in &*self.redraws {
            draw.grants.push(redraw.take(now)?);
        }
        Some(draw)
    }
}

impl SecondDraw {
    /// Returns `true` if a call that needs the units may be sent at this moment.
    pub fn is_permitted(&self) -> bool {
        self.grants.iter().flat_map(Grant::permits).all(|permit: Permit| permit.is_valid())
    }

    /// Returns the grants of a call that is sent. When they are dropped, the call counts in full: one of the
    /// two calls ends without a response that tells what it has cost.
    pub fn into_grants(mut self) -> Vec<Grant> {
        std::mem::take(&mut self.grants)
    }
}

impl Drop for SecondDraw {
    fn drop(&mut self) {
        for grant in self.grants.drain(..) {
            grant.cancel(self.taken);
        }
    }
}

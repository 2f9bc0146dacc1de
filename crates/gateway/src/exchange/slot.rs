//! Slots for the exchanges and tunnels that may run at once.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use crate::failure::{ErrorKind, Failure};
use crate::worker::Worker;

/// A slot among the exchanges and tunnels that may run at once. It is released on drop. `None` if their
/// number is unlimited.
pub(crate) struct ExchangeSlot(Option<Rc<Worker>>);

impl ExchangeSlot {
    /// Takes a slot of at most `most`; 0 means that their number is unlimited.
    pub fn take(worker: &Rc<Worker>, most: u32) -> Result<Self, Failure> {
        if most == 0 {
            return Ok(Self(None));
        }
        let place = Self(Some(Rc::clone(worker)));
        let before = worker.shared.exchanges.fetch_add(1, Relaxed);
        if before < most {
            return Ok(place);
        }
        let detail = "the limit of concurrent exchanges and tunnels is reached (`gateway.limits.exchanges`)";
        Err(Failure::new(ErrorKind::TooManyInFlight, detail))
    }
}

impl Drop for ExchangeSlot {
    fn drop(&mut self) {
        if let Some(worker) = &self.0 {
            worker.shared.exchanges.fetch_sub(1, Relaxed);
        }
    }
}

//! The turns of the diagnoses in a simulated world, which has no thread for them.

use std::time::Duration;

use egret_clock::Moment;

use super::{NAP_IDLE, NextTurn, Records};

impl Records {
    /// Gives the diagnoses a turn. Returns the time of the next one at the latest, or `None` if they are not
    /// started or have ended.
    pub fn turn(&self) -> Option<Moment> {
        let mut state = self.state.lock();
        let sleep = match state.stepped.as_mut()?.turn() {
            NextTurn::Again => Duration::ZERO,
            // What wakes the thread is not followed here.
            NextTurn::Sleep(time) => time.unwrap_or(NAP_IDLE),
            NextTurn::Ended => {
                state.stepped = None;
                return None;
            }
        };
        Some(Moment::now() + sleep)
    }

    /// Lets the diagnoses end once they have processed what was handed over.
    pub fn begin_stop(&self) {
        self.common.stops.set();
    }
}

//! Waiting that a signal ends.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// What a run waits on: time, or somebody who wants it to stop.
#[derive(Debug)]
pub struct Interrupt {
    told: Receiver<()>,
    /// Kept so that the channel stays open when the other end is gone.
    _interrupter: Interrupter,
}

/// Tells a run to stop. Clones tell the same run.
#[derive(Debug, Clone)]
pub struct Interrupter(SyncSender<()>);

/// Somebody wanted the run to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupted;

impl Interrupt {
    /// Both ends.
    pub fn new() -> (Interrupter, Self) {
        let (teller, told) = sync_channel(1);
        let interrupter = Interrupter(teller);
        (interrupter.clone(), Self { told, _interrupter: interrupter })
    }

    /// Waits this long, or until somebody wants the run to stop.
    pub(super) fn wait(&self, time: Duration) -> Result<(), Interrupted> {
        match self.told.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => Err(Interrupted),
        }
    }
}

impl Interrupter {
    /// Ends the run's present wait, or its next.
    pub fn interrupt(&self) {
        // A full channel means that it was told before.
        let _ = self.0.try_send(());
    }
}

//! Waits that a signal can interrupt.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// The receiving end, on which a run waits.
#[derive(Debug)]
pub struct Interrupt {
    told: Receiver<()>,
    /// Keeps the channel open when the caller drops its sender.
    _interrupter: Interrupter,
}

/// The sending end, which asks a run to stop. Clones belong to the same run.
#[derive(Debug, Clone)]
pub struct Interrupter(SyncSender<()>);

/// The run was asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupted;

impl Interrupt {
    /// Creates both ends.
    pub fn new() -> (Interrupter, Self) {
        let (teller, told) = sync_channel(1);
        let interrupter = Interrupter(teller);
        (interrupter.clone(), Self { told, _interrupter: interrupter })
    }

    /// Waits for this duration, or until the run is asked to stop.
    pub(super) fn wait(&self, time: Duration) -> Result<(), Interrupted> {
        match self.told.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => Err(Interrupted),
        }
    }
}

impl Interrupter {
    /// Ends the run's current or next wait.
    pub fn interrupt(&self) {
        // A full channel means that the run was already asked to stop.
        let _ = self.0.try_send(());
    }
}

//! Waits that a signal can interrupt.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// The receiving end, on which a run waits.
#[derive(Debug)]
pub struct Interrupt {
    receiver: Receiver<()>,
    /// Keeps the channel open when the caller drops its sender.
    _interrupter: Interrupter,
}

/// The sending end, which interrupts a run. Clones belong to the same run.
#[derive(Debug, Clone)]
pub struct Interrupter(SyncSender<()>);

/// The run was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

impl Interrupt {
    /// Creates both ends.
    pub fn new() -> (Interrupter, Self) {
        let (sender, receiver) = sync_channel(1);
        let interrupter = Interrupter(sender);
        (interrupter.clone(), Self { receiver, _interrupter: interrupter })
    }

    /// Waits for this duration, or until the run is interrupted.
    pub(super) fn wait(&self, time: Duration) -> Result<(), Interrupted> {
        match self.receiver.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => Err(Interrupted),
        }
    }
}

impl Interrupter {
    /// Ends the run's current or next wait.
    pub fn interrupt(&self) {
        // A full channel means that the run was already interrupted.
        let _ = self.0.try_send(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_ends_the_current_or_the_next_wait() {
        let (interrupter, interrupt) = Interrupt::new();
        assert_eq!(interrupt.wait(Duration::from_millis(1)), Ok(()));
        // Several interrupts before a wait end it once.
        interrupter.interrupt();
        interrupter.clone().interrupt();
        assert_eq!(interrupt.wait(Duration::from_mins(1)), Err(Interrupted));
        assert_eq!(interrupt.wait(Duration::from_millis(1)), Ok(()));
        let waiting = std::thread::spawn(move || interrupt.wait(Duration::from_mins(1)));
        interrupter.interrupt();
        assert_eq!(waiting.join().unwrap(), Err(Interrupted));
    }
}

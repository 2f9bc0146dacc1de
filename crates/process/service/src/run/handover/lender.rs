//! The old process reports to the new one while it drains.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use egret_gateway::Gateway;

use super::channel::Channel;
use super::message::HandoverMessage;
use crate::disks::Disks;

/// Interval between two reports.
const REPORT_INTERVAL: Duration = Duration::from_millis(20);

/// The thread that reports.
pub struct Lender {
    /// Dropped to end the thread.
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Lender {
    /// Starts to report over `channel`. Closes the `disks` of caches, and reports when that is done.
    pub fn start(channel: Channel, gateway: Arc<Gateway>, disks: Disks) -> io::Result<Self> {
        let (closed, is_closed) = self::channel();
        let close = move || {
            disks.close(false);
            drop(closed);
        };
        std::thread::Builder::new().name("egret-disks".into()).spawn(close)?;
        let (stop, stopped) = self::channel();
        let report = move || {
            let ended = report(channel, &gateway, &stopped, &is_closed);
            gateway.lend(None);
            if let Err(error) = ended {
                tracing::warn!("the new process receives no reports any more: {error}");
            }
        };
        let thread = std::thread::Builder::new().name("egret-lender".into()).spawn(report)?;
        Ok(Self { stop, thread })
    }

    /// Sends the last report, after the drain.
    pub fn finish(self) {
        drop(self.stop);
        if self.thread.join().is_err() {
            tracing::error!("the thread that reports to the new process panicked");
        }
    }
}

/// Reports until told to stop.
fn report(
    mut channel: Channel,
    gateway: &Gateway,
    stopped: &Receiver<()>,
    closed: &Receiver<()>,
) -> io::Result<()> {
    let mut has_released = false;
    loop {
        let is_last = stopped.recv_timeout(REPORT_INTERVAL) == Err(RecvTimeoutError::Disconnected);
        if is_last {
            // Closing has a time limit of its own. The new process may use the directory then.
            let _ = closed.recv();
        }
        has_released |= closed.try_recv() == Err(TryRecvError::Disconnected);
        exchange(&mut channel, gateway, has_released)?;
        if is_last {
            // Units that the last refused call has wanted may just have been lent. No call needs them any
            // more, and those that are not returned would count as used.
            return exchange(&mut channel, gateway, has_released);
        }
    }
}

/// Sends a report, and receives the units that are lent.
fn exchange(channel: &mut Channel, gateway: &Gateway, has_released: bool) -> io::Result<()> {
    channel.send(&HandoverMessage::Report { balances: gateway.report(), has_released })?;
    let HandoverMessage::Lent { lendings } = channel.receive()? else {
        return Err(io::Error::new(ErrorKind::InvalidData, "it does not respond to a report"));
    };
    gateway.lend(Some(&lendings));
    Ok(())
}

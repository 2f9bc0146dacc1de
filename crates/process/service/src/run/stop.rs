//! The end of a running Egret: it drains, then writes down what is left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use egret_settings::failure::Failure;
use tokio::sync::mpsc;

use super::RunningEgret;
use crate::events::{Event, Events};

/// Supervisors signal a process and then its group, so one request to stop arrives as two signals within this
/// time.
const SIGNAL_GROUP_DELAY: Duration = Duration::from_millis(250);

impl RunningEgret {
    /// The number of clients that wait for a response, or have a tunnel open.
    pub(super) fn in_flight(&self) -> u64 {
        let clients = self.gateway.stats().clients;
        clients.open.saturating_sub(clients.idle)
    }

    /// Waits until no exchange is left. Returns immediately on another request to stop after the `first`
    /// signal.
    pub(super) async fn drain(&self, events: &mut Events, first: &'static str) -> Result<(), Failure> {
        self.supervisor.stopping(self.config.gateway.timeouts.drain);
        self.wait_for_exchanges(events, first).await
    }

    /// Waits until no exchange is left. Returns immediately on another request to stop after the `first`
    /// signal.
    pub(super) async fn wait_for_exchanges(
        &self,
        events: &mut Events,
        first: &'static str,
    ) -> Result<(), Failure> {
        let stopped_at = Instant::now();
        let (done, mut drained) = mpsc::channel(1);
        let gateway = Arc::clone(&self.gateway);
        std::thread::Builder::new()
            .name("egret-drain".into())
            .spawn(move || done.blocking_send(gateway.drain()))
            .map_err(|error| Failure::Failed(format!("cannot drain: {error}")))?;
        let stopped_again = async {
            loop {
                match events.next().await {
                    Event::Stop(signal) if signal != first || stopped_at.elapsed() > SIGNAL_GROUP_DELAY => {
                        return;
                    }
                    _ => {}
                }
            }
        };
        tokio::select! {
            complete = drained.recv() => {
                if complete == Some(true) {
                    tracing::info!("drained");
                } else {
                    tracing::warn!("exchanges still in flight after `gateway.timeouts.drain` were aborted");
                }
                Ok(())
            }
            () = stopped_again => Err(Failure::Failed("stopped immediately: exchanges in flight were aborted".to_owned())),
        }
    }
}

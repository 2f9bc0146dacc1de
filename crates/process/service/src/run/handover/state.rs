//! The old process sends its state, and drains.

use std::sync::Arc;
use std::time::Instant;

use egret_settings::failure::Failure;

use super::lender::Lender;
use super::message::HandoverMessage;
use super::offer::Successor;
use crate::events::Events;
use crate::run::RunningEgret;

impl RunningEgret {
    /// Hands the state over to a process that accepts clients from now on, and drains.
    pub(in crate::run) async fn hand_over(
        &mut self,
        successor: Successor,
        events: &mut Events,
    ) -> Result<(), Failure> {
        let Successor { mut channel, pid } = successor;
        let since = Instant::now();
        self.control.stop_accepting();
        let gateway = Arc::clone(&self.gateway);
        // The gateway waits for its acceptors, which tokio forbids where asynchronous tasks are driven.
        let asked = std::thread::Builder::new().name("egret-state".into()).spawn(move || gateway.hand_over());
        let state = asked.map_err(Failure::failed)?.join();
        let state = state.map_err(|_| Failure::failed("the state could not be handed over: see the log"))?;
        self.parts.close_quota_file();
        let taken = channel.send(&HandoverMessage::State(Box::new(state))).and_then(|()| channel.receive());
        let disks = std::mem::take(&mut self.disks);
        match taken {
            Ok(HandoverMessage::Serving) => {
                tracing::info!(
                    to = pid,
                    in_flight = self.in_flight(),
                    took_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX),
                    "handed over to a new process; waiting for exchanges in flight"
                );
                self.token.leave();
                self.supervisor.replaced(pid);
                let lender = Lender::start(channel, Arc::clone(&self.gateway), disks);
                self.lender = lender.map_err(|error| tracing::error!(%error, "no reports are sent")).ok();
                self.wait_for_exchanges(events, "").await
            }
            taken => {
                let reason =
                    taken.err().map_or_else(|| "an unexpected message".to_owned(), |error| error.to_string());
                self.gateway.lend(None);
                self.drain(events, "").await?;
                disks.close(false);
                Err(Failure::Failed(format!(
                    "the new process did not take over, and nothing listens: {reason}"
                )))
            }
        }
    }
}

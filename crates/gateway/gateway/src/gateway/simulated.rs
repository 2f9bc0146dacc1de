//! A gateway of the simulation: its workers take turns on one thread, and nothing blocks.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use egret_clock::Moment;
use egret_net::dns::Resolver;
use egret_net::event_loop::simulated::SteppedLoop;
use egret_plan::config::Parts;
use tokio::sync::oneshot;

use super::{Gateway, HANDLED_MAX, HandedState, StartError, thread};
use crate::worker::{Backlog, WorkerMessage};

/// Maximum time for the workers to handle their messages while the gateway is handed over.
pub const HAND_OVER_MAX: Duration = HANDLED_MAX;

/// Acceptors that were told to stop.
#[derive(Debug)]
pub struct Stopping(Vec<oneshot::Receiver<()>>);

impl Stopping {
    /// Returns `true` once all have stopped.
    pub fn has_ended(&mut self) -> bool {
        self.0.retain_mut(|stopped| matches!(stopped.try_recv(), Err(oneshot::error::TryRecvError::Empty)));
        self.0.is_empty()
    }
}

/// The resources that exchanges and connections hold. All of it is 0 when there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Places of client connections.
    pub connections: u64,
    /// Places of exchanges, counted while `limits.exchanges` limits them.
    pub exchanges: u32,
    /// Bytes of gathered bodies.
    pub gathered_bytes: usize,
}

impl Gateway {
    /// Prepares a gateway, and the loops of its workers, which the caller turns. Clients that connect wait
    /// until it is [opened](Self::open).
    ///
    /// # Errors
    ///
    /// Fails if the configuration is invalid.
    pub fn simulated(
        parts: Parts<'_>,
        resolver: Resolver,
    ) -> Result<(Arc<Self>, Vec<SteppedLoop>), StartError> {
        let (gateway, inboxes, _) = Self::assemble(parts, &[], || Ok(resolver))?;
        let gateway = Arc::new(gateway);
        let workers = inboxes.into_iter().enumerate().map(|(number, inbox)| {
            let (shared, plan) = (Arc::clone(&gateway.shared), Arc::clone(&gateway.state.lock().plan));
            SteppedLoop::new(thread::run(number, shared, plan, inbox))
        });
        let workers: io::Result<Vec<_>> = workers.collect();
        let workers = workers.map_err(|error| StartError::System("create an event loop", error))?;
        Ok((gateway, workers))
    }

    /// Begins a drain: no more clients are accepted.
    pub fn begin_drain(&self) -> Stopping {
        self.shared.draining.store(true, Relaxed);
        Stopping(self.stop_accepting(Backlog::Serve))
    }

    /// Begins to hand over to another gateway: no more clients are accepted, which wait for that one. Behind
    /// it come [`drain_workers`](Self::drain_workers), a [`pulse`](Self::pulse) and
    /// [`handed_state`](Self::handed_state).
    pub fn begin_hand_over(&self) -> Stopping {
        self.shared.draining.store(true, Relaxed);
        Stopping(self.stop_accepting(Backlog::Leave))
    }

    /// Returns the state that the next gateway takes over, at the latest [`HAND_OVER_MAX`] after the workers
    /// were told to drain.
    pub fn handed_state(&self) -> HandedState {
        self.handed(Vec::new())
    }

    /// Goes on with a drain, once the acceptors have stopped.
    pub fn drain_workers(&self) {
        self.shared.broadcast(|| WorkerMessage::Drain);
    }

    /// Gives the diagnoses a turn. Returns the time of the next one at the latest, or `None` if there are
    /// none.
    pub fn diagnose(&self) -> Option<Moment> {
        self.shared.records.turn()
    }

    /// Lets the diagnoses end, once they have processed all records. Call it after the drain.
    pub fn stop_diagnoses(&self) {
        self.shared.records.begin_stop();
    }

    /// Returns what exchanges and connections hold.
    pub fn held(&self) -> Held {
        Held {
            connections: self.shared.open_connections(),
            exchanges: self.shared.exchanges.load(Relaxed),
            gathered_bytes: self.shared.gathered.taken(),
        }
    }
}

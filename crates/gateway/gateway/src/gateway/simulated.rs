//! A gateway of the simulation: its workers take turns on one thread, and nothing blocks.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use egret_net::dns::Resolver;
use egret_net::event_loop::simulated::SteppedLoop;
use egret_plan::config::Parts;
use tokio::sync::oneshot;

use super::{Gateway, StartError, thread};
use crate::worker::{Backlog, WorkerMessage};

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
    /// Makes a gateway, and the loops of its workers, which the caller turns.
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
        gateway.open();
        Ok((gateway, workers))
    }

    /// Begins a drain: no more clients are accepted.
    pub fn begin_drain(&self) -> Stopping {
        self.shared.draining.store(true, Relaxed);
        Stopping(self.stop_accepting(Backlog::Serve))
    }

    /// Goes on with a drain, once the acceptors have stopped.
    pub fn drain_workers(&self) {
        self.shared.broadcast(|| WorkerMessage::Drain);
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

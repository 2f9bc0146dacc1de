//! The loop of a worker: it obeys messages, lends connections, and sweeps, until it is drained.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use egret_clock::planted;
use egret_message::ListenAddress;
use egret_net::event_loop::{Listener, sleep, spawn};
use egret_net::os::kernel::TcpStream;
use egret_plan::Plan;
use tokio::sync::mpsc;
use tracing::warn;

use crate::background;
use crate::downstream::serve;
use crate::gateway::acceptor;
use crate::worker::{Inbox, Shared, Worker, WorkerMessage};
use egret_upstream::LoanRequest;

/// Interval at which idle connections to providers are checked.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Runs worker `number` with `plan`, until it is drained and its last connection has closed.
pub(crate) async fn run(number: usize, shared: Arc<Shared>, plan: Arc<Plan>, inbox: Inbox) {
    let Inbox { mut messages, loans, records } = inbox;
    let (follow_ups, orders) = mpsc::unbounded_channel();
    let worker = Worker::new(number, shared, plan, records, follow_ups);
    let timers = Rc::clone(&worker.timers);
    spawn(async move { timers.run().await });
    spawn(sweep(Rc::clone(&worker)));
    spawn(lend(Rc::clone(&worker), loans));
    spawn(background::run(Rc::clone(&worker), orders));
    while let Some(message) = next(&worker, &mut messages).await {
        match message {
            WorkerMessage::Listen(socket, address, stop) => match Listener::new(socket) {
                Ok(listener) => spawn(acceptor::accept(Rc::clone(&worker), listener, address, stop)),
                Err(error) => warn!(%error, "cannot start a listener"),
            },
            WorkerMessage::Client(socket, listener) => serve_client(&worker, socket, listener),
            WorkerMessage::Resent(socket, listener, pin) => {
                spawn(serve::serve_resent(Rc::clone(&worker), socket, listener, pin));
            }
            WorkerMessage::Plan(plan) => worker.apply(plan),
            WorkerMessage::Pulse(pulse) => drop(pulse),
            WorkerMessage::Traffic => worker.apply_traffic_state(),
            WorkerMessage::Drain => {
                worker.draining.set(!planted!(DrainUnheard));
                worker.timers.wake_all();
            }
        }
    }
}

/// Serves a client connection in its own task.
pub(crate) fn serve_client(worker: &Rc<Worker>, socket: TcpStream, listener: ListenAddress) {
    spawn(serve::serve(Rc::clone(worker), socket, listener));
}

/// Returns the next message, or `None` once the worker is drained, its last connection has closed, and no
/// call of its own must end.
async fn next(
    worker: &Worker,
    messages: &mut mpsc::UnboundedReceiver<WorkerMessage>,
) -> Option<WorkerMessage> {
    loop {
        let has_connections = worker.shared.connections[worker.number].load(Relaxed) > 0;
        if worker.draining.get() && !has_connections && worker.unfinished.get() == 0 {
            return None;
        }
        tokio::select! {
            biased;
            message = messages.recv() => return message,
            () = worker.wait_for_close() => {}
        }
    }
}

/// Lends idle connections to the other workers.
async fn lend(worker: Rc<Worker>, mut loans: mpsc::UnboundedReceiver<LoanRequest>) {
    while let Some(LoanRequest { plan, reply }) = loans.recv().await {
        // The requesting worker may be gone. The connection is closed then.
        let _ = reply.send(worker.lend(&plan));
    }
}

/// Closes idle connections and releases memory, while there is something to close or release.
async fn sweep(worker: Rc<Worker>) {
    loop {
        worker.wait_for_kept().await;
        sleep(SWEEP_INTERVAL).await;
        worker.sweep();
    }
}

//! Accepts client connections and hands each to the worker with the fewest.
//!
//! A sidecar gets few, long-lived connections. The kernel spreads connections by a hash of their addresses
//! among sockets that share a port, which would leave one worker with most of them.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use egret_message::{ListenAddress, RequestId};
use egret_net::descriptors::{OpenFiles, is_exhausted};
use egret_net::event_loop::{Listener, Socket, sleep, spawn, timeout};
use egret_net::listen::BACKLOG;
use egret_net::os::kernel::TcpStream;
use egret_observe::failure::{ErrorKind, Failure};
use tokio::sync::oneshot;
use tracing::{error, warn};

use crate::gateway::thread::serve_client;
use crate::worker::{Backlog, StopAccepting, Worker, WorkerMessage};

/// Time that a rejected client has to read the error, and the number of clients that may do so at once.
/// Others are just closed. Where few files may be open it is a small part of them, since connections to
/// providers need the rest.
const TURN_AWAY_LINGER: Duration = Duration::from_secs(1);
const TURNED_AWAY_MAX: u32 = 256;
const TURNED_AWAY_PART: u32 = 32;
/// Pause after an error of the listener or of the system, which may last: it must not keep the worker busy.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Interval at which the same error is logged again.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// Accepts connections until `stop` is signalled or dropped, and serves them as those of the listener at
/// `address`. Then accepts those that the kernel has already completed, unless another process does.
pub(crate) async fn accept(
    worker: Rc<Worker>,
    listener: Listener,
    address: ListenAddress,
    mut stop: oneshot::Receiver<StopAccepting>,
) {
    let turned_away = Rc::new(Cell::new(0));
    let mut trouble = Trouble::default();
    let stopped = loop {
        tokio::select! {
            biased;
            stopped = &mut stop => break stopped,
            accepted = listener.accept() => match accepted {
                Ok(socket) => hand_over(&worker, socket, address, &turned_away),
                // The client has disconnected already.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    trouble.log(address, &error);
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    };
    if stopped.as_ref().is_ok_and(|stopped| stopped.backlog == Backlog::Leave) {
        tracing::debug!(%address, "another process accepts the clients of this listener");
    } else {
        take_the_rest(&worker, &listener, address, &turned_away).await;
    }
    drop(listener);
    if let Ok(stopped) = stopped {
        // The receiver may no longer wait.
        let _ = stopped.done.send(());
    }
}

/// Accepts the connections that the kernel has completed. They would be reset when the listener closes. No
/// more than can have waited: an inherited socket stays open, and its clients keep coming.
async fn take_the_rest(
    worker: &Rc<Worker>,
    listener: &Listener,
    address: ListenAddress,
    turned_away: &Rc<Cell<u32>>,
) {
    for _ in 0..BACKLOG {
        let Ok(Ok(socket)) = timeout(Duration::from_millis(1), listener.accept()).await else { return };
        hand_over(worker, socket, address, turned_away);
    }
}

/// The last error of a listener.
#[derive(Debug, Default)]
struct Trouble(Option<(Option<i32>, Instant)>);

impl Trouble {
    /// Logs an error, unless the same one was logged within the last minute.
    fn log(&mut self, address: ListenAddress, error: &io::Error) {
        let code = error.raw_os_error();
        if self.0.is_some_and(|(last, at)| last == code && at.elapsed() < LOG_INTERVAL) {
            return;
        }
        self.0 = Some((code, Instant::now()));
        if is_exhausted(error) {
            warn!(%address, %error, "cannot accept clients at the moment");
        } else {
            // A process that was handed the socket has ended its listening, or a security module forbids it.
            error!(%address, %error, "this listener accepts no clients any more: restart Egret");
        }
    }
}

fn hand_over(worker: &Rc<Worker>, socket: TcpStream, listener: ListenAddress, turned_away: &Rc<Cell<u32>>) {
    let shared = &worker.shared;
    let open: u32 = shared.connections.iter().map(|connections| connections.load(Relaxed)).sum();
    let is_reserved = OpenFiles::get().reserves(&socket);
    let clients_max = shared.clients_max.load(Relaxed);
    if is_reserved || open >= worker.view().plan.limits.connections.min(clients_max) {
        worker.counters().refused.add(1);
        worker.counters().generated(ErrorKind::TooManyConnections);
        // The reserve is for others than clients, even for a moment.
        if !is_reserved && turned_away.get() < TURNED_AWAY_MAX.min(clients_max / TURNED_AWAY_PART) {
            let failure = Failure::new(
                ErrorKind::TooManyConnections,
                "too many connections are open (`gateway.limits.connections`, or the limit of open files)",
            );
            let view = worker.view();
            let (errors, stats) = (&view.plan.errors, &view.unrouted.plan.stats);
            let mut id = RequestId::default();
            worker.identify(&view.plan, None, &mut id);
            stats.errors.respond(stats.name(), &failure, failure.status(errors), &id);
            let response = failure.response(errors, errors.general_shape(), false, &id);
            spawn(turn_away(socket, response, Rc::clone(turned_away)));
        }
        return;
    }
    let chosen = shared.least_loaded();
    shared.connections[chosen].fetch_add(1, Relaxed);
    if chosen == worker.number {
        serve_client(worker, socket, listener);
        return;
    }
    shared.send(chosen, WorkerMessage::Client(socket, listener));
}

/// Sends an error and waits a little while the client reads it. If the socket closed with the request unread,
/// the client's kernel would discard the response.
async fn turn_away(socket: TcpStream, response: Vec<u8>, turned_away: Rc<Cell<u32>>) {
    turned_away.set(turned_away.get() + 1);
    let said = async {
        let socket = Socket::new(socket)?;
        socket.send_all(&response).await?;
        socket.shut()?;
        while socket.receive(&mut [0; 4096]).await? > 0 {}
        io::Result::Ok(())
    };
    // The socket is closed in every case.
    let _ = timeout(TURN_AWAY_LINGER, said).await;
    turned_away.set(turned_away.get() - 1);
}

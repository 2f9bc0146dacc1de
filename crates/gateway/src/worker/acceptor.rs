//! Accepts client connections and hands each to the worker with the fewest.
//!
//! A sidecar sees few, long-lived connections. Spreading them by a hash of their addresses, as the system does for sockets that
//! share a port, would leave one worker with most of them.

use std::cell::Cell;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use socket2::{Domain, Protocol, Type};
use tokio::sync::oneshot;
use tracing::warn;

use crate::event_loop::{Listener, Socket, sleep, spawn, timeout};
use crate::exchange::failure::{ErrorKind, Failure};
use crate::worker::{Message, Worker};

/// Connections that the system may hold until they are accepted; it caps this by its own limit.
const BACKLOG: i32 = 4096;
/// Bytes to a client that may wait in the system before it asks for no more.
#[cfg(target_os = "linux")]
const UNSENT_BYTES_MAX: u32 = 256 * 1024;
/// How long a client that is turned away may take to read why, and how many may at once; more are just closed.
const TURN_AWAY_LINGER: Duration = Duration::from_secs(1);
const TURNED_AWAY_MAX: u32 = 256;
/// How long to wait when the process has no descriptor to spare.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(50);

/// Binds a listening socket.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // Accepted sockets inherit it, which spares a system call for each.
    socket.set_tcp_nodelay(true)?;
    // So is this: a slow client's system holds this much unsent at most, and what it takes shows soon.
    #[cfg(target_os = "linux")]
    socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Accepts until `stop` says so, or is dropped; then takes on what the system has already accepted.
pub(crate) async fn accept(
    worker: Rc<Worker>,
    listener: Listener,
    mut stop: oneshot::Receiver<oneshot::Sender<()>>,
) {
    let Ok(address) = listener.local_addr() else { return };
    let turned_away = Rc::new(Cell::new(0));
    let stopped = loop {
        tokio::select! {
            biased;
            stopped = &mut stop => break stopped,
            accepted = listener.accept() => match accepted {
                Ok(socket) => hand_over(&worker, socket, address, &turned_away),
                Err(error) if is_exhausted(&error) => {
                    warn!(%error, "no client can be accepted for the moment");
                    sleep(EXHAUSTED_PAUSE).await;
                }
                // The client has given up meanwhile.
                Err(_) => {}
            },
        }
    };
    take_the_rest(&worker, &listener, address, &turned_away).await;
    drop(listener);
    if let Ok(done) = stopped {
        // Whoever asked may have given up waiting.
        let _ = done.send(());
    }
}

/// What the system accepted before the listener closes would otherwise be reset.
async fn take_the_rest(
    worker: &Rc<Worker>,
    listener: &Listener,
    address: SocketAddr,
    turned_away: &Rc<Cell<u32>>,
) {
    while let Ok(Ok(socket)) = timeout(Duration::from_millis(1), listener.accept()).await {
        hand_over(worker, socket, address, turned_away);
    }
}

fn is_exhausted(error: &io::Error) -> bool {
    // ENFILE, EMFILE, ENOBUFS, ENOMEM
    matches!(error.raw_os_error(), Some(23 | 24 | 105 | 12))
}

fn hand_over(worker: &Rc<Worker>, socket: TcpStream, listener: SocketAddr, turned_away: &Rc<Cell<u32>>) {
    let shared = &worker.shared;
    let open: u32 = shared.connections.iter().map(|connections| connections.load(Relaxed)).sum();
    if open >= worker.view().plan.limits.connections {
        worker.counters().refused.add(1);
        worker.counters().generated(ErrorKind::TooManyConnections);
        if turned_away.get() < TURNED_AWAY_MAX {
            let failure = Failure::new(
                ErrorKind::TooManyConnections,
                "too many connections are open (`gateway.limits.connections`)",
            );
            let answer = failure.answer(&worker.view().plan.errors, true, false);
            spawn(turn_away(socket, answer, Rc::clone(turned_away)));
        }
        return;
    }
    let chosen = shared.least_loaded();
    shared.connections[chosen].fetch_add(1, Relaxed);
    if chosen == worker.number {
        worker.take_on(socket, listener);
        return;
    }
    shared.tell(chosen, Message::Client(socket, listener));
}

/// Says why, and waits a little for the client to read it: closed with the request unread, the answer would be thrown away.
async fn turn_away(socket: TcpStream, answer: Vec<u8>, turned_away: Rc<Cell<u32>>) {
    turned_away.set(turned_away.get() + 1);
    let said = async {
        let socket = Socket::new(socket)?;
        socket.send_all(&answer).await?;
        socket.shut()?;
        while socket.receive(&mut [0; 4096]).await? > 0 {}
        io::Result::Ok(())
    };
    // However it ends, the socket is closed.
    let _ = timeout(TURN_AWAY_LINGER, said).await;
    turned_away.set(turned_away.get() - 1);
}

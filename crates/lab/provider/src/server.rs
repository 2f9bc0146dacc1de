//! Threads and connections of the provider, and hyper on each connection.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;

use crate::call::Peer;
use crate::clock::{self, OwnTimer};
use crate::entry_point::{CallOutcome, EntryPoint};
use crate::http2;
use crate::network::Network;
use crate::stream::ClientStream;
use crate::takeover::Takeover;

/// Time for responses in progress after the provider is stopped; a response that takes longer is cut off.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// Maximum number of concurrent connections. Further ones are closed as soon as they are accepted.
const CONNECTIONS_MAX: usize = 65_536;

/// Pause in accepting after the system has run out of a resource such as open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Timeout of the TLS handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(30);

/// The parts that every thread needs.
#[derive(Clone)]
pub(crate) struct Service {
    pub entry_point: EntryPoint,
    pub network: Network,
    pub tls: Option<TlsAcceptor>,
}

/// A serving thread, from the accepting thread's point of view.
struct WorkerHandle {
    inbox: mpsc::UnboundedSender<(std::net::TcpStream, SocketAddr)>,
    open: Arc<AtomicUsize>,
}

/// Starts `threads` threads on the listener. They end when `stop` is dropped or signals.
pub(crate) fn start(
    listener: std::net::TcpListener,
    threads: usize,
    service: &Service,
    stop: &watch::Receiver<()>,
) -> io::Result<Vec<JoinHandle<()>>> {
    let mut workers = Vec::new();
    let mut handles = Vec::new();
    for number in 1..threads.max(1) {
        let (inbox, given) = mpsc::unbounded_channel();
        let open = Arc::new(AtomicUsize::new(0));
        workers.push(WorkerHandle { inbox, open: Arc::clone(&open) });
        let server = (service.clone(), stop.clone());
        handles.push(thread(number, move || async move {
            let (service, stop) = server;
            Server::new(service, open, stop).serve_given(given).await;
        })?);
    }
    let server = (service.clone(), stop.clone());
    handles.push(thread(0, move || async move {
        let (service, stop) = server;
        match TcpListener::from_std(listener) {
            Ok(listener) => {
                Server::new(service, Arc::default(), stop).serve_accepted(listener, workers).await;
            }
            Err(error) => tracing::error!(%error, "the provider cannot accept connections"),
        }
    })?);
    Ok(handles)
}

/// Starts a thread with its own event loop.
fn thread<F: Future<Output = ()>>(
    number: usize,
    run: impl FnOnce() -> F + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let (failure, ready) = std::sync::mpsc::channel();
    let handle = std::thread::Builder::new().name(format!("egret-provider-{number}")).spawn(move || {
        match Builder::new_current_thread().enable_all().build_local(LocalOptions::default()) {
            Ok(runtime) => {
                drop(failure);
                runtime.block_on(async {
                    clock::start();
                    run().await;
                });
                runtime.shutdown_background();
            }
            // If nobody receives this, the caller has already given up.
            Err(error) => drop(failure.send(error)),
        }
    })?;
    ready.recv().map_or(Ok(handle), Err)
}

/// The state of a serving thread.
struct Server {
    service: Rc<Service>,
    open: Arc<AtomicUsize>,
    stop: watch::Receiver<()>,
}

impl Server {
    fn new(service: Service, open: Arc<AtomicUsize>, stop: watch::Receiver<()>) -> Self {
        Self { service: Rc::new(service), open, stop }
    }

    /// Accepts for all threads. Each connection is assigned to the thread with the fewest connections.
    async fn serve_accepted(mut self, listener: TcpListener, workers: Vec<WorkerHandle>) {
        let (alive, ended) = mpsc::channel::<()>(1);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = self.stop.changed() => break,
            };
            match accepted {
                Ok((socket, peer)) => self.hand_over(socket, peer, &workers, &alive),
                Err(error) => {
                    tracing::warn!(%error, "the provider cannot accept connections");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop((listener, workers));
        drained(alive, ended).await;
    }

    fn hand_over(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
        workers: &[WorkerHandle],
        alive: &mpsc::Sender<()>,
    ) {
        let own = self.open.load(Relaxed);
        let others = workers.iter().map(|worker| (worker.open.load(Relaxed), worker));
        let total = own + others.clone().map(|(open, _)| open).sum::<usize>();
        if total >= CONNECTIONS_MAX {
            return;
        }
        match others.min_by_key(|(open, _)| *open) {
            Some((open, worker)) if open < own => {
                // If the socket cannot be moved to another event loop, or the thread has ended, the
                // connection is closed.
                if let Ok(socket) = socket.into_std() {
                    worker.open.fetch_add(1, Relaxed);
                    let _ = worker.inbox.send((socket, peer));
                }
            }
            _ => {
                self.open.fetch_add(1, Relaxed);
                self.spawn(socket, peer, alive.clone());
            }
        }
    }

    /// Serves the connections that the accepting thread passes on.
    async fn serve_given(mut self, mut given: mpsc::UnboundedReceiver<(std::net::TcpStream, SocketAddr)>) {
        let (alive, ended) = mpsc::channel::<()>(1);
        loop {
            let (socket, peer) = tokio::select! {
                Some(connection) = given.recv() => connection,
                _ = self.stop.changed() => break,
            };
            match TcpStream::from_std(socket) {
                Ok(socket) => self.spawn(socket, peer, alive.clone()),
                Err(error) => {
                    self.open.fetch_sub(1, Relaxed);
                    tracing::warn!(%error, "the provider cannot serve a connection");
                }
            }
        }
        drained(alive, ended).await;
    }

    fn spawn(&self, socket: TcpStream, peer: SocketAddr, alive: mpsc::Sender<()>) {
        let (service, stop, open) =
            (Rc::clone(&self.service), self.stop.clone(), OpenConnection(Arc::clone(&self.open)));
        tokio::task::spawn_local(async move {
            if let Err(error) = service.serve(socket, peer, stop).await {
                tracing::debug!(%error, %peer, "a connection to the provider failed");
            }
            drop((open, alive));
        });
    }
}

/// An open connection, counted until it is dropped.
struct OpenConnection(Arc<AtomicUsize>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Waits until every connection has ended or the grace period is over.
async fn drained(alive: mpsc::Sender<()>, mut ended: mpsc::Receiver<()>) {
    drop(alive);
    // Connections that are still open are cut off.
    let _ = tokio::time::timeout(STOP_GRACE, ended.recv()).await;
}

/// The error that stops hyper on purpose: the response is sent without it.
#[derive(Debug, thiserror::Error)]
#[error("taken over")]
struct TakenOver;

impl Service {
    /// Serves a connection to its end.
    async fn serve(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
        mut stop: watch::Receiver<()>,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let accepting = ClientStream::accept(socket, self.network, self.tls.clone());
        let mut stream = tokio::time::timeout(HANDSHAKE_MAX, accepting).await??;
        let peer = Peer { address: peer.ip().to_string().into(), secure: self.tls.is_some() };
        let is_http2 = tokio::select! {
            is_http2 = tokio::time::timeout(self.entry_point.head_timeout(), stream.speaks_http2()) => is_http2,
            _ = stop.changed() => return Ok(()),
        };
        // A client that sends nothing is left without a response.
        let Ok(is_http2) = is_http2 else { return Ok(()) };
        if is_http2? {
            return Ok(http2::serve(&self.entry_point, stream, &peer, stop).await?);
        }
        let is_stopping = Cell::new(false);
        loop {
            let taken_over = RefCell::new(None);
            let (back, result) = self.with_hyper(stream, &peer, &taken_over, &is_stopping, &mut stop).await;
            stream = back;
            let Some(takeover) = taken_over.into_inner() else { return Ok(result?) };
            if !takeover.perform(&mut stream).await? || is_stopping.get() {
                return Ok(());
            }
        }
    }

    /// Lets hyper serve the connection until it ends or is taken over, and returns it.
    async fn with_hyper(
        &self,
        stream: ClientStream,
        peer: &Peer,
        taken_over: &RefCell<Option<Takeover>>,
        is_stopping: &Cell<bool>,
        stop: &mut watch::Receiver<()>,
    ) -> (ClientStream, hyper::Result<()>) {
        // hyper returns a connection only if the service's futures are `Unpin`.
        let service = service_fn(|request| {
            Box::pin(async move {
                match self.entry_point.call(request, peer.clone()).await {
                    // Only streams of HTTP/2 have a response with a fault.
                    CallOutcome::Response(response) | CallOutcome::Faulty(response, _) => Ok(response),
                    CallOutcome::Takeover(takeover) => {
                        taken_over.replace(Some(takeover));
                        Err(TakenOver)
                    }
                }
            })
        });
        let mut connection = http1::Builder::new()
            .timer(OwnTimer)
            .header_read_timeout(self.entry_point.head_timeout())
            .serve_connection(TokioIo::new(stream), service);
        let result = loop {
            tokio::select! {
                biased;
                served = std::future::poll_fn(|context| connection.poll_without_shutdown(context)) => break served,
                _ = stop.changed(), if !is_stopping.get() => {
                    is_stopping.set(true);
                    std::pin::Pin::new(&mut connection).graceful_shutdown();
                }
            }
        };
        let parts = connection.into_parts();
        (parts.io.into_inner().with_unread(parts.read_buf), result)
    }
}

//! The state that all workers and the other threads share, and the messages between them.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use egret_clock::{Clock, Random};
use egret_diagnosis::{Pin, Tallies, Traffic, TrafficConfig};
use egret_export::access_log::AccessLog;
use egret_message::{ListenAddress, Via};
use egret_net::budget::Budget;
use egret_net::dns::Resolver;
use egret_net::os::kernel::{TcpListener, TcpStream};
use egret_observe::counters::WorkerCounters;
use egret_observe::loops::Loops;
use egret_observe::notice::Notice;
use egret_observe::refusals::Refusals;
use egret_observe::ring::{RecordSender, Records};
use egret_plan::Plan;
use egret_upstream::{LoanRequest, Network};
use tokio::sync::{mpsc, oneshot};

/// The state shared by all workers and the other threads. The path of a request only reads it, with two
/// exceptions: `exchanges` and `gathered`.
#[derive(Debug)]
pub(crate) struct Shared {
    pub network: Arc<Network>,
    inboxes: Box<[mpsc::UnboundedSender<WorkerMessage>]>,
    pub access_log: AccessLog,
    pub records: Records,
    /// The list of recent exchanges.
    pub traffic: Arc<Traffic>,
    /// The last failed exchanges.
    pub failures: Arc<Traffic>,
    /// The list of called endpoints.
    pub tallies: Tallies,
    pub via: Via,
    /// The clock that remedies read.
    pub clock: Clock,
    /// Number of open client connections that each worker was given.
    pub connections: Box<[AtomicU32]>,
    /// Maximum number of them that the limit of open files permits.
    pub clients_max: AtomicU32,
    /// Number of exchanges in progress, counted while it is limited. It is the only state that exchanges of
    /// different workers then share.
    pub exchanges: AtomicU32,
    /// The memory that gathered bodies take. Only they access it.
    pub gathered: Arc<Budget>,
    /// Clients that refuse the certificates of intercepted hosts.
    pub refusals: Refusals,
    /// Tunnels that could lead back here.
    pub loops: Arc<Loops>,
    /// The log line about hosts for which there is no certificate.
    pub unminted: Notice,
    /// Limits the log lines about clients that send floods of HTTP/2 frames.
    pub flooded: Notice,
    pub draining: AtomicBool,
    /// The generation of the next plan.
    pub generation: AtomicU64,
    pub reloads: AtomicU64,
    pub reloads_refused: AtomicU64,
}

/// The ends of a worker's channels that belong to the worker.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub messages: mpsc::UnboundedReceiver<WorkerMessage>,
    pub loans: mpsc::UnboundedReceiver<LoanRequest>,
    pub records: RecordSender,
}

/// A message to a worker. The inbox is bounded by its senders: clients by `limits.connections`, loans by
/// exchanges.
#[derive(Debug)]
pub(crate) enum WorkerMessage {
    /// A new client connection, with the address of its listener.
    Client(TcpStream, ListenAddress),
    /// A recorded request that is sent again: the end of a connection within the process, the address of the
    /// listener whose client it stands for, and its bounds.
    Resent(TcpStream, ListenAddress, Box<Pin>),
    /// Accept clients of the listener at this address on this socket until told to stop. Sent only to the
    /// first worker.
    Listen(TcpListener, ListenAddress, oneshot::Receiver<StopAccepting>),
    /// A new plan, in force from the next exchange on.
    Plan(Arc<Plan>),
    /// Drop this, to show that the worker handles its messages.
    Pulse(std::sync::mpsc::Sender<Infallible>),
    /// Live traffic was opened or closed.
    Traffic,
    /// Finish the exchanges in progress and accept nothing new.
    Drain,
}

/// The order to stop accepting clients.
#[derive(Debug)]
pub(crate) struct StopAccepting {
    /// Receives a message when the acceptor has stopped.
    pub done: oneshot::Sender<()>,
    pub backlog: Backlog,
}

/// The fate of the connections that the kernel has completed and nobody has accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backlog {
    /// They are accepted first: they would be reset when the socket closes.
    Serve,
    /// Another process accepts them on the same socket.
    Leave,
}

impl Shared {
    /// Number of open client connections.
    pub fn open_connections(&self) -> u64 {
        self.connections.iter().map(|connections| u64::from(connections.load(Relaxed))).sum()
    }

    /// Sends a message to a worker. It is dropped if the worker has ended.
    pub fn send(&self, worker: usize, message: WorkerMessage) {
        let _ = self.inboxes[worker].send(message);
    }

    /// Sends a message to every worker.
    pub fn broadcast(&self, mut message: impl FnMut() -> WorkerMessage) {
        for worker in 0..self.inboxes.len() {
            self.send(worker, message());
        }
    }

    /// Returns the worker with the fewest client connections.
    pub fn least_loaded(&self) -> usize {
        (0..self.connections.len()).min_by_key(|worker| self.connections[*worker].load(Relaxed)).unwrap_or(0)
    }

    /// Creates the shared state, and for each worker its own ends of its channels.
    pub fn new(
        workers: usize,
        resolver: Resolver,
        access_log: AccessLog,
        traffic: &TrafficConfig,
    ) -> (Self, Vec<Inbox>) {
        let failures = Arc::new(Traffic::of_failures(traffic.clone()));
        let traffic = Arc::new(Traffic::new(traffic.clone(), workers));
        let (records, senders) = Records::new(workers, Arc::clone(&traffic), Arc::clone(&failures));
        let (inboxes, receivers): (Vec<_>, Vec<_>) = (0..workers).map(|_| mpsc::unbounded_channel()).unzip();
        let (lenders, loans): (Vec<_>, Vec<_>) = (0..workers).map(|_| mpsc::unbounded_channel()).unzip();
        let network = Network {
            resolver,
            lenders: lenders.into_boxed_slice(),
            counters: (0..workers).map(|_| WorkerCounters::default()).collect(),
        };
        let shared = Self {
            network: Arc::new(network),
            inboxes: inboxes.into_boxed_slice(),
            access_log,
            records,
            traffic,
            failures,
            tallies: Tallies::new(workers),
            via: Via::new(&pseudonym()),
            clock: Clock::new(),
            connections: (0..workers).map(|_| AtomicU32::new(0)).collect(),
            clients_max: AtomicU32::new(u32::MAX),
            exchanges: AtomicU32::new(0),
            gathered: Arc::default(),
            refusals: Refusals::default(),
            loops: Arc::default(),
            unminted: Notice::default(),
            flooded: Notice::default(),
            draining: AtomicBool::new(false),
            generation: AtomicU64::new(0),
            reloads: AtomicU64::new(0),
            reloads_refused: AtomicU64::new(0),
        };
        let ends = receivers.into_iter().zip(loans).zip(senders);
        (shared, ends.map(|((messages, loans), records)| Inbox { messages, loans, records }).collect())
    }
}

/// Returns `egret-` and 64 random bits.
fn pseudonym() -> String {
    format!("egret-{:016x}", Random::default().draw())
}

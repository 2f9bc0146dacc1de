//! Life cycle of the control port. It has its own thread and runtime, so it and the data path cannot block
//! each other.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use egret_clock::Timestamp;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::changes::ConfigAccess;
use crate::config::ControlConfig;
use crate::connection::{LimitedListener, Trust};
use crate::findings::SAMPLE_INTERVAL;
use crate::history::STEP;
use crate::observed::Observed;
use crate::process;
use crate::routes::{self, Shared};
use crate::source::Source;
use crate::traffic::TrafficDemand;

/// Time for responses in progress after the port is asked to stop.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// Number of groups of each quota in which findings look for trouble.
const SAMPLED_GROUPS_MAX: usize = 50;

/// Interval at which the port looks after the history and live traffic.
const TICK_INTERVAL: Duration = Duration::from_secs(1);

/// The running control port. Dropping it stops it as well.
#[derive(Debug)]
pub struct Control {
    address: SocketAddr,
    /// A handle of the socket, for another process.
    socket: Option<std::net::TcpListener>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Binds the address and serves on its own thread until stopped.
    pub fn start(
        config: &ControlConfig,
        source: Arc<dyn Source>,
        access: ConfigAccess,
    ) -> Result<Self, ControlError> {
        Self::start_with(config, source, access, &[])
    }

    /// Does the same, but takes the socket for the address from `inherited`, if it is there.
    pub fn start_with(
        config: &ControlConfig,
        source: Arc<dyn Source>,
        access: ConfigAccess,
        inherited: &[std::net::TcpListener],
    ) -> Result<Self, ControlError> {
        if config.is_exposed() {
            return Err(ControlError::MissingToken { address: config.listen });
        }
        let bind = |error| ControlError::Bind { address: config.listen, error };
        let is_inherited = |socket: &&std::net::TcpListener| {
            socket.local_addr().is_ok_and(|address| address == config.listen)
        };
        let listener = match inherited.iter().find(is_inherited) {
            Some(socket) => socket.try_clone(),
            None => std::net::TcpListener::bind(config.listen),
        };
        let listener = listener.map_err(bind)?;
        listener.set_nonblocking(true).map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let socket = listener.try_clone().ok();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ControlError::Thread)?;
        let traffic = TrafficDemand::new(Arc::clone(&source));
        let shared = Shared { source, traffic, history: Arc::default(), findings: Arc::default() };
        let router = routes::router(config, address, &shared, access);
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("egret-control".into())
            .spawn(move || {
                if let Err(error) = runtime.block_on(serve(listener, router, shared, stopped)) {
                    tracing::error!(%error, "the control port failed");
                }
                runtime.shutdown_background();
            })
            .map_err(ControlError::Thread)?;
        tracing::info!(%address, "control port listening");
        Ok(Self { address, socket, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the listening address, with the port that the system chose if the config says 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a handle of the listening socket, for a process that takes over.
    ///
    /// # Errors
    ///
    /// Fails if the process has no descriptor left, or accepts no more.
    pub fn listening_socket(&self) -> io::Result<std::net::TcpListener> {
        self.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?.try_clone()
    }

    /// Stops accepting without waiting, so that another process accepts on the same socket.
    pub fn stop_accepting(&mut self) {
        self.socket = None;
        drop(self.stop.take());
    }

    /// Stops accepting, waits up to one second for responses in progress, and returns once the thread has
    /// ended.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the control thread panicked");
        }
    }
}

async fn serve(
    listener: std::net::TcpListener,
    router: axum::Router,
    shared: Shared,
    stop: oneshot::Receiver<()>,
) -> io::Result<()> {
    let traffic = Arc::clone(&shared.traffic);
    tokio::spawn(tick(shared));
    let listener = LimitedListener::new(TcpListener::from_std(listener)?);
    let (stopping, stopped) = oneshot::channel::<()>();
    let service = router.into_make_service_with_connect_info::<Trust>();
    let serving = axum::serve(listener, service).with_graceful_shutdown(async move {
        // A dropped sender also means stop.
        let _ = stop.await;
        traffic.stop();
        drop(stopping);
    });
    tokio::select! {
        served = serving.into_future() => served,
        () = async { let _ = stopped.await; tokio::time::sleep(STOP_GRACE).await; } => Ok(()),
    }
}

/// Writes the history, looks for what is wrong, and closes live traffic that nobody reads, for as long as
/// the runtime lives.
async fn tick(shared: Shared) {
    let mut ticks = interval(TICK_INTERVAL);
    // After a pause of the machine, one step is longer.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut ended, mut sampled) = (Instant::now(), Instant::now());
    shared.history.add(shared.source.stats());
    shared.sample();
    loop {
        ticks.tick().await;
        shared.traffic.tick();
        if sampled.elapsed() >= SAMPLE_INTERVAL {
            sampled = Instant::now();
            shared.sample();
        }
        if ended.elapsed() >= STEP {
            ended = Instant::now();
            shared.history.add(shared.source.stats());
        }
    }
}

impl Shared {
    /// Looks for what is wrong now.
    fn sample(&self) {
        let observed = Observed::of(&*self.source, SAMPLED_GROUPS_MAX, process::limits());
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Timestamp::default() + since_epoch;
        self.findings.add(now, &observed, &|provider| self.history.usual_wait(provider));
    }
}

/// The reason why the control port could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The address is not on loopback and there is no token.
    #[error(
        "the control port listens on {address}, which is not loopback, so it needs a rule about its callers: set control.token"
    )]
    MissingToken {
        /// The configured address.
        address: SocketAddr,
    },
    /// Listening on the address failed.
    #[error("the control port cannot listen on {address}: {error}")]
    Bind {
        /// The configured address.
        address: SocketAddr,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// The thread or its runtime could not be created.
    #[error("the control port's thread cannot be started: {0}")]
    Thread(#[source] io::Error),
}

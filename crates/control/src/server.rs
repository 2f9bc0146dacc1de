//! Life cycle of the control port: a thread with a runtime of its own, so that a busy data path cannot silence it nor it the data
//! path.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::connection::LimitedListener;
use crate::{ControlConfig, Source, routes};

/// How long answers under way may take once the port is told to stop.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// The running control port. Dropping it stops it as well.
#[derive(Debug)]
pub struct Control {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Binds the address, then serves on a thread of its own until stopped.
    pub fn start(config: &ControlConfig, source: Arc<dyn Source>) -> Result<Self, ControlError> {
        if config.is_exposed() {
            return Err(ControlError::Exposed { address: config.listen });
        }
        let bind = |error| ControlError::Bind { address: config.listen, error };
        let listener = std::net::TcpListener::bind(config.listen).map_err(bind)?;
        listener.set_nonblocking(true).map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ControlError::Thread)?;
        let router = routes::router(config, address, source);
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("egret-control".into())
            .spawn(move || {
                if let Err(error) = runtime.block_on(serve(listener, router, stopped)) {
                    tracing::error!(%error, "the control port failed");
                }
                runtime.shutdown_background();
            })
            .map_err(ControlError::Thread)?;
        tracing::info!(%address, "control port listening");
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// The address listened on, with the port that the system chose where the config says 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting, gives answers under way a second, and returns once the thread is gone.
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
    stop: oneshot::Receiver<()>,
) -> io::Result<()> {
    let listener = LimitedListener::new(TcpListener::from_std(listener)?);
    let (stopping, stopped) = oneshot::channel::<()>();
    let serving = axum::serve(listener, router).with_graceful_shutdown(async move {
        // The sender's end is a stop as well.
        let _ = stop.await;
        drop(stopping);
    });
    tokio::select! {
        served = serving.into_future() => served,
        () = async { let _ = stopped.await; tokio::time::sleep(STOP_GRACE).await; } => Ok(()),
    }
}

/// Why the control port could not be started.
#[derive(Debug)]
pub enum ControlError {
    /// The address is not on loopback and there is no token.
    Exposed {
        /// As configured.
        address: SocketAddr,
    },
    /// The address could not be listened on.
    Bind {
        /// As configured.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// The thread or its runtime could not be made.
    Thread(io::Error),
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exposed { address } => {
                write!(
                    f,
                    "the control port would listen on {address}, which is not loopback, without a token: set control.token"
                )
            }
            Self::Bind { address, error } => {
                write!(f, "the control port cannot listen on {address}: {error}")
            }
            Self::Thread(error) => write!(f, "the control port's thread cannot be started: {error}"),
        }
    }
}

impl std::error::Error for ControlError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Exposed { .. } => None,
            Self::Bind { error, .. } | Self::Thread(error) => Some(error),
        }
    }
}

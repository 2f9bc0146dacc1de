//! A small provider after httpbin: answers that say what was asked, with a chosen status, time, size or pace.
//!
//! A file for each group of endpoints, each with its `routes()`; what they share (limits, errors, durations) stands beside them.
//! Whatever the limits do not allow is refused with 400 and JSON that says so, never cut silently.

mod answers;
mod duration;
mod echo;
mod error;
mod streams;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::serve::ListenerExt as _;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use error::ProviderError;

/// The largest content that is taken or made, in bytes.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// The longest time that an answer may be asked to take.
pub const DURATION_MAX: Duration = Duration::from_secs(10);

/// How long answers under way may take once the provider is told to stop: every answer can end in it.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// What `/` says; each line is an endpoint.
const INDEX: &str = "\
Egret's provider: an API to call through the gateway.

/get                        what was asked, as JSON
/anything, /anything/...    the same for any method, with the content
/headers                    the header fields alone
/status/{code}              that status, 200 to 599
/delay/{duration}           what was asked, after 0.15, 150ms or 1.5s (at most 10s)
/bytes/{n}                  n random bytes (at most 1 MiB); ?seed= makes them the same each time
/stream/{n}                 n lines of JSON (at most 100), each sent by itself
/sse?count=10&duration=5s   server-sent events, spread evenly
";

/// A running provider. Dropping it stops it as well.
pub struct Provider {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Provider {
    /// Binds the address (port 0 lets the system choose), then serves on a thread of its own until stopped.
    pub fn start(listen: SocketAddr) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("egret-provider".into()).spawn(move || {
            if let Err(error) = runtime.block_on(serve(listener, stopped)) {
                tracing::error!(%error, "the provider failed");
            }
            runtime.shutdown_background();
        })?;
        tracing::info!(%address, "provider listening");
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// The address listened on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting, gives answers under way a second, and returns once the thread is gone.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the provider's thread panicked");
        }
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider").field("address", &self.address).finish_non_exhaustive()
    }
}

async fn serve(listener: std::net::TcpListener, stop: oneshot::Receiver<()>) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?.tap_io(|stream| {
        // Costs latency only where it fails.
        let _ = stream.set_nodelay(true);
    });
    let service = router().into_make_service_with_connect_info::<SocketAddr>();
    let (stopping, stopped) = oneshot::channel::<()>();
    let serving = axum::serve(listener, service).with_graceful_shutdown(async move {
        // The sender's end is a stop as well.
        let _ = stop.await;
        drop(stopping);
    });
    tokio::select! {
        served = serving.into_future() => served,
        () = async { let _ = stopped.await; tokio::time::sleep(STOP_GRACE).await; } => Ok(()),
    }
}

fn router() -> Router {
    Router::new()
        .route("/", axum::routing::get(|| async { INDEX }))
        .merge(echo::routes())
        .merge(answers::routes())
        .merge(streams::routes())
        .method_not_allowed_fallback(|| async { ProviderError::method_not_allowed() })
        .fallback(|| async { ProviderError::not_found() })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
}

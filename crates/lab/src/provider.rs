//! A test provider modelled on httpbin for Go: it echoes requests, or responds with a chosen status, delay,
//! size, pace or fault.
//!
//! Each group of endpoints has its own file and table of `Endpoint`s. The routes, the page at `/` and the
//! handbook are made from these tables. A call passes through `server` (threads, sockets, hyper), `stream`
//! (TLS) and `network` (simulated distance and bandwidth), then `front` (the rules for all calls), then the
//! endpoint. Responses that hyper cannot send, because they violate HTTP, are made by a `takeover` of the
//! connection.
//!
//! A request that exceeds a limit is rejected with a message that says so; it is never cut silently.

mod answer;
mod auth;
mod cache;
mod call;
mod clock;
mod content;
mod cookies;
mod delay;
mod digest;
mod duration;
mod echo;
mod endpoint;
mod error;
mod fault;
mod front;
mod inspect;
mod lab;
mod multipart;
mod network;
mod options;
mod pace;
mod page;
mod parameters;
mod playback;
mod query;
mod random;
mod redirect;
mod scene;
mod server;
mod status;
mod stream;
mod takeover;
mod tls;
mod websocket;

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::watch;

pub use delay::{Delay, DelayError};
pub use duration::DurationError;
pub use fault::{Fault, UnknownFault};
pub use options::{Options, Playback, RateLimit, RateLimitError};

use crate::har;
use front::Front;
use lab::Lab;
use network::Network;
use server::Service;

/// Default limit of request and response content, in bytes.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// Default limit of the duration that a client may request for a response.
pub const DURATION_MAX: Duration = Duration::from_secs(10);

/// Default time that a client may take to send a head.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The handbook's table of endpoints, in Markdown.
pub fn reference() -> String {
    endpoint::table()
}

/// Parses a duration as the endpoints do: `0.15`, `150ms`, `1m30s`; at most a day.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    duration::parse(text, Duration::from_hours(24))
}

/// A running provider. Dropping it stops it.
pub struct Provider {
    address: SocketAddr,
    stop: Option<watch::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

/// The reason why a provider cannot start.
#[derive(Debug)]
pub enum StartError {
    /// The address cannot be bound.
    Listen(io::Error),
    /// The recording cannot be read.
    Recording {
        /// The file.
        file: PathBuf,
        /// The problem with it.
        error: har::Error,
    },
    /// The certificate cannot be made, or the certificate of its authority cannot be written to this file.
    Tls {
        /// The file.
        file: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The system refuses a thread or an event loop.
    Thread(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(error) => write!(f, "the provider cannot listen: {error}"),
            Self::Recording { file, error } => write!(f, "{}: {error}", file.display()),
            Self::Tls { file, error } => {
                write!(f, "the authority's certificate cannot be written to {}: {error}", file.display())
            }
            Self::Thread(error) => write!(f, "the provider's threads cannot be started: {error}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Listen(error) | Self::Tls { error, .. } | Self::Thread(error) => Some(error),
            Self::Recording { error, .. } => Some(error),
        }
    }
}

impl Provider {
    /// Binds the address (port 0 lets the system choose), then serves on its own threads until stopped.
    pub fn start(listen: SocketAddr, options: Options) -> Result<Self, StartError> {
        let (listener, address) = bound(listen).map_err(StartError::Listen)?;
        let tls = options.tls.as_deref().map(|file| {
            tls::acceptor(address.ip(), file)
                .map_err(|error| StartError::Tls { file: file.to_owned(), error })
        });
        let tls = tls.transpose()?;
        let network = Network { rtt: options.rtt, bandwidth: options.bandwidth };
        let threads = options.threads;
        let service = Service { front: Front::new(Arc::new(Lab::new(options)?)), network, tls };
        let (stop, stopped) = watch::channel(());
        let threads = server::start(listener, threads, &service, &stopped).map_err(StartError::Thread)?;
        tracing::info!(%address, "provider listening");
        Ok(Self { address, stop: Some(stop), threads })
    }

    /// The address that the provider listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting connections, gives responses in progress one second, and returns when the threads have
    /// ended.
    pub fn stop(self) {
        drop(self);
    }
}

fn bound(listen: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(listen)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

impl Drop for Provider {
    fn drop(&mut self) {
        drop(self.stop.take());
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the provider panicked");
            }
        }
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider").field("address", &self.address).finish_non_exhaustive()
    }
}

//! A provider after httpbin for Go: answers that say what was asked, with a chosen status, time, size, pace, or fault.
//!
//! A file for each group of endpoints, each with its table of `Endpoint`s, from which the routes, the page at `/` and
//! the handbook come. The way of a call: `server` (threads, sockets, hyper) over `stream` (TLS) and `network` (distance and
//! bandwidth that are not there), then `front` (what holds for all calls), then the endpoint. What hyper cannot send, because it
//! breaks HTTP, is a `takeover` of its connection.
//!
//! Whatever the limits do not allow is refused with a message that says so, never cut silently.

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

/// The largest content that is taken or made unless told otherwise, in bytes.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// The longest time that an answer may be asked to take unless told otherwise.
pub const DURATION_MAX: Duration = Duration::from_secs(10);

/// How long a client may take to send a head unless told otherwise.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The handbook's table of endpoints, in Markdown.
pub fn reference() -> String {
    endpoint::table()
}

/// Reads a duration as the endpoints do: `0.15`, `150ms`, `1m30s`; at most a day.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    duration::parse(text, Duration::from_hours(24))
}

/// A running provider. Dropping it stops it as well.
pub struct Provider {
    address: SocketAddr,
    stop: Option<watch::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

/// Why a provider cannot start.
#[derive(Debug)]
pub enum StartError {
    /// The address cannot be listened on.
    Listen(io::Error),
    /// The recording cannot be read.
    Recording {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        error: har::Error,
    },
    /// No certificate could be made, or its authority not be written to this file.
    Tls {
        /// The file.
        file: PathBuf,
        /// What went wrong.
        error: io::Error,
    },
    /// The system gives no thread or event loop.
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
    /// Binds the address (port 0 lets the system choose), then serves on threads of its own until stopped.
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

    /// The address listened on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting, gives answers under way a second, and returns once the threads are gone.
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

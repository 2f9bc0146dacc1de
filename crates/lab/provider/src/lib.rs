//! A test provider modelled on httpbin for Go: it echoes requests, or responds with a chosen status, delay,
//! size, pace or fault.
//!
//! Each group of endpoints has its own file, with a list of its `Endpoint`s. The `registry` joins these
//! lists. The routes, the page at `/` and the handbook are made from it. A call passes through `server`
//! (threads, sockets, hyper), `stream` (TLS) and `network` (simulated distance and bandwidth), then
//! `entry_point` (the rules for all calls), then the endpoint. Responses that hyper cannot send, because they
//! violate HTTP, are made by a `takeover` of the connection. Connections of HTTP/2 are served by `http2`.
//!
//! A request that exceeds a limit is rejected with a message that says so; it is never cut silently.
//!
//! This crate knows nothing of the gateway: it is one of the servers that the gateway is tested against.

#![warn(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic if the reader has closed the stream: see `egret_measure::streams`"
)]

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
mod entry_point;
mod error;
mod fault_kind;
#[cfg(test)]
mod fixture;
mod grpc;
mod head;
mod http2;
mod injected_fault;
mod inspect;
mod limits;
mod llm;
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
mod registry;
mod respond;
mod server;
mod start_error;
mod state;
mod stateful;
mod status;
mod stream;
mod takeover;
mod tls;
mod websocket;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use egret_items::opaque;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::watch;

pub use delay::{Delay, DelayError};
pub use duration::DurationError;
pub use fault_kind::{Fault, UnknownFault};
pub use limits::{CONTENT_BYTES_MAX, DURATION_MAX, HEAD_TIMEOUT};
pub use options::{Options, Playback, RateLimit, RateLimitError};
pub use start_error::StartError;

use entry_point::EntryPoint;
use network::Network;
use server::Service;
use state::SharedState;

/// The handbook's table of endpoints, in Markdown.
pub fn reference() -> String {
    registry::table()
}

/// Parses the duration of an option: `150ms`, `1m30s`; at most a day.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    duration::parse_with_unit(text, Duration::from_hours(24))
}

/// Maximum number of connections that wait to be accepted. The kernel applies its own limit too.
const BACKLOG: i32 = 4096;

/// A running provider. Dropping it stops it.
pub struct Provider {
    address: SocketAddr,
    stop: Option<watch::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Provider {
    /// Binds the address (port 0 lets the system choose), then serves on its own threads until stopped.
    pub fn start(listen: SocketAddr, options: Options) -> Result<Self, StartError> {
        let (socket, address) = bound(listen).map_err(StartError::Listen)?;
        let tls = options.tls.as_deref().map(|file| {
            tls::acceptor(address.ip(), file)
                .map_err(|error| StartError::Tls { file: file.to_owned(), error })
        });
        let tls = tls.transpose()?;
        let network = Network { rtt: options.rtt, bandwidth: options.bandwidth };
        let threads = options.threads;
        let endpoint_rows = registry::rows(&options.prefix);
        let state = Arc::new(SharedState::new(options, endpoint_rows)?);
        let entry_point = EntryPoint::new(Arc::clone(&state), registry::router(state));
        let service = Service { entry_point, network, tls };
        let (stop, stopped) = watch::channel(());
        socket.listen(BACKLOG).map_err(StartError::Listen)?;
        let threads =
            server::start(socket.into(), threads, &service, &stopped).map_err(StartError::Thread)?;
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

/// Binds a socket that does not listen yet, so no client connects before the provider is ready.
fn bound(listen: SocketAddr) -> io::Result<(Socket, SocketAddr)> {
    let socket = Socket::new(Domain::for_address(listen), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&listen.into())?;
    let address = socket.local_addr()?.as_socket();
    Ok((socket, address.ok_or_else(|| io::Error::other("the socket has no address"))?))
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

opaque!(Provider { address });

//! The new process takes over from the running Egret.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process;
use std::sync::Arc;
use std::time::{Duration, Instant};

use egret_gateway::{Gateway, HandedState};
use egret_quota::Inheritance;
use egret_settings::failure::Failure;
use tokio::sync::oneshot;

use super::channel::Channel;
use super::message::{HandoverMessage, VERSION};
use super::offer::connect;
use super::socket_path;
use crate::durable::Opening;
use crate::run::overrides::HandedAddresses;

/// Time without a report after which the old process counts as ended.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// The running Egret, which has sent its listening sockets.
pub struct Predecessor {
    channel: Channel,
    pid: i32,
    /// Its listening sockets, that of the control port last.
    sockets: Vec<TcpListener>,
    /// Time at which it was asked for the state.
    asked: Instant,
}

impl Predecessor {
    /// Introduces this process to the Egret that runs with `data_dir`. Returns `None` if there is none.
    pub fn ask(data_dir: &Path) -> Result<Option<Self>, Failure> {
        if !cfg!(target_os = "linux") {
            return Err(Failure::misused("`--take-over` works on Linux only"));
        }
        let stream = match connect(&socket_path(data_dir)) {
            Ok(stream) => stream,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                return Ok(None);
            }
            Err(error) => return Err(failure(&error)),
        };
        let greet = || {
            let mut channel = Channel::new(stream)?;
            channel.send(&HandoverMessage::Hello { version: VERSION, pid: process::id().cast_signed() })?;
            let (message, files) = channel.receive_with()?;
            let pid = match message {
                HandoverMessage::Hello { version: VERSION, pid } => pid,
                HandoverMessage::Refused { reason } => return Err(io::Error::other(reason)),
                _ => return Err(io::Error::new(ErrorKind::InvalidData, "it does not introduce itself")),
            };
            let sockets = files.into_iter().map(TcpListener::from).collect();
            Ok(Self { channel, pid, sockets, asked: Instant::now() })
        };
        greet().map(Some).map_err(|error| failure(&error))
    }

    /// The addresses on which it listens.
    pub fn addresses(&self) -> HandedAddresses {
        let mut gateway: Vec<_> = self.sockets.iter().filter_map(|socket| socket.local_addr().ok()).collect();
        let control = gateway.pop();
        HandedAddresses { gateway, control }
    }

    /// Listens on `address`, unless the old process already does. So nothing can prevent it later.
    pub fn listen(&mut self, address: SocketAddr) -> io::Result<()> {
        let is_there = |socket: &TcpListener| socket.local_addr().is_ok_and(|bound| bound == address);
        if address.port() != 0 && !self.sockets.iter().any(is_there) {
            self.sockets.push(TcpListener::bind(address)?);
        }
        Ok(())
    }

    /// Returns handles of the listening sockets.
    pub fn clone_sockets(&self) -> io::Result<Vec<TcpListener>> {
        self.sockets.iter().map(TcpListener::try_clone).collect()
    }

    /// Asks for the state. From now on the old process accepts no clients.
    pub fn take(&mut self) -> Result<HandedState, Failure> {
        self.asked = Instant::now();
        let state = self.channel.send(&HandoverMessage::Take).and_then(|()| self.channel.receive());
        match state {
            Ok(HandoverMessage::State(state)) => Ok(*state),
            Ok(HandoverMessage::Refused { reason }) => Err(failure(&io::Error::other(reason))),
            Ok(_) => Err(Failure::failed("the running Egret did not send its state")),
            Err(error) => Err(Failure::Failed(format!("the running Egret did not send its state: {error}"))),
        }
    }

    /// Reports that this process accepts clients. Then counts what the old process uses of the units of
    /// `inheritance`, until it has ended. The result resolves once the old process has released the data
    /// directory.
    pub fn serve(mut self, gateway: &Arc<Gateway>, inheritance: Inheritance) -> oneshot::Receiver<()> {
        self.sockets.clear();
        let waited_ms = u64::try_from(self.asked.elapsed().as_millis()).unwrap_or(u64::MAX);
        if let Err(error) = self.channel.send(&HandoverMessage::Serving) {
            tracing::warn!(%error, "the old process does not know that this one serves");
        }
        tracing::info!(from = self.pid, waited_ms, "took over from the running Egret");
        let (released, is_released) = oneshot::channel();
        let follow = {
            let gateway = Arc::clone(gateway);
            move || self.follow(&gateway, inheritance, released)
        };
        if let Err(error) = std::thread::Builder::new().name("egret-takeover".into()).spawn(follow) {
            tracing::error!(%error, "the units that the old process uses stay counted");
        }
        is_released
    }

    fn follow(mut self, gateway: &Gateway, mut inheritance: Inheritance, released: oneshot::Sender<()>) {
        let mut released = Some(released);
        let ended: io::Result<()> = self.channel.set_patience(SILENCE_MAX).and_then(|()| {
            loop {
                let HandoverMessage::Report { balances, has_released } = self.channel.receive()? else {
                    return Err(io::Error::new(ErrorKind::InvalidData, "it sends no reports"));
                };
                if let Some(released) = released.take_if(|_| has_released) {
                    // Nobody waits any more while this process stops.
                    let _ = released.send(());
                }
                let lendings = gateway.settle(&mut inheritance, &balances);
                self.channel.send(&HandoverMessage::Lent { lendings })?;
            }
        });
        gateway.end(inheritance);
        match ended {
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => {
                tracing::warn!(process = self.pid, "the old process did not end as expected: {error}");
            }
            _ => tracing::info!(process = self.pid, "the old process has drained"),
        }
    }
}

/// Takes over the state of the process before this one, which has released the quota file then.
pub fn inherit(
    predecessor: &mut Predecessor,
    gateway: &Gateway,
    opening: Option<Opening>,
) -> Result<Inheritance, Failure> {
    let inheritance = gateway.inherit(&predecessor.take()?);
    if let Some(Err(error)) = opening.map(Opening::open) {
        tracing::error!("{error}; `on_store_error` applies until the next restart");
    }
    Ok(inheritance)
}

/// Waits until the process before this one uses no file in the data directory; forever if none does.
pub async fn is_released(released: &mut Option<oneshot::Receiver<()>>) {
    match released {
        // An error means that it has ended.
        Some(released) => drop(released.await),
        None => std::future::pending().await,
    }
}

fn failure(error: &io::Error) -> Failure {
    Failure::Failed(format!("cannot take over from the running Egret, which is not affected: {error}"))
}

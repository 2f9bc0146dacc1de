//! The running Egret offers itself to a process that takes over.

use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use std::{fs, process};

use egret_control::Control;
use egret_gateway::Gateway;
use egret_settings::config::Config;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::channel::{Channel, HELLO_MAX, RESPONSE_MAX};
use super::message::{HandoverMessage, VERSION};
use super::socket_path;

/// Maximum time for the new process to build what it needs.
const BUILD_MAX: Duration = Duration::from_mins(1);

/// Maximum number of processes that are spoken with at the same time. Further ones are turned away.
const PEERS_MAX: usize = 8;

/// Pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Interval between warnings about processes that could not take over: any process of the user may try in a
/// loop.
const WARNING_INTERVAL: Duration = Duration::from_secs(1);

/// Length of the longest path that a socket's address holds, in bytes.
const PATH_BYTES_MAX: usize = 100;

/// The offer. The socket's file is removed when this is dropped.
pub struct Offer {
    path: PathBuf,
    /// Number of the file, which another process may replace.
    inode: u64,
    successors: mpsc::Receiver<Successor>,
}

/// A new process that is ready for the state.
pub struct Successor {
    /// The channel to it.
    pub channel: Channel,
    /// Its process id.
    pub pid: i32,
}

/// The fate of a running Egret with the same data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rival {
    /// It keeps its socket, and this process has none.
    Stays,
    /// It has handed itself over.
    Leaves,
}

impl Offer {
    /// Offers this process, if it has a data directory.
    pub fn of(config: &Config, rival: Rival, gateway: &Arc<Gateway>, control: &Control) -> Option<Self> {
        if !config.data_dir.is_dir() {
            return None;
        }
        let gateway = Arc::clone(gateway);
        let offered = control.listening_socket().and_then(|control| {
            let sockets = move || {
                let mut sockets = gateway.listening_sockets()?;
                sockets.push(control.try_clone()?);
                Ok(sockets)
            };
            Self::start(&config.data_dir, rival, sockets)
        });
        match offered {
            Ok(Some(offer)) => return Some(offer),
            Ok(None) => {
                tracing::info!("no process can take over from this one: another Egret uses `data_dir`");
            }
            Err(error) => tracing::info!("no process can take over from this one: {error}"),
        }
        None
    }

    /// Listens on the socket in `data_dir`, which must exist. `sockets` returns the listening sockets, that
    /// of the control port last. Returns `None` if another Egret has the socket.
    fn start(
        data_dir: &Path,
        rival: Rival,
        sockets: impl Fn() -> io::Result<Vec<TcpListener>> + Send + Sync + 'static,
    ) -> io::Result<Option<Self>> {
        let path = socket_path(data_dir);
        if rival == Rival::Stays && connect(&path).is_ok() {
            return Ok(None);
        }
        let draft = data_dir.join(format!(".handover.{}", process::id()));
        let _ = fs::remove_file(&draft);
        let listener = bind(&draft)?;
        let placed = fs::set_permissions(&draft, fs::Permissions::from_mode(0o600))
            .and_then(|()| fs::rename(&draft, &path))
            .and_then(|()| fs::symlink_metadata(&path));
        let inode = match placed {
            Ok(file) => file.ino(),
            Err(error) => {
                let _ = fs::remove_file(&draft);
                return Err(error);
            }
        };
        let (sender, successors) = mpsc::channel(1);
        let reception = Arc::new(Reception {
            sockets,
            successors: sender,
            is_taken: AtomicBool::new(false),
            peers: Arc::default(),
            warned: Mutex::default(),
        });
        std::thread::Builder::new()
            .name("egret-handover".into())
            .spawn(move || reception.serve(&listener))?;
        Ok(Some(Self { path, inode, successors }))
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|file| file.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Waits for a process that takes over; forever if none can.
pub async fn next_successor(offer: &mut Option<Offer>) -> Successor {
    if let Some(offer) = offer
        && let Some(successor) = offer.successors.recv().await
    {
        return successor;
    }
    std::future::pending().await
}

/// Speaks with the processes that connect. Each has a thread, so that none can keep another waiting.
struct Reception<S> {
    /// Returns the listening sockets.
    sockets: S,
    successors: mpsc::Sender<Successor>,
    /// `true` once a process has asked for the state.
    is_taken: AtomicBool,
    /// Counts its other handles: one for each process that is spoken with.
    peers: Arc<()>,
    /// Time of the last warning.
    warned: Mutex<Option<Instant>>,
}

impl<S: Fn() -> io::Result<Vec<TcpListener>> + Send + Sync + 'static> Reception<S> {
    /// Accepts connections until a process has taken over.
    fn serve(self: Arc<Self>, listener: &UnixListener) {
        while !self.is_taken.load(SeqCst) {
            let accepted = listener.accept().and_then(|(stream, _)| Arc::clone(&self).receive(stream));
            if let Err(error) = accepted {
                self.warn(&error);
                std::thread::park_timeout(ACCEPT_PAUSE);
            }
        }
    }

    /// Speaks with a process, on a thread of its own.
    fn receive(self: Arc<Self>, stream: UnixStream) -> io::Result<()> {
        // Before anything can make this process wait, while the other one has hardly had time to end.
        let channel = match Channel::new(stream) {
            Ok(channel) => channel,
            Err(error) => {
                self.warn(&error);
                return Ok(());
            }
        };
        let place = Arc::clone(&self.peers);
        if Arc::strong_count(&place) > PEERS_MAX + 1 {
            self.warn(&io::Error::other("too many other processes are about to"));
            return Ok(());
        }
        let speak = move || {
            let introduced = self.introduce(channel);
            drop(place);
            match introduced {
                // Nobody receives it while the process stops. The new one sees the channel close.
                Ok(successor) => drop(self.successors.blocking_send(successor)),
                // It only looked if somebody listens.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => tracing::debug!("{error}"),
                Err(error) => self.warn(&error),
            }
        };
        std::thread::Builder::new().name("egret-successor".into()).spawn(speak).map(drop)
    }

    /// Greets a new process, sends it the listening sockets, and waits until it is ready.
    fn introduce(&self, mut channel: Channel) -> io::Result<Successor> {
        channel.set_patience(HELLO_MAX)?;
        let HandoverMessage::Hello { version, pid } = channel.receive_hello()? else {
            return Err(io::Error::new(ErrorKind::InvalidData, "it does not introduce itself"));
        };
        channel.set_patience(RESPONSE_MAX)?;
        if version != VERSION {
            let reason =
                format!("its messages have version {VERSION}, those of the new process version {version}");
            channel.send(&HandoverMessage::Refused { reason: reason.clone() })?;
            return Err(io::Error::new(ErrorKind::Unsupported, reason));
        }
        channel.check_peer()?;
        let sockets = (self.sockets)()?;
        let files: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
        let hello = HandoverMessage::Hello { version: VERSION, pid: process::id().cast_signed() };
        channel.send_with(&hello, &files)?;
        channel.set_patience(BUILD_MAX)?;
        let HandoverMessage::Take = channel.receive()? else {
            return Err(io::Error::new(ErrorKind::InvalidData, "it does not ask for the state"));
        };
        channel.set_patience(RESPONSE_MAX)?;
        channel.check_peer()?;
        if self.is_taken.swap(true, SeqCst) {
            let reason = "another process takes over".to_owned();
            channel.send(&HandoverMessage::Refused { reason: reason.clone() })?;
            return Err(io::Error::other(reason));
        }
        Ok(Successor { channel, pid })
    }

    fn warn(&self, error: &io::Error) {
        let mut warned = self.warned.lock();
        if warned.is_some_and(|at| at.elapsed() < WARNING_INTERVAL) {
            return;
        }
        *warned = Some(Instant::now());
        tracing::warn!("another process could not take over: {error}");
    }
}

/// Binds a socket at the path.
fn bind(path: &Path) -> io::Result<UnixListener> {
    with_short_path(path, |path| UnixListener::bind(path))
}

/// Connects to the socket at the path.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    with_short_path(path, |path| UnixStream::connect(path))
}

/// A socket's address holds a short path only. A longer one is reached through its open directory.
fn with_short_path<T>(path: &Path, act: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    if path.as_os_str().len() <= PATH_BYTES_MAX {
        return act(path);
    }
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return act(path) };
    let directory = fs::File::open(directory)?;
    let number = std::os::fd::AsRawFd::as_raw_fd(&directory);
    act(&Path::new("/proc/self/fd").join(number.to_string()).join(name))
}

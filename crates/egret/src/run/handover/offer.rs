//! The running Egret offers itself to a process that takes over.

use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, process};

use egret_control::Control;
use egret_gateway::Gateway;
use tokio::sync::mpsc;

use super::channel::Channel;
use super::message::{Message, VERSION};
use super::socket_path;
use crate::config::Config;

/// Maximum time for the new process to build what it needs.
const BUILD_MAX: Duration = Duration::from_mins(1);

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
        sockets: impl Fn() -> io::Result<Vec<TcpListener>> + Send + 'static,
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
        std::thread::Builder::new().name("egret-handover".into()).spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                match introduce(stream, &sockets) {
                    Ok(successor) => {
                        // Nobody receives it while the process stops. The new one sees the channel close.
                        let _ = sender.blocking_send(successor);
                        return;
                    }
                    Err(error) => tracing::warn!("another process could not take over: {error}"),
                }
            }
        })?;
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

/// Greets a new process, sends it the listening sockets, and waits until it is ready.
fn introduce(
    stream: UnixStream,
    sockets: &impl Fn() -> io::Result<Vec<TcpListener>>,
) -> io::Result<Successor> {
    let mut channel = Channel::new(stream)?;
    let Message::Hello { version, pid } = channel.receive()? else {
        return Err(io::Error::new(ErrorKind::InvalidData, "it does not introduce itself"));
    };
    if version != VERSION {
        let reason =
            format!("its messages have version {VERSION}, those of the new process version {version}");
        channel.send(&Message::Refused { reason: reason.clone() })?;
        return Err(io::Error::new(ErrorKind::Unsupported, reason));
    }
    let sockets = sockets()?;
    let files: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
    channel.send_with(&Message::Hello { version: VERSION, pid: process::id().cast_signed() }, &files)?;
    channel.set_patience(BUILD_MAX)?;
    let Message::Take = channel.receive()? else {
        return Err(io::Error::new(ErrorKind::InvalidData, "it does not ask for the state"));
    };
    channel.set_patience(super::channel::RESPONSE_MAX)?;
    Ok(Successor { channel, pid })
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

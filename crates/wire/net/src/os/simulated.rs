//! The kernel of the simulation. Missing: Unix sockets and their users, and a limit of unsent data.

use std::io;

pub use egret_kernel::accept;
use egret_kernel::{AsFd, SockRef};
use rustix::net::{RecvFlags, SendFlags};

use super::PeerProcess;

/// For sends: nothing sends a signal.
pub const NO_SIGNAL: SendFlags = SendFlags::empty();

/// For receiving open files, which nobody sends.
pub const CLOSE_ON_EXEC: RecvFlags = RecvFlags::empty();

/// Does nothing: what is sent and not read is limited by the room of the peer.
pub fn limit_unsent(_: &SockRef<'_>) -> io::Result<()> {
    Ok(())
}

/// There are no Unix sockets.
pub fn peer(_: impl AsFd) -> io::Result<PeerProcess> {
    Err(io::ErrorKind::Unsupported.into())
}

//! macOS, for which this code is checked and on which it has never run. Missing: a limit of unsent data, so
//! progress of a slow client shows late; and sockets that no program can inherit from the moment they are
//! made.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::{LocalPeerCred, LocalPeerPid};
use rustix::io::{Errno, FdFlags, fcntl_setfd, ioctl_fionbio};
use rustix::net::{RecvFlags, SendFlags};
use socket2::SockRef;

use super::PeerProcess;

/// For sends: an error instead of a signal if the other end is closed. No flag does that here, but Rust's
/// library ignores the signal from the start of the program.
pub const NO_SIGNAL: SendFlags = SendFlags::empty();

/// For receiving open files. There is no such flag, and nobody sends any: there is no hand-over, and no
/// isolated command.
pub const CLOSE_ON_EXEC: RecvFlags = RecvFlags::empty();

/// Takes the next connection of a listening socket. It does not block. A program that another thread starts
/// at this moment may get it too.
pub fn accept(listener: impl AsFd) -> Result<OwnedFd, Errno> {
    let socket = rustix::net::accept(listener)?;
    fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    ioctl_fionbio(&socket, true)?;
    Ok(socket)
}

/// Does nothing: the library of sockets has no name for this option.
pub fn limit_unsent(_: &SockRef<'_>) -> io::Result<()> {
    Ok(())
}

/// Returns the process at the other end of a Unix socket (unix(4), `LOCAL_PEERCRED` and `LOCAL_PEERPID`).
pub fn peer(socket: impl AsFd) -> io::Result<PeerProcess> {
    let user = getsockopt(&socket, LocalPeerCred)?.uid();
    Ok(PeerProcess { process: getsockopt(&socket, LocalPeerPid)?, user })
}

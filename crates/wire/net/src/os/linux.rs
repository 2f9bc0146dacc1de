//! Linux, on which nothing is missing.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with};
use socket2::SockRef;

use super::PeerProcess;

/// For sends: an error instead of a signal if the other end is closed.
pub const NO_SIGNAL: SendFlags = SendFlags::NOSIGNAL;

/// For receiving open files: no program that is started gets them.
pub const CLOSE_ON_EXEC: RecvFlags = RecvFlags::CMSG_CLOEXEC;

/// Maximum number of unsent bytes to a client in the kernel's buffer.
const UNSENT_BYTES_MAX: u32 = 256 * 1024;

/// Takes the next connection of a listening socket. It does not block, and no program that is started gets
/// it.
pub fn accept(listener: impl AsFd) -> Result<OwnedFd, Errno> {
    accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)
}

/// Limits the unsent data of the sockets that a listening one accepts.
pub fn limit_unsent(listener: &SockRef<'_>) -> io::Result<()> {
    listener.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)
}

/// Returns the process at the other end of a Unix socket (unix(7), `SO_PEERCRED`).
pub fn peer(socket: impl AsFd) -> io::Result<PeerProcess> {
    let peer = getsockopt(&socket, PeerCredentials)?;
    Ok(PeerProcess { process: peer.pid(), user: peer.uid() })
}

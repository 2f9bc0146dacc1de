//! Sockets and the wait for their events, as the system has them. All code that moves bytes names them from
//! here.
//!
//! With the feature `simulated`, a kernel in memory takes the system's place: it has the same names and forms
//! (`egret_kernel`). Only the simulation switches that on, see `simulation/README.md`.

use std::io;
use std::os::unix::net::UnixStream;

#[cfg(not(feature = "simulated"))]
mod system {
    pub use std::net::{TcpListener, TcpStream};
    pub use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

    pub use mio::event::Event;
    pub use mio::unix::SourceFd;
    pub use mio::{Events, Interest, Poll, Token, Waker};
    pub use rustix::net::{recv, send, sendmsg};
    pub use socket2::{SockRef, Socket};
}

#[cfg(feature = "simulated")]
use egret_kernel as system;

pub use system::{
    AsFd, AsRawFd, BorrowedFd, Event, Events, Interest, OwnedFd, Poll, SockRef, Socket, SourceFd,
    TcpListener, TcpStream, Token, Waker, recv, send, sendmsg,
};

/// Returns the ends of a connection within the process. Neither of them blocks.
///
/// # Errors
///
/// Fails if no file is left. In a simulated world there are no such connections.
pub fn pair() -> io::Result<(UnixStream, TcpStream)> {
    #[cfg(feature = "simulated")]
    return Err(io::ErrorKind::Unsupported.into());
    #[cfg(not(feature = "simulated"))]
    {
        let (own, other) = UnixStream::pair()?;
        own.set_nonblocking(true)?;
        other.set_nonblocking(true)?;
        Ok((own, OwnedFd::from(other).into()))
    }
}

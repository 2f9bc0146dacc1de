//! Sockets before they are connected, and the options of all. Names and forms are those of `socket2`.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::marker::PhantomData;
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use rustix::io::Errno;
use socket2::{Domain, Protocol, SockAddr, TcpKeepalive, Type};

use crate::ends::{EndId, Stage};
use crate::files::{AsFd, BorrowedFd, OwnedFd};
use crate::state::{Kind, ROOM_BYTES, with};

/// A socket.
#[derive(Debug)]
pub struct Socket(OwnedFd);

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> Self {
        socket.0
    }
}

fn internet(address: &SockAddr) -> io::Result<SocketAddr> {
    address.as_socket().ok_or_else(|| ErrorKind::Unsupported.into())
}

impl Socket {
    /// Makes a socket.
    ///
    /// # Errors
    ///
    /// Fails if no file is left, and for other families than those of the Internet.
    pub fn new(domain: Domain, _: Type, _: Option<Protocol>) -> io::Result<Self> {
        if domain == Domain::UNIX {
            return Err(ErrorKind::Unsupported.into());
        }
        let made = with(|kernel| {
            let end = kernel.new_end(None, ROOM_BYTES);
            kernel.allot(Kind::End(end))
        });
        Ok(Self(made?))
    }

    /// Gives it an address.
    ///
    /// # Errors
    ///
    /// Fails if another one listens there.
    pub fn bind(&self, address: &SockAddr) -> io::Result<()> {
        let mut address = internet(address)?;
        with(|kernel| {
            if address.port() == 0 {
                address.set_port(kernel.next_port());
            }
            if kernel.listener(address).is_some() {
                return Err(Errno::ADDRINUSE.into());
            }
            let place = kernel.place(self.0.as_fd().number())?;
            kernel.open[place].kind = Kind::Bound(address);
            Ok(())
        })
    }

    /// Begins to take connections.
    ///
    /// # Errors
    ///
    /// Fails if it has no address.
    pub fn listen(&self, _: i32) -> io::Result<()> {
        with(|kernel| {
            let place = kernel.place(self.0.as_fd().number())?;
            let Kind::Bound(address) = kernel.open[place].kind else { return Err(Errno::INVAL.into()) };
            kernel.open[place].kind = Kind::Listener { address, waiting: VecDeque::new() };
            Ok(())
        })
    }

    /// Begins to connect. The simulation decides what comes of it.
    ///
    /// # Errors
    ///
    /// Fails with `INPROGRESS`, or with `INTR`, in which case it goes on too.
    pub fn connect(&self, address: &SockAddr) -> io::Result<()> {
        let address = internet(address)?;
        with(|kernel| {
            kernel.counts.calls += 1;
            let id = kernel.end(self.0.as_fd().number())?;
            let local = SocketAddr::new(address.ip(), kernel.next_port());
            let end = &mut kernel.ends[id.0];
            (end.stage, end.remote, end.local) = (Stage::Connecting, Some(address), Some(local));
            kernel.dials.push_back(id);
            kernel.note(6, id.0 as u64, address.port().into());
            Err(Errno::INPROGRESS.into())
        })
    }
}

/// Defines options that change nothing here.
macro_rules! options {
    ($($(#[$doc:meta])* $name:ident($($type:ty),*);)*) => {
        impl Socket {
            $($(#[$doc])*
            ///
            /// # Errors
            ///
            /// None.
            pub fn $name(&self, $(_: $type),*) -> io::Result<()> {
                Ok(())
            })*
        }

        impl SockRef<'_> {
            $($(#[$doc])*
            ///
            /// # Errors
            ///
            /// None.
            pub fn $name(&self, $(_: $type),*) -> io::Result<()> {
                Ok(())
            })*
        }
    };
}

options! {
    /// No call blocks.
    set_nonblocking(bool);
    /// Nothing is delayed.
    set_tcp_nodelay(bool);
    /// Nothing probes.
    set_tcp_keepalive(&TcpKeepalive);
    /// An address is free once its listener is closed.
    set_reuse_address(bool);
    /// A listener has one address.
    set_only_v6(bool);
    /// All unsent bytes are within the peer's room.
    set_tcp_notsent_lowat(u32);
}

/// A view of a socket, for its options.
#[derive(Debug)]
pub struct SockRef<'a>(i32, PhantomData<&'a OwnedFd>);

impl<'a, T: AsFd> From<&'a T> for SockRef<'a> {
    fn from(socket: &'a T) -> Self {
        Self(socket.as_fd().number(), PhantomData)
    }
}

impl SockRef<'_> {
    fn end(&self) -> Result<EndId, Errno> {
        with(|kernel| kernel.end(self.0))
    }

    /// Returns its own address, which is unspecified if it has none.
    ///
    /// # Errors
    ///
    /// None.
    pub fn local_addr(&self) -> io::Result<SockAddr> {
        let address = with(|kernel| match &kernel.open[kernel.place(self.0)?].kind {
            Kind::Listener { address, .. } | Kind::Bound(address) => Ok(Some(*address)),
            Kind::End(id) => Ok::<_, Errno>(kernel.ends[id.0].local),
        });
        let unspecified = SocketAddr::from(([0, 0, 0, 0], 0));
        Ok(address?.unwrap_or(unspecified).into())
    }

    /// Returns the address of its peer.
    ///
    /// # Errors
    ///
    /// Fails if it is not connected, or not any more.
    pub fn peer_addr(&self) -> io::Result<SockAddr> {
        let id = self.end()?;
        let end = with(|kernel| (kernel.ends[id.0].stage, kernel.ends[id.0].remote));
        match end {
            (Stage::Connected, Some(address)) => Ok(address.into()),
            _ => Err(Errno::NOTCONN.into()),
        }
    }

    /// There is no packet filter.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn original_dst_v4(&self) -> io::Result<SockAddr> {
        Err(ErrorKind::Unsupported.into())
    }

    /// There is no packet filter.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn original_dst_v6(&self) -> io::Result<SockAddr> {
        Err(ErrorKind::Unsupported.into())
    }

    /// Takes the error of the connection.
    ///
    /// # Errors
    ///
    /// Fails if it is no connection.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        let id = self.end()?;
        Ok(with(|kernel| kernel.ends[id.0].error.take()).map(io::Error::from))
    }

    /// Closes the sending side.
    ///
    /// # Errors
    ///
    /// Fails if the connection is gone.
    pub fn shutdown(&self, _: Shutdown) -> io::Result<()> {
        let id = self.end()?;
        with(|kernel| {
            kernel.note(7, id.0 as u64, 0);
            kernel.shut_end(id)
        })?;
        Ok(())
    }

    /// Lets the socket reset its connection when it closes.
    ///
    /// # Errors
    ///
    /// Fails if it is no connection.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        let id = self.end()?;
        with(|kernel| kernel.ends[id.0].resets = linger == Some(Duration::ZERO));
        Ok(())
    }

    /// Returns the number of bytes that the kernel holds of what was sent.
    ///
    /// # Errors
    ///
    /// Fails if it is no connection.
    pub fn send_buffer_size(&self) -> io::Result<usize> {
        let id = self.end()?;
        Ok(with(|kernel| kernel.ends[id.0].peer.map_or(ROOM_BYTES, |peer| kernel.ends[peer.0].room)))
    }
}

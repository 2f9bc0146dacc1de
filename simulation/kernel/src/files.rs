//! Files of the kernel: numbers that close their file when they are dropped.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;

use socket2::{Domain, Type};

use crate::calls;
use crate::socket::{SockRef, Socket};
use crate::state::{self, with};

/// An open file. Dropping it closes it.
pub struct OwnedFd {
    number: i32,
    /// The world that it belongs to. One that outlives its world closes nothing.
    world: u64,
}

impl OwnedFd {
    pub(crate) fn new(number: i32) -> Self {
        Self { number, world: state::world() }
    }
}

impl fmt::Debug for OwnedFd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnedFd({})", self.number)
    }
}

impl Drop for OwnedFd {
    fn drop(&mut self) {
        if state::world() == self.world {
            state::try_with(|kernel| kernel.close(self.number));
        }
    }
}

/// A borrowed file.
#[derive(Debug, Clone, Copy)]
pub struct BorrowedFd<'a>(i32, std::marker::PhantomData<&'a OwnedFd>);

impl BorrowedFd<'_> {
    pub(crate) fn number(self) -> i32 {
        self.0
    }
}

/// Something with an open file.
pub trait AsFd {
    /// Returns the file.
    fn as_fd(&self) -> BorrowedFd<'_>;
}

/// Something with the number of a file.
pub trait AsRawFd {
    /// Returns the number. A new file has the lowest that is free.
    fn as_raw_fd(&self) -> i32;
}

impl<T: AsFd> AsRawFd for T {
    fn as_raw_fd(&self) -> i32 {
        self.as_fd().0
    }
}

impl AsFd for OwnedFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        BorrowedFd(self.number, std::marker::PhantomData)
    }
}

impl AsFd for BorrowedFd<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        *self
    }
}

impl<T: AsFd + ?Sized> AsFd for &T {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (**self).as_fd()
    }
}

impl<T: AsFd + ?Sized> AsFd for Rc<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (**self).as_fd()
    }
}

/// Defines a type of sockets around a file.
macro_rules! socket {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name(OwnedFd);

        impl AsFd for $name {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.as_fd()
            }
        }

        impl From<OwnedFd> for $name {
            fn from(file: OwnedFd) -> Self {
                Self(file)
            }
        }

        impl From<$name> for OwnedFd {
            fn from(socket: $name) -> Self {
                socket.0
            }
        }

        impl From<Socket> for $name {
            fn from(socket: Socket) -> Self {
                Self(socket.into())
            }
        }
    };
}

socket! {
    /// A connected socket.
    TcpStream
}

socket! {
    /// A listening socket.
    TcpListener
}

fn address(address: io::Result<socket2::SockAddr>) -> io::Result<SocketAddr> {
    address?.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
}

impl TcpStream {
    /// Connects to a listening socket of the gateway itself.
    ///
    /// # Errors
    ///
    /// Fails if none has this address.
    pub fn connect(to: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
        with(|kernel| kernel.connect_within(socket.as_fd().number(), to))?;
        Ok(socket.into())
    }

    /// Does nothing: no call blocks.
    ///
    /// # Errors
    ///
    /// None.
    pub fn set_nonblocking(&self, _: bool) -> io::Result<()> {
        Ok(())
    }
}

impl TcpListener {
    /// Listens on an address.
    ///
    /// # Errors
    ///
    /// Fails if the address is taken.
    pub fn bind(to: impl ToSocketAddrs) -> io::Result<Self> {
        let to = to.to_socket_addrs()?.next().ok_or(io::ErrorKind::InvalidInput)?;
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
        socket.bind(&to.into())?;
        socket.listen(1)?;
        Ok(socket.into())
    }

    /// Returns its address.
    ///
    /// # Errors
    ///
    /// Fails if it is not bound.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        address(SockRef::from(self).local_addr())
    }

    /// Accepts the next connection.
    ///
    /// # Errors
    ///
    /// Fails if there is none.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let stream = TcpStream(calls::accept(self)?);
        let peer = address(SockRef::from(&stream).peer_addr())?;
        Ok((stream, peer))
    }

    /// Returns another handle of the same socket.
    ///
    /// # Errors
    ///
    /// Fails if no file is left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(with(|kernel| kernel.duplicate(self.as_fd().number()))?))
    }
}

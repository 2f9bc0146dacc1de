//! Ports that take no connection.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

/// Number of connections that wait to be accepted, as for a listener of the standard library.
const QUEUE: i32 = 128;

/// A port that refuses connections. No other program gets it until this is dropped.
#[derive(Debug)]
pub struct ClosedPort(Socket);

impl ClosedPort {
    /// Takes a free port, and does not listen.
    pub fn take() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        Self(socket)
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap().as_socket().unwrap()
    }

    /// Begins to listen on it.
    pub fn open(self) -> TcpListener {
        self.0.listen(QUEUE).unwrap();
        self.0.into()
    }
}

/// A port that accepts no connections: the queue of its listener is full, so the system leaves further ones
/// waiting.
#[derive(Debug)]
pub struct FullPort {
    address: SocketAddr,
    _listener: Socket,
    _queued: Vec<TcpStream>,
}

impl FullPort {
    /// Takes a free port, and fills its queue.
    pub fn take() -> Self {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        // The first that waits shows that the queue is full.
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok();
        Self { address, _queued: std::iter::from_fn(connect).collect(), _listener: listener }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

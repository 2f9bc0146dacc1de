//! A port where nobody listens.

use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};

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
}

//! The byte stream of a connection: TCP, or TLS over TCP. All operations are non-blocking.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use mio::net::TcpStream;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use socket2::{Domain, Protocol, Socket, Type};

/// Options of a connection's socket.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SocketOptions {
    /// The local address to connect from.
    pub bind: Option<std::net::IpAddr>,
    /// Size of the send and receive buffers in bytes.
    pub buffer_bytes: Option<usize>,
}

/// An open byte stream.
#[derive(Debug)]
pub(crate) enum Transport {
    /// Plain TCP.
    Plain(TcpStream),
    /// TLS over TCP.
    Tls(Box<Tls>),
}

/// A TLS session and the socket below it.
#[derive(Debug)]
pub(crate) struct Tls {
    socket: TcpStream,
    session: ClientConnection,
}

impl Transport {
    /// Starts connecting. The event loop signals completion.
    pub fn connect(address: SocketAddr, options: SocketOptions) -> io::Result<Self> {
        if options.bind.is_none() && options.buffer_bytes.is_none() {
            return Ok(Self::Plain(TcpStream::connect(address)?));
        }
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        if let Some(bytes) = options.buffer_bytes {
            socket.set_send_buffer_size(bytes)?;
            socket.set_recv_buffer_size(bytes)?;
        }
        if let Some(ip) = options.bind {
            socket.bind(&SocketAddr::new(ip, 0).into())?;
        }
        match socket.connect(&address.into()) {
            Err(error) if error.raw_os_error() != Some(EINPROGRESS) => Err(error),
            _ => Ok(Self::Plain(TcpStream::from_std(socket.into()))),
        }
    }

    /// Wraps the stream in TLS.
    pub fn secure(self, config: &Arc<ClientConfig>, name: &ServerName<'static>) -> io::Result<Self> {
        let Self::Plain(socket) = self else { return Ok(self) };
        let session = ClientConnection::new(Arc::clone(config), name.clone()).map_err(io::Error::other)?;
        Ok(Self::Tls(Box::new(Tls { socket, session })))
    }

    /// The socket, for registration with an event loop.
    pub fn socket(&mut self) -> &mut TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => &mut tls.socket,
        }
    }

    /// The TLS session, if there is one.
    pub fn session(&self) -> Option<&ClientConnection> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(tls) => Some(&tls.session),
        }
    }

    /// Continues the TLS handshake. Returns `true` when it is complete.
    pub fn handshake(&mut self) -> io::Result<bool> {
        match self {
            Self::Plain(_) => Ok(true),
            Self::Tls(tls) => tls.handshake(),
        }
    }

    /// Returns `true` if a read that does not fill the buffer has taken all available bytes.
    #[inline]
    pub fn short_read_is_last(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    /// Sends buffered bytes. Returns `true` when all are sent.
    pub fn flush(&mut self) -> io::Result<bool> {
        match self {
            Self::Plain(_) => Ok(true),
            Self::Tls(tls) => tls.flush(),
        }
    }
}

/// The error number of a connection in progress. The standard library has no stable [`ErrorKind`] for it.
#[cfg(target_os = "linux")]
const EINPROGRESS: i32 = 115;
#[cfg(not(target_os = "linux"))]
const EINPROGRESS: i32 = 36;

impl Read for Transport {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(tls) => tls.read(buffer),
        }
    }
}

impl Write for Transport {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(tls) => {
                let count = tls.session.writer().write(bytes)?;
                tls.flush()?;
                Ok(count)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Self::flush(self).map(drop)
    }
}

impl Tls {
    fn handshake(&mut self) -> io::Result<bool> {
        loop {
            let sent = self.flush()?;
            if !self.session.is_handshaking() {
                return Ok(sent);
            }
            if !sent || !self.receive()? {
                return Ok(false);
            }
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.session.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                other => return other,
            }
            if !self.receive()? {
                return Err(ErrorKind::WouldBlock.into());
            }
        }
    }

    /// Receives available bytes into the session. Returns `true` if there were any. An end of stream counts
    /// as well; the session's reader then reports it.
    fn receive(&mut self) -> io::Result<bool> {
        let count = match self.session.read_tls(&mut self.socket) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            other => other?,
        };
        if let Err(error) = self.session.process_new_packets() {
            // The alert with the reason is for the provider. A failure to send it changes nothing here.
            let _ = self.flush();
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        if count == 0 && self.session.is_handshaking() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(true)
    }

    fn flush(&mut self) -> io::Result<bool> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.socket) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                other => drop(other?),
            }
        }
        Ok(true)
    }
}

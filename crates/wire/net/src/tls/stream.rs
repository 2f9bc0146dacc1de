//! A TLS connection, to a provider or from a client: rustls over a non-blocking socket.
//!
//! `tokio-rustls` lacks three things that the pools need: a connection can be moved to another worker's event
//! loop, an idle one can be checked before reuse, and a truncated stream is distinguished from one that was
//! closed properly.

use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use egret_clock::planted;
use egret_items::opaque;
use egret_message::authority::Host;
use rustls::{ClientConnection, Connection, ServerConfig, ServerConnection};

use super::hello::{Hello, HelloError};
use super::{ClientTls, ServerTls, TlsError};
use crate::event_loop::Socket;
use crate::os::kernel::TcpStream;
use crate::stream::Stream;

/// Maximum number of encrypted bytes that wait for the socket. Writing waits while the buffer is full.
const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// The carrier of a connection's records.
#[derive(Debug)]
enum TlsCarrier {
    Socket(Socket),
    /// Another TLS connection: a tunnel on a listener with TLS, or through a proxy with TLS.
    Tls(Box<TlsStream>),
}

/// A TLS connection whose handshake is complete.
pub struct TlsStream {
    carrier: TlsCarrier,
    pub(super) tls: Box<Connection>,
}

opaque!(TlsStream { carrier });

/// Performs the handshake over a new connection to `host`. It waits for the provider, so set a timeout.
pub async fn handshake(
    stream: impl Into<Stream>,
    tls: &ClientTls,
    host: &Host,
) -> Result<TlsStream, TlsError> {
    let connection = ClientConnection::new(tls.config.clone(), tls.server_name(host)?)?;
    shake_hands(TlsCarrier::from(stream.into()), connection.into()).await
}

/// Performs the handshake that a client has begun. It waits for the client, so set a timeout.
pub async fn accept(socket: Socket, tls: &ServerTls) -> Result<TlsStream, TlsError> {
    let connection = ServerConnection::new(tls.config.clone())?;
    shake_hands(TlsCarrier::Socket(socket), connection.into()).await
}

/// Performs the handshake that a client has begun with `hello` on `stream`, which may be a TLS connection
/// itself. `received` holds all bytes of the inner connection so far. It waits for the client, so set a
/// timeout.
pub async fn accept_hello(
    stream: Stream,
    hello: Hello,
    received: &[u8],
    config: Arc<ServerConfig>,
) -> Result<TlsStream, TlsError> {
    let mut carrier = TlsCarrier::from(stream);
    match hello.into_connection(config, received) {
        Ok(connection) => shake_hands(carrier, connection.into()).await,
        Err(HelloError { error, alert }) => {
            // Few bytes, and nearly the first ones in this direction: the socket takes them.
            let _ = poll_fn(|cx| carrier.poll_send(cx, &[IoSlice::new(&alert)])).await;
            Err(error)
        }
    }
}

async fn shake_hands(carrier: TlsCarrier, mut connection: Connection) -> Result<TlsStream, TlsError> {
    connection.set_buffer_limit(Some(OUTPUT_BYTES_MAX));
    let mut stream = TlsStream { carrier, tls: Box::new(connection) };
    poll_fn(|cx| stream.poll_handshake(cx)).await?;
    Ok(stream)
}

impl From<Stream> for TlsCarrier {
    fn from(stream: Stream) -> Self {
        match stream {
            Stream::Plain(socket) => Self::Socket(socket),
            Stream::Tls(tls) => Self::Tls(Box::new(tls)),
        }
    }
}

impl TlsCarrier {
    fn poll_receive(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Socket(socket) => socket.poll_receive(cx, buffer),
            Self::Tls(tls) => tls.poll_read(cx, buffer),
        }
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Socket(socket) => socket.poll_readable(cx),
            Self::Tls(tls) => tls.poll_readable(cx),
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self {
            Self::Socket(socket) => socket.poll_send(cx, slices),
            Self::Tls(tls) => tls.poll_write_vectored(cx, slices),
        }
    }

    /// Ready once all accepted bytes have been passed to the socket.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Socket(_) => Poll::Ready(Ok(())),
            Self::Tls(tls) => tls.poll_flush(cx),
        }
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Socket(socket) => Poll::Ready(socket.shut()),
            Self::Tls(tls) => tls.poll_shutdown(cx),
        }
    }

    fn try_receive(&mut self, buffer: &mut [u8]) -> Option<io::Result<usize>> {
        match self {
            Self::Socket(socket) => socket.try_receive(buffer),
            Self::Tls(tls) => tls.try_receive(buffer),
        }
    }
}

impl TlsStream {
    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TlsError>> {
        while self.tls.is_handshaking() {
            // Reading continues even if the socket is full or broken: the received data may end the
            // handshake, or contain the provider's reason for aborting it.
            let _ = self.poll_write_tls(cx);
            if self.tls.is_handshaking() && ready!(self.poll_read_tls(cx))? == 0 {
                return Poll::Ready(Err(TlsError::Closed));
            }
        }
        self.poll_write_tls(cx).map_err(TlsError::from)
    }

    /// Reads decrypted bytes into `buffer`, which must not be empty. Returns 0 if the peer has closed the
    /// stream (`close_notify`). A connection that just ends is an error of kind `UnexpectedEof`, because it
    /// may have been cut.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            match self.tls.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof && planted!(CutUnseen) => {
                    return Poll::Ready(Ok(0));
                }
                outcome => return Poll::Ready(outcome),
            }
            // The end of the stream shows in the loop's next iteration.
            ready!(self.poll_read_tls(cx))?;
        }
    }

    /// Ready if there may be something to receive, including EOF or an error.
    pub fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.tls.process_new_packets() {
            Ok(state) if state.plaintext_bytes_to_read() == 0 && !state.peer_has_closed() => {
                self.carrier.poll_readable(cx)
            }
            // Decrypted bytes or the end of the stream wait inside, where the socket does not report them.
            _ => Poll::Ready(()),
        }
    }

    /// Encrypts bytes of `buffers` and sends as many as the socket accepts. `Pending` until earlier bytes are
    /// sent. Returns the number of bytes accepted. After a complete message, call [`Self::poll_flush`] until
    /// it is ready.
    pub fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_write_tls(cx))?;
        let taken = self.tls.writer().write_vectored(buffers)?;
        // Bytes that the socket does not accept now wait for the next call.
        let _ = self.poll_write_tls(cx)?;
        Poll::Ready(Ok(taken))
    }

    /// Ready once all written bytes have been passed to the socket.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if planted!(RecordHeld) {
            return Poll::Ready(Ok(()));
        }
        self.poll_write_tls(cx)
    }

    /// Returns `true` if written bytes have not been passed to the socket yet.
    pub fn is_holding(&self) -> bool {
        let is_carrier_holding = match &self.carrier {
            TlsCarrier::Socket(_) => false,
            TlsCarrier::Tls(tls) => tls.is_holding(),
        };
        self.tls.wants_write() || is_carrier_holding
    }

    /// Sends `close_notify` and closes the sending side.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Only the first call has an effect.
        self.tls.send_close_notify();
        ready!(self.poll_write_tls(cx))?;
        self.carrier.poll_shutdown(cx)
    }

    /// Returns `true` if an idle connection can still be used: it is open and no unrequested data has
    /// arrived. Messages of TLS itself, such as session tickets, are processed.
    ///
    /// Makes no system call if the event loop has seen no data, so it does not notice a close since the
    /// loop's last turn.
    pub fn check_idle(&mut self) -> bool {
        loop {
            match self.tls.process_new_packets() {
                Ok(state) if state.plaintext_bytes_to_read() == 0 && !state.peer_has_closed() => {}
                _ => return false,
            }
            match self.tls.read_tls(&mut Unwaited(&mut self.carrier)) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }

    /// Receives decrypted bytes, if there are some, without registering a waker.
    fn try_receive(&mut self, buffer: &mut [u8]) -> Option<io::Result<usize>> {
        loop {
            match self.tls.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                outcome => return Some(outcome),
            }
            match self.tls.read_tls(&mut Unwaited(&mut self.carrier)) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) => return Some(Err(error)),
            }
            if let Err(error) = self.tls.process_new_packets() {
                return Some(Err(TlsError::from(error).into()));
            }
        }
    }

    /// Returns the socket, for its addresses and options. Do not read or write on it.
    pub fn socket(&self) -> &Socket {
        match &self.carrier {
            TlsCarrier::Socket(socket) => socket,
            TlsCarrier::Tls(tls) => tls.socket(),
        }
    }

    /// Returns the certificate that the peer has shown, in DER, if it was asked for one.
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        self.tls.peer_certificates()?.first().map(AsRef::as_ref)
    }

    /// Returns `true` if the handshake resumed an earlier session, without certificates.
    #[cfg(test)]
    pub fn is_resumed(&self) -> bool {
        self.tls.handshake_kind() == Some(rustls::HandshakeKind::Resumed)
    }

    /// Returns the protocol that both ends have agreed on (ALPN, RFC 7301).
    pub fn protocol(&self) -> Option<&[u8]> {
        self.tls.alpn_protocol()
    }

    /// Unregisters the connection from this thread's event loop, so it can move to another thread.
    pub fn into_std(self) -> io::Result<DetachedTlsStream> {
        let carrier = match self.carrier {
            TlsCarrier::Socket(socket) => DetachedCarrier::Tcp(socket.into_std()?),
            TlsCarrier::Tls(tls) => DetachedCarrier::Tls(Box::new(tls.into_std()?)),
        };
        Ok(DetachedTlsStream { carrier, tls: self.tls })
    }

    /// Registers a connection with this thread's event loop.
    pub fn from_std(detached: DetachedTlsStream) -> io::Result<Self> {
        let carrier = match detached.carrier {
            DetachedCarrier::Tcp(tcp) => TlsCarrier::Socket(Socket::new(tcp)?),
            DetachedCarrier::Tls(tls) => TlsCarrier::Tls(Box::new(Self::from_std(*tls)?)),
        };
        Ok(Self { carrier, tls: detached.tls })
    }

    /// Sends the data that rustls has ready.
    fn poll_write_tls(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Polled { carrier: &mut self.carrier, cx }) {
                Ok(0) => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        self.carrier.poll_flush(cx)
    }

    /// Passes received data to rustls, once. Returns the number of encrypted bytes, 0 at EOF.
    fn poll_read_tls(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let length = match self.tls.read_tls(&mut Polled { carrier: &mut self.carrier, cx }) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Poll::Pending,
            outcome => outcome?,
        };
        let outcome = self.tls.process_new_packets();
        // Sends the reply, which may be the alert that reports the error to the peer. It does not matter to
        // the reader if the socket accepts it now.
        let _ = self.poll_write_tls(cx);
        Poll::Ready(outcome.map(|_| length).map_err(|error| TlsError::from(error).into()))
    }
}

/// A TLS connection that is handed from one worker to another.
pub struct DetachedTlsStream {
    carrier: DetachedCarrier,
    tls: Box<Connection>,
}

/// The carrier of a detached connection's records.
#[derive(Debug)]
enum DetachedCarrier {
    Tcp(TcpStream),
    Tls(Box<DetachedTlsStream>),
}

opaque!(DetachedTlsStream { carrier });

/// The carrier in the form that rustls expects: if it would block, the waker is registered and the error is
/// `WouldBlock`.
struct Polled<'a, 'b> {
    carrier: &'a mut TlsCarrier,
    cx: &'a mut Context<'b>,
}

fn or_would_block<T>(poll: Poll<io::Result<T>>) -> io::Result<T> {
    match poll {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => Err(ErrorKind::WouldBlock.into()),
    }
}

impl Read for Polled<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        or_would_block(self.carrier.poll_receive(self.cx, buffer))
    }
}

impl Write for Polled<'_, '_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        or_would_block(self.carrier.poll_send(self.cx, &[IoSlice::new(buffer)]))
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        or_would_block(self.carrier.poll_send(self.cx, buffers))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The carrier for a check of received data, without registering a waker.
struct Unwaited<'a>(&'a mut TlsCarrier);

impl Read for Unwaited<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_receive(buffer).unwrap_or_else(|| Err(ErrorKind::WouldBlock.into()))
    }
}

//! A TLS connection, to a provider or from a client: rustls over a non-blocking socket.
//!
//! Not `tokio-rustls`, for three things that the pools need: a connection can be taken off its event loop and given to
//! another worker's; a check whether an idle one is still good; and a stream cut short is told from one that ended.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::task::{Context, Poll, ready};

use rustls::{ClientConnection, Connection, ServerConnection};

use super::{ClientTls, ServerTls, TlsError};
use crate::event_loop::Socket;
use crate::upstream::authority::Host;

/// Encrypted bytes that may wait for the socket; when it is full, writing waits.
const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// A TLS connection whose handshake is done.
pub struct TlsStream {
    socket: Socket,
    pub(super) tls: Box<Connection>,
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// Does the handshake over a fresh connection to `host`. Set a time limit around it: it waits for the provider.
pub async fn handshake(socket: Socket, tls: &ClientTls, host: &Host) -> Result<TlsStream, TlsError> {
    let connection = ClientConnection::new(tls.config.clone(), tls.server_name(host)?)?;
    shake_hands(socket, connection.into()).await
}

/// Does the handshake that a client has begun. Set a time limit around it: it waits for the client.
pub async fn accept(socket: Socket, tls: &ServerTls) -> Result<TlsStream, TlsError> {
    shake_hands(socket, ServerConnection::new(tls.config.clone())?.into()).await
}

async fn shake_hands(socket: Socket, mut connection: Connection) -> Result<TlsStream, TlsError> {
    connection.set_buffer_limit(Some(OUTPUT_BYTES_MAX));
    let mut stream = TlsStream { socket, tls: Box::new(connection) };
    poll_fn(|cx| stream.poll_handshake(cx)).await?;
    Ok(stream)
}

impl TlsStream {
    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TlsError>> {
        while self.tls.is_handshaking() {
            // Neither a full socket nor a broken one keeps from reading: what is read may end the handshake, or say why
            // the provider broke it off.
            let _ = self.poll_write_tls(cx);
            if self.tls.is_handshaking() && ready!(self.poll_read_tls(cx))? == 0 {
                return Poll::Ready(Err(TlsError::Closed));
            }
        }
        self.poll_write_tls(cx).map_err(TlsError::from)
    }

    /// Reads decrypted bytes into `buffer`, which must not be empty. 0 is the end that the peer declared
    /// (`close_notify`); a connection that just ends is an error of kind `UnexpectedEof`, since somebody may have cut it.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            match self.tls.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                outcome => return Poll::Ready(outcome),
            }
            // The end of the stream shows at the next turn of the loop.
            ready!(self.poll_read_tls(cx))?;
        }
    }

    /// Ready when there may be something to receive, an end or an error included.
    pub fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.tls.process_new_packets() {
            Ok(state) if state.plaintext_bytes_to_read() == 0 && !state.peer_has_closed() => {
                self.socket.poll_readable(cx)
            }
            // Decrypted bytes wait inside, where the socket does not tell of them, or the news of the end.
            _ => Poll::Ready(()),
        }
    }

    /// Encrypts bytes of `buffers` and sends them as far as the socket takes them: `Pending` until what was taken before
    /// is sent, then the number of bytes taken. When the message is complete, call [`Self::poll_flush`] until it is ready.
    pub fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_write_tls(cx))?;
        let taken = self.tls.writer().write_vectored(buffers)?;
        // What the socket does not take now waits for the next call.
        let _ = self.poll_write_tls(cx)?;
        Poll::Ready(Ok(taken))
    }

    /// Ready when everything that was written is with the socket.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_tls(cx)
    }

    /// Whether something that was written is not with the socket yet.
    pub fn is_holding(&self) -> bool {
        self.tls.wants_write()
    }

    /// Tells the peer that nothing more will come (`close_notify`) and closes the sending side.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Only the first call has an effect.
        self.tls.send_close_notify();
        ready!(self.poll_write_tls(cx))?;
        Poll::Ready(self.socket.shut())
    }

    /// Whether an idle connection can still be used: it is open and nothing unasked-for has come. What TLS itself has to
    /// say while idle, such as session tickets, is taken in.
    ///
    /// Where the event loop has seen nothing come in this costs no system call; so an end that arrived since its last turn
    /// is not seen.
    pub fn check_idle(&mut self) -> bool {
        loop {
            match self.tls.process_new_packets() {
                Ok(state) if state.plaintext_bytes_to_read() == 0 && !state.peer_has_closed() => {}
                _ => return false,
            }
            match self.tls.read_tls(&mut Unwaited(&self.socket)) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }

    /// The socket, for its addresses and options. Do not read or write on it.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Whether the handshake resumed an earlier session and was spared the certificates.
    #[cfg(test)]
    pub fn is_resumed(&self) -> bool {
        self.tls.handshake_kind() == Some(rustls::HandshakeKind::Resumed)
    }

    /// Takes the connection off this thread's event loop, so that it can go to another thread.
    pub fn into_std(self) -> io::Result<DetachedTlsStream> {
        Ok(DetachedTlsStream { tcp: self.socket.into_std()?, tls: self.tls })
    }

    /// Puts a connection onto this thread's event loop.
    pub fn from_std(detached: DetachedTlsStream) -> io::Result<Self> {
        Ok(Self { socket: Socket::new(detached.tcp)?, tls: detached.tls })
    }

    /// Sends what rustls has to send.
    fn poll_write_tls(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Polled { socket: &self.socket, cx }) {
                Ok(0) => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Gives rustls what has come in, once: the number of encrypted bytes, 0 at their end.
    fn poll_read_tls(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let length = match self.tls.read_tls(&mut Polled { socket: &self.socket, cx }) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Poll::Pending,
            outcome => outcome?,
        };
        let outcome = self.tls.process_new_packets();
        // Sends what that calls for: an answer, or the alert that tells the peer what is wrong with it. Whether the
        // socket takes that now does not matter to the reader.
        let _ = self.poll_write_tls(cx);
        Poll::Ready(outcome.map(|_| length).map_err(|error| TlsError::from(error).into()))
    }
}

/// A TLS connection on its way from one worker to another.
pub struct DetachedTlsStream {
    tcp: TcpStream,
    tls: Box<Connection>,
}

impl fmt::Debug for DetachedTlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DetachedTlsStream").field("tcp", &self.tcp).finish_non_exhaustive()
    }
}

/// The socket as rustls wants it: where it would have to wait, the task is woken later and the error is `WouldBlock`.
struct Polled<'a, 'b> {
    socket: &'a Socket,
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
        or_would_block(self.socket.poll_receive(self.cx, buffer))
    }
}

impl Write for Polled<'_, '_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        or_would_block(self.socket.poll_send(self.cx, &[IoSlice::new(buffer)]))
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        or_would_block(self.socket.poll_send(self.cx, buffers))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The socket for a look at what has come in; nobody is woken.
struct Unwaited<'a>(&'a Socket);

impl Read for Unwaited<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_receive(buffer).unwrap_or_else(|| Err(ErrorKind::WouldBlock.into()))
    }
}

//! Connections on an event loop of the test's own thread, as the library `h2` wants them.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use egret_net::event_loop::Socket;
use egret_net::stream::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Returns the two ends of a connection on this thread's loop.
pub fn ends() -> (Socket, Socket) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let socket = |stream: TcpStream| {
        stream.set_nonblocking(true).unwrap();
        Socket::new(stream).unwrap()
    };
    (socket(near), socket(listener.accept().unwrap().0))
}

/// A connection for the library.
#[derive(Debug)]
pub struct Carried(pub Stream);

impl AsyncRead for Carried {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let count = ready!(self.0.poll_read(cx, buffer.initialize_unfilled()))?;
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Carried {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_shutdown(cx)
    }
}

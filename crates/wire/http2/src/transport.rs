//! A connection as the library wants it, with the gate for floods of frames.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use egret_net::stream::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::gate::{Flood, FrameGate};

/// A connection whose frames are counted.
#[derive(Debug)]
pub(crate) struct Transport {
    stream: Stream,
    gate: FrameGate,
    /// Bytes that were received before it was known that the connection speaks HTTP/2.
    ahead: Vec<u8>,
    /// The flood that was noticed. From then on nothing is received.
    flood: Rc<Cell<Option<Flood>>>,
}

impl Transport {
    /// Takes a client's connection, of which the bytes `ahead` have been received.
    pub fn of_client(stream: Stream, ahead: &[u8], flood: Rc<Cell<Option<Flood>>>) -> Self {
        Self { stream, gate: FrameGate::of_client(Instant::now()), ahead: ahead.to_vec(), flood }
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.ahead.is_empty() {
            return self.stream.poll_read(cx, buffer);
        }
        let count = self.ahead.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.ahead[..count]);
        self.ahead.drain(..count);
        self.ahead.shrink_to_fit();
        Poll::Ready(Ok(count))
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.flood.get().is_some() {
            return Poll::Pending;
        }
        let free = buffer.initialize_unfilled();
        let count = ready!(self.poll_receive(cx, free))?;
        if let Err(flood) = self.gate.pass(&free[..count], Instant::now()) {
            // The connection ends, so these bytes have no reader.
            self.flood.set(Some(flood));
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = ready!(self.stream.poll_write(cx, slices));
        if let Ok(count) = sent {
            self.gate.note_sent(count);
        }
        Poll::Ready(sent)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_shutdown(cx)
    }
}

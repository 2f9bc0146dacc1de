//! The data of a message on its way into a stream: what the peer's window, or the bound of unsent bytes, does
//! not admit waits here.
//!
//! These hold at all times:
//!
//! - `len` = the sum of the lengths of `backlog`, and no piece of it is empty.
//! - Bytes that the library holds for the stream ≤ its bound of unsent bytes.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::SendStream;
use http::HeaderMap;

use crate::response::Untranslatable;

/// The stream was reset, or its connection is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

impl From<Untranslatable> for Gone {
    fn from(_: Untranslatable) -> Self {
        Self
    }
}

/// The sending direction of a stream, whose head is sent by an `H`.
pub(crate) enum Sending<H> {
    /// The head of the message is not sent.
    Head(H),
    /// The head is sent.
    Body(SendStream<Bytes>),
    /// All is sent, or the stream was given up.
    Ended,
}

impl<H> Sending<H> {
    /// Sends the backlog of `unsent`. Ready once none is left. Adds the number of sent bytes to
    /// `moved_bytes`.
    pub fn poll_backlog(
        &mut self,
        cx: &mut Context<'_>,
        unsent: &mut Unsent,
        moved_bytes: &mut u64,
    ) -> Poll<Result<(), Gone>> {
        let Self::Body(stream) = self else {
            return Poll::Ready(if unsent.is_empty() { Ok(()) } else { Err(Gone) });
        };
        if ready!(unsent.poll_send(cx, stream, moved_bytes))? {
            *self = Self::Ended;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends as much of `unsent` as the peer and the bound of unsent bytes admit now.
    pub fn flush(
        &mut self,
        cx: &mut Context<'_>,
        unsent: &mut Unsent,
        moved_bytes: &mut u64,
    ) -> Result<(), Gone> {
        match self.poll_backlog(cx, unsent, moved_bytes) {
            Poll::Ready(sent) => sent,
            Poll::Pending => Ok(()),
        }
    }
}

/// The end of a message that data in the backlog may precede.
#[derive(Debug)]
enum End {
    Plain,
    Trailers(HeaderMap),
}

/// Data that waits, and the end behind it.
#[derive(Debug, Default)]
pub(crate) struct Unsent {
    backlog: VecDeque<Bytes>,
    len: usize,
    end: Option<End>,
}

impl Unsent {
    /// Adds data.
    pub fn push(&mut self, data: Bytes) {
        if !data.is_empty() {
            self.len += data.len();
            self.backlog.push_back(data);
        }
    }

    /// Adds the end of the message, with `trailers`, which may be empty.
    pub fn end(&mut self, trailers: HeaderMap) {
        if self.end.is_none() {
            self.end = Some(if trailers.is_empty() { End::Plain } else { End::Trailers(trailers) });
        }
    }

    /// Returns `true` if no data waits.
    pub fn is_empty(&self) -> bool {
        self.backlog.is_empty()
    }

    /// Number of bytes that wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Sends what waits. Ready once nothing does, with `true` if the message has ended. Adds the number of
    /// sent bytes to `moved_bytes`.
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut SendStream<Bytes>,
        moved_bytes: &mut u64,
    ) -> Poll<Result<bool, Gone>> {
        while let Some(first) = self.backlog.front_mut() {
            stream.reserve_capacity(self.len);
            let room = stream.capacity();
            if room == 0 {
                match ready!(stream.poll_capacity(cx)) {
                    Some(Ok(_)) => continue,
                    Some(Err(_)) | None => return Poll::Ready(Err(Gone)),
                }
            }
            let data = first.split_to(room.min(first.len()));
            let len = data.len();
            if first.is_empty() {
                self.backlog.pop_front();
            }
            let is_last = self.backlog.is_empty() && matches!(self.end, Some(End::Plain));
            stream.send_data(data, is_last).map_err(|_| Gone)?;
            self.len -= len;
            *moved_bytes += len as u64;
            if is_last {
                self.end = None;
                return Poll::Ready(Ok(true));
            }
        }
        let sent = match self.end.take() {
            None => return Poll::Ready(Ok(false)),
            Some(End::Plain) => stream.send_data(Bytes::new(), true),
            Some(End::Trailers(trailers)) => stream.send_trailers(trailers),
        };
        Poll::Ready(sent.map(|()| true).map_err(|_| Gone))
    }
}

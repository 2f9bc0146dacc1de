//! The body of a request as `hyper` and `axum` know it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use hyper::body::{Body, Frame, SizeHint};

/// The body of a request, with its trailers.
#[derive(Debug)]
pub struct RequestBody {
    received: RecvStream,
    /// Number of bytes of content, if the request declares it.
    length: Option<u64>,
}

impl RequestBody {
    pub(crate) fn new(received: RecvStream, length: Option<u64>) -> Self {
        Self { received, length }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        match ready!(self.received.poll_data(context)) {
            Some(Ok(data)) => {
                self.received.flow_control().release_capacity(data.len())?;
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            None => {
                let trailers = ready!(self.received.poll_trailers(context));
                Poll::Ready(trailers.transpose().map(|trailers| trailers.map(Frame::trailers)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.received.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.length {
            None if self.is_end_stream() => SizeHint::with_exact(0),
            None => SizeHint::default(),
            Some(length) => {
                let mut hint = SizeHint::default();
                // What is left of it is at most this.
                hint.set_upper(length);
                hint
            }
        }
    }
}

//! The steps that legs share whose heads are not received as text: those of HTTP/2, and that of SOCKS.

use std::io;
use std::task::Poll;

use egret_http1::Progress;
use egret_net::buffer::Buffer;

use crate::http1::Head;
use crate::message::{HeadRoom, NoHead, Received};

/// Puts the text of a head into `buffer`, with room behind it.
pub(crate) fn put_head(text: &[u8], buffer: &mut Buffer, room: HeadRoom<'_>) {
    room.buffers.replace_front(buffer, 0, text);
    if buffer.is_full() {
        let bytes = buffer.capacity() + 1;
        room.buffers.grow(buffer, bytes);
    }
}

/// Parses the head at the start of `buffer`, which is there as a whole.
pub(crate) fn parse_head(
    head: &mut impl Head,
    buffer: &mut Buffer,
    room: HeadRoom<'_>,
) -> Poll<Result<(), NoHead>> {
    Poll::Ready(match head.parse(buffer, room.limits) {
        Ok(Progress::Complete) => Ok(()),
        Ok(Progress::Partial) => Err(NoHead::End),
        Err(error) => Err(NoHead::Malformed(error)),
    })
}

/// Adds the bytes that were `read` into the free part of `buffer`.
pub(crate) fn received(read: io::Result<usize>, buffer: &mut Buffer) -> Received {
    match read {
        Ok(0) => Received::End,
        Ok(count) => {
            buffer.advance(count);
            Received::Data(count)
        }
        Err(error) => Received::Gone(error),
    }
}

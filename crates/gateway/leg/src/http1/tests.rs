//! Tests of a leg of HTTP/1.1 over real connections: heads in pieces, the backlog, the framing of bodies.

use std::future::poll_fn;

use egret_http1::Span;
use egret_net::event_loop::spawn;
use tokio::sync::oneshot;

use super::*;
use crate::sockets::{ends, run, turn};

async fn sent(leg: &mut Http1, head: OutgoingHead<'_>, input: &[u8], ends: bool) -> Result<(), Gone> {
    let spans = [Span::new(0, input.len())];
    let spans = if input.is_empty() { &[][..] } else { &spans };
    let message = Outgoing { head, input, spans, end: ends.then_some(&[]) };
    let buffers = BufferPool::default();
    poll_fn(|cx| Poll::Ready(leg.send(cx, &message, &buffers, &mut 0))).await
}

/// Returns the leg of one end of a connection, and all that the other end receives.
fn leg() -> (Http1, oneshot::Receiver<Vec<u8>>) {
    let (near, far) = ends();
    let (tell, told) = oneshot::channel();
    spawn(async move {
        let (mut bytes, mut piece) = (Vec::new(), vec![0; 4096]);
        while let Ok(count @ 1..) = far.receive(&mut piece).await {
            bytes.extend_from_slice(&piece[..count]);
        }
        let _ = tell.send(bytes);
    });
    (Http1::new(Stream::Plain(near)), told)
}

#[test]
fn a_head_arrives_in_pieces_behind_an_empty_line() {
    run(async {
        let (near, far) = ends();
        spawn(async move {
            for piece in ["\r\n", "GET / HT", "TP/1.1\r\nHost: h\r\n", "\r\nnext"] {
                far.send_all(piece.as_bytes()).await.unwrap();
                turn().await;
            }
        });
        let (mut leg, buffers) = (Http1::new(Stream::Plain(near)), BufferPool::default());
        let (mut head, mut buffer) = (RequestHead::new(), Buffer::default());
        buffers.lend(&mut buffer);
        let room = HeadRoom { limits: &HeadLimits::default(), buffers: &buffers };
        poll_fn(|cx| leg.poll_head(cx, &mut buffer, &mut head, room)).await.unwrap();
        assert!(buffer.filled()[..head.len].ends_with(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
        buffer.remove(0, head.len);
        let ended = loop {
            match poll_fn(|cx| leg.poll_receive(cx, &mut buffer)).await {
                Received::Data(_) => {}
                ended => break ended,
            }
        };
        assert!(matches!(ended, Received::End) && buffer.filled() == b"next");
        let again = poll_fn(|cx| leg.poll_receive(cx, &mut buffer)).await;
        assert!(matches!(again, Received::End));
    });
}

#[test]
fn the_backlog_keeps_the_order_and_is_freed_with_the_message() {
    run(async {
        let (mut leg, told) = leg();
        let piece = vec![b'x'; 1 << 20];
        leg.start(Framing::UntilClose);
        let mut whole = b"head".to_vec();
        sent(&mut leg, OutgoingHead::Written(b"head"), b"", false).await.unwrap();
        for number in 0..8 {
            sent(&mut leg, OutgoingHead::Sent, &piece, number == 7).await.unwrap();
            whole.extend_from_slice(&piece);
        }
        assert!(leg.is_blocked());
        poll_fn(|cx| leg.poll_backlog(cx, &mut 0)).await.unwrap();
        assert!(!leg.is_blocked() && leg.backlog.bytes.capacity() == 0);
        poll_fn(|cx| leg.poll_finish(cx)).await.unwrap();
        assert!(told.await.unwrap() == whole);
        assert_eq!(sent(&mut leg, OutgoingHead::Written(b"more"), b"", false).await, Err(Gone));
    });
}

#[test]
fn data_goes_out_in_chunks_and_a_head_between_messages_bare() {
    run(async {
        let (mut leg, told) = leg();
        sent(&mut leg, OutgoingHead::Written(b"100;"), b"", false).await.unwrap();
        leg.start(Framing::Chunked);
        sent(&mut leg, OutgoingHead::Written(b"200;"), b"abc", false).await.unwrap();
        sent(&mut leg, OutgoingHead::Sent, b"", true).await.unwrap();
        leg.start(Framing::Length);
        sent(&mut leg, OutgoingHead::Written(b"200;"), b"abc", true).await.unwrap();
        let sent = poll_fn(|cx| leg.poll_send_bytes(cx, &[IoSlice::new(b"de"), IoSlice::new(b"f")])).await;
        assert_eq!(sent, Ok(3));
        poll_fn(|cx| leg.poll_finish(cx)).await.unwrap();
        assert_eq!(told.await.unwrap(), b"100;200;3\r\nabc\r\n0\r\n\r\n200;abcdef");
    });
}

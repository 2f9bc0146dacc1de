//! Connections of both sides, with peers that write their frames one by one.

#![expect(clippy::unwrap_used, clippy::panic, reason = "for tests alone")]

mod carried;

use std::future::poll_fn;
use std::task::Poll;

use carried::{Carried, ends};
use egret_http2::{
    Arrived, Bounds, ClientConnection, ClientStream, ConnectionEnd, Data, Flood, Lost, NoResponse,
    ServerConnection, ServerStream, Streams,
};
use egret_net::event_loop::{EventLoop, Socket, spawn};
use egret_net::stream::Stream;
use tokio::sync::{mpsc, oneshot};

const BOUNDS: Bounds = Bounds { streams: 100, header_list: 32 << 10, fields: 100 };
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Types of frames (RFC 9113 §6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
/// Flags.
const ACK: u8 = 1;
const END: u8 = 1 | 4;
/// A GET of `/`, and the response 200, by the static table (RFC 7541, appendix A).
const GET: [u8; 4] = [0x82, 0x86, 0x84, 0x41];
const OK: [u8; 1] = [0x88];

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A request without a body.
fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, END, stream, &[&GET[..], &[1, b'h']].concat())
}

/// The other end of a connection.
struct Peer(Socket);

impl Peer {
    async fn send(&self, bytes: &[u8]) {
        self.0.send_all(bytes).await.unwrap();
    }

    async fn bytes(&self, count: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; count];
        let mut filled = 0;
        while filled < count {
            match self.0.receive(&mut bytes[filled..]).await {
                Ok(more @ 1..) => filled += more,
                Ok(_) | Err(_) => return None,
            }
        }
        Some(bytes)
    }

    /// Receives a frame; `None` at the end.
    async fn receive(&self) -> Option<Frame> {
        let head = self.bytes(9).await?;
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let payload = if len > 0 { self.bytes(len).await? } else { Vec::new() };
        let stream = u32::from_be_bytes(*head.last_chunk().unwrap());
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// Receives frames until one is of this type.
    async fn until(&self, kind: u8) -> Frame {
        loop {
            let Some(frame) = self.receive().await else { panic!("ended without a frame of type {kind}") };
            if frame.kind == kind {
                return frame;
            }
        }
    }
}

/// An event of a server's connection.
#[derive(Debug)]
enum Event {
    Stream(ServerStream),
    Flood(Flood),
}

/// Starts a server. Returns its client, its events, and the means to let it drain.
fn server() -> (Peer, mpsc::UnboundedReceiver<Event>, oneshot::Sender<()>) {
    let (near, far) = ends();
    let (tell, told) = mpsc::unbounded_channel();
    let (drain, mut drained) = oneshot::channel();
    spawn(async move {
        let accepted = ServerConnection::accept(Stream::Plain(near), &PREFACE[..9], BOUNDS).await;
        let Some(mut connection) = accepted else { return };
        poll_fn(|cx| {
            use std::future::Future as _;
            loop {
                if !drained.is_terminated()
                    && std::pin::Pin::new(&mut drained).poll(cx) == Poll::Ready(Ok(()))
                {
                    connection.drain();
                }
                let event = match connection.poll(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Arrived::End) => return Poll::Ready(()),
                    Poll::Ready(Arrived::Stream(stream)) => Event::Stream(stream),
                    Poll::Ready(Arrived::Flood(flood)) => Event::Flood(flood),
                };
                let _ = tell.send(event);
            }
        })
        .await;
    });
    (Peer(far), told, drain)
}

/// Starts a client. Returns its provider, the means to call it, and the end of the connection.
fn client() -> (Peer, Streams, oneshot::Receiver<ConnectionEnd>) {
    let (near, far) = ends();
    let (mut connection, streams) = ClientConnection::begin(Stream::Plain(near), BOUNDS);
    let (tell, told) = oneshot::channel();
    spawn(async move {
        let end = poll_fn(|cx| connection.poll(cx)).await;
        let _ = tell.send(end);
    });
    (Peer(far), streams, told)
}

/// Sends a request without a body.
async fn call(streams: &Streams) -> ClientStream {
    let mut stream = streams.stream();
    let head = b"GET / HTTP/1.1\r\nhost: h\r\n\r\n";
    poll_fn(|cx| Poll::Ready(stream.begin(cx, head, Data::whole(&[]), Some(&[]), &mut 0))).await.unwrap();
    stream
}

async fn head_of(stream: &mut ClientStream) -> Result<String, NoResponse> {
    let head = poll_fn(|cx| stream.poll_head(cx)).await?;
    Ok(String::from_utf8(head).unwrap())
}

fn run(main: impl Future<Output = ()>) {
    EventLoop::new().unwrap().block_on(main);
}

async fn next(events: &mut mpsc::UnboundedReceiver<Event>) -> ServerStream {
    match events.recv().await {
        Some(Event::Stream(stream)) => stream,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_preface_in_pieces_begins_a_connection() {
    run(async {
        let (peer, mut events, _drain) = server();
        for byte in &PREFACE[9..] {
            peer.send(&[*byte]).await;
        }
        peer.send(&[frame(SETTINGS, 0, 0, &[]), get(1)].concat()).await;
        let mut stream = next(&mut events).await;
        assert_eq!(stream.take_head(), Some(Ok(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n".to_vec())));
        assert_eq!(peer.receive().await.map(|frame| (frame.kind, frame.flags)), Some((SETTINGS, 0)));
    });
}

#[test]
fn another_protocol_is_no_connection() {
    run(async {
        for bytes in [&b"PRI * HTTP/1.1\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"] {
            let (near, far) = ends();
            let peer = Peer(far);
            peer.send(bytes).await;
            assert!(ServerConnection::accept(Stream::Plain(near), &[], BOUNDS).await.is_none());
        }
        let (near, far) = ends();
        drop(far);
        assert!(ServerConnection::accept(Stream::Plain(near), PREFACE.split_at(5).0, BOUNDS).await.is_none());
    });
}

#[test]
fn a_drain_ends_with_the_last_stream() {
    run(async {
        let (peer, mut events, drain) = server();
        peer.send(&[&PREFACE[9..], &frame(SETTINGS, 0, 0, &[]), &get(1)].concat()).await;
        let mut stream = next(&mut events).await;
        drain.send(()).unwrap();
        let first = peer.until(GOAWAY).await;
        assert_eq!(first.payload[..4], 0x7fff_ffff_u32.to_be_bytes());
        let ping = peer.until(PING).await;
        // One that was on its way is served.
        peer.send(&[get(3), frame(PING, ACK, 0, &ping.payload)].concat()).await;
        drop(next(&mut events).await);
        let last = peer.until(GOAWAY).await;
        assert_eq!(last.payload, [0, 0, 0, 3, 0, 0, 0, 0]);
        peer.send(&get(5)).await;
        assert_eq!(peer.until(RST_STREAM).await.stream, 3);
        stream.send_head(b"HTTP/1.1 204 No Content\r\n\r\n", true).unwrap();
        assert_eq!(peer.until(HEADERS).await.stream, 1);
        assert_eq!(peer.receive().await, None);
    });
}

#[test]
fn a_flood_is_told_once_and_ends_the_connection() {
    run(async {
        let (peer, mut events, _drain) = server();
        peer.send(&[&PREFACE[9..], &frame(SETTINGS, 0, 0, &[]), &get(1)].concat()).await;
        let mut stream = next(&mut events).await;
        peer.send(&frame(PING, 0, 0, &[0; 8]).repeat(300)).await;
        let Some(Event::Flood(flood)) = events.recv().await else { panic!("no flood") };
        assert_eq!(flood, Flood::Pings);
        let last = peer.until(GOAWAY).await;
        assert_eq!(last.payload, [0, 0, 0, 1, 0, 0, 0, 11]);
        poll_fn(|cx| stream.poll_lost(cx)).await;
        assert!(events.recv().await.is_none());
    });
}

#[test]
fn a_connection_that_nobody_uses_ends_in_order() {
    run(async {
        let (peer, streams, end) = client();
        peer.send(&frame(SETTINGS, 0, 0, &[])).await;
        let mut stream = call(&streams).await;
        drop(streams);
        assert_eq!(peer.bytes(PREFACE.len()).await.as_deref(), Some(PREFACE));
        assert_eq!(peer.until(HEADERS).await.stream, 1);
        peer.send(&[frame(HEADERS, 4, 1, &OK), frame(DATA, 1, 1, b"ok")].concat()).await;
        assert_eq!(
            head_of(&mut stream).await.unwrap(),
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        );
        drop(stream);
        assert_eq!(peer.until(GOAWAY).await.payload, [0; 8]);
        assert!(matches!(end.await, Ok(ConnectionEnd::Closed)));
        assert_eq!(peer.receive().await, None);
    });
}

#[test]
fn a_lost_connection_loses_its_streams() {
    run(async {
        let (peer, streams, end) = client();
        let mut stream = call(&streams).await;
        drop(peer);
        assert_eq!(head_of(&mut stream).await, Err(NoResponse::Lost(Lost::Connection)));
        assert!(!streams.is_open());
        assert!(end.await.is_ok());
        let mut late = streams.stream();
        let begun = poll_fn(|cx| {
            let head = b"GET / HTTP/1.1\r\nhost: h\r\n\r\n";
            Poll::Ready(late.begin(cx, head, Data::whole(&[]), Some(&[]), &mut 0))
        });
        assert!(begun.await.is_err());
        assert_eq!(head_of(&mut late).await, Err(NoResponse::Lost(Lost::NotProcessed)));
    });
}

#[test]
fn a_provider_of_another_protocol_breaks_the_rules() {
    run(async {
        let (peer, streams, end) = client();
        let mut stream = call(&streams).await;
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        let lost = NoResponse::Lost(Lost::Violation("FRAME_SIZE_ERROR"));
        assert_eq!(head_of(&mut stream).await, Err(lost));
        assert!(matches!(end.await, Ok(ConnectionEnd::Failed(_))));
    });
}

#[test]
fn a_goaway_before_the_end_counts_though_sending_fails() {
    run(async {
        let (peer, streams, _end) = client();
        peer.send(&[frame(SETTINGS, 0, 0, &[]), frame(GOAWAY, 0, 0, &[0; 8])].concat()).await;
        drop(peer);
        let mut stream = call(&streams).await;
        assert_eq!(head_of(&mut stream).await, Err(NoResponse::Lost(Lost::NotProcessed)));
    });
}

#[test]
fn a_call_waits_for_the_settings_that_allow_websockets() {
    run(async {
        for (settings, allows) in [(&[0, 8, 0, 0, 0, 1, 0, 3, 0, 0, 0, 0][..], true), (&[], false)] {
            let (peer, streams, _end) = client();
            assert_eq!((streams.announced(), streams.max(), streams.has_room()), (None, 100, true));
            let mut stream = streams.stream();
            let waiting = poll_fn(|cx| Poll::Ready(stream.poll_opens_websockets(cx).is_pending())).await;
            assert!(waiting);
            peer.send(&frame(SETTINGS, 0, 0, settings)).await;
            assert_eq!(poll_fn(|cx| stream.poll_opens_websockets(cx)).await, allows);
            let max = if allows { 0 } else { usize::MAX };
            assert_eq!((streams.announced(), streams.max(), streams.has_room()), (Some(max), max, max > 0));
        }
        let _ = Carried;
    });
}

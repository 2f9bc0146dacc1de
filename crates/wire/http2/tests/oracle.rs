//! Exchanges with the library `h2` at the other end, in both roles: what one side sends is what the other
//! receives.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "for tests alone")]

mod carried;

use std::future::poll_fn;
use std::task::{Context, Poll};

use bytes::Bytes;
use carried::{Carried, ends};
use egret_http2::{Arrived, Bounds, ClientConnection, ClientStream, Data, ServerConnection, ServerStream};
use egret_net::event_loop::{EventLoop, spawn};
use egret_net::stream::Stream;
use h2::RecvStream;
use http::{HeaderMap, Request, Response};
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::sync::oneshot;

const BOUNDS: Bounds = Bounds { streams: 100, header_list: 32 << 10, fields: 100 };

/// The body of a message.
#[derive(Debug, Clone)]
struct Body {
    /// Lengths of the pieces in which it is sent.
    pieces: Vec<usize>,
    has_length: bool,
    has_trailers: bool,
}

impl Body {
    fn len(&self) -> usize {
        self.pieces.iter().sum()
    }

    /// The byte at each place differs from its neighbours'.
    fn bytes(&self) -> Vec<u8> {
        (0..=250).cycle().take(self.len()).collect()
    }

    fn trailers(&self) -> &'static str {
        if self.has_trailers { "x-checked: yes\r\n" } else { "" }
    }

    /// The text of the field that says how it is framed in HTTP/1.1.
    fn framing(&self) -> String {
        if self.has_length {
            format!("content-length: {}\r\n", self.len())
        } else {
            "transfer-encoding: chunked\r\n".to_owned()
        }
    }
}

fn body() -> impl Strategy<Value = Body> {
    let piece = prop_oneof![3 => 0..2_000_usize, 1 => 10_000..60_000_usize];
    (vec(piece, 0..5), any::<bool>(), any::<bool>()).prop_map(|(pieces, has_length, has_trailers)| Body {
        pieces,
        has_length,
        // Trailers of other bodies are dropped.
        has_trailers: has_trailers && !has_length,
    })
}

/// A request and its response.
#[derive(Debug, Clone)]
struct Exchange {
    fields: Vec<(String, String)>,
    up: Body,
    down: Body,
}

fn exchange() -> impl Strategy<Value = Exchange> {
    let name = prop_oneof!["x-[a-z]{1,9}", "accept", "user-agent", "authorization"];
    (vec((name, "[!-~]([ -~]{0,30}[!-~])?"), 0..6), body(), body()).prop_map(|(fields, up, down)| Exchange {
        fields,
        up,
        down,
    })
}

/// Sends a body through the library.
async fn send(mut stream: h2::SendStream<Bytes>, body: &Body) {
    let all = body.bytes();
    let mut start = 0;
    for len in &body.pieces {
        let mut piece = Bytes::copy_from_slice(&all[start..start + len]);
        start += len;
        while !piece.is_empty() {
            stream.reserve_capacity(piece.len());
            let room = poll_fn(|cx| stream.poll_capacity(cx)).await.unwrap().unwrap();
            stream.send_data(piece.split_to(room.min(piece.len())), false).unwrap();
        }
    }
    if body.has_trailers {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-checked", "yes".parse().unwrap());
        stream.send_trailers(trailers).unwrap();
    } else {
        stream.send_data(Bytes::new(), true).unwrap();
    }
}

/// Receives a body through the library, and compares it.
async fn compare(mut stream: RecvStream, body: &Body) {
    let mut all = Vec::new();
    while let Some(data) = poll_fn(|cx| stream.poll_data(cx)).await {
        let data = data.unwrap();
        stream.flow_control().release_capacity(data.len()).unwrap();
        all.extend_from_slice(&data);
    }
    let trailers = poll_fn(|cx| stream.poll_trailers(cx)).await.unwrap();
    assert!(all == body.bytes(), "{} of {} bytes", all.len(), body.len());
    assert_eq!(trailers.is_some_and(|trailers| trailers["x-checked"] == "yes"), body.has_trailers);
}

/// The text of a body as it is read.
fn text_of(read: &[u8], body: &Body) {
    if body.has_length || (body.len() == 0 && read.is_empty()) {
        assert!(read == body.bytes(), "{} of {} bytes", read.len(), body.len());
        return;
    }
    let mut decoder = egret_http1::BodyDecoder::from(egret_http1::RequestFraming::Chunked);
    let mut spans = Vec::new();
    assert_eq!(decoder.decode(read, &mut spans), Ok(read.len()));
    assert!(decoder.is_done());
    let data: Vec<u8> = spans.iter().flat_map(|span| span.of(read)).copied().collect();
    assert!(data == body.bytes(), "{} of {} bytes", data.len(), body.len());
    assert!(read.ends_with(format!("0\r\n{}\r\n", body.trailers()).as_bytes()));
}

/// A stream of this crate.
trait Handle {
    fn read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<std::io::Result<usize>>;
    fn write(&mut self, cx: &mut Context<'_>, data: &[u8], end: Option<&[u8]>);
    fn drain(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

macro_rules! handle {
    ($stream:ty) => {
        impl Handle for $stream {
            fn read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<std::io::Result<usize>> {
                self.poll_read(cx, buffer)
            }

            fn write(&mut self, cx: &mut Context<'_>, data: &[u8], end: Option<&[u8]>) {
                self.send(cx, Data::whole(data), end, &mut 0).unwrap();
            }

            fn drain(&mut self, cx: &mut Context<'_>) -> Poll<()> {
                self.poll_backlog(cx, &mut 0).map(Result::unwrap)
            }
        }
    };
}

handle!(ServerStream);
handle!(ClientStream);

/// Reads to the end of the body that is to come, and sends another one meanwhile from its piece `next` on.
async fn transfer(stream: &mut impl Handle, expected: &Body, sent: &Body, mut next: usize) {
    let (mut read, mut buffer) = (Vec::new(), vec![0; 5_000]);
    let (all, trailers) = (sent.bytes(), sent.trailers());
    let is_end = |read: &[u8]| {
        if expected.has_length {
            read.len() == expected.len()
        } else {
            read.ends_with(format!("0\r\n{}\r\n", expected.trailers()).as_bytes())
        }
    };
    let mut is_read = expected.has_length && expected.len() == 0;
    poll_fn(|cx| {
        while !is_read {
            match stream.read(cx, &mut buffer) {
                Poll::Ready(Ok(0)) => is_read = true,
                Poll::Ready(Ok(count)) => {
                    read.extend_from_slice(&buffer[..count]);
                    is_read = is_end(&read);
                }
                Poll::Ready(Err(error)) => panic!("{error}"),
                Poll::Pending => break,
            }
        }
        while stream.drain(cx).is_ready() && next <= sent.pieces.len() {
            let start: usize = sent.pieces[..next].iter().sum();
            let end = start + sent.pieces.get(next).copied().unwrap_or(0);
            let is_last = next == sent.pieces.len();
            stream.write(cx, &all[start..end], is_last.then_some(trailers.as_bytes()));
            next += 1;
        }
        if is_read && next > sent.pieces.len() { stream.drain(cx) } else { Poll::Pending }
    })
    .await;
    text_of(&read, expected);
}

/// Runs a future on a new event loop.
fn run(main: impl Future<Output = ()>) {
    EventLoop::new().unwrap().block_on(main);
}

/// Waits until all of the tasks have ended.
async fn all(done: Vec<oneshot::Receiver<()>>) {
    for done in done {
        done.await.expect("a task has panicked");
    }
}

/// Calls this crate's server with the library's client.
async fn serve(exchanges: Vec<Exchange>) {
    let (near, far) = ends();
    let server = exchanges.clone();
    spawn(async move {
        let mut connection = ServerConnection::accept(Stream::Plain(near), &[], BOUNDS).await.unwrap();
        loop {
            let arrived = poll_fn(|cx| connection.poll(cx)).await;
            let Arrived::Stream(mut stream) = arrived else { return };
            let server = server.clone();
            spawn(async move {
                let text = String::from_utf8(stream.take_head().unwrap().unwrap()).unwrap();
                let number: usize = text.split(['/', ' ']).nth(2).unwrap().parse().unwrap();
                let exchange = &server[number];
                for (name, value) in &exchange.fields {
                    assert!(text.contains(&format!("\r\n{name}: {value}\r\n")), "{text}");
                }
                let head =
                    format!("HTTP/1.1 201 Created\r\nx-number: {number}\r\n{}\r\n", exchange.down.framing());
                stream.send_head(head.as_bytes(), false).unwrap();
                transfer(&mut stream, &exchange.up, &exchange.down, 0).await;
            });
        }
    });
    let (mut client, connection) = h2::client::handshake(Carried(Stream::Plain(far))).await.unwrap();
    spawn(async move {
        let _ = connection.await;
    });
    let mut done = Vec::new();
    for (number, exchange) in exchanges.into_iter().enumerate() {
        let mut request = Request::builder().method("POST").uri(format!("http://h/{number}"));
        for (name, value) in &exchange.fields {
            request = request.header(name, value);
        }
        if exchange.up.has_length {
            request = request.header("content-length", exchange.up.len());
        }
        poll_fn(|cx| client.poll_ready(cx)).await.unwrap();
        let (response, stream) = client.send_request(request.body(()).unwrap(), false).unwrap();
        let (tell, told) = oneshot::channel();
        done.push(told);
        let sent = exchange.up.clone();
        spawn(async move { send(stream, &sent).await });
        spawn(async move {
            let response = response.await.unwrap();
            assert_eq!(
                (response.status(), response.headers()["x-number"].to_str().unwrap()),
                (http::StatusCode::CREATED, &*number.to_string())
            );
            compare(response.into_body(), &exchange.down).await;
            tell.send(()).unwrap();
        });
    }
    all(done).await;
}

/// Calls the library's server with this crate's client.
async fn call(exchanges: Vec<Exchange>) {
    let (near, far) = ends();
    let server = exchanges.clone();
    spawn(async move {
        let mut connection = h2::server::handshake(Carried(Stream::Plain(far))).await.unwrap();
        while let Some(accepted) = poll_fn(|cx| connection.poll_accept(cx)).await {
            let Ok((request, mut respond)) = accepted else { return };
            let number: usize = request.uri().path()[1..].parse().unwrap();
            let exchange = server[number].clone();
            for (name, value) in &exchange.fields {
                assert!(request.headers().get_all(name).iter().any(|sent| sent == value.as_str()));
            }
            let mut response = Response::builder().status(201).header("x-number", number);
            if exchange.down.has_length {
                response = response.header("content-length", exchange.down.len());
            }
            let stream = respond.send_response(response.body(()).unwrap(), false).unwrap();
            let (down, up) = (exchange.down.clone(), exchange.up);
            spawn(async move { send(stream, &down).await });
            spawn(async move { compare(request.into_body(), &up).await });
        }
    });
    let (mut connection, streams) = ClientConnection::begin(Stream::Plain(near), BOUNDS);
    spawn(async move {
        poll_fn(|cx| connection.poll(cx)).await;
    });
    let mut done = Vec::new();
    for (number, exchange) in exchanges.into_iter().enumerate() {
        let (tell, told) = oneshot::channel();
        done.push(told);
        let mut stream = streams.stream();
        spawn(async move {
            let mut fields = String::new();
            for (name, value) in &exchange.fields {
                fields.extend([name, ": ", value, "\r\n"]);
            }
            let framing = exchange.up.framing();
            let head = format!("POST /{number} HTTP/1.1\r\nhost: h\r\n{fields}{framing}\r\n");
            let all = exchange.up.bytes();
            let first = exchange.up.pieces.first().copied().unwrap_or(0);
            let is_all = exchange.up.pieces.len() <= 1;
            let end = is_all.then_some(exchange.up.trailers().as_bytes());
            poll_fn(|cx| {
                stream.begin(cx, head.as_bytes(), Data::whole(&all[..first]), end, &mut 0).unwrap();
                Poll::Ready(())
            })
            .await;
            let mut sent = exchange.up.clone();
            let next = if is_all { sent.pieces.len() + 1 } else { 1 };
            if is_all {
                sent.pieces.truncate(next - 1);
            }
            let head = poll_fn(|cx| stream.poll_head(cx)).await.unwrap();
            let head = String::from_utf8(head).unwrap();
            assert!(head.starts_with(&format!("HTTP/1.1 201 Created\r\nx-number: {number}\r\n")), "{head}");
            transfer(&mut stream, &exchange.down, &sent, next).await;
            tell.send(()).unwrap();
        });
    }
    all(done).await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn the_library_receives_what_a_server_sends_and_back(exchanges in vec(exchange(), 1..12)) {
        run(serve(exchanges));
    }

    #[test]
    fn the_library_receives_what_a_client_sends_and_back(exchanges in vec(exchange(), 1..12)) {
        run(call(exchanges));
    }
}

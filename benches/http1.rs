//! Instruction counts of the syntax work on one exchange, each with an upper limit. Counts do not move with
//! the noise of the machine. Needs valgrind and `gungraun-runner` of the same version as `gungraun`.
//!
//! The limits are about 7 % above the counts measured on a machine with AVX2, which memchr uses. Raise one
//! only with a reason in the commit.
#![expect(
    missing_docs,
    unused_qualifications,
    clippy::disallowed_methods,
    reason = "gungraun's macros do so"
)]

mod limits;

use std::hint::black_box;

use egret_http1::{
    BodyDecoder, Edits, HeadLimits, Method, Progress, RequestHead, ResponseHead, Span, chunk_head,
};
use gungraun::prelude::*;

use limits::at_most;

const REQUEST: &[u8] = b"POST /v1/charges?expand[]=customer HTTP/1.1\r\n\
    Host: api.provider.example\r\n\
    User-Agent: consumer/4.2 (linux; x86_64)\r\n\
    Accept: application/json\r\n\
    Accept-Encoding: gzip, deflate\r\n\
    Connection: keep-alive\r\n\
    Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n\
    Content-Type: application/x-www-form-urlencoded\r\n\
    Content-Length: 57\r\n\
    Idempotency-Key: 5f0c1f52-5f5c-4c4f-8d6a-0c7a5f0c1f52\r\n\
    X-Request-Id: 0123456789abcdef\r\n\r\n";

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Server: nginx\r\n\
    Date: Sat, 21 Nov 2026 12:00:00 GMT\r\n\
    Content-Type: application/json\r\n\
    Content-Length: 109\r\n\
    Connection: keep-alive\r\n\
    Cache-Control: no-cache, no-store\r\n\
    Vary: Origin\r\n\
    Strict-Transport-Security: max-age=31556926\r\n\
    Keep-Alive: timeout=75\r\n\
    X-Ratelimit-Remaining: 99\r\n\r\n";

const LIMITS: HeadLimits = HeadLimits { start_line: 8 * 1024, head: 32 * 1024, fields: 128 };

/// A head that has parsed before, as on a persistent connection: its table is allocated, memchr has detected
/// the CPU, and its lines are remembered.
fn warm_request() -> RequestHead {
    let mut head = RequestHead::new();
    for _ in 0..4 {
        assert_eq!(head.parse(REQUEST, &LIMITS), Ok(Progress::Complete));
    }
    head
}

fn warm_response() -> ResponseHead {
    let mut head = ResponseHead::new();
    for _ in 0..4 {
        assert_eq!(head.parse(RESPONSE, &LIMITS, Method::Get), Ok(Progress::Complete));
    }
    head
}

/// Applies the edits that the gateway makes to every request it forwards.
fn edit(edits: &mut Edits, head: &RequestHead) {
    edits.clear();
    edits.remove_hop_by_hop(&head.fields);
    edits.insert("via", b"1.1 egret");
}

fn warm_edits() -> (RequestHead, Edits) {
    let head = warm_request();
    let mut edits = Edits::new();
    edit(&mut edits, &head);
    (head, edits)
}

/// Returns 16 KiB in chunks of 1 KiB, and room for their spans.
fn chunks() -> (Vec<u8>, Vec<Span>) {
    let mut bytes = Vec::new();
    for _ in 0..16 {
        bytes.extend_from_slice(chunk_head(1024).as_bytes());
        bytes.extend_from_slice(&[b'x'; 1024]);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    (bytes, Vec::with_capacity(64))
}

#[library_benchmark(config = at_most(1_800, 980))]
#[bench::ten_fields(warm_request())]
fn parse_request(mut head: RequestHead) -> RequestHead {
    let _ = black_box(head.parse(black_box(REQUEST), &LIMITS));
    head
}

#[library_benchmark(config = at_most(1_820, 730))]
#[bench::ten_fields(warm_response())]
fn parse_response(mut head: ResponseHead) -> ResponseHead {
    let _ = black_box(head.parse(black_box(RESPONSE), &LIMITS, Method::Get));
    head
}

#[library_benchmark(config = at_most(385, 530))]
#[bench::remove_one_insert_one(warm_edits())]
fn edit_and_render((head, mut edits): (RequestHead, Edits)) -> (RequestHead, Edits) {
    edit(&mut edits, black_box(&head));
    head.render(black_box(REQUEST), &edits).for_each_piece(|piece| {
        black_box(piece);
    });
    (head, edits)
}

#[library_benchmark(config = at_most(4_050, 5_000))]
#[bench::sixteen_of_1_kib(chunks())]
fn decode_chunks((bytes, mut spans): (Vec<u8>, Vec<Span>)) -> (Vec<u8>, Vec<Span>) {
    let mut decoder = BodyDecoder::chunked();
    let _ = black_box(decoder.decode(black_box(&bytes), &mut spans));
    (bytes, spans)
}

library_benchmark_group!(name = heads, benchmarks = [parse_request, parse_response, edit_and_render]);
library_benchmark_group!(name = bodies, benchmarks = [decode_chunks]);
main!(library_benchmark_groups = [heads, bodies]);

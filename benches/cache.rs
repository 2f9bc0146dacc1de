//! Instruction counts for a cache hit, from the request to the fields of the response, with a limit for each
//! case. A stored response is worth its memory only if it costs far less than a call. Needs valgrind and
//! `gungraun-runner` in the version of `gungraun`.
//!
//! The limits are about 7 % above the measured counts. They were measured under valgrind, which lacks the
//! processor's SHA-256 instructions; SHA-256 is most of the count. Raise a limit only with a reason in the
//! commit.
#![expect(
    missing_docs,
    unused_qualifications,
    clippy::disallowed_methods,
    reason = "gungraun's macros do so"
)]

mod limits;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use egret_cache::{
    Action, CacheConfig, CallTimes, Candidate, Decision, KeyContext, KeySecret, Lookup, Policy, Stored,
    TimedResponse,
};
use egret_clock::Timestamp;
use egret_http1::{HeadLimits, Method, Progress, RequestHead, ResponseHead};
use egret_message::{Fields, Request, Response};
use gungraun::prelude::*;

use limits::at_most;

const NOW: Timestamp = Timestamp::from_secs(1_795_307_476);

const REQUEST: &[u8] = b"GET /v1/prices/9?currency=eur HTTP/1.1\r\n\
    Host: api.shop.example\r\n\
    User-Agent: consumer/4.2 (linux; x86_64)\r\n\
    Accept: application/json\r\n\
    Accept-Encoding: gzip\r\n\r\n";

const SECRET_REQUEST: &[u8] = b"GET /v1/prices/9?currency=eur HTTP/1.1\r\n\
    Host: api.shop.example\r\n\
    User-Agent: consumer/4.2 (linux; x86_64)\r\n\
    Accept: application/json\r\n\
    X-Api-Key: 0123456789abcdef0123456789abcdef\r\n\r\n";

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Date: Sun, 22 Nov 2026 00:31:16 GMT\r\n\
    Content-Type: application/json\r\n\
    Content-Length: 1024\r\n\
    Cache-Control: public, max-age=3600\r\n\
    ETag: \"a1b2c3\"\r\n\r\n";

/// The data that a worker has when a request arrives whose response is stored.
struct Case {
    policy: Policy,
    bytes: &'static [u8],
    head: RequestHead,
    stored: Stored,
    out: Vec<u8>,
}

fn request<'a>(head: &'a RequestHead, bytes: &'a [u8]) -> Request<'a> {
    Request {
        provider: "shop",
        tls: true,
        host: "api.shop.example",
        port: 443,
        method: b"GET",
        path: black_box(b"/v1/prices/9"),
        query: Some(b"currency=eur"),
        fields: Fields::received(&head.fields, bytes),
        upgrade: false,
        body: None,
    }
}

fn case(bytes: &'static [u8]) -> Case {
    let (mut head, mut answered) = (RequestHead::new(), ResponseHead::new());
    let limits = HeadLimits::default();
    assert_eq!(head.parse(bytes, &limits), Ok(Progress::Complete));
    assert_eq!(answered.parse(RESPONSE, &limits, Method::Get), Ok(Progress::Complete));
    let policy = Policy::new(&CacheConfig::default(), "prices", Arc::new(KeySecret::new(&[1; 32])));
    let asked = request(&head, bytes);
    let context = KeyContext::default();
    let Lookup::Look(question) = policy.look_up(&asked, &context) else { unreachable!("it may be stored") };
    let fields = Fields::received(&answered.fields, RESPONSE);
    let response = Response { status: 200, fields, body: None };
    let response = TimedResponse { response: &response, times: CallTimes { sent: NOW, received: NOW } };
    let verdict = policy.receive(&question, &asked, &context, response, &[], None);
    let Action::Store(stored, _) = verdict.action else { unreachable!("it is stored") };
    // The first run allocates memory, and aws-lc detects the CPU's features.
    hit(Case { policy, bytes, head, stored: *stored, out: Vec::new() })
}

fn hit(mut case: Case) -> Case {
    let Case { policy, bytes, head, stored, out } = &mut case;
    let asked = request(head, bytes);
    let Lookup::Look(question) = policy.look_up(black_box(&asked), &KeyContext::default()) else {
        unreachable!("it was asked for before")
    };
    let candidates = [Candidate { stored, len: Some(1024) }];
    let decision = policy.decide(&question, &asked, &candidates, NOW + Duration::from_mins(1));
    let Decision::Serve(reply) = decision else { unreachable!("it is fresh") };
    out.clear();
    reply.write_fields(stored, 1024, out);
    case
}

#[library_benchmark(config = at_most(15_600, 18_500))]
#[bench::anonymous(case(REQUEST))]
fn serve(case: Case) -> Case {
    hit(case)
}

// The credential takes another block of SHA-256.
#[library_benchmark(config = at_most(18_550, 22_000))]
#[bench::of_a_credential(case(SECRET_REQUEST))]
fn serve_in_private(case: Case) -> Case {
    hit(case)
}

library_benchmark_group!(name = hits, benchmarks = [serve, serve_in_private]);
main!(library_benchmark_groups = [hits]);

//! Counts the instructions for parsing, routing and editing one request, and checks them against a limit per
//! way of routing. This gate does not depend on the load of the machine. Needs valgrind and `gungraun-runner`
//! in the version of `gungraun`.
//!
//! The limits are about 7 % above the values measured on a machine with AVX2. Raise one only with a reason in
//! the commit.
#![expect(
    missing_docs,
    unused_qualifications,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "gungraun's macros require it, and a bench that cannot be set up must panic"
)]

mod limits;

use std::hint::black_box;
use std::net::SocketAddr;

use egret_gateway::fixture::Fixture;
use egret_plan::config::{GatewayConfig, ListenConfig, Providers};
use gungraun::prelude::*;

use limits::at_most;

const GATEWAY: &str = "127.0.0.1:8000";
const REVERSE: &str = "127.0.0.1:8002";

fn request(target: &str, host: &str, more: &str) -> Vec<u8> {
    format!(
        "GET {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: consumer/4.2 (linux; x86_64)\r\nAccept: application/json\r\n\
         Accept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\n{more}\
         Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n\r\n"
    )
    .into_bytes()
}

/// Returns the request, and a gateway that has forwarded it once before, as is the case for nearly all
/// requests.
fn warm(listener: &str, request: Vec<u8>) -> (Fixture, Vec<u8>) {
    let listen = |address: &str| ListenConfig::from(address.parse::<SocketAddr>().unwrap());
    let config = GatewayConfig {
        listen: vec![
            listen(GATEWAY),
            ListenConfig { provider: Some("stripe".to_owned()), ..listen(REVERSE) },
        ],
        ..GatewayConfig::default()
    };
    let providers: Providers =
        serde_json::from_value(serde_json::json!({ "stripe": { "url": "http://api.stripe.example" } }))
            .unwrap();
    let mut fixture = Fixture::new(&config, &providers, listener.parse().unwrap());
    // The first exchanges make room for the lines of a head and learn that they repeat.
    for _ in 0..4 {
        fixture.forward(&request, |_| ()).unwrap();
    }
    (fixture, request)
}

#[library_benchmark]
#[bench::reverse(args = (warm(REVERSE, request("/v1/charges?limit=3", "localhost", ""))), config = at_most(3_690, 2_470))]
#[bench::base_url(args = (warm(GATEWAY, request("/stripe/v1/charges?limit=3", GATEWAY, ""))), config = at_most(4_590, 3_640))]
#[bench::absolute_form(
    args = (warm(GATEWAY, request("http://api.other.example/v1/charges", "api.other.example", ""))),
    config = at_most(4_650, 3_770)
)]
#[bench::header_fields(
    args = (warm(GATEWAY, request("/v1/charges", GATEWAY, "x-egret-host: api.other.example\r\n"))),
    config = at_most(5_900, 4_720)
)]
#[bench::host(args = (warm(GATEWAY, request("/v1/charges", "api.other.example", ""))), config = at_most(5_200, 4_280))]
fn forward((mut fixture, request): (Fixture, Vec<u8>)) -> (Fixture, Vec<u8>) {
    let _ = black_box(fixture.forward(black_box(&request), |slice| {
        black_box(slice);
    }));
    (fixture, request)
}

library_benchmark_group!(name = requests, benchmarks = [forward]);
main!(library_benchmark_groups = [requests]);

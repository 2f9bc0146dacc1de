//! Instruction counts for metering a stream of a language model: a hundred events, each with a word, in the
//! shapes of three APIs. They are most of what a metered stream costs. Needs valgrind and `gungraun-runner`
//! in the version of `gungraun`.
//!
//! The limits of a quick build are about 7 % above the counts measured on a machine with AVX2, which memchr
//! uses; those of a release are an estimate. Raise a limit only with a reason in the commit.
#![expect(
    missing_docs,
    unused_qualifications,
    clippy::disallowed_methods,
    reason = "gungraun's macros do so"
)]

mod limits;

use std::hint::black_box;

use egret_http1::{HeadLimits, Method, Progress, ResponseHead};
use egret_message::Fields;
use egret_usage::UsageScan;
use gungraun::prelude::*;

use limits::at_most;

const EVENTS: usize = 100;
const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";

/// A response whose head and first event have passed.
struct Case {
    scan: UsageScan,
    events: Vec<String>,
}

fn case(event: impl Fn(usize, &str) -> String) -> Case {
    let words = ["The ", "weather ", "is", " \\\"fine\\\"", "."];
    let events: Vec<String> = (0..=EVENTS).map(|number| event(number, words[number % words.len()])).collect();
    let mut head = ResponseHead::new();
    assert_eq!(head.parse(HEAD, &HeadLimits::default(), Method::Post), Ok(Progress::Complete));
    let Some(mut scan) = UsageScan::of_response(Fields::received(&head.fields, HEAD)) else {
        unreachable!("the response is a stream of events")
    };
    scan.push(events[0].as_bytes());
    Case { scan, events }
}

fn chat() -> Case {
    case(|_, word| {
        format!(
            "data: {{\"id\":\"chatcmpl-0123456789\",\"object\":\"chat.completion.chunk\",\"created\":1764500000,\
             \"model\":\"gpt-5\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_0123456789\",\"choices\":[{{\
             \"index\":0,\"delta\":{{\"content\":\"{word}\"}},\"logprobs\":null,\"finish_reason\":null}}],\
             \"usage\":null,\"obfuscation\":\"{word}\"}}\n\n"
        )
    })
}

fn responses() -> Case {
    case(|number, word| {
        format!(
            "event: response.output_text.delta\ndata: {{\"type\":\"response.output_text.delta\",\
             \"sequence_number\":{number},\"item_id\":\"msg_0123456789abcdef\",\"output_index\":0,\"content_index\":0,\
             \"delta\":\"{word}\",\"logprobs\":[],\"obfuscation\":\"{word}\"}}\n\n"
        )
    })
}

fn messages() -> Case {
    case(|_, word| {
        format!(
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\
             \"delta\":{{\"type\":\"text_delta\",\"text\":\"{word}\"}}}}\n\n"
        )
    })
}

#[library_benchmark(config = at_most(75_000, 180_000))]
#[bench::chat(chat())]
#[bench::responses(responses())]
#[bench::messages(messages())]
fn a_hundred_events(mut case: Case) -> Case {
    for event in &case.events[1..] {
        case.scan.push(black_box(event.as_bytes()));
    }
    case
}

library_benchmark_group!(name = usage, benchmarks = [a_hundred_events]);
main!(library_benchmark_groups = [usage]);

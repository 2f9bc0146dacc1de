use egret_message::Changes;
use egret_tests::coded::{CODINGS, coded};
use serde_json::{Value, json};

use super::*;
use crate::expression::EXPRESSION_BODY_BYTES_MAX;

const ANTHROPIC: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-opus-4-6","content":[],"stop_reason":null,"usage":{"input_tokens":2095,"cache_creation_input_tokens":7,"cache_read_input_tokens":1024,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: ping
data: {"type": "ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"say \"usage\":{\"output_tokens\":0}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":503}}

event: message_stop
data: {"type":"message_stop"}

"#;

const OPENAI_CHAT: &str = r#"data: {"id":"c1","object":"chat.completion.chunk","model":"gpt-5.2","choices":[{"index":0,"delta":{"content":"{\"usage\":{\"total_tokens\":1}}"}}],"usage":null}

data: {"id":"c1","object":"chat.completion.chunk","model":"gpt-5.2","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}

data: {"id":"c1","object":"chat.completion.chunk","model":"gpt-5.2","choices":[],"usage":{"prompt_tokens":2095,"completion_tokens":503,"total_tokens":2598,"prompt_tokens_details":{"cached_tokens":1024}}}

data: [DONE]

"#;

const OPENAI_RESPONSES: &str = r#"event: response.created
data: {"type":"response.created","sequence_number":0,"response":{"id":"r1","object":"response","status":"in_progress","model":"gpt-5.2","output":[],"usage":null}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","sequence_number":1,"delta":"hello"}

event: response.completed
data: {"type":"response.completed","sequence_number":2,"response":{"id":"r1","object":"response","status":"completed","model":"gpt-5.2","output":[{"type":"message","content":[{"type":"output_text","text":"hello"}]}],"usage":{"input_tokens":2095,"input_tokens_details":{"cached_tokens":1024},"output_tokens":503,"total_tokens":2598}}}

"#;

const GEMINI: &str = r#"data: {"candidates":[{"content":{"parts":[{"text":"hel"}],"role":"model"}}],"usageMetadata":{"promptTokenCount":2095,"totalTokenCount":2100},"modelVersion":"gemini-3-pro"}

data: {"candidates":[{"content":{"parts":[{"text":"lo"}],"role":"model"},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":2095,"candidatesTokenCount":503,"totalTokenCount":2598,"promptTokensDetails":[{"modality":"TEXT","tokenCount":2095}]},"modelVersion":"gemini-3-pro"}

"#;

const COHERE: &str = r#"event: message-start
data: {"id":"c1","type":"message-start","delta":{"message":{"role":"assistant","content":[]}}}

event: message-end
data: {"type":"message-end","delta":{"finish_reason":"COMPLETE","usage":{"billed_units":{"input_tokens":2095,"output_tokens":503}}}}

"#;

/// The streams of providers, and some of the members that a response without a stream has.
fn provider_streams() -> [(&'static str, &'static str, Value); 5] {
    [
        (
            "Anthropic",
            ANTHROPIC,
            json!({
                "model": "claude-opus-4-6",
                "stop_reason": "end_turn",
                "usage": {
                    "input_tokens": 2095,
                    "cache_creation_input_tokens": 7,
                    "cache_read_input_tokens": 1024,
                    "output_tokens": 503,
                },
            }),
        ),
        (
            "OpenAI chat",
            OPENAI_CHAT,
            json!({
                "model": "gpt-5.2",
                "usage": {
                    "prompt_tokens": 2095,
                    "completion_tokens": 503,
                    "total_tokens": 2598,
                    "prompt_tokens_details": { "cached_tokens": 1024 },
                },
            }),
        ),
        (
            "OpenAI Responses",
            OPENAI_RESPONSES,
            json!({
                "model": "gpt-5.2",
                "status": "completed",
                "usage": {
                    "input_tokens": 2095,
                    "input_tokens_details": { "cached_tokens": 1024 },
                    "output_tokens": 503,
                    "total_tokens": 2598,
                },
            }),
        ),
        (
            "Gemini",
            GEMINI,
            json!({
                "modelVersion": "gemini-3-pro",
                "usageMetadata": {
                    "promptTokenCount": 2095,
                    "candidatesTokenCount": 503,
                    "totalTokenCount": 2598,
                    "promptTokensDetails": [{ "modality": "TEXT", "tokenCount": 2095 }],
                },
            }),
        ),
        (
            "Cohere",
            COHERE,
            json!({
                "finish_reason": "COMPLETE",
                "usage": { "billed_units": { "input_tokens": 2095, "output_tokens": 503 } },
            }),
        ),
    ]
}

fn scan(coding: &str) -> EventScan {
    let mut changes = Changes::default();
    changes.add(b"Content-Type", b"Text/Event-Stream; charset=utf-8");
    changes.add(b"Content-Encoding", coding.trim_start_matches("raw ").as_bytes());
    EventScan::of_response(Fields::new(&[], b"", &changes)).unwrap()
}

/// Returns the body that is seen of a stream that arrives in these pieces.
fn seen<'p>(coding: &str, pieces: impl IntoIterator<Item = &'p [u8]>) -> Option<Value> {
    let mut scan = scan(coding);
    pieces.into_iter().for_each(|piece| scan.push(piece));
    scan.finish().map(|body| serde_json::from_slice(&body).unwrap())
}

/// Asserts that `body` has at least the members of `expected`.
fn assert_has(body: &Value, expected: &Value, about: &str) {
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&body[name], value, "{about}: `{name}` of {body}");
    }
}

#[test]
fn usage_is_found_under_each_coding_and_split() {
    for (provider, stream, expected) in provider_streams() {
        for line_end in ["\n", "\r", "\r\n"] {
            let stream = stream.replace('\n', line_end);
            for coding in CODINGS.iter().chain(&["identity"]) {
                let bytes = coded(coding, stream.as_bytes());
                let about = format!("{provider}, {coding}, {line_end:?}");
                let whole = seen(coding, [&*bytes]).unwrap();
                assert_has(&whole, &expected, &about);
                assert_eq!(seen(coding, bytes.chunks(1)).as_ref(), Some(&whole), "{about}, by bytes");
                // A decoder is cut everywhere once; beyond it, the line ends are those of `identity`.
                let is_told_apart = *coding == "identity" || line_end == "\n";
                for cut in (1..bytes.len()).filter(|_| is_told_apart) {
                    let (start, end) = bytes.split_at(cut);
                    assert_eq!(seen(coding, [start, end]).as_ref(), Some(&whole), "{about}, cut at {cut}");
                }
            }
        }
    }
}

#[test]
fn a_stream_under_known_codings_is_read() {
    let twice = coded("gzip", &coded("deflate", OPENAI_CHAT.as_bytes()));
    let body = seen("deflate, X-Gzip", [&*twice]).unwrap();
    assert_eq!(body["usage"]["total_tokens"], 2598);
    assert_eq!(seen("rot13", [OPENAI_CHAT.as_bytes()]), None);
    assert_eq!(seen("gzip", [OPENAI_CHAT.as_bytes()]), None, "it is not coded");
    let gzip = coded("gzip", OPENAI_CHAT.as_bytes());
    let corrupt = [&gzip[..gzip.len() - 8], &[0; 8]].concat();
    assert_eq!(seen("gzip", [&*corrupt]), None);
}

#[test]
fn only_a_stream_of_events_is_scanned() {
    for (media_type, expected) in [
        ("text/event-stream", true),
        ("TEXT/Event-Stream ;charset=utf-8", true),
        ("text/event-streams", false),
        ("application/json", false),
        ("", false),
    ] {
        let mut changes = Changes::default();
        changes.add(b"Content-Type", media_type.as_bytes());
        let fields = Fields::new(&[], b"", &changes);
        assert_eq!(EventScan::of_response(fields).is_some(), expected, "{media_type}");
    }
}

#[test]
fn lines_are_read_as_the_standard_says() {
    for (stream, expected) in [
        ("data: {\"n\":1}\n\nevent: end\ndata: {\"n\":2}\r\n\ndata: [DONE]\n\n", json!({ "n": 2 })),
        ("\u{feff}data: {\"n\":1}\n\n", json!({ "n": 1 })),
        ("\u{feff}\u{feff}data: {\"n\":1}\n\ndata:{\"m\":1}\n\n", json!({ "m": 1 })),
        ("data: {\"n\":\ndata: 1}\n\n", json!({ "n": 1 })),
        (
            "data: {\"n\":1}\n: data: {\"n\":2}\ndat: {\"n\":3}\ndatas: {\"n\":4}\n Data: {\"n\":5}\n\n",
            json!({ "n": 1 }),
        ),
        ("data\ndata:  {\"n\":1}\nid: 1\nretry: 10\n\n", json!({ "n": 1 })),
        ("data: {\"n\":1}", json!({ "n": 1 })),
        ("data: {\"n\":1}\n\ndata: {\"n\":", json!(null)),
        ("data: [DONE]\n\n", json!(null)),
        ("", json!(null)),
    ] {
        assert_eq!(seen("identity", [stream.as_bytes()]).unwrap_or_default(), expected, "{stream:?}");
        assert_eq!(merged_events(stream.as_bytes()).is_none(), expected.is_null(), "{stream:?}");
    }
}

#[test]
fn events_are_merged_member_by_member() {
    let stream = "data: {\"type\":\"a\",\"usage\":{\"in\":1,\"out\":1,\"of\":{\"x\":1}},\"list\":[1,2]}\n\n\
                  data: {\"type\":\"b\",\"usage\":{\"out\":2,\"in\":null,\"of\":{\"y\":2}},\"list\":[3]}\n\n\
                  data: {\"type\":\"c\",\"text\":\"an event without usage counts only as the last\"}\n\n\
                  data: {\"type\":\"d\",\"delta\":{\"usage\":{\"more\":3},\"type\":\"inner\"},\"n\":1}\n\n\
                  data: {\"type\":\"e\"}\n\n";
    let expected = json!({
        "type": "e",
        "usage": { "in": 1, "out": 2, "of": { "x": 1, "y": 2 }, "more": 3 },
        "list": [3],
        "n": 1,
    });
    assert_eq!(seen("identity", [stream.as_bytes()]), Some(expected));
    let untyped = "data: {\"message\":{\"usage\":1}}\n\n";
    assert_eq!(seen("identity", [untyped.as_bytes()]), Some(json!({ "message": { "usage": 1 } })));
}

#[test]
fn a_long_event_is_skipped_and_the_others_are_read() {
    let long = format!("data: {{\"usage\":\"{}\"}}\n\n", "x".repeat(EXPRESSION_BODY_BYTES_MAX));
    let stream = [&long, "data: {\"usage\":{\"n\":1}}\n\n", &long].concat();
    assert_eq!(seen("identity", [stream.as_bytes()]), Some(json!({ "usage": { "n": 1 } })));
}

#[test]
fn memory_has_a_bound_whatever_is_sent() {
    let max = 8 * EXPRESSION_BODY_BYTES_MAX;
    let member = format!("data: {{\"usage\":{{\"{}\":1}}}}\n\n", "x".repeat(1000));
    let streams = [
        "x".repeat(1000),
        "data: {".to_owned(),
        "data: x\n".to_owned(),
        "\n".to_owned(),
        member,
        format!("data: {{\"usage\":[{}]}}\n\n", "[],".repeat(100_000)),
    ];
    for part in &streams {
        let mut scan = scan("identity");
        let mut number = 0;
        for _ in 0..(4 * EXPRESSION_BODY_BYTES_MAX).div_ceil(part.len()) {
            // Each event has a member of another name.
            number += 1;
            scan.push(part.replacen("xxxxxxxx", &format!("{number:08}"), 1).as_bytes());
            assert!(scan.held_bytes() <= max, "{} after {number} of {part:.20}", scan.held_bytes());
        }
    }
}

#[test]
fn a_decompression_bomb_is_not_read() {
    for coding in ["gzip", "zstd"] {
        let bomb = coded(coding, &b"\n".repeat(64 << 20));
        let mut scan = scan(coding);
        for piece in bomb.chunks(1000) {
            scan.push(piece);
        }
        assert!(matches!(scan.source, EventSource::Unreadable), "{coding}");
        assert_eq!(scan.held_bytes(), 0, "{coding}");
    }
    // Comments that keep the connection alive are coded to very little.
    let idle = [b": keep-alive\n\n".repeat(60_000), OPENAI_CHAT.as_bytes().to_vec()].concat();
    assert_eq!(seen("gzip", [&*coded("gzip", &idle)]).unwrap()["usage"]["total_tokens"], 2598);
}

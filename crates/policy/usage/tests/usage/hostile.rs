//! Responses that no provider should send.

use egret_tests::coded::coded;
use egret_usage::UsageSource;
use proptest::prelude::*;

use crate::samples::{AWS, EVENTS, JSON, all, converse_event, figures, invoke_event, read, read_whole};

#[test]
fn a_report_in_another_place_is_no_report() {
    for body in [
        r#"{"choices":[{"message":{"usage":{"prompt_tokens":1}}}]}"#,
        r#"{"content":[{"input":{"usage":{"input_tokens":1}}}],"metadata":{"usage":{"input_tokens":1}}}"#,
        r#"{"text":"\",\"usage\":{\"prompt_tokens\":1}}"}"#,
        r#"{"text":"\\\",\"usage\":{\"prompt_tokens\":1}}"}"#,
        r#"{"a":{"b":"}"},"c":["]","usage",{"usage":{"prompt_tokens":1}}]}"#,
        r#"{"usage":[{"prompt_tokens":1}]}"#,
        r#"{"usage":"{\"prompt_tokens\":1}"}"#,
        r#"{"usage":{"x":{"prompt_tokens":1}}}"#,
        r#"{"usage\":{\"prompt_tokens\":1":{}}"#,
        r#"{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":1}}"#,
        r#"[[{"usage":{"prompt_tokens":1}}]]"#,
        r#"{"bytes":"eyJ1c2FnZSI6eyJwcm9tcHRfdG9rZW5zIjoxfX0="}"#,
        r#""usage":{"prompt_tokens":1}"#,
    ] {
        let record = read_whole(JSON, body.as_bytes());
        assert_eq!((record.source, record.input), (UsageSource::None, 0), "{body}");
    }
}

#[test]
fn values_that_are_no_figures_are_left_out() {
    for value in ["-1", "1e30", "\"5\"", "true", "null", "{}", "[1]", "99999999999999999999", "1e", "--1"] {
        let body = format!("{{\"usage\":{{\"prompt_tokens\":{value},\"completion_tokens\":30}}}}");
        assert_eq!(read_whole(JSON, body.as_bytes()).input, 0, "{body}");
        assert_eq!(read_whole(JSON, body.as_bytes()).output, 30, "{body}");
    }
    let long = format!("{{\"usage\":{{\"prompt_tokens\":{},\"completion_tokens\":30}}}}", "1".repeat(300));
    assert_eq!(figures(&read_whole(JSON, long.as_bytes())), "chat reported 0 30 - - -");
}

#[test]
fn models_with_control_characters_or_without_end_are_not_named() {
    for (model, expected) in
        [("m/1", Some("m/1")), ("a\u{7f}b", None), ("\\u0061", None), (&"m".repeat(65), None)]
    {
        let body = format!("{{\"model\":\"{model}\",\"usage\":{{\"prompt_tokens\":1}}}}");
        assert_eq!(read_whole(JSON, body.as_bytes()).model.as_deref(), expected, "{model}");
    }
}

#[test]
fn each_event_begins_anew() {
    let report = "{\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":30}}";
    for broken in ["{\"a\":\"", "{\"a\":[[[", "]]]", "\u{0}", "{\"usage\":{\"prompt_tokens\":", "[DONE"] {
        let stream = format!("data: {broken}\n\ndata: {report}\n\n");
        assert_eq!(read_whole(EVENTS, stream.as_bytes()).input, 11, "{stream}");
        let lines = format!("{broken}\n{report}\n");
        assert_eq!(read_whole("application/x-ndjson", lines.as_bytes()).input, 11, "{lines}");
    }
}

#[test]
fn events_like_the_one_before_are_read_if_they_report_something() {
    let word = |model: &str, word: &str| {
        format!("data: {{\"model\":\"{model}\",\"choices\":[{{\"text\":\"{word}\"}}],\"usage\":null}}\n\n")
    };
    let report = "data: {\"model\":\"b\",\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\n";
    let forged = word("a", "\"}],\"usage\":{\"prompt_tokens\":99},\"x\":[{\"y\":\"");
    for (stream, input, model) in [
        ([word("a", "x"), word("a", "y"), report.to_owned(), word("a", "z")].concat(), 7, "a"),
        ([word("a", "x"), report.to_owned(), word("b", "y"), word("b", "z")].concat(), 7, "b"),
        ([word("a", "x"), word("a", "\\\"y"), forged, word("a", "z")].concat(), 99, "a"),
    ] {
        let by_bytes = read(&[("content-type", EVENTS)], stream.as_bytes().chunks(1), true).unwrap();
        for record in [read_whole(EVENTS, stream.as_bytes()), by_bytes] {
            assert_eq!((record.input, record.model.as_deref()), (input, Some(model)), "{stream}");
        }
    }
}

#[test]
fn depth_and_length_have_no_effect_on_memory() {
    let deep =
        [&b"{\"a\":"[..], &b"[".repeat(1 << 20), &b"{\"usage\":{\"prompt_tokens\":1".repeat(1000)].concat();
    assert_eq!(read_whole(JSON, &deep).source, UsageSource::None);
    let long = [
        &b"{\"data\":\""[..],
        &b"\\\"usage\\\":".repeat(1 << 18),
        br#"","usage":{"prompt_tokens":8,"total_tokens":8}}"#,
    ]
    .concat();
    assert_eq!(figures(&read_whole(JSON, &long)), "chat reported 8 0 - - -");
}

#[test]
fn a_message_with_a_wrong_checksum_does_not_count() {
    let first = converse_event("metadata", r#"{"usage":{"inputTokens":11,"outputTokens":30}}"#);
    let second = converse_event("metadata", r#"{"usage":{"inputTokens":99,"outputTokens":99}}"#);
    for at in 0..second.len() {
        let mut broken = second.clone();
        broken[at] ^= 0x20;
        let record = read_whole(AWS, &[&first[..], &broken].concat());
        assert_eq!((record.input, record.output), (11, 30), "byte {at}");
    }
    // The first message was the last that matters, so the second takes nothing away.
    assert_eq!(read_whole(AWS, &[&first[..], &second[..9]].concat()).input, 11);
}

#[test]
fn wrong_lengths_end_an_event_stream() {
    let event =
        invoke_event(r#"{"amazon-bedrock-invocationMetrics":{"inputTokenCount":11,"outputTokenCount":30}}"#);
    for (total, headers) in [(15, 0), (16, 1), (u32::MAX, 0), (100, 200), (0, 0)] {
        let mut message = [u32::to_be_bytes(total), u32::to_be_bytes(headers)].concat();
        message.extend(crc32fast::hash(&message).to_be_bytes());
        let record = read_whole(AWS, &[&message[..], &event].concat());
        assert_eq!(record.source, UsageSource::None, "{total} {headers}");
    }
}

#[test]
fn a_decompression_bomb_is_not_read() {
    for coding in ["gzip", "zstd"] {
        let report = b"{\"usage\":{\"prompt_tokens\":8}}";
        let bomb = coded(coding, &[&b" ".repeat(64 << 20)[..], report].concat());
        let fields = [("content-type", JSON), ("content-encoding", coding)];
        assert_eq!(read(&fields, bomb.chunks(1000), true).unwrap().source, UsageSource::None, "{coding}");
    }
    let fields = [("content-type", JSON), ("content-encoding", "rot13")];
    assert_eq!(read(&fields, [&b"{}"[..]], true).unwrap().source, UsageSource::None);
}

/// Pieces of which documents are made that look like reports.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            "\"",
            "\\",
            ",",
            ":",
            "\n",
            "\r",
            "data: ",
            "event: ",
            "\"usage\":",
            "\"message\":",
            "\"prompt_tokens\":",
            "\"input_tokens\":",
            "41",
            "1e9",
            "null",
            "true",
            "[DONE]",
            "\"bytes\":\"",
            "\"usageMetadata\":{",
            "\"iterations\":[{",
            "\"model\":\"m\"",
            "\"type\":\"message_stop\"",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..20),
        (0..all().len(), any::<prop::sample::Index>(), any::<prop::sample::Index>()).prop_map(
            |(number, a, b)| {
                let body = &all()[number].body;
                let (a, b) = (a.index(body.len()), b.index(body.len()));
                body[a.min(b)..a.max(b)].to_vec()
            }
        ),
    ]
}

proptest! {
    #[test]
    fn whatever_is_sent_is_read_the_same_at_any_cut(
        pieces in prop::collection::vec(piece(), 0..40),
        media_type in prop::sample::select(vec![EVENTS, JSON, AWS, "application/x-ndjson", "text/plain"]),
        size in 1_usize..50,
    ) {
        let body = pieces.concat();
        let fields = [("content-type", media_type)];
        let whole = read(&fields, [&body[..]], true);
        prop_assert_eq!(&read(&fields, body.chunks(size), true), &whole);
        prop_assert_eq!(&read(&fields, body.chunks(1), true), &whole);
        let record = whole.unwrap();
        prop_assert!(record.cache_read + record.cache_write.total() <= record.input);
    }

    #[test]
    fn a_text_of_the_model_changes_nothing(text: String) {
        let quoted = text.chars().flat_map(|c| match c {
            '"' => "\\\"".chars().collect::<Vec<_>>(),
            '\\' => "\\\\".chars().collect(),
            c if (c as u32) < 0x20 => format!("\\u{:04x}", c as u32).chars().collect(),
            c => vec![c],
        });
        let quoted: String = quoted.collect();
        let report = "\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":30}";
        for body in [
            format!("{{\"choices\":[{{\"text\":\"{quoted}\"}}],{report}}}"),
            format!("{{{report},\"{quoted}\":\"{quoted}\"}}"),
        ] {
            let record = read_whole(JSON, body.as_bytes());
            prop_assert_eq!((record.input, record.output), (11, 30));
            let stream = format!("data: {body}\n\ndata: [DONE]\n\n");
            prop_assert_eq!(read_whole(EVENTS, stream.as_bytes()).input, 11);
        }
    }
}

//! Rules that hold for the providers' responses.

use egret_usage::{UsageKind, UsageSource};

use crate::samples::{AWS, EVENTS, JSON, all, figures, read, read_whole};

#[test]
fn a_stream_that_breaks_off_is_partial_until_its_last_event() {
    for sample in all().into_iter().filter(|sample| sample.fields[0].1 != JSON) {
        let whole = read(&sample.fields, [&sample.body[..]], true).unwrap();
        let mut is_over = false;
        for cut in 0..sample.body.len() {
            let record = read(&sample.fields, [&sample.body[..cut]], false).unwrap();
            if record.source == UsageSource::Reported {
                assert_eq!(record, whole, "{} at {cut}", sample.name);
                is_over = true;
            }
            assert!(record.source == UsageSource::Reported || !is_over, "{} at {cut}", sample.name);
            assert!(record.input <= whole.input, "{} at {cut}", sample.name);
        }
    }
}

#[test]
fn parts_never_exceed_their_sum() {
    for body in [
        r#"{"usage":{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":99,"cache_write_tokens":99,"audio_tokens":99,"image_tokens":99},"completion_tokens_details":{"reasoning_tokens":99,"audio_tokens":99}}}"#,
        r#"{"type":"message","usage":{"input_tokens":1,"cache_creation_input_tokens":3,"cache_creation":{"ephemeral_5m_input_tokens":9,"ephemeral_1h_input_tokens":9},"output_tokens":5}}"#,
        r#"{"usageMetadata":{"promptTokenCount":10,"totalTokenCount":4,"cachedContentTokenCount":99,"thoughtsTokenCount":99}}"#,
        r#"{"usage":{"inputTokens":9000000000000000,"cacheReadInputTokens":9000000000000000,"cacheWriteInputTokens":9000000000000000}}"#,
    ] {
        let record = read_whole(JSON, body.as_bytes());
        assert!(record.cache_read + record.cache_write.total() <= record.input, "{record:?}");
        assert!(record.input_audio + record.input_image <= record.input, "{record:?}");
        assert!(record.reasoning <= record.output, "{record:?}");
        assert!(record.output_audio + record.output_image <= record.output, "{record:?}");
        assert!(record.units(UsageKind::Tokens).unwrap() <= 2 * 9_000_000_000_000_000, "{record:?}");
    }
}

#[test]
fn kinds_of_units_are_sums_of_tokens() {
    let record = read_whole(JSON, br#"{"usage":{"prompt_tokens":11,"completion_tokens":30}}"#);
    let units = [UsageKind::Tokens, UsageKind::Input, UsageKind::Output].map(|kind| record.units(kind));
    assert_eq!(units, [Some(41), Some(11), Some(30)]);
    let record = read_whole(JSON, br#"{"usage":{"type":"duration","seconds":9}}"#);
    assert_eq!(record.units(UsageKind::Tokens), None, "it tells no tokens");
}

#[test]
fn responses_that_tell_nothing_are_not_scanned() {
    for media_type in
        ["image/png", "text/html", "application/octet-stream", "text/event-streams", "audio/mpeg"]
    {
        assert_eq!(read(&[("content-type", media_type)], [], true), None, "{media_type}");
    }
    for media_type in [JSON, EVENTS, AWS, "Application/JSON; charset=utf-8", "application/problem+json"] {
        assert!(read(&[("content-type", media_type)], [], true).is_some(), "{media_type}");
    }
    let fields = [("content-type", "image/png"), ("x-amzn-bedrock-input-token-count", "41")];
    assert_eq!(figures(&read(&fields, [&b"\x89PNG"[..]], true).unwrap()), "invoke reported 41 0 - - -");
}

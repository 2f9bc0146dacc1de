//! Checks of responses that may report usage.

use egret_message::{Changes, Fields};
use egret_usage::{ReportFilter, UsageKind, UsageRecord, UsageScan, UsageSource};

const MEDIA_TYPES: [&str; 5] = [
    "text/event-stream",
    "application/json",
    "application/x-ndjson",
    "application/vnd.amazon.eventstream",
    "text/plain",
];
const CODINGS: [&str; 3] = ["identity", "gzip", "zstd"];

/// Checks an input: a media type and a coding, the length of pieces, and a body. Returns `true` if the body
/// tells usage.
pub fn usage(bytes: &[u8]) -> bool {
    let [kind, step, body @ ..] = bytes else { return false };
    let kind = usize::from(*kind);
    let fields = (MEDIA_TYPES[kind % 5], CODINGS[kind / 5 % 3]);
    for is_whole in [true, false] {
        let whole = read(fields, body, body.len(), is_whole);
        for step in [1, usize::from(*step)] {
            assert_eq!(read(fields, body, step, is_whole), whole, "{fields:?} in pieces of {step}");
        }
        check(&whole);
    }
    for step in [1, usize::from(*step)] {
        assert_eq!(left(body, step), left(body, body.len()), "filtered in pieces of {step}");
    }
    read(fields, body, body.len(), true).source != UsageSource::None
}

fn read((media_type, coding): (&str, &str), body: &[u8], step: usize, is_whole: bool) -> UsageRecord {
    let mut changes = Changes::default();
    changes.add(b"content-type", media_type.as_bytes());
    changes.add(b"content-encoding", coding.as_bytes());
    let Some(mut scan) = UsageScan::of_response(Fields::new(&[], b"", &changes)) else {
        return UsageRecord::default();
    };
    body.chunks(step.max(1)).for_each(|piece| scan.push(piece));
    scan.finish(is_whole)
}

/// Returns what a stream has left without its report.
fn left(body: &[u8], step: usize) -> Vec<u8> {
    let (mut filter, mut left) = (ReportFilter::default(), Vec::new());
    body.chunks(step.max(1)).for_each(|piece| filter.push(piece, &mut left));
    filter.finish(&mut left);
    left
}

/// Parts are within their sums, and what is told has a source.
fn check(record: &UsageRecord) {
    assert!(record.cache_read + record.cache_write.total() <= record.input, "{record:?}");
    assert!(record.input_audio + record.input_image <= record.input, "{record:?}");
    assert!(record.output_audio + record.output_image <= record.output, "{record:?}");
    assert!(record.reasoning <= record.output, "{record:?}");
    assert!(record.dialect.is_none() || record.source != UsageSource::None, "{record:?}");
    assert_eq!(record.units(UsageKind::Tokens).is_some(), record.dialect.is_some());
    assert!(record.model.as_deref().is_none_or(|model| model.len() <= 64), "{record:?}");
}

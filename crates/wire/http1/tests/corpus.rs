//! Replays the corpus kept for the fuzzers, to catch regressions.
#![expect(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod checks;

use std::fs;
use std::path::Path;

/// Replays one folder. A file whose name starts with `good-` must be accepted, one with `bad-` must be
/// rejected; the others were found by a fuzzer and must only break no rule.
fn replay(folder: &str, check: impl Fn(&[u8]) -> bool) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus").join(folder);
    let mut count = 0;
    for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let accepted = check(&fs::read(&path).unwrap());
        assert!(!name.starts_with("good-") || accepted, "{name} is refused");
        assert!(!name.starts_with("bad-") || !accepted, "{name} is accepted");
        count += 1;
    }
    assert!(count > 0, "{} is empty", folder.display());
}

#[test]
fn kept_heads_break_no_rule() {
    replay("head", checks::head);
}

#[test]
fn kept_chunked_bodies_break_no_rule() {
    replay("chunk", checks::chunk);
}

#[test]
fn kept_messages_break_no_rule() {
    replay("message", checks::message);
}

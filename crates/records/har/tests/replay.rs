//! Runs the fuzzing corpus of the HAR reader as regression tests.

#[path = "replay/check.rs"]
mod check;

use std::fs;
use std::path::Path;

use check::check;

/// A file whose name starts with `good-` must be accepted, and one with `bad-` must be rejected. The others
/// were found by the fuzzer and must only break no rule.
#[test]
fn kept_files_break_no_rule() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus/har");
    let mut count = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let accepted = check(&fs::read(&path).unwrap());
        assert!(!name.starts_with("good-") || accepted, "{name} is refused");
        assert!(!name.starts_with("bad-") || !accepted, "{name} is accepted");
        count += 1;
    }
    assert!(count > 10, "{} holds {count} files", folder.display());
}

//! Replays the fuzzing corpus: files named `good-*` are accepted, `bad-*` are not.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so and stops")]

mod checks;

use std::path::Path;

fn replay(target: &str, check: impl Fn(&[u8]) -> bool) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus").join(target);
    let mut seen = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let is_accepted = check(&std::fs::read(entry.path()).unwrap());
        assert!(is_accepted || !name.starts_with("good-"), "{name}");
        assert!(!is_accepted || !name.starts_with("bad-"), "{name}");
        seen += 1;
    }
    assert!(seen > 5, "the corpus is missing");
}

#[test]
fn the_corpus_of_expressions_holds() {
    replay("expression", checks::expression);
}

#[test]
fn the_corpus_of_caching_holds() {
    replay("cache", checks::cache);
}

#[test]
fn the_corpus_of_json_holds() {
    replay("json", checks::json);
}

#[test]
fn the_corpus_of_cache_files_holds() {
    replay("cache_file", checks::cache_file);
}

#[test]
fn the_corpus_of_token_responses_holds() {
    replay("token", checks::token);
}

#[test]
fn the_corpus_of_signatures_holds() {
    replay("signature", checks::signature);
}

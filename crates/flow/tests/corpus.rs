//! Replays what fuzzing has taught: files named `good-*` are expressions, `bad-*` are none.

mod checks;

use std::path::Path;

#[test]
fn the_corpus_of_expressions_holds() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/expression");
    let mut seen = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let is_compiled = checks::expression(&std::fs::read(entry.path()).unwrap());
        assert!(is_compiled || !name.starts_with("good-"), "{name}");
        assert!(!is_compiled || !name.starts_with("bad-"), "{name}");
        seen += 1;
    }
    assert!(seen > 5, "the corpus is not there");
}

//! Replays the fuzzing corpus.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so and stops")]

mod checks;

use std::path::Path;

#[test]
fn the_corpus_of_exchanges_holds() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus/recorder");
    let (mut seen, mut answered) = (0, 0);
    for entry in std::fs::read_dir(directory).unwrap() {
        answered += usize::from(checks::recorder(&std::fs::read(entry.unwrap().path()).unwrap()));
        seen += 1;
    }
    assert!(seen > 5 && answered > 3, "the corpus is not there");
}

#[test]
fn the_corpus_of_archives_holds() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus/archive");
    let mut seen = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let is_accepted = checks::archive(&std::fs::read(entry.path()).unwrap());
        assert!(is_accepted || !name.starts_with("good-"), "{name}");
        assert!(!is_accepted || !name.starts_with("bad-"), "{name}");
        seen += 1;
    }
    assert!(seen > 5, "the corpus is not there");
}

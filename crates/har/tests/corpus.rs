//! Replays what fuzzing has taught.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so and stops")]

mod checks;

use std::path::Path;

#[test]
fn the_corpus_of_exchanges_holds() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/recorder");
    let (mut seen, mut answered) = (0, 0);
    for entry in std::fs::read_dir(directory).unwrap() {
        answered += usize::from(checks::recorder(&std::fs::read(entry.unwrap().path()).unwrap()));
        seen += 1;
    }
    assert!(seen > 5 && answered > 3, "the corpus is not there");
}

//! The invariants of scripts hold for the fuzzer's corpus.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue panics with the reason")]

mod checks;

#[test]
fn the_corpus_holds() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/corpus/script");
    let mut good = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let is_good = checks::script(&std::fs::read(entry.path()).unwrap());
        let name = entry.file_name().into_string().unwrap();
        assert_eq!(is_good, name.starts_with("good-"), "{name}");
        good += usize::from(is_good);
    }
    assert!(good > 2, "{good}");
}

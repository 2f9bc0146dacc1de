//! Tests of the scanner of usage: what each provider sends, and what none should.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod checks;
mod hostile;
mod providers;
mod samples;
mod splits;

#[test]
fn the_fuzz_corpus_passes() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/corpus/usage");
    for file in std::fs::read_dir(corpus).unwrap().map(|file| file.unwrap()) {
        let name = file.file_name().into_string().unwrap();
        let is_told = checks::usage(&std::fs::read(file.path()).unwrap());
        assert!(!name.starts_with("good-") || is_told, "{name}");
        assert!(!name.starts_with("bad-") || !is_told, "{name}");
    }
}

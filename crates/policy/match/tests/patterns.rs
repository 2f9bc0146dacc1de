//! Patterns and routing parameters, whatever the bytes.

mod checks;

use proptest::prelude::*;

#[test]
fn the_fuzz_corpus_passes() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/corpus/matching");
    let files = std::fs::read_dir(corpus).unwrap().map(|file| file.unwrap());
    for file in files {
        let name = file.file_name().into_string().unwrap();
        let is_valid = checks::matching(&std::fs::read(file.path()).unwrap());
        assert!(!name.starts_with("good-") || is_valid, "{name}");
        assert!(!name.starts_with("bad-") || !is_valid, "{name}");
    }
}

proptest! {
    #[test]
    fn any_pattern_is_refused_or_agrees_with_itself(
        pattern in r"(regex:)?[/a-c*.{}()\[\]|?+\\^$<>P-]{0,14}",
        host in "[a-c]{1,3}(\\.[a-c]{1,3}){0,3}",
        target in "/[a-c/.%2Ff;]{0,12}(\\?(q|egret_host|egret%5fhost|lunar_original_scheme)?=?[a-c&=%0dq_]{0,12})?",
    ) {
        checks::matching(format!("{pattern}\0{host}\0{target}").as_bytes());
    }
}

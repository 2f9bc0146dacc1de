//! Streams of events, whatever the bytes.

#[path = "checks/events.rs"]
mod checks;

use proptest::prelude::*;

#[test]
fn the_fuzz_corpus_passes() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/corpus/events");
    let files = std::fs::read_dir(corpus).unwrap().map(|file| file.unwrap());
    for file in files {
        let name = file.file_name().into_string().unwrap();
        let is_seen = checks::events(&std::fs::read(file.path()).unwrap());
        assert!(!name.starts_with("good-") || is_seen, "{name}");
        assert!(!name.starts_with("bad-") || !is_seen, "{name}");
    }
}

const NAME: &str = "(usage|usageMetadata|type|message|response|delta|n)";
const LEAF: &str = "(null|1|2\\.5|\"t\"|\"\\\\\"usage\\\\\":1\"|\\[1,\\{\"usage\":2\\}\\])";

/// An object whose members have these values.
fn object(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    prop::collection::vec((NAME, " ?: ?", value), 0..4).prop_map(|members| {
        let members = members.into_iter().map(|(name, colon, value)| format!("\"{name}\"{colon}{value}"));
        format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
    })
}

/// A line of a stream, without its end.
fn line() -> impl Strategy<Value = String> {
    let data = ("data: ?", object(prop_oneof![LEAF, object(LEAF)]));
    prop_oneof![
        6 => data.prop_map(|(name, value)| name + &value),
        4 => Just(String::new()),
        1 => "(data|data:|data: |dat|event: x|: comment|data: \\[DONE\\]|data: \\{|data: \"n\":1\\})",
        1 => "\\PC{0,6}",
    ]
}

proptest! {
    #[test]
    fn a_split_stream_reads_like_a_whole_one(
        lines in prop::collection::vec((line(), "(\r|\n|\r\n)"), 0..16),
        has_mark: bool,
        step in 1_u8..40,
    ) {
        let lines: String = lines.into_iter().flat_map(|(line, end)| [line, end]).collect();
        let mark = if has_mark { "\u{feff}" } else { "" };
        checks::events(&[&[0, step], mark.as_bytes(), lines.as_bytes()].concat());
    }

    #[test]
    fn no_bytes_under_any_coding_are_read_differently_when_cut(
        coding in 0_u8..5,
        step in 1_u8..40,
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        checks::events(&[&[coding, step], &bytes[..]].concat());
    }
}

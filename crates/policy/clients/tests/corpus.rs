//! The invariants of JSON Web Tokens hold for the fuzzer's corpus, and for whatever else is sent.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue panics with the reason")]

mod checks;

use checks::Subject;
use proptest::prelude::*;

#[test]
fn the_corpus_holds() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/corpus/jwt");
    let mut subject = Subject::default();
    let mut good = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let bytes = std::fs::read(entry.path()).unwrap();
        let name = entry.file_name().into_string().unwrap();
        let is_good = checks::jwt(&mut subject, &bytes);
        assert!(is_good || !name.starts_with("good-"), "{name}");
        assert!(!is_good || !name.starts_with("bad-"), "{name}");
        good += usize::from(is_good);
    }
    assert!(good >= 6, "{good}");
}

proptest! {
    #[test]
    fn no_other_token_is_accepted(token in "[A-Za-z0-9_=.{}-]{0,80}(\\.[A-Za-z0-9_-]{0,60}){0,4}") {
        checks::jwt(&mut Subject::default(), token.as_bytes());
    }

    #[test]
    fn no_document_is_read_in_two_ways(
        document in "\\{\"(keys|issuer)\": ?(\\[(\\{\"kty\": ?\"(RSA|EC|OKP)\",\"(n|x)\":\"[A-Za-z0-9_-]{0,50}\"\\},?){0,3}\\]|\"https://id.example\")(,\"jwks_uri\":\"https?://[a-z0-9.:@/]{0,20}\")?\\}",
    ) {
        checks::jwt(&mut Subject::default(), document.as_bytes());
    }
}

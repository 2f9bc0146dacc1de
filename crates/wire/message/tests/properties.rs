//! Properties of the fields of gRPC, tested on random values and on the corpus of the fuzz target.

mod checks;

use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #[test]
    fn every_value_of_a_peer_is_read(
        media_type in prop_oneof!["application/grpc[-+; a-z]{0,6}", "[ -~]{0,20}"],
        path in prop_oneof!["/[a-zA-Z./]{0,20}", "[ -~]{0,12}"],
        timeout in prop_oneof!["[0-9]{1,9}[HMSmun]", "[ -~]{0,10}"],
        status in prop_oneof!["[0-9]{0,3}", "[ -~]{0,4}"],
        message in prop_oneof!["([a-z]|%[0-9a-fA-F]{0,2}){0,10}", "[ -~]{0,20}"],
        trailers in "((grpc-status|Grpc-Status|x-a): ?[0-9]{0,3}\r\n){0,3}",
    ) {
        let lines = [media_type, path, timeout, status, message, trailers];
        checks::grpc_values(lines.join("\n").as_bytes());
    }

    #[test]
    fn every_byte_of_a_peer_is_read(bytes in vec(any::<u8>(), 0..120)) {
        checks::grpc_values(&bytes);
    }
}

#[test]
fn the_corpus_of_the_fuzz_target_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus/grpc");
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(!files.is_empty());
    for file in files {
        checks::grpc_values(&std::fs::read(file).unwrap());
    }
}

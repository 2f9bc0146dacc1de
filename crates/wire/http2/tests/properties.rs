//! Properties of translated messages, tested on random ones and on the corpora of the fuzz targets.

mod checks;

use std::path::Path;

use checks::Sent;
use proptest::collection::vec;
use proptest::prelude::*;

fn value() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![9 => 0x20_u8..0x7f, 1 => 0x80_u8..=0xff, 1 => Just(b'\t')];
    vec(byte, 0..20)
}

fn name() -> impl Strategy<Value = String> {
    let known = "content-length|host|te|cookie|connection|transfer-encoding|upgrade|expect|sec-websocket-key";
    prop_oneof![3 => "[a-z0-9!#$%&'*+.^_`|~-]{1,12}", 1 => known]
}

proptest! {
    #[test]
    fn an_accepted_request_keeps_its_meaning(
        method in prop_oneof!["GET", "POST", "OPTIONS", "CONNECT", "[A-Z!#$%&'*+.^_`|~-]{1,12}"],
        authority in prop_oneof!["[a-z0-9.-]{1,10}(:[0-9]{1,5})?", "[ -~]{1,12}"],
        target in prop_oneof!["/[ -~]{0,20}", "[ -~]{1,20}", r"\*"],
        names in vec(name(), 0..6),
        values in vec(prop_oneof![value(), "[0-9]{1,3}".prop_map(String::into_bytes)], 6),
        ends in any::<bool>(),
        opens_websocket in proptest::bool::weighted(0.2),
    ) {
        let fields = names.iter().map(String::as_bytes).zip(values.iter().map(Vec::as_slice)).collect();
        checks::request(&Sent {
            method: method.as_bytes(),
            authority: authority.as_bytes(),
            target: target.as_bytes(),
            fields,
            ends,
            opens_websocket,
        });
    }

    #[test]
    fn an_accepted_response_keeps_its_meaning(
        status in 100_u16..=999,
        names in vec(prop_oneof![name(), "[A-Za-z]{1,12}"], 0..6),
        values in vec(value(), 6),
    ) {
        let mut text = format!("HTTP/1.1 {status} x\r\n").into_bytes();
        for (name, value) in names.iter().zip(&values) {
            text.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        text.extend_from_slice(b"\r\n");
        checks::sends_response(&text);
    }

    #[test]
    fn a_response_of_a_provider_keeps_its_meaning(
        status in 90_u16..=1_010,
        names in vec(name(), 0..6),
        values in vec(prop_oneof![value(), "[0-9]{1,3}".prop_map(String::into_bytes)], 6),
        ends in any::<bool>(),
    ) {
        let fields: Vec<_> =
            names.iter().map(String::as_bytes).zip(values.iter().map(Vec::as_slice)).collect();
        checks::receives_response(status, &fields, ends);
    }

    #[test]
    fn a_request_to_a_provider_keeps_its_meaning(
        method in prop_oneof!["GET", "POST", "OPTIONS", "CONNECT", "[A-Z!#$%&'*+.^_`|~-]{1,12}"],
        host in prop_oneof!["[a-z0-9.-]{1,10}(:[0-9]{1,5})?", "[ -~]{1,12}"],
        target in prop_oneof!["/[ -~]{0,20}", "[ -~]{1,20}", r"\*"],
        names in vec(prop_oneof![name(), "[A-Za-z]{1,12}"], 0..6),
        values in vec(prop_oneof![value(), "[0-9]{1,3}".prop_map(String::into_bytes)], 6),
    ) {
        let mut text = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n").into_bytes();
        for (name, value) in names.iter().zip(&values) {
            text.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        text.extend_from_slice(b"\r\n");
        checks::sends_request(&text);
    }
}

#[test]
fn the_corpora_of_the_fuzz_targets_hold() {
    type Check = fn(&[u8]);
    let targets: [(&str, Check); 3] = [
        ("http2", checks::message),
        ("http2_frames", |bytes| assert!(egret_http2::parts::receive(bytes) > 0)),
        ("http2_hpack", checks::blocks),
    ];
    for (target, check) in targets {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus").join(target);
        let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
        assert!(!files.is_empty(), "{target}");
        for file in files {
            check(&std::fs::read(file).unwrap());
        }
    }
}

//! Properties of all messages, tested on random ones.

mod checks;

use egret_http1::{BodyDecoder, TrailerNames};
use proptest::collection::vec;
use proptest::prelude::*;

/// Generates bytes that are significant in the grammar, more often than chance would.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        3 => any::<u8>().prop_map(|byte| vec![byte]),
        5 => prop::sample::select(PIECES).prop_map(|piece| piece.as_bytes().to_vec()),
    ];
    vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

const PIECES: &[&str] = &[
    "\r\n",
    "\r",
    "\n",
    "\r\n\r\n",
    " ",
    "\t",
    ":",
    ";",
    ",",
    "0",
    "1",
    "a",
    "GET / HTTP/1.1\r\n",
    "HTTP/1.1 200 OK\r\n",
    "POST /a HTTP/1.0\r\n",
    "Host: a\r\n",
    "Content-Length: 1\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Connection: ",
    "close",
    "x-a",
    "X-A: b\r\n",
    "0\r\n\r\n",
    "1\r\na\r\n",
    "1;a=b\r\n",
    "A: b\r\n",
];

fn token() -> impl Strategy<Value = String> {
    "[A-Za-z][A-Za-z0-9!#$%&'*+.^_`|~-]{0,20}"
}

/// Generates field lines without meaning to the gateway, with all kinds of white space around their values.
fn field_lines() -> impl Strategy<Value = Vec<u8>> {
    let value = vec(prop_oneof![Just(b'\t'), 0x20..=0x7e_u8, 0x80..=0xff_u8], 0..30);
    let line = (token(), "[ \t]{0,3}", value, "[ \t]{0,3}").prop_map(|(name, before, value, after)| {
        [b"X-", name.as_bytes(), b":", before.as_bytes(), &value, after.as_bytes(), b"\r\n"].concat()
    });
    vec(line, 0..12).prop_map(|lines| lines.concat())
}

fn trailers() -> impl Strategy<Value = Vec<u8>> {
    let line = (token(), "[ -~]{0,20}").prop_map(|(name, value)| format!("{name}:{value}\r\n").into_bytes());
    vec(line, 0..5).prop_map(|lines| lines.concat())
}

/// Generates a request and its body, in one of the three framings.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let framing = prop_oneof![Just(None), Just(Some(true)), Just(Some(false))];
    (
        token(),
        "/[a-z0-9/?&=%~]{0,40}",
        field_lines(),
        framing,
        vec(any::<u8>(), 0..300),
        trailers(),
        1..64_usize,
    )
        .prop_map(|(method, path, fields, framing, data, trailers, size)| {
            let line = format!("{method} {path} HTTP/1.1\r\nHost: h\r\n");
            let start = [line.as_bytes(), &fields].concat();
            match framing {
                None => [&start[..], b"\r\n"].concat(),
                Some(false) => {
                    let length = format!("content-length:{}\r\n\r\n", data.len());
                    [&start[..], length.as_bytes(), &data].concat()
                }
                Some(true) => {
                    let body = checks::Body { data, trailers, consumed: 0, done: true };
                    [&start[..], b"Transfer-Encoding: Chunked\r\n\r\n", &checks::encode(&body, size)].concat()
                }
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn noise_never_breaks_a_rule(bytes in noise()) {
        checks::head(&bytes);
        checks::chunk(&bytes);
        checks::message(&bytes);
    }

    #[test]
    fn valid_requests_are_accepted_however_split_and_forwarded_as_the_same_message(bytes in request()) {
        prop_assert!(checks::message(&bytes));
    }

    #[test]
    fn pipelined_requests_are_kept_apart(first in request(), second in request()) {
        let both = [first, second].concat();
        prop_assert!(checks::message(&both));
    }

    #[test]
    fn a_valid_request_with_one_byte_changed_breaks_no_rule(
        bytes in request(), at in any::<prop::sample::Index>(), byte in any::<u8>()
    ) {
        let mut bytes = bytes;
        let at = at.index(bytes.len());
        bytes[at] = byte;
        checks::message(&bytes);
    }

    #[test]
    fn an_encoded_body_is_decoded(
        data in vec(any::<u8>(), 0..2000), trailers in trailers(), size in 1..700_usize, step in 1..300_usize
    ) {
        let body = checks::Body { data, trailers, consumed: 0, done: true };
        let encoded = checks::encode(&body, size);
        prop_assert!(checks::chunk(&encoded));
        let decoded = checks::decode(BodyDecoder::chunked(), &encoded, step);
        let expected = checks::Body { consumed: encoded.len(), ..body };
        prop_assert_eq!(decoded, Ok(expected));
    }

    #[test]
    fn filtered_trailers_are_whole_lines_of_the_trailers(lines in trailers()) {
        let names = TrailerNames::new(["a*", "B*", "x-checksum"]);
        let mut out = Vec::new();
        names.filter(&lines, &mut out);
        let kept: Vec<_> = out.split_inclusive(|&byte| byte == b'\n').collect();
        let mut all = lines.split_inclusive(|&byte| byte == b'\n');
        prop_assert!(kept.iter().all(|line| all.any(|other| other == *line)));
    }
}

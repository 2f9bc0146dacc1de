use egret_tests::coded::{BROTLI, CODINGS, coded};
use proptest::prelude::*;

use super::*;

fn decoder(coding: &str) -> Decoder {
    Decoder::of(coding.trim_start_matches("raw ").as_bytes()).unwrap()
}

/// Returns what the pieces decode to, the result, and whether they are complete.
fn decoded<'p>(
    coding: &str,
    pieces: impl IntoIterator<Item = &'p [u8]>,
) -> (Vec<u8>, Result<(), DecodeError>, bool) {
    let mut decoder = decoder(coding);
    let mut decoded = Vec::new();
    for piece in pieces {
        let result = decoder.push(piece, &mut |piece| {
            assert!(!piece.is_empty() && piece.len() <= PIECE_BYTES);
            decoded.extend_from_slice(piece);
            Ok(())
        });
        if result.is_err() {
            return (decoded, result, false);
        }
    }
    let is_complete = decoder.is_complete();
    (decoded, Ok(()), is_complete)
}

#[test]
fn each_coding_is_taken_off_however_it_is_cut() {
    let text = "{\"hello\":\"hello hello\"}".repeat(20).into_bytes();
    for coding in CODINGS {
        let bytes = coded(coding, &text);
        let expected = (text.clone(), Ok(()), true);
        assert_eq!(decoded(coding, bytes.chunks(1)), expected, "{coding}");
        for cut in 0..bytes.len() {
            let (start, end) = bytes.split_at(cut);
            assert_eq!(decoded(coding, [start, end]), expected, "{coding} cut at {cut}");
            let (_, result, is_complete) = decoded(coding, [start]);
            assert_eq!((result, is_complete), (Ok(()), cut == 0), "{coding} ends at {cut}");
        }
    }
    let hello = "hello ".repeat(40) + "brotli";
    assert_eq!(decoded("br", BROTLI.chunks(1)), (hello.into_bytes(), Ok(()), true));
}

#[test]
fn large_texts_and_several_members_are_decoded() {
    let text: Vec<u8> = (0..200_000_u32).flat_map(|number| (number / 7).to_be_bytes()).collect();
    for coding in CODINGS {
        let bytes = coded(coding, &text);
        for step in [1_000, 70_000, bytes.len()] {
            let (decoded, result, is_complete) = decoded(coding, bytes.chunks(step));
            assert!(decoded == text && result.is_ok() && is_complete, "{coding} by {step}");
        }
        let again = [&bytes[..], &bytes].concat();
        let times = if matches!(coding, "gzip" | "zstd") { 2 } else { 1 };
        assert_eq!(decoded(coding, [&*again]).0.len(), times * text.len(), "{coding}");
        assert_eq!(
            decoded(coding, [&*coded(coding, b"")]),
            (Vec::new(), Ok(()), true),
            "{coding} of nothing"
        );
    }
    // A frame of zstd without content, between two others.
    let frame = coded("zstd", b"abc");
    let skipped = [&frame[..], &[0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3], &frame].concat();
    assert_eq!(decoded("zstd", skipped.chunks(1)), (b"abcabc".to_vec(), Ok(()), true));
}

#[test]
fn a_gzip_header_may_have_all_its_parts_and_no_more() {
    let plain = coded("gzip", b"abc");
    let header = |name: &[u8]| {
        let head = [0x1f, 0x8b, 8, 0x1e, 0, 0, 0, 0, 0, 3, 2, 0, b'x', b'y'];
        [&head[..], name, b"\0comment\0", &[1, 2], &plain[10..]].concat()
    };
    assert_eq!(decoded("gzip", header(b"name").chunks(1)), (b"abc".to_vec(), Ok(()), true));
    assert_eq!(decoded("gzip", [&*header(&[b'n'; 5000])]).1, Err(DecodeError::Corrupt));
    let mut reserved = plain.clone();
    reserved[3] = 0x20;
    assert_eq!(decoded("gzip", [&*reserved]).1, Err(DecodeError::Corrupt));
    for at in plain.len() - 8..plain.len() {
        let mut corrupt = plain.clone();
        corrupt[at] ^= 1;
        assert_eq!(decoded("gzip", [&*corrupt]).1, Err(DecodeError::Corrupt), "{at}");
    }
}

#[test]
fn several_codings_are_taken_off_the_last_first() {
    let bytes = coded("gzip", &coded("br", b"hello"));
    let mut decoder = ContentDecoder::of(b"br, identity,, X-GZIP").unwrap();
    let mut text = Vec::new();
    for byte in bytes.chunks(1) {
        let take = &mut |piece: &[u8]| {
            text.extend_from_slice(piece);
            Ok(())
        };
        decoder.push(byte, take).unwrap();
    }
    assert_eq!(text, b"hello");
    assert!(ContentDecoder::of(b"gzip,gzip,gzip,gzip").is_some());
    assert!(ContentDecoder::of(b"gzip,gzip,gzip,gzip,gzip").is_none());
    assert!(ContentDecoder::of(b"gzip, aws-chunked").is_none());
}

#[test]
fn a_receiver_stops_a_bomb() {
    let zeros = vec![0; 32 << 20];
    for coding in ["gzip", "deflate", "zstd"] {
        let bytes = coded(coding, &zeros);
        let (mut decoder, mut len) = (decoder(coding), 0);
        let result = decoder.push(&bytes, &mut |piece| {
            len += piece.len();
            if len > 1 << 20 { Err(DecodeError::Stopped) } else { Ok(()) }
        });
        assert_eq!(result, Err(DecodeError::Stopped), "{coding}");
        assert!(len <= (1 << 20) + PIECE_BYTES, "{coding}: {len}");
    }
}

proptest! {
    #[test]
    fn any_bytes_decode_to_the_same_however_they_are_cut(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        coding in prop::sample::select(CODINGS.to_vec()),
        prefix in 0_usize..40,
        step in 1_usize..20,
    ) {
        // What begins well gets further than noise.
        let start = coded(coding, b"hello hello hello hello hello");
        let bytes = [&start[..prefix.min(start.len())], &bytes].concat();
        let whole = decoded(coding, [&*bytes]);
        let cut = decoded(coding, bytes.chunks(step));
        prop_assert_eq!(&whole.1, &cut.1);
        prop_assert_eq!(whole.2, cut.2);
        prop_assert!(whole.1.is_err() || whole.0 == cut.0);
    }
}

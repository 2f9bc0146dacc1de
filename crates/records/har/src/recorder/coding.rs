//! Takes the content codings off a kept body: as much of it as is available, up to a limit.

use std::borrow::Cow;

use egret_coding::{CODINGS_MAX, DecodeError, Decoder, listed};

use super::completeness::Completeness;

/// The decoded part of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decoded<'a> {
    pub(super) bytes: Cow<'a, [u8]>,
    pub(super) completeness: Completeness,
}

/// Returns `true` if a `Content-Encoding` lists any coding other than `identity`.
pub(super) fn is_coded(codings: &[u8]) -> bool {
    listed(codings).next().is_some()
}

/// Decodes the codings that a `Content-Encoding` lists.
pub(super) fn decode<'a>(bytes: &'a [u8], is_whole: bool, codings: &[u8], bytes_max: usize) -> Decoded<'a> {
    let mut decoded = Decoded {
        bytes: Cow::Borrowed(bytes),
        completeness: if is_whole { Completeness::Whole } else { Completeness::Truncated },
    };
    let codings: Vec<&[u8]> = listed(codings).collect();
    if codings.len() > CODINGS_MAX {
        decoded.completeness = Completeness::Coded;
    }
    for coding in codings.iter().rev() {
        if matches!(decoded.completeness, Completeness::Coded | Completeness::Corrupt) {
            break;
        }
        let is_whole = decoded.completeness == Completeness::Whole;
        match without(coding, &decoded.bytes, is_whole, bytes_max) {
            Some((bytes, completeness)) => decoded = Decoded { bytes: Cow::Owned(bytes), completeness },
            None => decoded.completeness = Completeness::Coded,
        }
    }
    decoded
}

/// Decodes one coding. Returns `None` if it is unknown.
fn without(coding: &[u8], bytes: &[u8], is_whole: bool, bytes_max: usize) -> Option<(Vec<u8>, Completeness)> {
    let mut decoder = Decoder::of(coding)?;
    let mut decoded = Vec::new();
    let result = decoder.push(bytes, &mut |piece| {
        let room = bytes_max - decoded.len();
        decoded.extend_from_slice(&piece[..piece.len().min(room)]);
        if piece.len() > room { Err(DecodeError::Stopped) } else { Ok(()) }
    });
    let completeness = match result {
        Err(DecodeError::Stopped) => Completeness::Truncated,
        _ if !is_whole => Completeness::Truncated,
        Ok(()) if decoder.is_complete() => Completeness::Whole,
        Ok(()) | Err(DecodeError::Corrupt) => Completeness::Corrupt,
    };
    Some((decoded, completeness))
}

#[cfg(test)]
mod tests {
    use egret_tests::coded::{BROTLI, coded};
    use proptest::prelude::*;

    use super::*;

    const MAX: usize = 1 << 20;

    #[test]
    fn each_coding_is_taken_off() {
        let text = b"{\"hello\":\"hello hello hello hello\"}".repeat(100);
        for coding in ["gzip", "deflate", "zstd"] {
            let bytes = coded(coding, &text);
            let decoded = decode(&bytes, true, coding.as_bytes(), MAX);
            assert_eq!((&*decoded.bytes, decoded.completeness), (&*text, Completeness::Whole), "{coding}");
            let again = [bytes.clone(), bytes.clone()].concat();
            if coding != "deflate" {
                assert_eq!(
                    decode(&again, true, coding.as_bytes(), MAX).bytes.len(),
                    2 * text.len(),
                    "{coding}"
                );
            }
        }
        let hello = "hello ".repeat(40) + "brotli";
        assert_eq!(
            decode(BROTLI, true, b"br", MAX),
            Decoded { bytes: Cow::Borrowed(hello.as_bytes()), completeness: Completeness::Whole }
        );
        assert_eq!(
            decode(&BROTLI[..BROTLI.len() - 4], false, b"br", MAX).completeness,
            Completeness::Truncated
        );
        assert_eq!(&*decode(&coded("raw deflate", &text), true, b"deflate", MAX).bytes, text);
        let twice = coded("gzip", &coded("zstd", &text));
        assert_eq!(&*decode(&twice, true, b"zstd, identity, X-Gzip", MAX).bytes, text);
        assert_eq!(
            decode(&text, true, b"", MAX),
            Decoded { bytes: Cow::Borrowed(&text), completeness: Completeness::Whole }
        );
    }

    #[test]
    fn truncated_and_corrupt_content_is_decoded_in_part() {
        let text: Vec<u8> = (0..200_000_u32).flat_map(u32::to_be_bytes).collect();
        for coding in ["gzip", "deflate", "zstd"] {
            let bytes = coded(coding, &text);
            let half = &bytes[..bytes.len() / 2];
            for (is_whole, completeness) in [(false, Completeness::Truncated), (true, Completeness::Corrupt)]
            {
                let decoded = decode(half, is_whole, coding.as_bytes(), MAX);
                assert_eq!(decoded.completeness, completeness, "{coding}");
                assert!(!decoded.bytes.is_empty() && text.starts_with(&decoded.bytes), "{coding}");
            }
            assert_eq!(
                decode(b"no such thing", true, coding.as_bytes(), MAX).completeness,
                Completeness::Corrupt,
                "{coding}"
            );
        }
        assert_eq!(decode(b"no such thing", true, b"br", MAX).completeness, Completeness::Corrupt);
        for codings in [&b"compress"[..], b"gzip, aws-chunked", b"gzip,gzip,gzip,gzip,gzip"] {
            assert_eq!(
                decode(b"x", true, codings, MAX),
                Decoded { bytes: Cow::Borrowed(b"x"), completeness: Completeness::Coded }
            );
        }
    }

    #[test]
    fn a_bomb_is_cut_off() {
        let zeros = vec![0; 64 << 20];
        for coding in ["gzip", "zstd"] {
            let bytes = coded(coding, &zeros);
            let decoded = decode(&bytes, true, coding.as_bytes(), MAX);
            assert_eq!(
                (decoded.bytes.len(), decoded.completeness),
                (MAX, Completeness::Truncated),
                "{coding}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_content_is_decoded_within_the_limit(bytes: Vec<u8>, is_whole: bool, coding in "(gzip|deflate|br|zstd)(,gzip)?") {
            let decoded = decode(&bytes, is_whole, coding.as_bytes(), 1000);
            prop_assert!(decoded.bytes.len() <= 1000.max(bytes.len()));
        }
    }
}

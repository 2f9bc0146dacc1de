//! Decodes content codings (RFC 9110 §8.4.1): gzip, deflate, br and zstd. It decodes as much as is available,
//! up to a limit.

use std::borrow::Cow;
use std::io::{self, Read};

use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use ruzstd::decoding::StreamingDecoder;

use super::completeness::Completeness;

/// Maximum number of codings. Even two are rare.
const CODINGS_MAX: usize = 4;

/// Maximum window size of zstd (RFC 9659).
const ZSTD_WINDOW_BYTES_MAX: u64 = 8 << 20;

/// Number of bytes decoded at once.
const PIECE_BYTES: usize = 16 << 10;

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

fn listed(codings: &[u8]) -> impl Iterator<Item = &[u8]> {
    let codings = codings.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    codings.filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"))
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
    let coding = coding.to_ascii_lowercase();
    let is_zlib = matches!(bytes, [a, b, ..] if a & 15 == 8 && u16::from_be_bytes([*a, *b]) % 31 == 0);
    let (decoded, is_read) = match &*coding {
        b"gzip" | b"x-gzip" => read(MultiGzDecoder::new(bytes), bytes_max),
        // `deflate` means zlib format, but some servers send raw deflate.
        b"deflate" if is_zlib => read(ZlibDecoder::new(bytes), bytes_max),
        b"deflate" => read(DeflateDecoder::new(bytes), bytes_max),
        b"br" => read(brotli_decompressor::Decompressor::new(bytes, PIECE_BYTES), bytes_max),
        b"zstd" => read(Zstd { rest: bytes, frame: None }, bytes_max),
        _ => return None,
    };
    let completeness = match (is_read, is_whole) {
        (Ok(true), true) => Completeness::Whole,
        (Ok(_), _) | (Err(_), false) => Completeness::Truncated,
        (Err(_), true) => Completeness::Corrupt,
    };
    Some((decoded, completeness))
}

/// Reads until the end, an error or the limit. The result is `Ok(true)` if the end was reached.
fn read(mut from: impl Read, bytes_max: usize) -> (Vec<u8>, io::Result<bool>) {
    let (mut decoded, mut piece) = (Vec::new(), [0; PIECE_BYTES]);
    loop {
        match from.read(&mut piece) {
            Ok(0) => return (decoded, Ok(true)),
            Ok(len) => decoded.extend_from_slice(&piece[..len]),
            Err(error) => return (decoded, Err(error)),
        }
        if decoded.len() > bytes_max {
            decoded.truncate(bytes_max);
            return (decoded, Ok(false));
        }
    }
}

type Frame<'a> = StreamingDecoder<&'a [u8], ruzstd::decoding::FrameDecoder>;

/// A sequence of zstd frames (RFC 8878 §3).
struct Zstd<'a> {
    rest: &'a [u8],
    frame: Option<Box<Frame<'a>>>,
}

impl Read for Zstd<'_> {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        loop {
            let frame = match &mut self.frame {
                Some(frame) => frame,
                None if self.rest.is_empty() => return Ok(0),
                none => {
                    let frame = StreamingDecoder::new_with_max_window_size(self.rest, ZSTD_WINDOW_BYTES_MAX);
                    none.insert(Box::new(frame.map_err(io::Error::other)?))
                }
            };
            match frame.read(piece)? {
                0 => {
                    self.rest = *frame.get_ref();
                    self.frame = None;
                }
                len => return Ok(len),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use proptest::prelude::*;

    use super::*;

    const MAX: usize = 1 << 20;

    /// Encodes a text.
    fn coded(coding: &str, text: &[u8]) -> Vec<u8> {
        let level = Compression::default();
        match coding {
            "gzip" => {
                let mut encoder = GzEncoder::new(Vec::new(), level);
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            "deflate" => {
                let mut encoder = ZlibEncoder::new(Vec::new(), level);
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            "raw" => {
                let mut encoder = DeflateEncoder::new(Vec::new(), level);
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            _ => ruzstd::encoding::compress_to_vec(text, ruzstd::encoding::CompressionLevel::Fastest),
        }
    }

    /// Forty times `hello `, then `brotli`, written by Node's zlib.
    const BROTLI: &[u8] = &[
        0x1b, 0xf5, 0x00, 0xf8, 0x8d, 0x94, 0x6e, 0xde, 0x44, 0x55, 0x86, 0xd6, 0x6c, 0x20, 0x69, 0x6f, 0xd3,
        0x10, 0x49, 0x66, 0xab, 0x03, 0x52, 0x1a, 0x29, 0x1e, 0x65, 0x9a, 0x01,
    ];

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
        assert_eq!(&*decode(&coded("raw", &text), true, b"deflate", MAX).bytes, text);
        let twice = coded("gzip", &coded("zstd", &text));
        assert_eq!(&*decode(&twice, true, b"zstd, identity, X-Gzip", MAX).bytes, text);
        assert_eq!(
            decode(&text, true, b"", MAX),
            Decoded { bytes: Cow::Borrowed(&text), completeness: Completeness::Whole }
        );
    }

    #[test]
    fn what_is_cut_off_or_corrupt_gives_what_is_known() {
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
        fn nothing_panics(bytes: Vec<u8>, is_whole: bool, coding in "(gzip|deflate|br|zstd)(,gzip)?") {
            let decoded = decode(&bytes, is_whole, coding.as_bytes(), 1000);
            prop_assert!(decoded.bytes.len() <= 1000.max(bytes.len()));
        }
    }
}

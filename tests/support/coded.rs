//! Content codings of texts, for decoders.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

/// The codings that [`coded`] knows. `raw deflate` is what some servers send as `deflate`.
pub const CODINGS: [&str; 5] = ["gzip", "deflate", "raw deflate", "br", "zstd"];

/// Forty times `hello `, then `brotli`, written by Node's zlib.
pub const BROTLI: &[u8] = &[
    0x1b, 0xf5, 0x00, 0xf8, 0x8d, 0x94, 0x6e, 0xde, 0x44, 0x55, 0x86, 0xd6, 0x6c, 0x20, 0x69, 0x6f, 0xd3,
    0x10, 0x49, 0x66, 0xab, 0x03, 0x52, 0x1a, 0x29, 0x1e, 0x65, 0x9a, 0x01,
];

/// Encodes a text. Any other coding leaves it as it is.
pub fn coded(coding: &str, text: &[u8]) -> Vec<u8> {
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
        "raw deflate" => {
            let mut encoder = DeflateEncoder::new(Vec::new(), level);
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        }
        "zstd" => ruzstd::encoding::compress_to_vec(text, ruzstd::encoding::CompressionLevel::Fastest),
        "br" => stored(text),
        _ => text.to_vec(),
    }
}

/// Writes a text as `br`, without compression.
fn stored(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, block) in text.chunks(1 << 16).enumerate() {
        // The first block's header comes behind one bit for the size of the window.
        let len = u32::try_from(block.len() - 1).unwrap();
        let header = (len << 3 | 1 << 19) << u32::from(number == 0);
        bytes.extend_from_slice(&header.to_le_bytes()[..3]);
        bytes.extend_from_slice(block);
    }
    bytes.push(if text.is_empty() { 6 } else { 3 });
    bytes
}

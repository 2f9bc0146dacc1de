//! Hashes for HTTP Digest authentication, in hexadecimal.

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::HEXLOWER;

/// Bits by which each step of a round rotates its word.
const TURNS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// SHA-256 (FIPS 180-4).
pub(crate) fn sha256(bytes: &[u8]) -> String {
    HEXLOWER.encode(digest(&SHA256, bytes).as_ref())
}

/// MD5 (RFC 1321). It is broken as a signature; here it protects nothing.
pub(crate) fn md5(bytes: &[u8]) -> String {
    let mut message = bytes.to_vec();
    message.push(0x80);
    message.resize((bytes.len() + 9).next_multiple_of(64) - 8, 0);
    message.extend_from_slice(&(bytes.len() as u64).wrapping_mul(8).to_le_bytes());
    let start = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let state = message.chunks_exact(64).fold(start, mixed);
    HEXLOWER.encode(state.map(u32::to_le_bytes).as_flattened())
}

/// Returns the state after another block of 64 bytes.
fn mixed(state: [u32; 4], block: &[u8]) -> [u32; 4] {
    let mut words = [0; 16];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    let [mut a, mut b, mut c, mut d] = state;
    for step in 0..64 {
        let (mix, place) = match step / 16 {
            0 => (b & c | !b & d, step),
            1 => (d & b | !d & c, 5 * step + 1),
            2 => (b ^ c ^ d, 3 * step + 5),
            _ => (c ^ (b | !d), 7 * step),
        };
        let sum = a.wrapping_add(mix).wrapping_add(sine(step)).wrapping_add(words[place % 16]);
        (a, d, c) = (d, c, b);
        b = b.wrapping_add(sum.rotate_left(TURNS[step / 16][step % 4]));
    }
    let [a0, b0, c0, d0] = state;
    [a.wrapping_add(a0), b.wrapping_add(b0), c.wrapping_add(c0), d.wrapping_add(d0)]
}

/// 2³² times the absolute sine of the step, counted from 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "defined so: from 0 up to but not 2³²"
)]
fn sine(step: usize) -> u32 {
    (((step + 1) as f64).sin().abs() * 4_294_967_296.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digests_of_the_rfc_come_out() {
        for (text, digest) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("a", "0cc175b9c0f1b6a831c399e269772661"),
            ("abc", "900150983cd24fb0d6963f7d28e17f72"),
            ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
            (
                "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
                "57edf4a22be3c955ac49da2e2107b67a",
            ),
        ] {
            assert_eq!(md5(text.as_bytes()), digest, "{text}");
        }
        assert!(sha256(b"abc").starts_with("ba7816bf8f01cfea"));
        // A length that just does not fit into the block after the content.
        assert_eq!(md5(&[b'x'; 56]).len(), 32);
    }
}

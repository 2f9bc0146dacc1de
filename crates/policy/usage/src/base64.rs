//! Base64 (RFC 4648 §4) that arrives in pieces.

use data_encoding::BASE64;

/// Characters that are decoded at once; a multiple of four.
const BLOCK: usize = 512;

/// Decodes Base64 as it arrives. Keeps at most three characters.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Base64 {
    kept: [u8; 3],
    len: u8,
    /// `true` if a character was none of Base64. Nothing more is decoded.
    is_broken: bool,
}

impl Base64 {
    /// Takes the next characters, and passes what they decode to on to `take`.
    pub fn push(&mut self, mut text: &[u8], take: &mut dyn FnMut(&[u8])) {
        while !self.is_broken && !text.is_empty() {
            let kept = usize::from(self.len);
            let mut block = [0; BLOCK];
            let taken = text.len().min(BLOCK - kept);
            block[..kept].copy_from_slice(&self.kept[..kept]);
            block[kept..kept + taken].copy_from_slice(&text[..taken]);
            text = &text[taken..];
            let (whole, rest) = block[..kept + taken].split_at((kept + taken) / 4 * 4);
            self.kept[..rest.len()].copy_from_slice(rest);
            self.len = u8::try_from(rest.len()).unwrap_or_default();
            let mut decoded = [0; BLOCK / 4 * 3];
            match BASE64.decode_mut(whole, &mut decoded[..whole.len() / 4 * 3]) {
                Ok(len) => take(&decoded[..len]),
                Err(_) => self.is_broken = true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_decode_as_the_whole() {
        for len in 0..40_u8 {
            let data: Vec<u8> = (0..len).map(|byte| byte.wrapping_mul(37)).collect();
            let text = BASE64.encode(&data);
            for size in 1..=text.len().max(1) {
                let (mut base64, mut decoded) = (Base64::default(), Vec::new());
                for piece in text.as_bytes().chunks(size) {
                    base64.push(piece, &mut |piece| decoded.extend_from_slice(piece));
                }
                assert_eq!(decoded, data, "{text} by {size}");
            }
        }
    }

    #[test]
    fn decoding_ends_at_a_wrong_character() {
        let (mut base64, mut decoded) = (Base64::default(), Vec::new());
        for piece in ["AAAA", "A*AA", "AAAA"] {
            base64.push(piece.as_bytes(), &mut |piece| decoded.extend_from_slice(piece));
        }
        assert_eq!(decoded, [0, 0, 0]);
    }
}

//! Pseudonyms, which replace values. Under one key, equal values have equal pseudonyms. Without the key, a
//! pseudonym reveals nothing about its value, not even its length or whether a guess is right.
//!
//! The pseudonym of a text is `egr_` and 24 letters and digits: 120 bits of HMAC-SHA-256 (RFC 2104), so
//! collisions do not occur in practice. It is a valid token wherever HTTP and JSON have values, so it never
//! needs escaping. The pseudonym of a number is an integer of 19 digits with 60 random bits: among a million
//! distinct numbers the chance of a collision is one in two million. Readers that parse numbers as doubles
//! still see equal ones as equal, and can distinguish 2^50 of them.

use std::fmt;

use aws_lc_rs::hmac;

use crate::key::Key;

/// Prefix of every pseudonym, by which readers and secret detectors recognize it.
pub(crate) const PREFIX: &[u8; 4] = b"egr_";

/// Number of digest bytes kept: a multiple of five, so the letters carry all their bits.
const KEPT_BYTES: usize = 15;

/// Base32 alphabet in lower case, five bits per letter, without digits that look like letters (RFC 4648 §6).
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Length of the pseudonym of a text.
pub(crate) const LEN: usize = PREFIX.len() + KEPT_BYTES * 8 / 5;

/// Smallest number pseudonym. All are below 9.16 × 10^18, so they fit in a signed 64-bit integer. No card
/// number begins with 8 or 9.
const NUMBER_MIN: u64 = 8_000_000_000_000_000_000;

/// Pseudonym of a text.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pseudonym([u8; LEN]);

impl Pseudonym {
    /// Returns the pseudonym as bytes, all of them ASCII.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the pseudonym as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for Pseudonym {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Pseudonym {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Returns `true` if a text has the form of a pseudonym.
pub(crate) fn is_pseudonym(text: &[u8]) -> bool {
    text.len() == LEN
        && text
            .strip_prefix(PREFIX)
            .is_some_and(|letters| letters.iter().all(|letter| LETTERS.contains(letter)))
}

/// Returns `true` if a number has the form of a pseudonym.
pub(crate) fn is_number_pseudonym(number: &[u8]) -> bool {
    let value = std::str::from_utf8(number).ok().filter(|number| number.len() == 19);
    let value = value.and_then(|number| number.parse::<u64>().ok());
    value.is_some_and(|value| (NUMBER_MIN..NUMBER_MIN + (1 << 60)).contains(&value))
}

/// Computes the pseudonym of a text that arrives in pieces.
pub(crate) struct TextDigest(hmac::Context);

impl TextDigest {
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    pub(crate) fn finish(self) -> Pseudonym {
        let tag = self.0.sign();
        let mut text = [0; LEN];
        text[..PREFIX.len()].copy_from_slice(PREFIX);
        let groups = tag.as_ref()[..KEPT_BYTES].chunks_exact(5);
        for (group, letters) in groups.zip(text[PREFIX.len()..].chunks_exact_mut(8)) {
            let bits = group.iter().fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte));
            for (index, letter) in letters.iter_mut().enumerate() {
                *letter = LETTERS[bits >> (35 - 5 * index) & 31];
            }
        }
        Pseudonym(text)
    }
}

/// The first byte of a digest names the type, so a text and a number that look alike have unrelated
/// pseudonyms.
impl Key {
    /// Returns the pseudonym of `text`.
    pub fn text(&self, text: &[u8]) -> Pseudonym {
        let mut digest = self.text_digest();
        digest.push(text);
        digest.finish()
    }

    pub(crate) fn text_digest(&self) -> TextDigest {
        let mut digest = self.digest();
        digest.update(b"t");
        TextDigest(digest)
    }

    /// Returns the pseudonym of a JSON number (RFC 8259 §6). It does not depend on the notation: `1`, `1.0`
    /// and `10e-1` are one number.
    pub fn number(&self, number: &[u8]) -> u64 {
        let mut digest = self.digest();
        digest.update(b"n");
        digest.update(&canonical(number));
        let tag = digest.sign();
        let bits = tag.as_ref()[..8].iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
        NUMBER_MIN + (bits >> 4)
    }
}

/// Returns the canonical form of a number: an optional `-`, digits that neither begin nor end with 0, `e` and
/// an exponent. Zero is `0`.
fn canonical(number: &[u8]) -> Vec<u8> {
    let (is_negative, number) = number.strip_prefix(b"-").map_or((false, number), |rest| (true, rest));
    let e = number.iter().position(|byte| matches!(byte, b'e' | b'E')).unwrap_or(number.len());
    let (mantissa, exponent) = (&number[..e], number.get(e + 1..).unwrap_or_default());
    let point = mantissa.iter().position(|byte| *byte == b'.').unwrap_or(mantissa.len());
    let digits: Vec<u8> = mantissa.iter().copied().filter(|byte| *byte != b'.').collect();
    let Some(last) = digits.iter().rposition(|digit| *digit != b'0') else { return b"0".to_vec() };
    let first = digits.iter().position(|digit| *digit != b'0').unwrap_or(0);
    // Position of the decimal point, counted from the end of the remaining digits.
    let shift = i128::try_from(point).unwrap_or(0) - i128::try_from(last + 1).unwrap_or(0);
    let exponent = std::str::from_utf8(exponent).unwrap_or_default();
    let mut text = if is_negative { b"-".to_vec() } else { Vec::new() };
    text.extend_from_slice(&digits[first..=last]);
    text.push(b'e');
    match if exponent.is_empty() { Ok(0) } else { exponent.parse::<i64>() } {
        Ok(exponent) => text.extend_from_slice((i128::from(exponent) + shift).to_string().as_bytes()),
        // The exponent is too large to compute with. Written as it is, it still distinguishes the number from
        // others.
        Err(_) => text.extend_from_slice(format!("{exponent}+{shift}").as_bytes()),
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(byte: u8) -> Key {
        Key::new(&[byte; 32])
    }

    #[test]
    fn a_pseudonym_is_a_keyed_digest() {
        // echo -n tvalue | openssl dgst -sha256 -mac hmac -macopt hexkey:0707...07, its first 15 bytes
        // through base32
        assert_eq!(key(7).text(b"value").as_str(), "egr_clekalplbgh5qoqygn7ukhzh");
        assert_ne!(key(7).text(b"value"), key(8).text(b"value"));
        assert_ne!(key(7).text(b"value"), key(7).text(b"valuf"));
    }

    #[test]
    fn a_pseudonym_is_known_by_its_shape() {
        assert!(is_pseudonym(key(1).text(b"").as_bytes()));
        for text in [
            "",
            "egr_",
            "egr_abcdefghijklmnopqrstuvw",
            "egr_abcdefghijklmnopqrstuvw1",
            "egR_abcdefghijklmnopqrstuvwx",
        ] {
            assert!(!is_pseudonym(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_pseudonym_of_a_number_is_known_by_its_size() {
        assert!(is_number_pseudonym(key(1).number(b"1").to_string().as_bytes()));
        for number in
            ["", "0", "1234", "9999999999999999999", "7999999999999999999", "8e18", "-8000000000000000000"]
        {
            assert!(!is_number_pseudonym(number.as_bytes()), "{number}");
        }
    }

    #[test]
    fn a_number_has_one_pseudonym_however_it_is_spelt() {
        for encodings in [
            &["0", "-0", "0.00", "0e9", "-0.0E-7"][..],
            &["1", "1.0", "1e0", "10e-1", "0.1e1", "1E+0", "0.001e+03"],
            &["-1200", "-1.2e3", "-12E2", "-1200.000"],
            &["1e400", "10e399", "0.1e401"],
        ] {
            let numbers: Vec<u64> = encodings.iter().map(|number| key(1).number(number.as_bytes())).collect();
            assert!(numbers.iter().all(|number| *number == numbers[0]), "{encodings:?}: {numbers:?}");
        }
        let distinct = [
            "0",
            "1",
            "-1",
            "10",
            "100",
            "0.1",
            "1e99999999999999999999",
            "1e99999999999999999998",
            "12",
            "120000",
        ];
        let numbers: std::collections::HashSet<u64> =
            distinct.iter().map(|number| key(1).number(number.as_bytes())).collect();
        assert_eq!(numbers.len(), distinct.len());
    }

    proptest! {
        #[test]
        fn equal_numbers_are_equal(mantissa in any::<i64>(), zeros in 0_usize..20) {
            let written = format!("{mantissa}{}e-{zeros}", "0".repeat(zeros));
            prop_assert_eq!(key(1).number(written.as_bytes()), key(1).number(mantissa.to_string().as_bytes()));
            prop_assert!(i64::try_from(key(1).number(written.as_bytes())).is_ok());
        }

        #[test]
        fn numbers_that_differ_stay_apart(a in any::<i64>(), b in any::<i64>()) {
            let numbers = [a, b].map(|number| key(1).number(number.to_string().as_bytes()));
            prop_assert_eq!(numbers[0] == numbers[1], a == b);
        }
    }
}

//! The Huffman code of strings (RFC 7541 §5.2, appendix B).

use super::error::Error;

/// Length in bits of the code of each byte, and of the end of the string (appendix B). The code is canonical:
/// codes of the same length are in the order of their bytes, and so the lengths give all codes.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
    28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6,
    6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7,
    8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7,
    15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24,
    23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23,
    23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26,
    26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20,
    21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27,
    27, 27, 26, 30,
];
/// Longest code.
const LONGEST: u8 = 30;
/// Shortest code.
const SHORTEST: usize = 5;
/// Codes up to this length are found by one look-up: those of letters, digits and most marks.
const SHORT: u8 = 8;

/// A code in the low bits, and its length.
#[derive(Copy, Clone)]
struct Code {
    bits: u32,
    len: u8,
}

/// The code of each byte, and of the end of the string.
static CODES: [Code; LENGTHS.len()] = codes();
/// For each beginning of eight bits, the byte with the code that it begins with, and the code's length, which
/// is 0 if the code is longer.
static SHORT_CODES: [(u8, u8); 1 << SHORT] = short_codes();
/// For each length above [`SHORT`], the codes of that length.
static LONG_CODES: [LongCodes; (LONGEST - SHORT) as usize] = long_codes();
/// The bytes in the order of their codes. The end of the string, whose code is the last, is not among them.
static ORDER: [u8; 256] = order();

/// All codes of one length, in the high bits of words.
#[derive(Copy, Clone)]
struct LongCodes {
    len: u8,
    /// The first code, followed by zeros.
    first: u32,
    /// The last code, followed by ones. It is 0 if there is no code of this length.
    last: u32,
    /// Number of codes before the first.
    before: u16,
}

const fn codes() -> [Code; LENGTHS.len()] {
    let mut codes = [Code { bits: 0, len: 0 }; LENGTHS.len()];
    let (mut bits, mut len) = (0, 1);
    while len <= LONGEST {
        let mut byte = 0;
        while byte < LENGTHS.len() {
            if LENGTHS[byte] == len {
                codes[byte] = Code { bits, len };
                bits += 1;
            }
            byte += 1;
        }
        bits <<= 1;
        len += 1;
    }
    codes
}

const fn short_codes() -> [(u8, u8); 1 << SHORT] {
    let (codes, mut short) = (codes(), [(0, 0); 1 << SHORT]);
    let mut byte = 0_u8;
    loop {
        let Code { bits, len } = codes[byte as usize];
        if len <= SHORT {
            let mut at = bits << (SHORT - len);
            while at < (bits + 1) << (SHORT - len) {
                short[at as usize] = (byte, len);
                at += 1;
            }
        }
        if byte == u8::MAX {
            return short;
        }
        byte += 1;
    }
}

const fn long_codes() -> [LongCodes; (LONGEST - SHORT) as usize] {
    let (codes, mut before) = (codes(), 0);
    let mut long = [LongCodes { len: 0, first: 0, last: 0, before: 0 }; (LONGEST - SHORT) as usize];
    let mut len = 1;
    while len <= LONGEST {
        let (mut count, mut first, mut last) = (0, 0, 0);
        let mut byte = 0;
        while byte < LENGTHS.len() {
            if LENGTHS[byte] == len {
                let bits = codes[byte].bits << (u32::BITS - len as u32);
                if count == 0 {
                    first = bits;
                }
                last = bits | (u32::MAX >> len);
                count += 1;
            }
            byte += 1;
        }
        if len > SHORT {
            long[(len - SHORT - 1) as usize] = LongCodes { len, first, last, before };
        }
        before += count;
        len += 1;
    }
    long
}

const fn order() -> [u8; 256] {
    let (mut order, mut at) = ([0; 256], 0);
    let mut len = 1;
    while len <= LONGEST {
        let mut byte = 0_u8;
        loop {
            if LENGTHS[byte as usize] == len {
                order[at] = byte;
                at += 1;
            }
            if byte == u8::MAX {
                break;
            }
            byte += 1;
        }
        len += 1;
    }
    order
}

/// Returns the byte with the code that `bits` begin with, and the code's length. `None` is the end of the
/// string.
#[inline]
fn symbol(bits: u64) -> Option<(u8, u8)> {
    let [first, ..] = bits.to_be_bytes();
    let short = SHORT_CODES[usize::from(first)];
    if short.1 != 0 { Some(short) } else { long_symbol((bits >> u32::BITS) as u32) }
}

fn long_symbol(bits: u32) -> Option<(u8, u8)> {
    let codes = LONG_CODES.iter().find(|codes| bits <= codes.last)?;
    let nth = (bits - codes.first) >> (u32::BITS - u32::from(codes.len));
    let byte = ORDER.get(usize::from(codes.before) + nth as usize)?;
    Some((*byte, codes.len))
}

/// Appends the string with this code to `out`.
pub(super) fn decode(code: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    let start = out.len();
    out.resize(start + code.len() * 8 / SHORTEST, 0);
    let mut bytes = out[start..].iter_mut();
    // The next bits are the high ones, followed by zeros.
    let (mut bits, mut count) = (0_u64, 0_u32);
    let (words, rest) = code.as_chunks();
    for word in words {
        bits |= u64::from(u32::from_be_bytes(*word)) << (u32::BITS - count);
        count += u32::BITS;
        // Any code is in these bits.
        while count >= LONGEST.into() {
            let (byte, len) = symbol(bits).ok_or(Error::Huffman)?;
            *bytes.next().ok_or(Error::Huffman)? = byte;
            bits <<= len;
            count -= u32::from(len);
        }
    }
    for byte in rest {
        bits |= u64::from(*byte) << (u64::BITS - u8::BITS - count);
        count += u8::BITS;
    }
    while let Some((byte, len)) = symbol(bits)
        && u32::from(len) <= count
    {
        *bytes.next().ok_or(Error::Huffman)? = byte;
        bits <<= len;
        count -= u32::from(len);
    }
    let unused = bytes.len();
    out.truncate(out.len() - unused);
    // Less than a byte may follow, with the beginning of the code that ends a string: ones.
    if count < u8::BITS && bits.leading_ones() == count { Ok(()) } else { Err(Error::Huffman) }
}

/// Number of bytes of the code of a string.
pub(super) fn encoded_len(text: &[u8]) -> usize {
    let bits: usize = text.iter().map(|byte| usize::from(CODES[usize::from(*byte)].len)).sum();
    bits.div_ceil(8)
}

/// Appends the code of a string to `out`.
pub(super) fn encode(text: &[u8], out: &mut Vec<u8>) {
    // The last bits are the low ones.
    let (mut bits, mut count) = (0_u64, 0_u32);
    for byte in text {
        let code = CODES[usize::from(*byte)];
        bits = (bits << code.len) | u64::from(code.bits);
        count += u32::from(code.len);
        if count >= u32::BITS {
            count -= u32::BITS;
            let [_, _, _, _, word @ ..] = (bits >> count).to_be_bytes();
            out.extend_from_slice(&word);
        }
    }
    while count > 0 {
        // Ones follow the last code.
        let padded = (bits << u8::BITS) | 0xff;
        let [.., byte] = (padded >> count).to_be_bytes();
        out.push(byte);
        count = count.saturating_sub(u8::BITS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(code: &[u8]) -> Result<Vec<u8>, Error> {
        let mut text = b"before".to_vec();
        decode(code, &mut text)?;
        Ok(text.split_off(6))
    }

    /// RFC 7541, appendix B.
    #[test]
    fn codes_are_those_of_the_appendix() {
        for (byte, bits, len) in [
            (usize::from(b'0'), 0x0, 5),
            (usize::from(b' '), 0x14, 6),
            (usize::from(b'A'), 0x21, 6),
            (usize::from(b'z'), 0x7b, 7),
            (usize::from(b'&'), 0xf8, 8),
            (usize::from(b'!'), 0x3f8, 10),
            (usize::from(b'"'), 0x3f9, 10),
            (usize::from(b'\\'), 0x7_fff0, 19),
            (0x00, 0x1ff8, 13),
            (0x0a, 0x3fff_fffc, 30),
            (0x7f, 0xfff_fffc, 28),
            (0x80, 0xf_ffe6, 20),
            (0xf9, 0xfff_fffe, 28),
            (0xff, 0x3ff_ffee, 26),
            (256, 0x3fff_ffff, 30),
        ] {
            assert_eq!((CODES[byte].bits, CODES[byte].len), (bits, len), "{byte:#x}");
        }
        // Kraft's sum is 1: each sequence of bits begins with exactly one code.
        assert_eq!(LENGTHS.iter().map(|len| 1_u64 << (LONGEST - len)).sum::<u64>(), 1 << LONGEST);
    }

    #[test]
    fn each_byte_is_decoded_at_each_place() {
        for byte in 0..=u8::MAX {
            for before in 0..13 {
                let (text, mut code) = ([&vec![b'0'; before], &[byte, b'/'][..]].concat(), Vec::new());
                encode(&text, &mut code);
                assert_eq!((encoded_len(&text), decoded(&code).as_deref()), (code.len(), Ok(&text[..])));
            }
        }
    }

    #[test]
    fn a_wrong_end_is_refused() {
        // `0` with three ones, and with anything else.
        assert_eq!(decoded(&[0b0000_0111]).as_deref(), Ok(&b"0"[..]));
        for end in 0..0b111 {
            assert_eq!(decoded(&[end]), Err(Error::Huffman));
        }
        // `a` eight times leaves no place for an end.
        let mut code = Vec::new();
        encode(b"aaaaaaaa", &mut code);
        assert_eq!((code.len(), decoded(&code).as_deref()), (5, Ok(&b"aaaaaaaa"[..])));
        // A whole byte is too long an end.
        code.push(0xff);
        assert_eq!(decoded(&code), Err(Error::Huffman));
        assert_eq!(decoded(&[0xff]), Err(Error::Huffman));
        assert_eq!(decoded(&[]), Ok(Vec::new()));
    }

    #[test]
    fn the_code_of_the_end_is_refused() {
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff]), Err(Error::Huffman));
        assert_eq!(decoded(&[0x07, 0xff, 0xff, 0xff, 0xff, 0xff]), Err(Error::Huffman));
    }
}

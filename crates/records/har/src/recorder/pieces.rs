//! Writes the basic elements of an entry: strings, numbers, addresses and times.

use std::io::Write as _;
use std::net::IpAddr;

use egret_json::write_escaped;

/// `00` to `99`: numbers are written two digits at a time.
static DIGIT_PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let (mut at, mut tens) = (0, b'0');
    while at < 100 {
        let mut ones = b'0';
        while ones <= b'9' {
            pairs[at] = [tens, ones];
            at += 1;
            ones += 1;
        }
        tens += 1;
    }
    pairs
};

/// Appends a string in quotes.
pub(super) fn text(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    write_escaped(text, out);
    out.push(b'"');
}

/// Appends an integer.
pub(super) fn number(mut number: u64, out: &mut Vec<u8>) {
    if number < 10 {
        return out.push(digit(number));
    }
    if number < 100 {
        return out.extend_from_slice(&DIGIT_PAIRS[(number % 100) as usize]);
    }
    if number < 1_000 {
        let [tens, ones] = DIGIT_PAIRS[(number % 100) as usize];
        return out.extend_from_slice(&[digit(number / 100), tens, ones]);
    }
    let mut digits = [0; 20];
    let mut at = digits.len();
    while number >= 10 {
        at -= 2;
        digits[at..at + 2].copy_from_slice(&DIGIT_PAIRS[(number % 100) as usize]);
        number /= 100;
    }
    if number > 0 {
        at -= 1;
        digits[at] = digit(number);
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends an IP address, IPv6 without brackets.
pub(super) fn address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => {
            for (index, byte) in address.octets().into_iter().enumerate() {
                if index > 0 {
                    out.push(b'.');
                }
                number(u64::from(byte), out);
            }
        }
        // Writing to memory cannot fail.
        IpAddr::V6(address) => drop(write!(out, "{address}")),
    }
}

/// Appends microseconds as milliseconds with up to three decimals.
pub(super) fn millis(us: u64, out: &mut Vec<u8>) {
    number(us / 1000, out);
    let rest = us % 1000;
    if rest > 0 {
        out.extend_from_slice(&[b'.', digit(rest / 100), digit(rest / 10), digit(rest)]);
    }
}

/// Returns the last decimal digit as ASCII.
fn digit(number: u64) -> u8 {
    (number % 10) as u8 + b'0'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_json_has_them() {
        let written = |us: u64| {
            let mut out = Vec::new();
            millis(us, &mut out);
            String::from_utf8(out).unwrap()
        };
        for (us, expected) in [
            (0, "0"),
            (1, "0.001"),
            (1_000, "1"),
            (12_345_678, "12345.678"),
            (u64::MAX, "18446744073709551.615"),
        ] {
            assert_eq!(written(us), expected);
        }
        let mut out = Vec::new();
        for text in ["192.0.2.107", "2001:db8::1"] {
            address(text.parse().unwrap(), &mut out);
        }
        assert_eq!(String::from_utf8(out).unwrap(), "192.0.2.1072001:db8::1");
    }
}

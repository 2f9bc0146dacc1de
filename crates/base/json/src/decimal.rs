//! Numbers of JSON as whole numbers of small units, without floating point.

/// A number of units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whole {
    /// The number, rounded up.
    pub units: u64,
    /// `true` if it had to be rounded.
    pub is_rounded: bool,
}

/// The reason why a text is no number of units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecimalError {
    /// The text is not a number as JSON writes it (RFC 8259 §6), or its exponent exceeds 32 bits.
    #[error("not a number")]
    Malformed,
    /// The number is below zero.
    #[error("below zero")]
    Negative,
    /// The number of units exceeds 64 bits.
    #[error("too large")]
    TooLarge,
}

/// Returns `number` (RFC 8259 §6) times 10^`places`, rounded up: `2.5e-06` with 12 places is 2,500,000.
pub fn whole(number: &[u8], places: i32) -> Result<Whole, DecimalError> {
    let (is_negative, number) = match number.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, number),
    };
    let (digits, exponent) = match number.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (&number[..at], exponent(&number[at + 1..])?),
        None => (number, 0),
    };
    let (integer, fraction) = match digits.iter().position(|byte| *byte == b'.') {
        Some(at) if at + 1 == digits.len() => return Err(DecimalError::Malformed),
        Some(at) => (&digits[..at], &digits[at + 1..]),
        None => (digits, &b""[..]),
    };
    if integer.is_empty() || !integer.iter().chain(fraction).all(u8::is_ascii_digit) {
        return Err(DecimalError::Malformed);
    }
    let point = i64::try_from(integer.len()).map_err(|_| DecimalError::TooLarge)?;
    let whole = shifted(integer, fraction, point + i64::from(exponent) + i64::from(places))?;
    let is_zero = whole.units == 0;
    if is_negative && !is_zero { Err(DecimalError::Negative) } else { Ok(whole) }
}

/// Returns the number whose first `end` digits are its integer part. Missing digits are zeros.
fn shifted(integer: &[u8], fraction: &[u8], end: i64) -> Result<Whole, DecimalError> {
    let tenfold = |units: u64| units.checked_mul(10).ok_or(DecimalError::TooLarge);
    let (mut units, mut is_rounded, mut length) = (0_u64, false, 0_i64);
    for digit in integer.iter().chain(fraction) {
        if length < end {
            let more = tenfold(units)?.checked_add(u64::from(digit - b'0'));
            units = more.ok_or(DecimalError::TooLarge)?;
        } else {
            is_rounded |= *digit != b'0';
        }
        length += 1;
    }
    // At most twenty rounds: then the number is too large.
    while length < end && units > 0 {
        units = tenfold(units)?;
        length += 1;
    }
    let units = units.checked_add(u64::from(is_rounded)).ok_or(DecimalError::TooLarge)?;
    Ok(Whole { units, is_rounded })
}

fn exponent(text: &[u8]) -> Result<i32, DecimalError> {
    let text = std::str::from_utf8(text).map_err(|_| DecimalError::Malformed)?;
    text.parse().map_err(|_| DecimalError::Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_number_is_read_exactly_or_rounded_up() {
        for (number, places, units, is_rounded) in [
            ("0", 0, 0, false),
            ("41", 0, 41, false),
            ("41.0", 0, 41, false),
            ("41.2", 0, 42, true),
            ("4.1e1", 0, 41, false),
            ("410E-1", 0, 41, false),
            ("1e-30", 0, 1, true),
            ("1e-2000000000", 12, 1, true),
            ("0e40", 0, 0, false),
            ("-0.0e5", 12, 0, false),
            ("0.000123", 9, 123_000, false),
            ("2.5e-06", 12, 2_500_000, false),
            ("1.3200000000000002E-7", 12, 132_001, true),
            ("1e+3", 12, 1_000_000_000_000_000, false),
            ("18446744073709551615", 0, u64::MAX, false),
        ] {
            assert_eq!(whole(number.as_bytes(), places), Ok(Whole { units, is_rounded }), "{number}");
        }
    }

    #[test]
    fn a_text_that_is_no_number_of_units_is_refused() {
        for (number, error) in [
            ("", DecimalError::Malformed),
            ("1.", DecimalError::Malformed),
            (".5", DecimalError::Malformed),
            ("1e", DecimalError::Malformed),
            ("1x", DecimalError::Malformed),
            ("0x1", DecimalError::Malformed),
            ("--1", DecimalError::Malformed),
            ("1e99999999999", DecimalError::Malformed),
            ("-1", DecimalError::Negative),
            ("-1e-40", DecimalError::Negative),
            ("1e2000000000", DecimalError::TooLarge),
            ("18446744073709551615.1", DecimalError::TooLarge),
            ("18446744073709551616", DecimalError::TooLarge),
        ] {
            assert_eq!(whole(number.as_bytes(), 0), Err(error), "{number}");
        }
    }

    proptest! {
        #[test]
        fn the_form_of_a_number_does_not_matter(units in 0..=10_u64.pow(15), shift in 0..10_usize) {
            let expected = Ok(Whole { units, is_rounded: false });
            let longer = format!("{units}{}e-{}", "0".repeat(shift), 12 + shift);
            for text in [format!("{units}e-12"), format!("0.{units:0>20}e8"), longer] {
                prop_assert_eq!(whole(text.as_bytes(), 12), expected, "{}", text);
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[-+.eE0-9]{0,40}", places in -50..50_i32) {
            let _ = whole(text.as_bytes(), places);
        }
    }
}

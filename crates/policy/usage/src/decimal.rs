//! Numbers of JSON as whole numbers, without floating point.

/// The largest figure that is believed: it is exact in JSON, and sums of many do not overflow.
pub(crate) const FIGURE_MAX: u64 = 9_000_000_000_000_000;

/// Largest power of ten in an exponent that is read. Others are no figure.
const EXPONENT_MAX: i32 = 40;

/// Returns `number` (RFC 8259 §6) times 10^`scale`, rounded up. Returns `None` if it is no number, negative,
/// or more than [`FIGURE_MAX`].
pub(crate) fn scaled(number: &[u8], scale: i32) -> Option<u64> {
    let at = number.iter().position(|byte| matches!(byte, b'e' | b'E'));
    let (digits, exponent) = match at {
        Some(at) => (&number[..at], exponent(&number[at + 1..])?),
        None => (number, 0),
    };
    let point = digits.iter().position(|byte| *byte == b'.');
    let (whole, fraction) = match point {
        Some(at) => (&digits[..at], &digits[at + 1..]),
        None => (digits, &b""[..]),
    };
    if whole.is_empty() || (point.is_some() && fraction.is_empty()) {
        return None;
    }
    // The digits up to here are whole units of the result.
    let end = i64::try_from(whole.len()).ok()? + i64::from(exponent) + i64::from(scale);
    let (mut value, mut is_more) = (0_u64, false);
    let mut length = 0;
    for digit in whole.iter().chain(fraction) {
        if !digit.is_ascii_digit() {
            return None;
        }
        if length < end {
            value = shifted(value)?.checked_add(u64::from(digit - b'0'))?;
        } else {
            is_more |= *digit != b'0';
        }
        length += 1;
    }
    while length < end && value > 0 {
        value = shifted(value)?;
        length += 1;
    }
    let value = value + u64::from(is_more);
    (value <= FIGURE_MAX).then_some(value)
}

fn shifted(value: u64) -> Option<u64> {
    value.checked_mul(10).filter(|value| *value <= FIGURE_MAX)
}

fn exponent(text: &[u8]) -> Option<i32> {
    let text = std::str::from_utf8(text).ok()?;
    text.parse().ok().filter(|exponent: &i32| exponent.abs() <= EXPONENT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_whole_units_rounded_up() {
        for (number, scale, expected) in [
            ("0", 0, Some(0)),
            ("41", 0, Some(41)),
            ("41.0", 0, Some(41)),
            ("41.2", 0, Some(42)),
            ("4.1e1", 0, Some(41)),
            ("410E-1", 0, Some(41)),
            ("1e-30", 0, Some(1)),
            ("0e40", 0, Some(0)),
            ("0.000123", 9, Some(123_000)),
            ("1.5", 3, Some(1_500)),
            ("9000000000000000", 0, Some(FIGURE_MAX)),
            ("9000000000000001", 0, None),
            ("9000000000000000.1", 0, None),
            ("18446744073709551617", 0, None),
            ("1e40", 0, None),
            ("1e9999999999", 0, None),
            ("-1", 0, None),
            ("1.", 0, None),
            (".5", 0, None),
            ("", 0, None),
            ("1x", 0, None),
            ("1e", 0, None),
        ] {
            assert_eq!(scaled(number.as_bytes(), scale), expected, "{number} × 10^{scale}");
        }
    }
}

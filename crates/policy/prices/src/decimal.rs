//! Decimal numbers of JSON as whole pico-dollars.

/// Maximum price of a token, in pico-dollars: 1,000 US dollars.
pub const PICODOLLARS_MAX: u64 = 1_000_000_000_000_000;

/// Maximum number of significant digits in a price.
const DIGITS_MAX: usize = 30;

/// Decimal places of a pico-dollar.
const PLACES: i32 = 12;

/// A price of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PicoDollars {
    /// The price, rounded up.
    pub whole: u64,
    /// `true` if it had to be rounded.
    pub is_rounded: bool,
}

/// The reason why a text is no price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecimalError {
    /// The text is not a number as JSON writes it (RFC 8259 §6).
    #[error("not a number")]
    Malformed,
    /// The number is below zero.
    #[error("below zero")]
    Negative,
    /// The number has more digits than a price can need.
    #[error("more than {DIGITS_MAX} digits")]
    TooLong,
    /// The price is above the maximum, 1,000 dollars for a token.
    #[error("more than 1,000 US dollars for a token")]
    TooLarge,
}

/// Reads a number of US dollars as JSON writes it, such as `2.5e-06`.
pub fn picodollars(text: &str) -> Result<PicoDollars, DecimalError> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().map_err(|_| DecimalError::Malformed)?;
    let (is_negative, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa),
    };
    let (integer, fraction) = match mantissa.split_once('.') {
        Some((_, "")) => return Err(DecimalError::Malformed),
        Some(parts) => parts,
        None => (mantissa, ""),
    };
    if integer.is_empty() || !integer.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit()) {
        return Err(DecimalError::Malformed);
    }
    let digits = [integer, fraction].concat();
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Ok(PicoDollars { whole: 0, is_rounded: false });
    }
    if is_negative {
        return Err(DecimalError::Negative);
    }
    if digits.len() > DIGITS_MAX || fraction.len() > 1_000 {
        return Err(DecimalError::TooLong);
    }
    let places = i32::try_from(fraction.len()).map_err(|_| DecimalError::TooLong)?;
    let digits: u128 = digits.parse().map_err(|_| DecimalError::Malformed)?;
    scaled(digits, exponent.saturating_add(PLACES).saturating_sub(places))
}

/// The number times a power of ten, rounded up.
fn scaled(digits: u128, power: i32) -> Result<PicoDollars, DecimalError> {
    let ten_to = |power: u32| 10_u128.checked_pow(power);
    let (whole, is_rounded) = if power >= 0 {
        let factor = ten_to(power.unsigned_abs()).ok_or(DecimalError::TooLarge)?;
        (digits.checked_mul(factor).ok_or(DecimalError::TooLarge)?, false)
    } else {
        match ten_to(power.unsigned_abs()) {
            Some(divisor) => (digits.div_ceil(divisor), !digits.is_multiple_of(divisor)),
            // Far below one pico-dollar.
            None => (1, true),
        }
    };
    let whole = u64::try_from(whole).ok().filter(|whole| *whole <= PICODOLLARS_MAX);
    Ok(PicoDollars { whole: whole.ok_or(DecimalError::TooLarge)?, is_rounded })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_price_is_read_exactly_or_rounded_up() {
        for (text, whole, is_rounded) in [
            ("2.5e-06", 2_500_000, false),
            ("0.000005", 5_000_000, false),
            ("1.3200000000000002E-7", 132_001, true),
            ("1e-13", 1, true),
            ("1e-999", 1, true),
            ("0", 0, false),
            ("-0.0e5", 0, false),
            ("1000", PICODOLLARS_MAX, false),
            ("1e+3", PICODOLLARS_MAX, false),
        ] {
            assert_eq!(picodollars(text), Ok(PicoDollars { whole, is_rounded }), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_price_is_refused() {
        for (text, error) in [
            ("", DecimalError::Malformed),
            ("1.", DecimalError::Malformed),
            (".5", DecimalError::Malformed),
            ("1e", DecimalError::Malformed),
            ("0x1", DecimalError::Malformed),
            ("1e99999999999", DecimalError::Malformed),
            ("-1e-6", DecimalError::Negative),
            ("1000.000000000001", DecimalError::TooLarge),
            ("1e2000000000", DecimalError::TooLarge),
            ("1234567890123456789012345678901", DecimalError::TooLong),
        ] {
            assert_eq!(picodollars(text), Err(error), "{text}");
        }
    }

    proptest! {
        /// The same number, however its point and its exponent are written.
        #[test]
        fn the_form_of_a_number_does_not_matter(pico in 0..=PICODOLLARS_MAX, shift in -20_i32..20) {
            let text = format!("{pico}e{}", -PLACES);
            prop_assert_eq!(picodollars(&text), Ok(PicoDollars { whole: pico, is_rounded: false }));
            let fraction = format!("0.{:0>20}e{}", pico, 20 - PLACES);
            prop_assert_eq!(picodollars(&fraction), Ok(PicoDollars { whole: pico, is_rounded: false }));
            let zeros = "0".repeat(usize::try_from(shift.max(0)).unwrap_or(0).min(10));
            let longer = format!("{pico}{zeros}e{}", -PLACES - i32::try_from(zeros.len()).unwrap());
            prop_assert_eq!(picodollars(&longer), Ok(PicoDollars { whole: pico, is_rounded: false }));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[-+.eE0-9]{0,40}") {
            let _ = picodollars(&text);
        }
    }
}

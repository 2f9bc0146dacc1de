//! Durations (`250ms 5s 2m 1h`), sizes (`512B 64KiB 1GiB`) and rates of bytes (`10KiB/s`).

use std::fmt;
use std::str::FromStr;

use schemars::json_schema;

use crate::text_value;

/// A duration, written as a whole number and a unit: `250ms`, `5s`, `2m`, `1h`, `1d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(std::time::Duration);

const DURATION_UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

impl Duration {
    /// Creates a duration of `millis` milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(std::time::Duration::from_millis(millis))
    }

    /// Creates a duration of `secs` seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(std::time::Duration::from_secs(secs))
    }

    /// Converts it to the standard library's type.
    pub const fn get(self) -> std::time::Duration {
        self.0
    }

    /// The duration in milliseconds, saturating at `u64::MAX`.
    pub fn as_millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns `true` for a duration of 0, which means `off` for most keys.
    pub const fn is_zero(self) -> bool {
        self.0.is_zero()
    }
}

impl FromStr for Duration {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        quantity(text, &DURATION_UNITS)
            .map(Self::from_millis)
            .ok_or_else(|| QuantityError::Duration { text: text.to_owned() })
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_quantity(f, self.as_millis(), &DURATION_UNITS, "0s")
    }
}

/// A number of bytes, written as a whole number and a unit: `512B`, `64KiB`, `10MiB`, `1GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Size(u64);

const SIZE_UNITS: [(&str, u64); 4] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

impl Size {
    /// Creates a size of `bytes` bytes.
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Creates a size of `kib` KiB.
    pub const fn from_kib(kib: u64) -> Self {
        Self(kib << 10)
    }

    /// The size in bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Size {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        quantity(text, &SIZE_UNITS).map(Self).ok_or_else(|| QuantityError::Size { text: text.to_owned() })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_quantity(f, self.0, &SIZE_UNITS, "0B")
    }
}

/// A number of bytes per second, written as a whole number and a unit: `512B/s`, `10KiB/s`, `1MiB/s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteRate(u64);

const BYTE_RATE_UNITS: [(&str, u64); 3] = [("B/s", 1), ("KiB/s", 1 << 10), ("MiB/s", 1 << 20)];

impl ByteRate {
    /// The rate in bytes per second.
    pub const fn bytes_per_second(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteRate {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        quantity(text, &BYTE_RATE_UNITS)
            .map(Self)
            .ok_or_else(|| QuantityError::ByteRate { text: text.to_owned() })
    }
}

impl fmt::Display for ByteRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_quantity(f, self.0, &BYTE_RATE_UNITS, "0B/s")
    }
}

/// A text that is not a number with a known unit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// It is not a duration.
    #[error(
        "`{text}` is not a duration: write a whole number and ms, s, m, h or d, like `250ms`{}",
        meant(.text, &DURATION_WORDS)
    )]
    Duration {
        /// The text.
        text: String,
    },
    /// It is not a size.
    #[error(
        "`{text}` is not a size: write a whole number and B, KiB, MiB or GiB, like `64KiB`{}",
        meant(.text, &SIZE_WORDS)
    )]
    Size {
        /// The text.
        text: String,
    },
    /// It is not a rate of bytes.
    #[error("`{text}` is not a rate: write a whole number and B/s, KiB/s or MiB/s, like `10KiB/s`")]
    ByteRate {
        /// The text.
        text: String,
    },
}

/// Other words for the units of durations, in lower case.
const DURATION_WORDS: [(&str, &[&str]); 5] = [
    ("ms", &["ms", "msec", "millis", "millisecond", "milliseconds"]),
    ("s", &["s", "sec", "secs", "second", "seconds"]),
    ("m", &["m", "min", "mins", "minute", "minutes"]),
    ("h", &["h", "hr", "hrs", "hour", "hours"]),
    ("d", &["d", "day", "days"]),
];

/// Other words for the units of sizes, in lower case.
const SIZE_WORDS: [(&str, &[&str]); 4] = [
    ("B", &["b", "byte", "bytes"]),
    ("KiB", &["k", "kb", "ki", "kib"]),
    ("MiB", &["m", "mb", "mi", "mib"]),
    ("GiB", &["g", "gb", "gi", "gib"]),
];

/// Names the quantity that was probably meant: `5 seconds` is `5s`, and a lone `minute` is `1m`.
fn meant(text: &str, words: &[(&str, &[&str])]) -> String {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, word) = text.split_at(digits);
    let word = word.trim().to_ascii_lowercase();
    let unit = words.iter().find(|(_, others)| others.contains(&word.as_str()));
    match unit {
        Some((unit, _)) if !number.is_empty() => format!("; did you mean `{number}{unit}`?"),
        Some((unit, _)) if word.len() > 2 => format!("; did you mean `1{unit}`?"),
        None if word.is_empty() && !number.is_empty() => {
            let [one, other] = [words[0].0, words[1].0];
            format!("; did you mean `{number}{one}` or `{number}{other}`?")
        }
        _ => String::new(),
    }
}

/// Parses a number with one of `units` and returns their product; `None` if either is missing or the product
/// overflows.
fn quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor = units.iter().find(|(name, _)| *name == unit)?.1;
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Writes `value` in the largest unit that leaves a whole number.
fn write_quantity(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)], zero: &str) -> fmt::Result {
    match units.iter().rev().find(|(_, factor)| value != 0 && value.is_multiple_of(*factor)) {
        Some((name, factor)) => write!(f, "{}{name}", value / factor),
        None => f.write_str(zero),
    }
}

text_value!(
    Duration,
    "a duration like `250ms` or `5s`",
    json_schema!({
        "type": "string",
        "pattern": "^[0-9]+(ms|s|m|h|d)$",
        "description": "A whole number and a unit: `250ms`, `5s`, `2m`, `1h`, `1d`.",
    })
);
text_value!(
    Size,
    "a size like `512B` or `64KiB`",
    json_schema!({
        "type": "string",
        "pattern": "^[0-9]+(B|KiB|MiB|GiB)$",
        "description": "A whole number and a unit: `512B`, `64KiB`, `10MiB`, `1GiB`.",
    })
);
text_value!(
    ByteRate,
    "a rate like `10KiB/s`",
    json_schema!({
        "type": "string",
        "pattern": "^[0-9]+(B|KiB|MiB)/s$",
        "description": "A whole number and a unit: `512B/s`, `10KiB/s`, `1MiB/s`.",
    })
);

/// Returns a number of seconds, as `#[serde(default = "egret_config::secs::<30>")]` needs it.
pub fn secs<const SECONDS: u64>() -> Duration {
    Duration::from_secs(SECONDS)
}

/// Returns a number of KiB, for `#[serde(default)]` too.
pub fn kib<const KIB: u64>() -> Size {
    Size::from_kib(KIB)
}

/// Returns `true`, for `#[serde(default)]` too.
pub fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_reads_and_prints_in_its_largest_unit() {
        for (text, millis, printed) in [
            ("250ms", 250, "250ms"),
            ("5s", 5_000, "5s"),
            ("120s", 120_000, "2m"),
            ("1h", 3_600_000, "1h"),
            ("0s", 0, "0s"),
        ] {
            let duration: Duration = text.parse().unwrap();
            assert_eq!(duration.as_millis(), millis);
            assert_eq!(duration.to_string(), printed);
        }
    }

    #[test]
    fn a_size_reads_and_prints_in_its_largest_unit() {
        for (text, bytes, printed) in
            [("512B", 512, "512B"), ("64KiB", 65_536, "64KiB"), ("1024KiB", 1 << 20, "1MiB")]
        {
            let size: Size = text.parse().unwrap();
            assert_eq!(size.bytes(), bytes);
            assert_eq!(size.to_string(), printed);
        }
    }

    #[test]
    fn a_rate_of_bytes_reads_and_prints_in_its_largest_unit() {
        for (text, bytes, printed) in [("10KiB/s", 10_240, "10KiB/s"), ("1024B/s", 1_024, "1KiB/s")] {
            let rate: ByteRate = text.parse().unwrap();
            assert_eq!(rate.bytes_per_second(), bytes);
            assert_eq!(rate.to_string(), printed);
        }
        assert!("10KiB".parse::<ByteRate>().unwrap_err().to_string().contains("is not a rate"));
    }

    #[test]
    fn a_quantity_without_number_or_known_unit_is_refused() {
        for text in
            ["", "5", "s", "-5s", "5 s", "1.5s", "5S", "99999999999999999999s", "18446744073709551615d"]
        {
            assert!(
                text.parse::<Duration>().unwrap_err().to_string().contains("is not a duration"),
                "{text}"
            );
        }
        assert!("64KB".parse::<Size>().unwrap_err().to_string().contains("is not a size"));
    }

    #[test]
    fn another_word_for_a_unit_is_understood_but_not_taken() {
        let duration = |text: &str| text.parse::<Duration>().unwrap_err().to_string();
        for (text, meant) in [("5 seconds", "5s"), ("10MIN", "10m"), ("minute", "1m"), ("5S", "5s")] {
            assert!(duration(text).ends_with(&format!("; did you mean `{meant}`?")), "{}", duration(text));
        }
        assert!(duration("5").ends_with("; did you mean `5ms` or `5s`?"), "{}", duration("5"));
        assert!(duration("month").ends_with("like `250ms`"));
        assert!("64KB".parse::<Size>().unwrap_err().to_string().ends_with("did you mean `64KiB`?"));
    }
}

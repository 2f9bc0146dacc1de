//! Patterns for values of header fields and query parameters: texts with the wildcard `*`, or regular
//! expressions.

use egret_config::{Case, RegexError, WholeRegex};
use memchr::memmem;

/// Maximum length of a pattern.
const PATTERN_BYTES_MAX: usize = 1024;

/// A pattern for a value. The comparison is case-sensitive and takes time linear in the length of the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TextPattern {
    /// A text in which each `*` matches any number of bytes, including none; `\*` is a star and `\\` a
    /// backslash. These are the literal parts around the stars: one more than there are stars.
    Parts(Box<[Box<[u8]>]>),
    /// A regular expression for the whole value.
    Regex(Box<WholeRegex>),
}

/// The mistake in a text pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TextPatternError {
    /// The pattern is too long.
    #[error("longer than {PATTERN_BYTES_MAX} bytes")]
    TooLong,
    /// A backslash escapes neither a star nor a backslash.
    #[error(r"a backslash must be followed by `*` or another backslash: `\*`, `\\`")]
    Backslash,
    /// The regular expression is wrong.
    #[error("{0}")]
    Regex(RegexError),
}

impl TextPattern {
    /// Parses a pattern.
    pub fn parse(text: &str) -> Result<Self, TextPatternError> {
        if let Some(source) = WholeRegex::prefixed(text) {
            let regex = WholeRegex::compile(source, Case::Matters).map_err(TextPatternError::Regex)?;
            return Ok(Self::Regex(Box::new(regex)));
        }
        if text.len() > PATTERN_BYTES_MAX {
            return Err(TextPatternError::TooLong);
        }
        let mut parts = vec![Vec::new()];
        let mut bytes = text.bytes();
        while let Some(byte) = bytes.next() {
            let literal = match byte {
                b'*' => {
                    parts.push(Vec::new());
                    continue;
                }
                b'\\' => match bytes.next() {
                    Some(escaped @ (b'*' | b'\\')) => escaped,
                    _ => return Err(TextPatternError::Backslash),
                },
                byte => byte,
            };
            if let Some(part) = parts.last_mut() {
                part.push(literal);
            }
        }
        Ok(Self::Parts(parts.into_iter().map(Vec::into_boxed_slice).collect()))
    }

    /// Returns `true` if the pattern is a regular expression.
    pub fn is_regex(&self) -> bool {
        matches!(self, Self::Regex(_))
    }

    /// Returns `true` if `value` matches.
    pub fn matches(&self, value: &[u8]) -> bool {
        let parts = match self {
            Self::Parts(parts) => &**parts,
            Self::Regex(regex) => return regex.is_match_bytes(value),
        };
        let [first, middle @ .., last] = parts else {
            return parts.first().is_some_and(|only| **only == *value);
        };
        let Some(rest) = value.strip_prefix(&**first) else { return false };
        let Some(mut rest) = rest.strip_suffix(&**last) else { return false };
        for part in middle {
            match memmem::find(rest, part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(pattern: &str, value: &str) -> bool {
        TextPattern::parse(pattern).unwrap().matches(value.as_bytes())
    }

    #[test]
    fn a_star_stands_for_anything_even_nothing() {
        for (pattern, good, bad) in [
            ("a", &["a"][..], &["", "A", "aa"][..]),
            ("", &[""], &["a"]),
            ("*", &["", "a"], &[]),
            ("a*", &["a", "ab"], &["", "ba"]),
            ("*a", &["a", "ba"], &["ab"]),
            ("a*b*c", &["abc", "axbxc", "abbcc"], &["acb", "ac", "abcd"]),
            ("a*a", &["aa", "aba"], &["a"]),
            (r"\*", &["*"], &["a", r"\*"]),
            (r"a\\*", &[r"a\", r"a\b"], &["a"]),
            (r"regex:v\d+(\*|x)", &["v1*", "v12x"], &["v1", "av1x", "v1xx", "V1x"]),
            ("regex:regex:.*", &["regex:a"], &["a"]),
        ] {
            assert!(good.iter().all(|value| matches(pattern, value)), "{pattern}");
            assert!(!bad.iter().any(|value| matches(pattern, value)), "{pattern}");
        }
    }

    #[test]
    fn a_backslash_that_escapes_nothing_is_refused() {
        for pattern in [r"\", r"\d", r"a\"] {
            assert!(TextPattern::parse(pattern).unwrap_err() == TextPatternError::Backslash, "{pattern}");
        }
        assert!(TextPattern::parse(&"a".repeat(PATTERN_BYTES_MAX + 1)).is_err());
        assert!(matches!(TextPattern::parse("regex:("), Err(TextPatternError::Regex(_))));
    }

    /// Textbook definition: a star matches nothing, or one byte and then a star again.
    fn slow(pattern: &[u8], value: &[u8]) -> bool {
        match (pattern, value) {
            ([], []) => true,
            ([b'*', rest @ ..], _) => slow(rest, value) || (!value.is_empty() && slow(pattern, &value[1..])),
            ([byte, rest @ ..], [first, others @ ..]) => byte == first && slow(rest, others),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn the_pattern_agrees_with_its_definition(pattern in "[ab*]{0,8}", value in "[ab]{0,10}") {
            prop_assert_eq!(matches(&pattern, &value), slow(pattern.as_bytes(), value.as_bytes()));
        }
    }
}

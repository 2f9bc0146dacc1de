//! Parses query strings and forms: percent-encoded names and values.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// Values by name. Each name has a list, because it may occur several times.
pub(crate) type Values = BTreeMap<String, Vec<String>>;

/// Names and values in their original order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Parses a query. Skips invalid pairs, as httpbin for Go does.
    pub fn lenient(text: &str) -> Self {
        Self { pairs: pairs(text).flatten().collect() }
    }

    /// Parses a form. Returns `None` if any pair is invalid.
    pub fn strict(text: &str) -> Option<Self> {
        Some(Self { pairs: pairs(text).collect::<Option<_>>()? })
    }

    /// The first value of a name, if it is not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.pairs.iter().find(|pair| pair.0 == name)?;
        (!value.is_empty()).then_some(value)
    }

    /// All pairs.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.pairs
    }

    /// All values, grouped by name.
    pub fn values(&self) -> Values {
        let mut values = Values::new();
        for (name, value) in &self.pairs {
            values.entry(name.clone()).or_default().push(value.clone());
        }
        values
    }
}

/// Splits into pairs; `None` for an invalid pair.
fn pairs(text: &str) -> impl Iterator<Item = Option<(String, String)>> {
    text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        if pair.contains(';') {
            return None;
        }
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decoded(name)?, decoded(value)?))
    })
}

/// Decodes percent-escapes, and plus signs as spaces. Returns `None` for a broken escape.
fn decoded(text: &str) -> Option<String> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Some(text.to_owned());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                u8::try_from(high << 4 | low).ok()?
            }
            other => other,
        });
    }
    Some(match String::from_utf8_lossy(&bytes) {
        Cow::Borrowed(text) => text.to_owned(),
        Cow::Owned(text) => text,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_and_values_are_decoded_and_kept_in_order() {
        let query = Query::lenient("b=x%20y+z&a=1&&a=&c&%C3%A4=%ff");
        let pairs: Vec<_> = query.pairs().iter().map(|pair| (pair.0.as_str(), pair.1.as_str())).collect();
        assert_eq!(pairs, [("b", "x y z"), ("a", "1"), ("a", ""), ("c", ""), ("ä", "\u{fffd}")]);
        assert_eq!(query.values()["a"], ["1", ""]);
        assert_eq!((query.get("a"), query.get("c"), query.get("d")), (Some("1"), None, None));
    }

    #[test]
    fn a_malformed_pair_is_left_out_or_refused() {
        for text in ["a=%zz", "a=%2", "a=1;b=2", "%=1"] {
            assert!(Query::lenient(text).pairs().is_empty(), "{text}");
            assert!(Query::strict(text).is_none(), "{text}");
        }
        assert_eq!(Query::strict("a=1").unwrap().get("a"), Some("1"));
    }

    proptest! {
        #[test]
        fn every_escaped_pair_is_read_again(pairs in prop::collection::vec(("\\PC{1,8}", "\\PC{0,8}"), 0..5)) {
            let escaped = |text: &str| text.bytes().fold(String::new(), |text, byte| text + &format!("%{byte:02X}"));
            let text: Vec<String> =
                pairs.iter().map(|(name, value)| format!("{}={}", escaped(name), escaped(value))).collect();
            let query = Query::strict(&text.join("&")).unwrap();
            prop_assert_eq!(query.pairs(), &pairs[..]);
        }

        #[test]
        fn any_text_is_read_leniently_and_strictness_only_refuses(text in "[a-z%+=&;0-9]{0,30}") {
            let lenient = Query::lenient(&text);
            if let Some(strict) = Query::strict(&text) {
                prop_assert_eq!(strict.pairs(), lenient.pairs());
            }
        }
    }
}

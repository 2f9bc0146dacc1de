//! What stands behind the question mark, and forms: names and values, percent-encoded.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// Values by name, in lists since a name may come more than once.
pub(super) type Values = BTreeMap<String, Vec<String>>;

/// Names and values in the order in which they came.
#[derive(Debug, Clone, Default)]
pub(super) struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Reads what can be read and leaves out the rest, as httpbin for Go does with a query.
    pub fn lenient(text: &str) -> Self {
        Self { pairs: pairs(text).flatten().collect() }
    }

    /// The same, `None` where something cannot be read, as with a form.
    pub fn strict(text: &str) -> Option<Self> {
        Some(Self { pairs: pairs(text).collect::<Option<_>>()? })
    }

    /// The first value of that name that is not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.pairs.iter().find(|pair| pair.0 == name)?;
        (!value.is_empty()).then_some(value)
    }

    /// All of them.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.pairs
    }

    /// By name.
    pub fn values(&self) -> Values {
        let mut values = Values::new();
        for (name, value) in &self.pairs {
            values.entry(name.clone()).or_default().push(value.clone());
        }
        values
    }
}

/// Each pair, `None` for one that cannot be read.
fn pairs(text: &str) -> impl Iterator<Item = Option<(String, String)>> {
    text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        if pair.contains(';') {
            return None;
        }
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decoded(name)?, decoded(value)?))
    })
}

/// Percent-decoded, with plus for space; `None` where an escape is broken.
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
    fn what_cannot_be_read_is_left_out_or_refused() {
        for text in ["a=%zz", "a=%2", "a=1;b=2", "%=1"] {
            assert!(Query::lenient(text).pairs().is_empty(), "{text}");
            assert!(Query::strict(text).is_none(), "{text}");
        }
        assert_eq!(Query::strict("a=1").unwrap().get("a"), Some("1"));
    }
}

//! JSON of tokens and their issuers: read whole, within bounds, and without a name that is there twice, of
//! which two readers could take a different one each.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

/// Maximum depth of nested values. Claims have two or three levels.
const DEPTH_MAX: usize = 16;
/// Maximum number of members of an object. The metadata of an issuer have about sixty.
const MEMBERS_MAX: usize = 128;

/// The members of an object.
pub(crate) type Members = BTreeMap<String, StrictValue>;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StrictValue {
    Text(String),
    Number(Number),
    List(Vec<StrictValue>),
    Object(Members),
    /// `true`, `false` or `null`.
    Other,
}

impl StrictValue {
    /// Returns the text, if it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// Reads a text that is one object. Returns `None` if it is anything else, or breaks a bound.
pub(crate) fn object(bytes: &[u8]) -> Option<Members> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = Reader { depth_left: DEPTH_MAX }.deserialize(&mut deserializer).ok()?;
    deserializer.end().ok()?;
    match value {
        StrictValue::Object(members) => Some(members),
        _ => None,
    }
}

/// Reads a value of at most this depth.
#[derive(Clone, Copy)]
struct Reader {
    depth_left: usize,
}

impl Reader {
    fn inner<E: de::Error>(self) -> Result<Self, E> {
        let depth_left = self.depth_left.checked_sub(1);
        depth_left
            .map(|depth_left| Self { depth_left })
            .ok_or_else(|| E::custom("values are nested too deeply"))
    }
}

impl<'de> DeserializeSeed<'de> for Reader {
    type Value = StrictValue;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<StrictValue, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader {
    type Value = StrictValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_unit<E: de::Error>(self) -> Result<StrictValue, E> {
        Ok(StrictValue::Other)
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<StrictValue, E> {
        Ok(StrictValue::Other)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<StrictValue, E> {
        Ok(StrictValue::Number(number.into()))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<StrictValue, E> {
        Ok(StrictValue::Number(number.into()))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<StrictValue, E> {
        Ok(Number::from_f64(number).map_or(StrictValue::Other, StrictValue::Number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<StrictValue, E> {
        Ok(StrictValue::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<StrictValue, A::Error> {
        let inner = self.inner()?;
        let mut list = Vec::new();
        while let Some(value) = sequence.next_element_seed(inner)? {
            list.push(value);
        }
        Ok(StrictValue::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<StrictValue, A::Error> {
        let inner = self.inner()?;
        let mut members = Members::new();
        while let Some(name) = map.next_key::<String>()? {
            let value = map.next_value_seed(inner)?;
            if members.len() == MEMBERS_MAX || members.insert(name, value).is_some() {
                return Err(de::Error::custom("an object has too many members, or one twice"));
            }
        }
        Ok(StrictValue::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_read_with_its_values() {
        let members = object(br#" {"a":"x","b":[1,-2,1.5],"c":{"d":null},"e":true} "#).unwrap();
        assert_eq!(members["a"].text(), Some("x"));
        let numbers = [1.into(), (-2).into(), Number::from_f64(1.5).unwrap()].map(StrictValue::Number);
        assert_eq!(members["b"], StrictValue::List(numbers.to_vec()));
        assert_eq!(members["c"], StrictValue::Object([("d".to_owned(), StrictValue::Other)].into()));
        assert_eq!(members["e"], StrictValue::Other);
    }

    #[test]
    fn a_text_that_breaks_a_rule_is_no_object() {
        for text in [
            "",
            "[]",
            "null",
            "{} {}",
            "{",
            r#"{"a":1,}"#,
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"a":{"b":1,"b":2}}"#,
            r#"{"a":[{"b":1,"b":2}]}"#,
            r#"{"a":"\ud800"}"#,
            r#"{"a":1e999}"#,
        ] {
            assert_eq!(object(text.as_bytes()), None, "{text}");
        }
        assert_eq!(object(b"{\"a\":\"\xff\"}"), None);
        let nested = |depth: usize| format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
        assert!(object(nested(DEPTH_MAX).as_bytes()).is_some());
        assert_eq!(object(nested(DEPTH_MAX + 1).as_bytes()), None);
        assert_eq!(object(nested(100_000).as_bytes()), None);
        let wide = |count: usize| {
            let members: Vec<String> = (0..count).map(|number| format!("\"{number}\":0")).collect();
            format!("{{{}}}", members.join(","))
        };
        assert!(object(wide(MEMBERS_MAX).as_bytes()).is_some());
        assert_eq!(object(wide(MEMBERS_MAX + 1).as_bytes()), None);
    }
}

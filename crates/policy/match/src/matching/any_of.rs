//! A text, or a list of alternative texts.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A text, or a list of alternative texts: `stripe`, `[stripe, adyen]`. Empty if the key is absent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AnyOf(Vec<String>);

/// Maximum number of alternatives. The router holds every combination of them in memory.
const ALTERNATIVES_MAX: usize = 256;

impl Deref for AnyOf {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.0
    }
}

impl<T: Into<String>> FromIterator<T> for AnyOf {
    fn from_iter<I: IntoIterator<Item = T>>(texts: I) -> Self {
        Self(texts.into_iter().map(Into::into).collect())
    }
}

impl<'de> Deserialize<'de> for AnyOf {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyOfVisitor;

        impl<'de> de::Visitor<'de> for AnyOfVisitor {
            type Value = AnyOf;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts (a number needs quotes)")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<AnyOf, E> {
                Ok(AnyOf(vec![text.to_owned()]))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<AnyOf, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = list.next_element()? {
                    texts.push(text);
                    if texts.len() > ALTERNATIVES_MAX {
                        let message = format!("more than {ALTERNATIVES_MAX} alternatives: split the flow");
                        return Err(de::Error::custom(message));
                    }
                }
                if texts.is_empty() {
                    return Err(de::Error::custom("an empty list matches nothing: leave the key out"));
                }
                Ok(AnyOf(texts))
            }
        }
        deserializer.deserialize_any(AnyOfVisitor)
    }
}

impl Serialize for AnyOf {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [text] => serializer.serialize_str(text),
            texts => serializer.collect_seq(texts),
        }
    }
}

impl JsonSchema for AnyOf {
    fn schema_name() -> Cow<'static, str> {
        "AnyOf".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A text, or a list of alternative texts.",
            "oneOf": [
                { "type": "string" },
                { "type": "array", "items": { "type": "string" }, "minItems": 1, "maxItems": ALTERNATIVES_MAX },
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_text_needs_no_list() {
        for (json, texts) in [(r#""a""#, &["a"][..]), (r#"["a"]"#, &["a"]), (r#"["a","b"]"#, &["a", "b"])] {
            let any: AnyOf = serde_json::from_str(json).unwrap();
            assert_eq!(*any, *texts);
            let again: AnyOf = serde_json::from_str(&serde_json::to_string(&any).unwrap()).unwrap();
            assert_eq!(again, any);
        }
    }

    #[test]
    fn an_empty_list_or_a_number_is_refused() {
        for (json, message) in [("[]", "leave the key out"), ("5", "needs quotes"), ("[5]", "a string")] {
            let error = serde_json::from_str::<AnyOf>(json).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        let many = serde_json::to_string(&vec!["a"; ALTERNATIVES_MAX + 1]).unwrap();
        assert!(serde_json::from_str::<AnyOf>(&many).unwrap_err().to_string().contains("split the flow"));
    }
}

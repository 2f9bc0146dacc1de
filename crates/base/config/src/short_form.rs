//! Short forms of mappings: `limit: calls` for `limit: { quota: calls }`, and `- retry` for `- retry: {}`.
//!
//! A struct has one by `#[serde(rename = "short form: KEY")]`: a value alone is the value of that key. Its
//! schema says so by the transform [`or_text`] or [`or_number`].

use schemars::{Schema, json_schema};

/// The beginning of the names of structs that have a short form. The rest of the name is the key, or
/// [`ANY_KEY`].
pub(crate) const SHORT_FORM: &str = "short form: ";

/// In the name of a struct: a text alone is a key, and the value of that key is an empty mapping.
pub(crate) const ANY_KEY: &str = "*";

/// Adds to the schema of a mapping that a text may stand for it.
pub fn or_text(schema: &mut Schema) {
    set_type(schema, &json_schema!({ "type": ["object", "string"] }));
}

/// Adds to the schema of a mapping that a whole number may stand for it.
pub fn or_number(schema: &mut Schema) {
    set_type(schema, &json_schema!({ "type": ["object", "integer"] }));
}

/// Replaces the type by that of another schema.
fn set_type(schema: &mut Schema, other: &Schema) {
    if let Some(types) = other.get("type") {
        schema.insert("type".to_owned(), types.clone());
    }
}

/// Lets a struct be read from a text alone as well, which `$read` makes a struct of. Unlike a short form,
/// that holds for every reader. The struct derives `Deserialize` with `#[serde(remote = "Self")]`. Messages
/// say what is `$expected`.
#[macro_export]
macro_rules! or_text_alone {
    ($type:ident, $expected:literal, $read:expr) => {
        impl<'de> ::serde::Deserialize<'de> for $type {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct TextOrMapping;

                impl<'de> ::serde::de::Visitor<'de> for TextOrMapping {
                    type Value = $type;

                    fn expecting(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                        f.write_str($expected)
                    }

                    fn visit_str<E: ::serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        $read(text).map_err(E::custom)
                    }

                    fn visit_map<A: ::serde::de::MapAccess<'de>>(self, map: A) -> Result<$type, A::Error> {
                        $type::deserialize(::serde::de::value::MapAccessDeserializer::new(map))
                    }
                }
                deserializer.deserialize_any(TextOrMapping)
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use crate::document::load;

    #[derive(Debug, PartialEq, Default, Deserialize)]
    #[serde(default, deny_unknown_fields, rename = "short form: quota")]
    struct Limit {
        quota: String,
        status: Option<u16>,
    }

    #[derive(Debug, PartialEq, Default, Deserialize)]
    #[serde(default, deny_unknown_fields, rename = "short form: max")]
    struct Concurrency {
        max: u32,
    }

    #[derive(Debug, PartialEq, Default, Deserialize)]
    #[serde(default, deny_unknown_fields, rename = "short form: *")]
    struct Remedy {
        limit: Option<Limit>,
        concurrency: Option<Concurrency>,
    }

    type Remedies = BTreeMap<String, Vec<Remedy>>;

    /// Reads a list of remedies. Returns the report if there are mistakes.
    fn read(text: &str) -> Result<Vec<Remedy>, String> {
        let loaded = load::<Remedies>("egret.yaml", &format!("remedies: {text}"), |_| Vec::new());
        loaded.map(|loaded| loaded.into_values().flatten().collect()).map_err(|report| report.to_string())
    }

    fn limit(quota: &str) -> Remedy {
        Remedy { limit: Some(Limit { quota: quota.to_owned(), status: None }), concurrency: None }
    }

    fn concurrency(max: u32) -> Remedy {
        Remedy { limit: None, concurrency: Some(Concurrency { max }) }
    }

    #[test]
    fn a_value_alone_stands_for_a_mapping() {
        assert_eq!(read("[{ limit: calls }, { concurrency: 5 }]").unwrap(), [limit("calls"), concurrency(5)]);
        assert_eq!(read("[limit, { concurrency: }]").unwrap(), [limit(""), concurrency(0)]);
        assert_eq!(read("[{ limit: { quota: calls } }]").unwrap(), [limit("calls")]);
    }

    #[test]
    fn mistakes_in_a_short_form_are_reported_at_its_value() {
        for (text, expected) in [
            ("[limits]", "egret.yaml:1:12: remedies[0]: unknown key `limits`"),
            ("[limits]", "did you mean `limit`?"),
            ("[7]", "egret.yaml:1:12: remedies[0]: expected a mapping, found the number `7`"),
            ("[{ limit: [calls] }]", "remedies[0].limit: expected a mapping, found a list"),
            ("[{ limit: 7 }]", "remedies[0].limit: expected a text, found the number `7`"),
            ("[{ concurrency: many }]", "remedies[0].concurrency: expected a whole number"),
            (
                "[{ concurrency: }, { limit: { quota: } }]",
                "remedies[1].limit.quota: expected a text, found nothing",
            ),
        ] {
            let report = read(text).unwrap_err();
            assert!(report.contains(expected), "{text}: {report}");
        }
    }
}

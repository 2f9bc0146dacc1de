//! The JSON Schema of the config, and the tier of its keys: everyday or advanced.

use std::sync::LazyLock;

use serde_json::Value;

/// The schema as a test generates it from the structs. The binary does not have the code that generates it.
const TEXT: &str = include_str!("schema.json");

/// The JSON Schema (draft 2020-12) of the config.
pub fn schema() -> Value {
    serde_json::from_str(TEXT).unwrap_or_default()
}

/// The schema as text without line breaks, for programs.
pub fn compact_schema() -> &'static str {
    static SCHEMA: LazyLock<String> = LazyLock::new(|| schema().to_string());
    &SCHEMA
}

/// Returns `true` for the schema of an everyday key, one of about sixty that most configs need. The key's
/// definition has the mark `#[schemars(extend("x-tier" = "everyday"))]`; all others are advanced. In each
/// mapping of the schema, everyday keys come first.
pub fn is_everyday(key: &Value) -> bool {
    key["x-tier"] == "everyday"
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;
    use std::path::{Path, PathBuf};

    use egret_config::{YamlNode, YamlValue, parse_yaml};
    use schemars::generate::SchemaSettings;

    use super::*;
    use crate::config::Config;

    /// The variable with which the test writes the file.
    const WRITE: &str = "EGRET_WRITE_SCHEMA";

    /// A key that this many of the first pages and examples use is an everyday key.
    const OFTEN: usize = 3;

    /// The types that a schema names itself.
    fn types(schema: &Value) -> Vec<String> {
        match &schema["type"] {
            Value::String(one) => vec![one.clone()],
            Value::Array(several) => several.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        }
    }

    /// The types of the plain values that a schema accepts.
    fn plain_types(schema: &Value, whole: &Value) -> BTreeSet<String> {
        let referenced = schema["$ref"].as_str().and_then(|path| whole.pointer(path.trim_start_matches('#')));
        let choices =
            ["anyOf", "oneOf"].into_iter().flat_map(|key| schema[key].as_array().into_iter().flatten());
        let others = referenced.into_iter().chain(choices).flat_map(|other| plain_types(other, whole));
        let is_plain = |name: &String| !["array", "object", "null"].contains(&name.as_str());
        types(schema).into_iter().chain(others).filter(is_plain).collect()
    }

    /// Lets a plain value stand for a list of it, as the reader of the config does. A list among other
    /// choices stays: the value alone is another choice there.
    fn accept_one_item(schema: &mut Value, whole: &Value, is_choice: bool) {
        let mut accepted = types(schema);
        if !is_choice && accepted.iter().any(|name| name == "array") {
            accepted.extend(plain_types(&schema["items"], whole));
            schema["type"] = if accepted.len() > 1 { accepted.into() } else { "array".into() };
        }
        match schema {
            Value::Object(members) => {
                for (name, inner) in members {
                    accept_one_item(inner, whole, ["anyOf", "oneOf"].contains(&name.as_str()));
                }
            }
            Value::Array(list) => list.iter_mut().for_each(|inner| accept_one_item(inner, whole, is_choice)),
            _ => {}
        }
    }

    /// Puts the everyday keys of each mapping before the others.
    fn put_everyday_first(schema: &mut Value) {
        if let Some(Value::Object(keys)) = schema.get_mut("properties") {
            let (first, rest): (Vec<_>, Vec<_>) =
                std::mem::take(keys).into_iter().partition(|(_, key)| is_everyday(key));
            keys.extend(first.into_iter().chain(rest));
        }
        match schema {
            Value::Object(members) => members.values_mut().for_each(put_everyday_first),
            Value::Array(list) => list.iter_mut().for_each(put_everyday_first),
            _ => {}
        }
    }

    /// Number of everyday keys in a schema.
    fn everyday_keys(schema: &Value) -> usize {
        match schema {
            Value::Object(members) => {
                usize::from(is_everyday(schema)) + members.values().map(everyday_keys).sum::<usize>()
            }
            Value::Array(list) => list.iter().map(everyday_keys).sum(),
            _ => 0,
        }
    }

    /// A schema with those that it refers to and chooses from, those of the items of a list included.
    fn expanded<'a>(schema: &'a Value, whole: &'a Value) -> Vec<&'a Value> {
        let referenced = schema["$ref"].as_str().and_then(|path| whole.pointer(path.trim_start_matches('#')));
        let choices =
            ["anyOf", "oneOf"].into_iter().flat_map(|key| schema[key].as_array().into_iter().flatten());
        let others = referenced.into_iter().chain(choices).chain(schema.get("items"));
        [schema].into_iter().chain(others.flat_map(|other| expanded(other, whole))).collect()
    }

    /// Calls `found` with the name and the schema of each key in a config.
    fn each_key<'a>(
        node: &YamlNode,
        schema: &'a Value,
        whole: &'a Value,
        found: &mut impl FnMut(&str, &'a Value),
    ) {
        match &node.value {
            YamlValue::Sequence(items) => items.iter().for_each(|item| each_key(item, schema, whole, found)),
            YamlValue::Mapping(mapping) => {
                let schemas = expanded(schema, whole);
                for entry in &mapping.entries {
                    if let Some(key) = schemas.iter().find_map(|each| each["properties"].get(&entry.key)) {
                        found(&entry.key, key);
                        each_key(&entry.node, key, whole, found);
                    } else if let Some(named) =
                        schemas.iter().map(|each| &each["additionalProperties"]).find(|each| each.is_object())
                    {
                        each_key(&entry.node, named, whole, found);
                    }
                }
            }
            _ => {}
        }
    }

    /// The README, the tutorial and the examples.
    fn first_pages() -> Vec<PathBuf> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
        let files =
            |directory: &str| fs::read_dir(root.join(directory)).unwrap().map(|file| file.unwrap().path());
        let pages =
            [root.join("README.md")].into_iter().chain(files("docs/tutorial")).chain(files("examples"));
        pages.filter(|path| path.extension().is_some_and(|end| end == "md" || end == "yaml")).collect()
    }

    /// The configs in a file: all of it, or the blocks of a page.
    fn configs(file: &Path) -> Vec<YamlNode> {
        let text = fs::read_to_string(file).unwrap();
        let blocks: Vec<&str> = match file.extension() {
            Some(end) if end == "yaml" => vec![&*text],
            _ => text.split("```yaml\n").skip(1).filter_map(|block| block.split("```").next()).collect(),
        };
        let parse =
            |block: &&str| parse_yaml(block).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        blocks.iter().map(parse).collect()
    }

    #[test]
    fn everyday_keys_are_about_sixty() {
        let count = everyday_keys(&schema());
        assert!((50..=70).contains(&count), "{count}");
    }

    #[test]
    fn keys_that_first_pages_use_often_are_everyday_keys() {
        let whole = schema();
        // A key of a mapping that occurs at several places has one schema.
        let mut uses: BTreeMap<*const Value, (String, &Value, BTreeSet<PathBuf>)> = BTreeMap::new();
        for file in first_pages() {
            for config in configs(&file) {
                each_key(&config, &whole, &whole, &mut |name, key| {
                    let (.., files) = uses
                        .entry(std::ptr::from_ref(key))
                        .or_insert_with(|| (name.to_owned(), key, BTreeSet::new()));
                    files.insert(file.clone());
                });
            }
        }
        let often: Vec<_> = uses.values().filter(|(.., files)| files.len() >= OFTEN).collect();
        assert!(often.len() >= 40, "{often:#?}");
        for (name, key, files) in often {
            assert!(is_everyday(key), "`{name}` is used in {files:#?}, and is no everyday key: {key:#}");
        }
    }

    #[test]
    fn the_committed_schema_is_that_of_the_config() {
        let generator = SchemaSettings::draft2020_12().for_deserialize().into_generator();
        let mut generated = generator.into_root_schema_for::<Config>().to_value();
        generated["title"] = "Egret config".into();
        let whole = generated.clone();
        accept_one_item(&mut generated, &whole, false);
        put_everyday_first(&mut generated);
        if std::env::var_os(WRITE).is_some() {
            let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/schema.json");
            return fs::write(file, format!("{generated:#}\n")).unwrap();
        }
        let advice =
            "run `EGRET_WRITE_SCHEMA=1 cargo test -p egret-settings schema` and commit src/schema.json";
        assert!(schema() == generated, "{advice}");
        assert_eq!(TEXT, format!("{generated:#}\n"), "{advice}");
    }
}

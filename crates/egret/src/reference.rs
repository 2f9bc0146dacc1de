//! The JSON Schema of the config, and the reference pages made from it and from the command line's own definition.

use std::collections::BTreeMap;
use std::fmt::Write;

use clap::CommandFactory;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::cli::{Cli, Page};
use crate::config::Config;

/// The JSON Schema (draft 2020-12) of the config.
pub fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12().for_deserialize().into_generator();
    let mut schema = generator.into_root_schema_for::<Config>().to_value();
    schema["title"] = "Egret config".into();
    schema
}

/// The schema as it is printed.
pub fn schema_text() -> String {
    format!("{:#}\n", schema())
}

/// A page of the reference as Markdown.
pub fn page(page: Page) -> String {
    match page {
        Page::Config => config_page(),
        Page::Cli => cli_page(),
    }
}

fn cli_page() -> String {
    let mut page = "# Command line\n\n<!-- Made by `egret reference cli`. Do not edit. -->\n\n\
        Exit codes: 0 done, 1 failed, 2 wrong usage or config.\n"
        .to_owned();
    let mut egret = Cli::command().term_width(100);
    egret.build();
    help(&mut egret, &mut page);
    for command in egret.get_subcommands_mut() {
        help(command, &mut page);
    }
    page
}

fn help(command: &mut clap::Command, page: &mut String) {
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    let text = command.render_long_help().to_string();
    let text: Vec<&str> = text.lines().map(str::trim_end).collect();
    *page += &format!("\n## `{name}`\n\n```text\n{}\n```\n", text.join("\n").trim_end());
}

fn config_page() -> String {
    let schema = schema();
    let mut page = "# Config\n\n<!-- Made by `egret reference config`. Do not edit. -->\n\n\
        `egret check FILE` validates a config; `egret schema` prints its JSON Schema for editors.\n\
        Durations are written `250ms`, `5s`, `2m`, `1h`, `1d`; sizes `512B`, `64KiB`, `10MiB`, `1GiB`.\n\
        Secrets are never written in the config, but named: `${env:NAME}` or `${file:PATH}`.\n"
        .to_owned();
    for section in Sections::of(&schema).list {
        section.write(&schema, &mut page);
    }
    page
}

/// A mapping with known keys, under every path where it may stand.
struct Section<'a> {
    paths: Vec<String>,
    object: &'a Value,
}

#[derive(Default)]
struct Sections<'a> {
    list: Vec<Section<'a>>,
    /// Where in `list` the definition of this name is.
    by_name: BTreeMap<&'a str, usize>,
}

impl<'a> Sections<'a> {
    fn of(schema: &'a Value) -> Self {
        let mut sections = Self::default();
        sections.list.push(Section { paths: Vec::new(), object: schema });
        sections.visit_keys(schema, schema, "");
        sections
    }

    fn visit_keys(&mut self, schema: &'a Value, object: &'a Value, path: &str) {
        for (key, value) in object["properties"].as_object().into_iter().flatten() {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            self.visit(schema, value, path);
        }
    }

    fn visit(&mut self, schema: &'a Value, value: &'a Value, path: String) {
        for choice in choices(value) {
            self.visit(schema, choice, path.clone());
        }
        if let Some(items) = value.get("items") {
            self.visit(schema, items, format!("{path}[]"));
        }
        if let Some(values @ Value::Object(_)) = value.get("additionalProperties") {
            self.visit(schema, values, format!("{path}.<name>"));
        }
        if let Some(name) = referenced(value) {
            let object = &schema["$defs"][name];
            if object.get("properties").is_none() {
                self.visit(schema, object, path);
            } else if let Some(index) = self.by_name.get(name) {
                self.list[*index].paths.push(path);
            } else {
                self.by_name.insert(name, self.list.len());
                self.list.push(Section { paths: vec![path.clone()], object });
                self.visit_keys(schema, object, &path);
            }
        } else if value.get("properties").is_some() {
            self.list.push(Section { paths: vec![path.clone()], object: value });
            self.visit_keys(schema, value, &path);
        }
    }
}

impl Section<'_> {
    fn write(&self, schema: &Value, page: &mut String) {
        let title = match &self.paths[..] {
            [] => "Top level".to_owned(),
            paths => paths.iter().map(|path| format!("`{path}`")).collect::<Vec<_>>().join(", "),
        };
        *page += &format!("\n## {title}\n\n{}\n\n", description(self.object));
        *page += "| key | value | default | meaning |\n| --- | --- | --- | --- |\n";
        let required: Vec<&str> =
            self.object["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (key, value) in self.object["properties"].as_object().into_iter().flatten() {
            let kind = kind(schema, value);
            let default = match value.get("default") {
                _ if required.contains(&key.as_str()) => "required".to_owned(),
                // A mapping's defaults stand in its own section.
                Some(Value::Object(_)) | None => String::new(),
                Some(default) => format!("`{}`", plain(default)),
            };
            let meaning = format!("{}{}", description(value), words(schema, value));
            let _ = writeln!(page, "| `{key}` | {kind} | {default} | {} |", meaning.replace('|', "\\|"));
        }
    }
}

fn referenced(value: &Value) -> Option<&str> {
    value.get("$ref")?.as_str()?.rsplit('/').next()
}

fn choices(value: &Value) -> impl Iterator<Item = &Value> {
    ["anyOf", "oneOf"].into_iter().flat_map(|key| value[key].as_array().into_iter().flatten())
}

fn description(value: &Value) -> String {
    value["description"].as_str().unwrap_or_default().replace("\n\n", "<br>").replace('\n', " ")
}

/// What may be written, in a few words.
fn kind(schema: &Value, value: &Value) -> String {
    if let Some(name) = referenced(value) {
        return match name {
            "Duration" | "Size" | "Secret" => name.to_lowercase(),
            _ => kind(schema, &schema["$defs"][name]),
        };
    }
    if let Some(word) = value.get("const") {
        return format!("`{}`", plain(word));
    }
    let kinds: Vec<String> =
        choices(value).filter(|choice| choice["type"] != "null").map(|choice| kind(schema, choice)).collect();
    if !kinds.is_empty() {
        return kinds.join(" or ");
    }
    let types: Vec<&str> = match &value["type"] {
        Value::String(one) => vec![one.as_str()],
        Value::Array(several) => {
            several.iter().filter_map(Value::as_str).filter(|name| *name != "null").collect()
        }
        _ => Vec::new(),
    };
    types.iter().map(|name| kind_of_type(schema, value, name)).collect::<Vec<_>>().join(" or ")
}

fn kind_of_type(schema: &Value, value: &Value, name: &str) -> String {
    match name {
        "string" => match value["enum"].as_array() {
            Some(words) => {
                words.iter().map(|word| format!("`{}`", plain(word))).collect::<Vec<_>>().join(" or ")
            }
            None => "text".to_owned(),
        },
        "boolean" => "`true` or `false`".to_owned(),
        "integer" => match (&value["minimum"], &value["maximum"]) {
            (Value::Null, Value::Null) => "number".to_owned(),
            (from, Value::Null) => format!("number from {from}"),
            (Value::Null, to) => format!("number up to {to}"),
            (from, to) => format!("number from {from} to {to}"),
        },
        "array" => format!("list of {}", kind(schema, &value["items"])),
        "object" if value["additionalProperties"].is_object() => "mapping by name".to_owned(),
        "object" => "mapping".to_owned(),
        other => other.to_owned(),
    }
}

/// What each of the words means that may be written here.
fn words(schema: &Value, value: &Value) -> String {
    let Some(name) = referenced(value) else {
        return choices(value).map(|choice| words(schema, choice)).collect();
    };
    let described = choices(&schema["$defs"][name])
        .filter(|choice| choice["const"].is_string() && choice["description"].is_string());
    described.fold(String::new(), |mut text, choice| {
        let _ = write!(text, "<br>`{}`: {}", plain(&choice["const"]), description(choice));
        text
    })
}

/// A JSON value as it may be written in YAML.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => format!("[{}]", values.iter().map(plain).collect::<Vec<_>>().join(", ")),
        Value::Object(values) => {
            let pairs: Vec<String> =
                values.iter().map(|(key, value)| format!("{key}: {}", plain(value))).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        other => other.to_string(),
    }
}

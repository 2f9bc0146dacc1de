//! The JSON Schema of the config, and the reference pages generated from it and from the definition of the
//! command line.

use std::collections::BTreeMap;
use std::fmt::Write;

use clap::CommandFactory;
use egret_settings::schema::{is_everyday, schema};
use serde_json::{Map, Value, json};

use crate::cli::{Cli, Page};

/// The schema as text, for editors. It accepts a reference to an environment variable in place of every
/// value.
pub fn schema_text() -> String {
    let mut schema = schema();
    accept_variables(&mut schema);
    schema["$defs"][VARIABLE] = json!({
        "type": "string",
        "pattern": "\\$\\{env:[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\\}",
        "description": "Replaced by the environment variable `NAME`: `${env:NAME}`, or `${env:NAME:-default}`.",
    });
    format!("{schema:#}\n")
}

/// Name of the definition of a reference to an environment variable.
const VARIABLE: &str = "EnvironmentVariable";

/// Keys of a schema that hold further schemas, by name or as a list.
const SUBSCHEMAS: [&str; 5] = ["properties", "$defs", "anyOf", "oneOf", "allOf"];

/// Lets each value other than a free text be a reference to a variable, too. Secrets have their own.
fn accept_variables(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    for key in SUBSCHEMAS {
        match object.get_mut(key) {
            Some(Value::Object(named)) => {
                let others = named.iter_mut().filter(|(name, _)| *name != "Secret");
                others.for_each(|(_, schema)| accept_variables(schema));
            }
            Some(Value::Array(list)) => list.iter_mut().for_each(accept_variables),
            _ => {}
        }
    }
    for key in ["items", "additionalProperties"] {
        if let Some(schema) = object.get_mut(key) {
            accept_variables(schema);
        }
    }
    let variable = json!({ "$ref": format!("#/$defs/{VARIABLE}") });
    let words =
        |list: &Value| list.as_array().is_some_and(|list| list.iter().all(|word| word["const"].is_string()));
    if let Some(Value::Array(list)) = object.get_mut("oneOf").filter(|list| words(list)) {
        list.push(variable);
        return;
    }
    let types = ["integer", "number", "boolean"];
    let has_type = |of: &Value| {
        types.iter().any(|word| of == word || of.as_array().is_some_and(|of| of.iter().any(|of| of == word)))
    };
    let is_number = object.get("type").is_some_and(has_type);
    if is_number || object.contains_key("pattern") || object.contains_key("enum") {
        let notes = ["description", "default"];
        let mut outer: Map<String, Value> = Map::new();
        for note in notes {
            outer.extend(object.remove(note).map(|value| (note.to_owned(), value)));
        }
        outer.insert("anyOf".to_owned(), json!([Value::Object(std::mem::take(object)), variable]));
        *object = outer;
    }
}

/// The text of a page that is written by hand, from `docs/reference`.
macro_rules! written {
    ($name:literal) => {
        include_str!(concat!("../../../docs/reference/", $name, ".md")).to_owned()
    };
}

/// Returns a page of the reference as Markdown.
pub fn page(page: Page) -> String {
    match page {
        Page::Config => config_page(),
        Page::ConfigEveryday => everyday_page(),
        Page::Cli => cli_page(),
        #[cfg(feature = "lab")]
        Page::Provider => crate::provider::reference(),
        Page::Presets => egret_presets::reference(),
        Page::Script => egret_script::DECLARATIONS.to_owned(),
        Page::Accounts => written!("accounts"),
        #[cfg(feature = "lab")]
        Page::Bench => written!("bench"),
        Page::Cache => written!("cache"),
        Page::CacheRequirements => written!("cache-requirements"),
        Page::ControlApi => written!("control-api"),
        Page::Diagnoses => written!("diagnoses"),
        Page::Errors => written!("errors"),
        #[cfg(feature = "lab")]
        Page::Experiments => written!("experiments"),
        Page::Exporters => written!("exporters"),
        Page::Findings => written!("findings"),
        Page::Har => written!("har"),
        Page::Limits => written!("limits"),
        Page::Matching => written!("matching"),
        Page::Metrics => written!("metrics"),
        Page::Platforms => written!("platforms"),
        Page::Prices => written!("prices"),
        Page::Remedies => written!("remedies"),
        Page::Routing => written!("routing"),
        Page::Templates => written!("templates"),
        Page::Usage => written!("usage"),
        Page::Versions => written!("versions"),
    }
}

fn cli_page() -> String {
    let mut page = "# Command line\n\n<!-- Made by `egret reference cli`. Do not edit. -->\n\n\
        Exit codes: 0 done, 1 failed, 2 wrong usage or config. `--help` after any command prints the same texts.\n"
        .to_owned();
    let mut egret =
        Cli::command().disable_help_flag(true).disable_version_flag(true).disable_help_subcommand(true);
    egret.build();
    for command in egret.get_subcommands_mut().filter(|command| !command.is_hide_set()) {
        write_command(command, &mut page);
    }
    page
}

fn write_command(command: &mut clap::Command, page: &mut String) {
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let _ = writeln!(page, "\n## `{usage}`\n\n{about}");
    let mut arguments = command.get_arguments().peekable();
    if arguments.peek().is_some() {
        *page += "\n| argument | default | meaning |\n| --- | --- | --- |\n";
    }
    for argument in arguments {
        let default: Vec<_> =
            argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        let default =
            if default.is_empty() || argument.get_num_args().is_some_and(|count| !count.takes_values()) {
                String::new()
            } else {
                format!("`{}`", default.join(" "))
            };
        let meaning =
            argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
        // A row of a table is one line.
        let meaning = meaning.replace("\n\n", "<br>");
        let _ = writeln!(
            page,
            "| {} | {default} | {meaning}{} |",
            argument_name(argument),
            argument_words(argument)
        );
    }
    if let Some(examples) = command.get_after_long_help() {
        let _ = writeln!(page, "\n```text\n{examples}\n```");
    }
    for part in command.get_subcommands_mut() {
        write_command(part, page);
    }
}

fn argument_name(argument: &clap::Arg) -> String {
    let value = argument
        .get_value_names()
        .and_then(|names| names.first())
        .map(ToString::to_string)
        .unwrap_or_default();
    if argument.is_positional() {
        return format!("`<{value}>`");
    }
    let takes_value = argument.get_num_args().is_some_and(|count| count.takes_values());
    let value = match (takes_value, argument.is_require_equals_set()) {
        (true, true) => format!("[=<{value}>]"),
        (true, false) => format!(" <{value}>"),
        (false, _) => String::new(),
    };
    match (argument.get_short(), argument.get_long()) {
        (Some(short), Some(long)) => format!("`-{short}`, `--{long}{value}`"),
        (Some(short), None) => format!("`-{short}{value}`"),
        (None, long) => format!("`--{}{value}`", long.unwrap_or_default()),
    }
}

fn argument_words(argument: &clap::Arg) -> String {
    let words = argument.get_possible_values();
    words.iter().filter_map(|word| Some((word.get_name(), word.get_help()?))).fold(
        String::new(),
        |mut text, (name, help)| {
            let _ = write!(text, "<br>`{name}`: {help}");
            text
        },
    )
}

fn config_page() -> String {
    let schema = schema();
    let mut page = "# Config\n\n<!-- Made by `egret reference config`. Do not edit. -->\n\n\
        `egret check FILE` validates a config; `egret schema` prints its JSON Schema for editors.\n\
        Durations are written `250ms`, `5s`, `2m`, `1h`, `1d`; sizes `512B`, `64KiB`, `10MiB`, `1GiB`.\n\
        Secrets must not be written in the config; refer to them as `${env:NAME}`, `${file:PATH}`, `${exec:NAME}`,\n\
        `${credential:NAME}`, `${vault:PATH#FIELD}`, `${aws:NAME#FIELD}` or `${gcp:NAME#FIELD}`\n\
        ([Secrets](accounts.md#secrets)).\n\
        In every other value, `${env:NAME}` or `${env:NAME:-default}` is replaced by the environment variable; in\n\
        [CEL](matching.md) write `env(\"NAME\")`.\n\
        Where a section says so, a value alone stands for a mapping: `limit: calls` for `limit: { quota: calls }`,\n\
        and `- retry` for `- retry: {}`.\n\
        A list of one text or number needs no brackets: `listen: 127.0.0.1:8000`. A text with commas or blanks does.\n\
        In each section, the [everyday keys](config-everyday.md) come first.\n"
        .to_owned();
    for section in Sections::of(&schema).list {
        section.write(&schema, &mut page);
    }
    page
}

/// The everyday keys in one table, each in a sentence, so that they are seen at a glance.
fn everyday_page() -> String {
    let schema = schema();
    let mut page = "# Everyday config keys\n\n<!-- Made by `egret reference config-everyday`. Do not edit. -->\n\n\
        The keys that most configs need. Each leads to its section of the [config reference](config.md), which has all\n\
        keys, their defaults, and how durations, sizes, secrets and variables are written. `egret init` writes a file\n\
        to start from.\n\n\
        | key | value | meaning |\n| --- | --- | --- |\n"
        .to_owned();
    for section in Sections::of(&schema).list {
        section.write_everyday(&schema, &mut page);
    }
    page
}

/// A mapping with known keys, and every path where it may occur.
struct Section<'a> {
    paths: Vec<String>,
    object: &'a Value,
}

#[derive(Default)]
struct Sections<'a> {
    list: Vec<Section<'a>>,
    /// Index in `list` of the definition with this name.
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

impl<'a> Section<'a> {
    fn title(&self) -> String {
        match &self.paths[..] {
            [] => "Top level".to_owned(),
            paths => paths.iter().map(|path| format!("`{path}`")).collect::<Vec<_>>().join(", "),
        }
    }

    fn keys(&self) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
        self.object["properties"].as_object().into_iter().flatten()
    }

    /// Adds a row for each everyday key of this mapping.
    fn write_everyday(&self, schema: &Value, page: &mut String) {
        let title = self.title().to_lowercase().replace(' ', "-");
        let anchor: String = title.chars().filter(|c| is_of_anchor(*c)).collect();
        let start = self.paths.first().map_or_else(String::new, |path| format!("{path}."));
        for (key, value) in self.keys().filter(|(_, value)| is_everyday(value)) {
            let meaning = description(value);
            let whole = meaning.split("<br>").next().unwrap_or_default();
            let first =
                whole.split_once(". ").map_or_else(|| whole.to_owned(), |(first, _)| format!("{first}."));
            let (kind, first) = (kind(schema, value), first.replace('|', "\\|"));
            let _ = writeln!(page, "| [`{start}{key}`](config.md#{anchor}) | {kind} | {first} |");
        }
    }

    fn write(&self, schema: &Value, page: &mut String) {
        let _ = writeln!(page, "\n## {}\n\n{}\n", self.title(), description(self.object));
        *page += "| key | value | default | meaning |\n| --- | --- | --- | --- |\n";
        let required: Vec<&str> =
            self.object["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (key, value) in self.keys() {
            let kind = kind(schema, value);
            let default = match value.get("default") {
                _ if required.contains(&key.as_str()) => "required".to_owned(),
                // The defaults of a mapping are in its own section.
                Some(Value::Object(_)) | None => String::new(),
                Some(default) => format!("`{}`", plain(default)),
            };
            let meaning = format!("{}{}", description(value), words(schema, value));
            let _ = writeln!(page, "| `{key}` | {kind} | {default} | {} |", meaning.replace('|', "\\|"));
        }
    }
}

/// Returns `true` for a character of a heading that its anchor has.
fn is_of_anchor(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '-' | '_')
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

/// Describes the allowed values in a few words.
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
    if types.contains(&"array") {
        // The beginning of the page says that an item may stand for a list of it.
        return kind_of_type(schema, value, "array");
    }
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

/// Returns the descriptions of the allowed words.
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

/// Formats a JSON value in YAML syntax.
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

#[cfg(test)]
mod tests {
    use clap::ValueEnum;
    use egret_settings::config::Config;

    use super::*;

    /// Calls `found` for every object in the schema.
    fn each(value: &Value, found: &mut impl FnMut(&Map<String, Value>)) {
        match value {
            Value::Object(object) => {
                found(object);
                object.values().for_each(|value| each(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| each(value, found)),
            _ => {}
        }
    }

    #[test]
    fn the_schema_refuses_unknown_keys_everywhere() {
        let mut mappings = 0;
        each(&schema(), &mut |object| {
            if object.get("properties").is_some_and(|keys| keys.get("type").is_none()) {
                mappings += 1;
                assert_eq!(object.get("additionalProperties"), Some(&Value::Bool(false)), "{object:#?}");
            }
        });
        assert!(mappings >= 12, "only {mappings} mappings were looked at");
    }

    #[test]
    fn every_reference_of_the_schema_leads_somewhere() {
        let schema = schema();
        each(&schema, &mut |object| {
            if let Some(Value::String(reference)) = object.get("$ref") {
                assert!(schema.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
            }
        });
    }

    #[test]
    fn every_key_has_a_meaning_and_a_default() {
        each(&schema(), &mut |object| {
            let Some(Value::Object(keys)) = object.get("properties") else { return };
            for (key, value) in keys.iter().filter(|(_, value)| value.is_object()) {
                assert!(
                    value["description"].as_str().is_some_and(|text| !text.is_empty()),
                    "{key} has no description"
                );
            }
        });
    }

    #[test]
    fn every_key_of_the_default_config_is_on_the_page() {
        fn keys(value: &Value, found: &mut Vec<String>) {
            for (key, value) in value.as_object().into_iter().flatten() {
                found.push(format!("| `{key}` |"));
                keys(value, found);
            }
        }
        let page = page(Page::Config);
        let mut found = Vec::new();
        keys(&serde_json::to_value(Config::default()).unwrap(), &mut found);
        assert!(found.len() > 40, "{found:?}");
        for row in found {
            assert!(page.contains(&row), "{row}");
        }
    }

    #[test]
    fn each_page_of_the_reference_is_in_the_binary() {
        let directory = format!("{}/../../docs/reference", env!("CARGO_MANIFEST_DIR"));
        let pages: Vec<_> = Page::value_variants().iter().filter_map(ValueEnum::to_possible_value).collect();
        for file in std::fs::read_dir(directory).unwrap() {
            let name = file.unwrap().file_name().into_string().unwrap();
            let Some(name) = name.strip_suffix(".md") else { continue };
            assert!(pages.iter().any(|page| page.get_name() == name), "{name}: add it to `Page`");
        }
    }

    #[test]
    fn the_pages_in_docs_are_up_to_date() {
        for (name, kind) in
            [("config", Page::Config), ("config-everyday", Page::ConfigEveryday), ("cli", Page::Cli)]
        {
            let made = page(kind);
            let file = format!("{}/../../docs/reference/{name}.md", env!("CARGO_MANIFEST_DIR"));
            let kept = std::fs::read_to_string(&file).unwrap_or_default();
            assert!(kept == made, "stale: run `egret reference {name} > docs/reference/{name}.md`");
        }
    }
}

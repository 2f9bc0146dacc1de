//! `egret init`: writes a commented config to start from.
//!
//! Comments on sections and their defaults come from the definition of the config. A line with `#` and
//! anything but one space after it is YAML to uncomment.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use egret_presets::{Credential, PresetName};
use egret_settings::config::Config;
use egret_settings::config_path::FILE_NAME;
use egret_settings::failure::Failure;
use egret_settings::output::print;
use egret_settings::schema::schema;
use serde_json::Value;

/// Width of comments, in columns.
const COMMENT_COLUMNS: usize = 100;

/// Treatment of a file that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Leave it as it is, and fail.
    Keep,
    /// Overwrite it.
    Replace,
}

impl Existing {
    /// Returns the choice of `--force`.
    pub const fn of(force: bool) -> Self {
        if force { Self::Replace } else { Self::Keep }
    }
}

/// Writes the config, and prints what to do next.
pub fn run(file: &Path, existing: Existing, preset: Option<PresetName>) -> Result<(), Failure> {
    let name = file.display();
    let text = preset.map_or_else(text, text_of_preset);
    let mut options = OpenOptions::new();
    options.write(true);
    let opened = match existing {
        Existing::Keep => options.create_new(true).open(file),
        Existing::Replace => options.create(true).truncate(true).open(file),
    };
    opened.and_then(|mut opened| opened.write_all(text.as_bytes())).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::Failed(format!(
            "{name} exists already, and is not changed: name another file, or replace it with --force"
        )),
        _ => Failure::Failed(format!("{name}: cannot write the file: {error}")),
    })?;
    let argument = if file == Path::new(FILE_NAME) { String::new() } else { format!(" {name}") };
    if let Some(preset) = preset {
        let exports = variables(preset).map(|variable| format!("  export {variable}=...\n"));
        let exports = exports.collect::<Vec<_>>().concat();
        let user = if text_of_preset(preset).contains(USER) { USER_NOTE } else { "" };
        return print(&format!(
            "{name} is written, for {}.{user} Put your key into the environment, and start the gateway:\n\
             {exports}\
             \x20 egret run{argument} &\n\
             The base URL for your program is http://127.0.0.1:8000/{preset}\n",
            preset.preset().title
        ));
    }
    print(&format!(
        "{name} is written. Its provider is a built-in one, to try Egret without the Internet:\n\
         \x20 egret provider &          # starts that provider\n\
         \x20 egret run{argument} &               # starts the gateway\n\
         \x20 curl -i http://127.0.0.1:8000/example/get\n\
         Replace its URL by that of the API you call: a change is applied when you save the file.\n"
    ))
}

/// A section of the file.
struct FileSection {
    /// Its key in the config.
    key: &'static str,
    /// Its YAML, and comments of its own. `{default}` stands for the default of the key.
    yaml: &'static str,
}

/// The sections, those in effect first.
const PARTS: [FileSection; 8] = [
    FileSection {
        key: "providers",
        yaml: "providers:
  # Call http://127.0.0.1:8000/example/get, and Egret calls http://127.0.0.1:9000/get.
  example:
    url: http://127.0.0.1:9000    # `egret provider`; for your API: https://api.example.com
    timeouts: { connect: 2s, first_byte: 30s }
",
    },
    FileSection {
        key: "quotas",
        yaml: "quotas:
  # 100 calls per second, counted as the provider counts them.
  example-calls: { limit: 100, window: 1s }
",
    },
    FileSection {
        key: "flows",
        yaml: "flows:
  - name: within-limits
    match: { provider: example }    # also: method, path, host, header, query, when
    remedies:
      # Repeats calls that failed. A POST is only repeated with an Idempotency-Key.
      - retry: { attempts: 3, on: [connect, timeout, 502-504] }
      # Calls above the limit wait. Inside `retry`, so each call that goes out is counted.
      - queue: { quota: example-calls, max_wait: 20s }
#      - authenticate: { account: example }
#    diagnoses:
#      - har: { export: archive }
",
    },
    FileSection {
        key: "exporters",
        yaml: "#exporters:
#  archive: { type: har, directory: ./har }
",
    },
    FileSection {
        key: "accounts",
        yaml: "# The remedy `authenticate` of the flow above adds the key to its requests.
#accounts:
#  example: { provider: example, bearer: { token: \"${env:EXAMPLE_KEY}\" } }
",
    },
    FileSection {
        key: "gateway",
        yaml: "#gateway:
#  listen: {default}
",
    },
    FileSection {
        key: "control",
        yaml: "#control:
#  listen: {default}
",
    },
    FileSection {
        key: "log",
        yaml: "#log:
#  level: {default}
",
    },
];

/// Returns the text of the file.
fn text() -> String {
    let schema = schema();
    let defaults = serde_json::to_value(Config::default()).unwrap_or_default();
    let mut text = "# Egret's config. Every key has a default: you only write what you want to change.\n\
        # `egret check` finds mistakes, `egret schema` helps editors. `egret reference config-everyday` prints the\n\
        # keys that most configs need, and `egret reference config` all keys.\n\
        # Comments have one space after the #. The other lines with # are examples: remove the # to use them.\n"
        .to_owned();
    for part in PARTS {
        text.push('\n');
        let meaning = schema["properties"][part.key]["description"].as_str().unwrap_or_default();
        let first = meaning.split("\n\n").next().unwrap_or_default();
        write_comment(&first.replace('\n', " "), &mut text);
        text += &part.yaml.replace("{default}", &default_of(&defaults[part.key]));
    }
    text
}

/// Stands for a user in a file for a preset.
const USER: &str = "my-user";
const USER_NOTE: &str = " Replace `my-user` in it by your own.";

/// The environment variable that the file for a preset takes the key from.
fn key_variable(preset: PresetName) -> String {
    match preset.preset().credential {
        Some(Credential::Sigv4(_)) => "AWS_SECRET_ACCESS_KEY".to_owned(),
        _ => format!("{}_API_KEY", preset.word().to_ascii_uppercase().replace('-', "_")),
    }
}

/// The environment variables that the file for a preset reads.
fn variables(preset: PresetName) -> impl Iterator<Item = String> {
    let is_signed = matches!(preset.preset().credential, Some(Credential::Sigv4(_)));
    let id = is_signed.then(|| "AWS_ACCESS_KEY_ID".to_owned());
    id.into_iter().chain([key_variable(preset)])
}

/// Returns the text of the file for a well-known provider.
fn text_of_preset(name: PresetName) -> String {
    let preset = name.preset();
    let variable = key_variable(name);
    let url = preset.url_example.as_ref();
    let url = url.map_or_else(String::new, |url| format!("\n    url: {url}    # your own"));
    let credential = match &preset.credential {
        Some(Credential::Header(field)) => {
            format!("api_key: {{ header: {field}, value: \"${{env:{variable}}}\" }}")
        }
        Some(Credential::Basic(_)) => {
            format!("basic: {{ user: {USER}, password: \"${{env:{variable}}}\" }}")
        }
        Some(Credential::Sigv4(service)) => format!(
            "sigv4: {{ access_key_id: \"${{env:AWS_ACCESS_KEY_ID}}\", \
             secret_access_key: \"${{env:{variable}}}\", region: us-east-1, service: {service} }}"
        ),
        Some(Credential::Bearer) | None => format!("bearer: {{ token: \"${{env:{variable}}}\" }}"),
    };
    let key = if preset.idempotency_key.is_some() { ", idempotency_key: { make: true }" } else { "" };
    let body = if preset.usage.is_some() { ", body: 4MiB" } else { "" };
    format!(
        "# Egret's config for {title}. `egret explain` shows what the preset sets.\n\
         providers:\n  {name}:\n    preset: {name}{url}\n\
         accounts:\n  # Added to requests inside the gateway: your program sends any key.\n  \
         {name}: {{ provider: {name}, {credential} }}\n\
         flows:\n  - name: {name}\n    match: {{ provider: {name} }}\n    remedies:\n      \
         - retry: {{ attempts: 3{body}{key} }}\n      - authenticate: {{ account: {name} }}\n",
        title = preset.title
    )
}

/// Returns the default of the only key that the file shows of a section.
fn default_of(section: &Value) -> String {
    let shown = ["listen", "level"].into_iter().find_map(|key| section.get(key));
    match shown {
        Some(Value::Array(listeners)) => {
            let addresses = listeners.iter().filter_map(|listener| listener["address"].as_str());
            format!("[{}]", addresses.collect::<Vec<_>>().join(", "))
        }
        Some(Value::String(text)) => text.clone(),
        _ => String::new(),
    }
}

/// Adds a comment, wrapped.
fn write_comment(comment: &str, text: &mut String) {
    let mut columns = 0;
    for word in comment.split_whitespace() {
        let width = word.chars().count() + 1;
        if columns == 0 || columns + width > COMMENT_COLUMNS {
            if columns > 0 {
                text.push('\n');
            }
            text.push('#');
            columns = 1;
        }
        let _ = write!(text, " {word}");
        columns += width;
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use egret_config::{YamlEntry, YamlNode, YamlValue, parse_yaml};
    use egret_settings::schema::is_everyday;

    use super::*;

    fn check(text: &str) -> Config {
        let config = Config::parse("egret.yaml", text).unwrap_or_else(|report| panic!("{report}\n{text}"));
        assert_eq!(egret_settings::advice::advise(&config), []);
        config
    }

    #[test]
    fn the_file_is_a_good_config_with_one_flow() {
        let text = text();
        let config = check(&text);
        assert_eq!((config.providers.len(), config.quotas.len(), config.flows.len()), (1, 1, 1));
        assert!(text.contains("# The third-party APIs to call, by name."), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
    }

    /// Returns the file with its examples.
    fn uncommented() -> String {
        text().lines().fold(String::new(), |mut all, line| {
            let example =
                line.strip_prefix('#').filter(|rest| !rest.starts_with(' ') || rest.starts_with("  "));
            let _ = writeln!(all, "{}", example.unwrap_or(line));
            all
        })
    }

    #[test]
    fn its_commented_examples_are_good_and_show_the_defaults() {
        let config = check(&uncommented().replace("${env:EXAMPLE_KEY}", "${env:PATH}"));
        assert_eq!((config.exporters.len(), config.accounts.len()), (1, 1));
        assert_eq!(config.flows[0].diagnoses.len(), 1);
        let default = Config::default();
        assert_eq!(
            (config.gateway, config.control, config.log),
            (default.gateway, default.control, default.log)
        );
    }

    /// Adds the keys of a config, apart from the names that the user chooses.
    fn add_keys(node: &YamlNode, is_named: bool, keys: &mut BTreeSet<String>) {
        match &node.value {
            YamlValue::Mapping(mapping) => {
                for YamlEntry { key, node, .. } in &mapping.entries {
                    let holds_names = ["providers", "quotas", "exporters", "accounts"].contains(&&**key);
                    add_keys(node, holds_names, keys);
                    if !is_named {
                        keys.insert(key.clone());
                    }
                }
            }
            YamlValue::Sequence(items) => items.iter().for_each(|item| add_keys(item, false, keys)),
            _ => {}
        }
    }

    /// Adds the names of the everyday keys in a schema.
    fn add_everyday(schema: &Value, keys: &mut BTreeSet<String>) {
        for (name, inner) in schema.as_object().into_iter().flatten() {
            if is_everyday(inner) {
                keys.insert(name.clone());
            }
            add_everyday(inner, keys);
        }
        schema.as_array().into_iter().flatten().for_each(|inner| add_everyday(inner, keys));
    }

    #[test]
    fn the_file_has_everyday_keys_alone() {
        let (mut keys, mut everyday) = (BTreeSet::new(), BTreeSet::new());
        add_keys(&parse_yaml(&uncommented()).unwrap(), false, &mut keys);
        add_everyday(&schema(), &mut everyday);
        let others: Vec<_> = keys.difference(&everyday).collect();
        assert!(keys.len() >= 25 && others.is_empty(), "{others:?} of {keys:?}");
    }

    #[test]
    fn the_file_of_each_preset_is_a_good_config() {
        for name in PresetName::ALL {
            let text = text_of_preset(name);
            let known = variables(name)
                .fold(text.clone(), |text, variable| text.replace(&variable, "CARGO_PKG_NAME"));
            let config = check(&known);
            assert_eq!(config.providers[name.word()].preset, Some(name), "{text}");
            assert_eq!((config.accounts.len(), config.flows[0].remedies.len()), (1, 2), "{text}");
        }
    }

    #[test]
    fn a_file_that_exists_is_kept_unless_it_may_be_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("egret.yaml");
        std::fs::write(&file, "mine").unwrap();
        let message = run(&file, Existing::Keep, None).unwrap_err().to_string();
        assert!(message.ends_with("name another file, or replace it with --force"), "{message}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
        run(&file, Existing::Replace, None).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text());
    }
}

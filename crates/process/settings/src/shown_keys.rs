//! Keys that the reference lists have a message about a mistake in them, and stand in an example that a test
//! runs. It is held for the keys by which Egret gets out, proves itself, fetches secrets, knows its callers
//! and injects faults.

use std::fs;
use std::path::{Path, PathBuf};

use egret_config::{YamlNode, YamlValue, parse_yaml};

/// The reference, which is generated from the definitions of the keys.
const REFERENCE: &str = include_str!("../../../../docs/reference/config.md");

/// The messages about the mistakes in `tests/fixtures/broken-configs`.
const MESSAGES: &str = include_str!("../../../../tests/fixtures/broken-configs/messages.txt");

/// The keys that are held to it, each with all below it.
const HELD: [&str; 19] = [
    "gateway.compat",
    "gateway.listen[].socks5",
    "gateway.listen[].unix_mode",
    "gateway.listen[].unix_group",
    "gateway.listen[].clients.jwt",
    "gateway.listen[].clients.users",
    "gateway.upstream_proxy",
    "providers.<name>.proxy",
    "control.read_token",
    "control.trusted_proxy",
    "accounts.<name>.gcp",
    "accounts.<name>.azure",
    "accounts.<name>.github",
    "accounts.<name>.sigv4.identity",
    "accounts.<name>.oauth2.grant",
    "accounts.<name>.oauth2.assertion",
    "accounts.<name>.oauth2.client_assertion",
    "secrets",
    "flows[].remedies[].fault",
];

/// Returns the steps of a path without the numbers of elements.
fn steps(path: &str) -> Vec<&str> {
    path.split('.').map(|step| step.split('[').next().unwrap_or_default()).collect()
}

/// Returns `true` if a path leads to this key, or to one below it.
fn leads_to(path: &str, key: &str) -> bool {
    let (path, key) = (steps(path), steps(key));
    path.len() >= key.len() && key.iter().zip(path).all(|(key, step)| *key == "<name>" || *key == step)
}

/// Returns the keys that are held to it, each with all places where the reference has it.
fn keys() -> Vec<Vec<String>> {
    let mut found: Vec<Vec<String>> = Vec::new();
    for section in REFERENCE.split("\n## ").skip(1) {
        let (heading, rows) = section.split_once('\n').unwrap();
        let places: Vec<&str> = heading.split('`').skip(1).step_by(2).collect();
        let names = rows.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        found.extend(names.map(|name| places.iter().map(|place| format!("{place}.{name}")).collect()));
    }
    let is_held = |key: &String| HELD.iter().any(|held| leads_to(key, held));
    found.retain(|places| places.iter().any(is_held));
    found
}

/// Adds the path of each value in a config.
fn add_paths(node: &YamlNode, path: &str, found: &mut Vec<String>) {
    match &node.value {
        YamlValue::Sequence(items) => items.iter().for_each(|item| add_paths(item, path, found)),
        YamlValue::Mapping(mapping) => {
            for entry in &mapping.entries {
                let path = if path.is_empty() { entry.key.clone() } else { format!("{path}.{}", entry.key) };
                add_paths(&entry.node, &path, found);
                found.push(path);
            }
        }
        _ => {}
    }
}

/// Returns the files in a directory and in those below it.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Returns the configs that the commands beside them read, which tests of the documentation run: examples
/// with their first lines, and the named blocks of a page.
fn examples() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mut found = Vec::new();
    for file in files(&root.join("examples")).iter().chain(&files(&root.join("docs"))) {
        let Ok(text) = fs::read_to_string(file) else { continue };
        let is_read = |name: &str| {
            text.lines()
                .any(|line| line.contains("egret ") && line.split([' ', '\'']).any(|word| word == name))
        };
        let name = file.strip_prefix(&root).unwrap().to_str().unwrap();
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("yaml") if is_read(name) => found.push(text),
            Some("md") => {
                let blocks = text.split("```yaml\n# ").skip(1).filter_map(|block| block.split("```").next());
                let named =
                    blocks.filter(|block| is_read(block.split([' ', '\n']).next().unwrap_or_default()));
                found.extend(named.map(|block| format!("# {block}")));
            }
            _ => {}
        }
    }
    found
}

#[test]
fn held_keys_have_a_message_and_an_example() {
    let keys = keys();
    assert!(keys.len() >= 120, "{keys:#?}");
    // `FILE:LINE:COLUMN: PATH: MESSAGE`
    let blamed: Vec<&str> = MESSAGES
        .lines()
        .filter_map(|line| line.split_once(".yaml:")?.1.split_once(": ")?.1.split(": ").next())
        .collect();
    let mut shown = Vec::new();
    for example in examples() {
        let root = parse_yaml(&example).unwrap_or_else(|error| panic!("{error}:\n{example}"));
        add_paths(&root, "", &mut shown);
    }
    let without = |paths: &[&str]| -> Vec<&Vec<String>> {
        let is_met = |key: &String| paths.iter().any(|path| leads_to(path, key));
        keys.iter().filter(|places| !places.iter().any(is_met)).collect()
    };
    let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
    let (no_message, no_example) = (without(&blamed), without(&shown));
    assert!(
        no_message.is_empty() && no_example.is_empty(),
        "without a message: {no_message:#?}\nwithout an example: {no_example:#?}"
    );
}

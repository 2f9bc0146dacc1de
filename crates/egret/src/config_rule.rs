//! The rules for changes over the control API: enough to run the gateway, but nothing that reads or writes
//! other files, and nothing that sends a secret elsewhere.
//!
//! The rules compare two texts before anything that the new one refers to is read, so a refusal reveals
//! nothing about the files and variables of the machine. The text to compare with is the *approved* one: the
//! last one that came from the file itself, at start or by a reload. Only the owner of the file decides what
//! the gateway may read. The API can remove such references, and put back what it removed.
//!
//! Everything that is not listed here as changeable is fixed, including keys that are yet to be added.

use std::collections::BTreeSet;

use egret_config::{Node, Problem};

/// Sections that may be changed. All others stay as they are in the file.
const SECTIONS: [&str; 4] = ["log", PROVIDERS, "quotas", "flows"];

const PROVIDERS: &str = "providers";

/// Keys of a provider that may be changed. The others decide where requests with credentials are sent.
const PROVIDER_KEYS: [&str; 3] = ["timeouts", "pool", "upgrades"];

/// Sections that never change over the API, which could otherwise change its own rules.
const OWN_SECTIONS: [&str; 2] = ["control", "data_dir"];

/// Keys of files, whatever type their values are read as. Keys whose type is a path need no entry.
const FILE_KEYS: [&str; 7] = ["file", "files", "directory", "ca", "certificate", "include", "includes"];

/// Advice in every refusal.
const ADVICE: &str =
    "change it in the file itself, or allow such changes there with `control.config_changes: unrestricted`";

/// Returns a problem for each change that `control.config_changes: restricted` refuses. Call it before the
/// new text is read into a config, and again afterwards, when paths are known by their type.
pub fn restricted(approved: Node<'_>, new: Node<'_>) -> Vec<Problem> {
    let sections = names(approved).chain(names(new)).filter(|section| !SECTIONS.contains(section));
    let mut problems = changed(&sections.collect(), approved, new);
    for section in SECTIONS {
        let known = approved.get(section).map(|node| entries(section, node)).unwrap_or_default();
        let Some(node) = new.get(section) else { continue };
        if node.text().is_some_and(is_reference) {
            problems.push(refused(section, "it refers to a file or a variable"));
        }
        let is_new = |entry: &Entry<'_>| {
            has_reference(entry)
                && !known.iter().any(|known| known.name == entry.name && known.node.is_same(entry.node))
        };
        let reason = "it refers to a file or a variable, and the file has no entry with exactly this content";
        // Providers have rules of their own: most of their keys are fixed.
        if section == PROVIDERS {
            continue;
        }
        let is_refused = entries(section, node).into_iter().filter(is_new);
        problems.extend(is_refused.map(|entry| refused(&entry.path, reason)));
    }
    problems.extend(providers(approved, new));
    problems
}

/// Returns a problem for each change that is refused even with `control.config_changes: unrestricted`.
pub fn unrestricted(approved: Node<'_>, new: Node<'_>) -> Vec<Problem> {
    let changed = OWN_SECTIONS.into_iter().filter(|section| is_changed(section, approved, new));
    let message = "this section cannot be changed over the API: change it in the file itself";
    changed.map(|section| Problem::new(section, message)).collect()
}

/// Destinations stay: an existing provider keeps all keys except [`PROVIDER_KEYS`], and a new one has no keys
/// that could make it receive the calls of another.
fn providers(approved: Node<'_>, new: Node<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let known = approved.get(PROVIDERS);
    // A remedy could send what a reference stands for to a new provider.
    let flows = new.get("flows").map(|node| entries("flows", node)).unwrap_or_default();
    let has_values = flows.iter().any(has_value);
    for (name, provider) in new.get(PROVIDERS).into_iter().flat_map(Node::entries) {
        let path = format!("{PROVIDERS}.{name}");
        if let Some(known) = known.and_then(|known| known.get(name)) {
            problems.extend(existing_provider(&path, known, provider));
        } else if has_values {
            let reason = "a flow refers to a file or a variable, which must not reach a new provider";
            problems.push(refused(&path, reason));
        } else {
            problems.extend(new_provider(&Entry { name, path, node: provider }));
        }
    }
    problems
}

fn existing_provider(path: &str, known: Node<'_>, provider: Node<'_>) -> Vec<Problem> {
    let changed = names(known).chain(names(provider)).filter(|key| is_changed(key, known, provider));
    let problem = |key| {
        let path = format!("{path}.{key}");
        if !PROVIDER_KEYS.contains(&key) {
            return Some(refused(&path, "it decides where requests and their credentials are sent"));
        }
        let value = Entry { name: key, node: provider.get(key)?, path: String::new() };
        has_reference(&value).then(|| refused(&path, "it refers to a file or a variable"))
    };
    changed.collect::<BTreeSet<_>>().into_iter().filter_map(problem).collect()
}

fn new_provider(provider: &Entry<'_>) -> Vec<Problem> {
    if has_reference(provider) {
        return vec![refused(&provider.path, "it refers to a file or a variable")];
    }
    let keys = names(provider.node).filter(|key| *key != "url" && !PROVIDER_KEYS.contains(key));
    let reason = "a provider that is added over the API cannot have this key";
    keys.map(|key| refused(&format!("{}.{key}", provider.path), reason)).collect()
}

/// Returns a problem for each of these sections that has changed.
fn changed(sections: &BTreeSet<&str>, approved: Node<'_>, new: Node<'_>) -> Vec<Problem> {
    let changed = sections.iter().filter(|section| is_changed(section, approved, new));
    changed.map(|section| refused(section, "this section must stay as it is in the file")).collect()
}

fn is_changed(key: &str, before: Node<'_>, now: Node<'_>) -> bool {
    match (before.get(key), now.get(key)) {
        (Some(before), Some(now)) => !before.is_same(now),
        (before, now) => before.is_some() != now.is_some(),
    }
}

fn refused(path: &str, reason: &str) -> Problem {
    Problem::new(path, format!("refused over the API: {reason}; {ADVICE}"))
}

fn names(node: Node<'_>) -> impl Iterator<Item = &str> {
    node.entries().map(|(name, _)| name)
}

/// An entry of a section, and its path from the root.
struct Entry<'a> {
    /// The key, or in a list the value of `name`.
    name: &'a str,
    path: String,
    node: Node<'a>,
}

/// Returns the entries of a section, which is a mapping or a list.
fn entries<'a>(section: &str, node: Node<'a>) -> Vec<Entry<'a>> {
    let named = node.entries().map(|(name, node)| Entry { name, path: format!("{section}.{name}"), node });
    let listed = node.elements().enumerate().map(|(index, node)| Entry {
        name: node.get("name").and_then(Node::text).unwrap_or_default(),
        path: format!("{section}[{index}]"),
        node,
    });
    named.chain(listed).collect()
}

/// Returns `true` if anything in the entry names a file or refers to a variable.
fn has_reference(entry: &Entry<'_>) -> bool {
    let names_file = |key: &str, node: Node<'_>| node.text().is_some() && FILE_KEYS.contains(&key);
    has_value(entry) || any(entry.name, entry.node, &|key, node| node.is_path() || names_file(key, node))
}

/// Returns `true` if anything in the entry stands for the content of a file or variable.
fn has_value(entry: &Entry<'_>) -> bool {
    any(entry.name, entry.node, &|key, node| is_reference(key) || node.text().is_some_and(is_reference))
}

/// Returns `true` if `test` does for the node, or for any key and value in it.
fn any(key: &str, node: Node<'_>, test: &dyn Fn(&str, Node<'_>) -> bool) -> bool {
    test(key, node)
        || node.entries().any(|(key, node)| any(key, node, test))
        || node.elements().any(|node| any(key, node, test))
}

/// First words of references, which are never values of an exchange.
const REFERENCE_WORDS: [&str; 5] = ["env", "file", "secret", "secrets", "include"];

/// Returns `true` for a text that may be replaced by the content of a file or variable: `${file:PATH}`,
/// `${env:NAME}`, and `env("NAME")` in an expression or a script. It may be `true` for other texts as well.
fn is_reference(text: &str) -> bool {
    const CALL: &str = "env";
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let is_call = |(at, _): (usize, &str)| {
        let after = text[at + CALL.len()..].trim_start();
        !text[..at].ends_with(is_part) && after.starts_with(['(', '[', '.', '?'])
    };
    // Values of the exchange in templates have the form `${a.b}`; only references have a colon.
    let is_value = |rest: &str| {
        let is_name = |c: char| is_part(c) || matches!(c, '.' | '-');
        let (name, _) = rest.split_once('}').unwrap_or((":", ""));
        let word = name.split(['.', '-']).next().unwrap_or_default();
        !name.is_empty() && name.chars().all(is_name) && !REFERENCE_WORDS.contains(&word)
    };
    text.split("${").skip(1).any(|rest| !is_value(rest)) || text.match_indices(CALL).any(is_call)
}

#[cfg(test)]
mod tests {
    use egret_config::Document;

    use super::*;
    use crate::config::Config;

    const APPROVED: &str = r#"
control: { listen: 127.0.0.1:0 }
providers:
  stripe: { url: https://api.stripe.com, tls: { ca: /etc/ca.pem }, timeouts: { connect: 1s } }
accounts:
  live: { provider: stripe, bearer: { token: "${env:PATH}" } }
exporters:
  archive: { type: har, directory: ./har }
quotas:
  live: { limit: 5, window: 1s }
flows:
- name: charges
  match: { provider: stripe }
  remedies: [limit: { quota: live }]
- name: kept
  remedies: [cache: { disk: { directory: /var/cache, size: 1GiB } }]
"#;

    /// Returns the paths of the problems of a change of [`APPROVED`].
    fn refused_paths(from: &str, to: &str) -> Vec<String> {
        assert!(APPROVED.contains(from), "{from}");
        let text = APPROVED.replacen(from, to, 1);
        let (approved, new) = (Document::parse("a", APPROVED).unwrap(), Document::parse("b", &text).unwrap());
        restricted(approved.root(), new.root()).into_iter().map(|problem| problem.path).collect()
    }

    #[test]
    fn the_file_itself_and_what_runs_the_gateway_may_be_sent() {
        for (from, to) in [
            ("limit: 5", "limit: 6"),
            ("connect: 1s", "connect: 2s"),
            (
                "quotas:",
                "log: { level: debug }
quotas:",
            ),
            (
                "quotas:",
                "# a comment
quotas:",
            ),
            (
                "providers:
",
                "providers:
  openai: { url: https://api.openai.com, pool: { connections: 3 } }
",
            ),
            (
                "- name: kept
  remedies: [cache: { disk: { directory: /var/cache, size: 1GiB } }]
",
                "",
            ),
            ("- name: charges", "- name: sales"),
            (
                "limit: { quota: live }",
                "fixed-response: { body: 'no ${params.id}, ${now}, ${request.headers.x-id}' }",
            ),
            (
                "- name: charges
",
                "- name: first
  match: { path: '/env/{env}/x' }
- name: charges
",
            ),
        ] {
            let refused = refused_paths(from, to);
            assert!(refused.is_empty(), "{to}: {refused:?}");
        }
    }

    #[test]
    fn whatever_reads_or_writes_elsewhere_is_refused() {
        for (from, to, path) in [
            ("127.0.0.1:0", "0.0.0.0:0", "control"),
            (
                "control:",
                "gateway: { access_log: { output: /etc/cron.d/x } }
control:",
                "gateway",
            ),
            (
                "control:",
                "secrets: { world_readable: allow }
control:",
                "secrets",
            ),
            (
                "control:",
                "data_dir: /tmp
control:",
                "data_dir",
            ),
            (
                "control:",
                "cluster: { redis: { url: 'redis://evil' } }
control:",
                "cluster",
            ),
            (
                "control: { listen: 127.0.0.1:0 }
",
                "",
                "control",
            ),
            ("directory: ./har", "directory: /etc", "exporters"),
            ("${env:PATH}", "${file:/etc/shadow}", "accounts"),
            ("provider: stripe, bearer", "provider: [stripe, evil], bearer", "accounts"),
            ("https://api.stripe.com", "http://evil.example", "providers.stripe.url"),
            ("ca: /etc/ca.pem", "ca: /etc/shadow", "providers.stripe.tls"),
            ("tls: { ca: /etc/ca.pem }, ", "", "providers.stripe.tls"),
            ("url: https", "hosts: [a.example], url: https", "providers.stripe.hosts"),
            ("connect: 1s", "connect: '${env:HOME}'", "providers.stripe.timeouts"),
            ("limit: 5", "limit: '${env:HOME}'", "quotas.live"),
            ("limit: 5", "'${env:HOME}': 5", "quotas.live"),
            ("/var/cache", "/etc", "flows[1]"),
            ("size: 1GiB", "size: 2GiB", "flows[1]"),
            ("- name: kept", "- name: other", "flows[1]"),
            ("limit: { quota: live }", "script: { file: /etc/shadow }", "flows[0]"),
            (
                "limit: { quota: live }",
                "fixed-response: { body: '${env:X:-${file:/etc/shadow}}' }",
                "flows[0]",
            ),
            (
                "limit: { quota: live }",
                "fixed-response: { body: '${params.id${file:/etc/shadow}' }",
                "flows[0]",
            ),
            ("limit: { quota: live }", "fixed-response: { body: '${params:-${env:X}}' }", "flows[0]"),
            ("limit: { quota: live }", "fixed-response: { when: 'env (X) == 1' }", "flows[0]"),
            ("limit: { quota: live }", "script: { source: 'a env[1]' }", "flows[0]"),
            (
                "live: { limit",
                "a: &a { x: '${file:/etc/shadow}' }
  b: *a
  live: { limit",
                "quotas.a",
            ),
            (
                "log",
                "log: '${file:/etc/shadow}'
#",
                "log",
            ),
        ] {
            let (from, to) = if from == "log" {
                (
                    "control:",
                    "log: '${file:/x}'
control:",
                )
            } else {
                (from, to)
            };
            let refused = refused_paths(from, to);
            assert!(refused.iter().any(|refused| refused == path), "{to}: {refused:?}");
        }
    }

    #[test]
    fn a_new_provider_takes_no_calls_of_others() {
        let approved = "providers: { a: { url: 'https://a.example' } }";
        for (provider, paths) in [
            ("url: 'https://b.example', timeouts: { connect: 1s }", vec![]),
            ("url: 'https://b.example', hosts: [a.example]", vec!["providers.b.hosts"]),
            ("url: 'https://a.example/x', tls: { verify: dangerously-off }", vec!["providers.b.tls"]),
        ] {
            let text = format!("providers: {{ a: {{ url: 'https://a.example' }}, b: {{ {provider} }} }}");
            let (approved, new) =
                (Document::parse("a", approved).unwrap(), Document::parse("b", &text).unwrap());
            let refused = restricted(approved.root(), new.root());
            assert_eq!(refused.iter().map(|problem| &*problem.path).collect::<Vec<_>>(), paths);
        }
    }

    #[test]
    fn what_a_flow_refers_to_reaches_no_new_provider() {
        let flow = "flows: [{ name: f, remedies: [x: { header: '${env:KEY}' }] }]";
        let text = format!("providers: {{ b: {{ url: 'https://b.example' }} }}\n{flow}");
        let (approved, new) = (Document::parse("a", flow).unwrap(), Document::parse("b", &text).unwrap());
        let refused = restricted(approved.root(), new.root());
        assert_eq!(refused.iter().map(|problem| &*problem.path).collect::<Vec<_>>(), ["providers.b"]);
    }

    #[test]
    fn a_path_is_refused_by_its_type_once_the_text_has_been_read() {
        let (before, after) =
            ("flows: []", "flows: [{ name: f, remedies: [cache: { disk: { directory: /x } }] }]");
        // The name of the key is known, so this shows that the type alone is enough.
        assert!(FILE_KEYS.contains(&"directory"));
        let approved = Document::parse("a", before).unwrap();
        let mut new = Document::parse("b", after).unwrap();
        let directory = |document: &Document<'_>| {
            let mut node = document.root().get("flows").unwrap().elements().next().unwrap();
            node = node.get("remedies").unwrap().elements().next().unwrap();
            ["cache", "disk", "directory"]
                .into_iter()
                .fold(node, |node, key| node.get(key).unwrap())
                .is_path()
        };
        assert!(!directory(&new));
        new.read::<Config>().unwrap();
        assert!(directory(&new));
        assert_eq!(restricted(approved.root(), new.root()).len(), 1);
    }

    #[test]
    fn without_restrictions_the_rules_themselves_stay() {
        let parsed = |text| Document::parse("a", text).unwrap();
        let approved = parsed("control: { config_changes: unrestricted }");
        for (text, count) in [
            (
                "control: { config_changes: unrestricted }
exporters: { a: { type: har, directory: /x } }",
                0,
            ),
            (
                "control: { config_changes: unrestricted }
data_dir: /x",
                1,
            ),
            ("control: { config_changes: restricted }", 1),
            ("log: { level: debug }", 1),
        ] {
            assert_eq!(unrestricted(approved.root(), parsed(text).root()).len(), count, "{text}");
        }
    }
}

//! Single changes, and the table of keys.

use std::collections::BTreeSet;

use egret_config::Document;

use super::*;
use crate::config_rule::tunable::TUNABLE;

const EVERY_SECTION: &str = include_str!("every_section.yaml");
const REFERENCE_PAGE: &str = include_str!("../../../../../docs/reference/control-api.md");

/// Returns the paths of the problems of a change of [`EVERY_SECTION`].
fn refused_paths(from: &str, to: &str) -> Vec<String> {
    assert!(EVERY_SECTION.contains(from), "{from}");
    refused(EVERY_SECTION, &EVERY_SECTION.replacen(from, to, 1))
}

fn refused(approved: &str, new: &str) -> Vec<String> {
    let (approved, new) = (Document::parse("a", approved).unwrap(), Document::parse("b", new).unwrap());
    tune(approved.root(), new.root()).into_iter().map(|problem| problem.path).collect()
}

#[test]
fn plain_values_of_listed_keys_may_change() {
    for (from, to) in [
        ("limit: 100, window: 1s", "limit: 101, window: 2s"),
        ("ratio: 0.2", "ratio: 0.25"),
        ("ratio: 0.2", "ratio: 1"),
        ("a: 50%", "a: 40.5%"),
        ("level: info", "level: debug"),
        ("enabled: true", "enabled: false"),
        ("window: 10s", "window: '10m'"),
        ("stale_if_error: 5m", "stale_if_error: >-\n            6m"),
        ("body: 64KiB\n          per_try", "body: 1MiB\n          per_try"),
        ("\"${env:EGRET_NO_SUCH_LIMIT:-1000}\"", "5"),
        ("# Every section", "# Some sections"),
        ("timeouts: *times", "timeouts: { connect: 9s, tls: 2s, first_byte: 3s, idle: 4s, total: 5s }"),
        ("mode: report", "mode: enforce"),
        ("tags: [charges]\n        mode: enforce", "tags: [charges]\n        mode: report"),
    ] {
        assert_eq!(refused_paths(from, to), [] as [&str; 0], "{to}");
    }
}

#[test]
fn all_other_changes_are_refused_at_their_place() {
    for (from, to, path) in [
        ("listen: 127.0.0.1:2", "listen: 0.0.0.0:2", "control.listen"),
        ("config_changes: tune", "config_changes: all", "control.config_changes"),
        ("redact: secrets", "redact: off", "control.traffic.redact"),
        ("mask: [name]", "mask: [x]", "control.traffic.mask[0]"),
        ("mask: [name]", "mask: name", "control.traffic.mask"),
        ("entries: 1000", "entries: 1001", "control.traffic.entries"),
        ("data_dir: ./data", "data_dir: /tmp", "data_dir"),
        ("https://one.example/base", "http://evil.example", "providers.one.url"),
        ("https://eu.one.example", "https://evil.example", "providers.one.endpoints[0]"),
        ("verify: full", "verify: dangerously-off", "providers.one.tls.verify"),
        ("  two: {", "  evil: { url: 'http://169.254.169.254' }\n  two: {", "providers.evil"),
        ("mode: enforce, default: deny", "mode: off, default: deny", "gateway.egress.mode"),
        ("default: deny", "default: allow", "gateway.egress.default"),
        ("open_proxy: false", "open_proxy: true", "gateway.open_proxy"),
        ("unix_mode: \"0600\"", "unix_mode: \"0666\"", "gateway.listen[3].unix_mode"),
        ("one: [1001, root]", "one: [1001, nobody]", "gateway.listen[3].clients.users.one[1]"),
        ("http://proxy.example", "http://evil.example", "gateway.upstream_proxy.url"),
        ("proxy: none", "proxy: http://evil.example", "providers.one.proxy"),
        ("level: info", "level: trace", "log.level"),
        ("gathered: 64MiB", "gathered: 1MiB", "gateway.limits.gathered"),
        ("obfuscate: true", "obfuscate: false", "flows[0].diagnoses[0].har.obfuscate"),
        ("bodies: 64KiB, exclude", "bodies: 1MiB, exclude", "flows[0].diagnoses[0].har.bodies"),
        (
            "forward_credentials: false",
            "forward_credentials: true",
            "flows[1].remedies[0].fallback.forward_credentials",
        ),
        ("mask_echoes: true\n", "mask_echoes: false\n", "flows[0].remedies[10].accounts.mask_echoes"),
        ("on_error: open", "on_error: closed", "flows[0].remedies[1].on_error"),
        ("sample: 50", "sample: 0", "flows[0].match.sample"),
        ("time: 1ms", "time: 2ms", "flows[1].remedies[3].script.time"),
        (
            "x-why: no }, body: \"no ${request.headers.x-id}\" }\n        mode: enforce",
            "x-why: no }, body: \"no ${request.headers.x-id}\" }\n        mode: report",
            "flows[1].remedies[4].mode",
        ),
        ("default: block", "default: allow", "quotas.shared.shares.default"),
        ("keep: 1GiB", "keep: 1MiB", "exporters.archive.keep"),
        ("export: pager", "export: archive", "alerts.export"),
        ("alerts: [80%", "alerts: [90%", "quotas.monthly.alerts[0]"),
        ("store_error: closed", "store_error: open", "quotas.bucket.on_store_error"),
        ("limit: 100,", "limit: '${env:HOME}',", "quotas.sliding.limit"),
        ("limit: 100,", "limit: ['100'],", "quotas.sliding.limit"),
        ("limit: 100,", "limit: ~,", "quotas.sliding.limit"),
        ("limit: 100,", "limit: -1,", "quotas.sliding.limit"),
        ("limit: 100,", "limit: '100',", "quotas.sliding.limit"),
        ("limit: 100, window: 1s", "window: 1s, limit: 100", "quotas.sliding.window"),
        ("limit: 100, ", "", "quotas.sliding.window"),
        ("window: 10s", "window: '${env:X:-10s}'", "flows[0].remedies[2].circuit-breaker.window"),
        ("ageing: 5s } }", "ageing: 5s }, status: 500 }", "flows[0].remedies[8].queue.status"),
        ("idle: 5, idle_timeout: 30s", "idle: 5", "providers.one.pool"),
        ("[GET, POST]", "[GET, POST, PUT]", "flows[0].match.method"),
        ("[GET, POST]", "[POST, GET]", "flows[0].match.method[0]"),
        ("log: { level", "include: [/etc/passwd]\nlog: { level", "include"),
    ] {
        let refused = refused_paths(from, to);
        assert!(refused.iter().any(|refused| refused == path), "{to}: {refused:?}");
    }
}

#[test]
fn an_aliased_section_is_judged_like_a_written_one() {
    // One of the two places is not in the table.
    let approved = "providers: { a: { url: &u https://a.example, timeouts: { connect: &c 5s } } }\nx: *c\n";
    assert_eq!(refused(approved, &approved.replace("5s", "6s")), ["x"]);
    assert_eq!(refused(approved, &approved.replace("*c", "5s")), [] as [&str; 0]);
    assert_eq!(
        refused(approved, &approved.replace("connect: &c 5s }", "connect: &c 5s, <<: { tls: 1s } }")).len(),
        1
    );
}

#[test]
fn few_problems_are_enough() {
    let text = |word: &str| format!("x: [{}]", format!("{word}, ").repeat(1_000));
    assert_eq!(refused(&text("a"), &text("b")).len(), PROBLEMS_MAX);
}

#[test]
fn all_accepts_everything_but_the_rules_themselves() {
    let parsed = |text| Document::parse("a", text).unwrap();
    let approved = parsed("control: { config_changes: all }");
    for (text, count) in [
        ("control: { config_changes: all }\nexporters: { a: { type: har, directory: /x } }", 0),
        ("control: { config_changes: all }\ndata_dir: /x", 1),
        ("control: { config_changes: all }\nsecrets: { commands: { a: { command: [id] } } }", 1),
        ("control: { config_changes: tune }", 1),
        ("log: { level: debug }", 1),
    ] {
        assert_eq!(all(approved.root(), parsed(text).root()).len(), count, "{text}");
    }
}

#[test]
fn the_reference_page_lists_exactly_these_keys() {
    let (_, section) = REFERENCE_PAGE.split_once("### Accepted changes").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = section
        .lines()
        .filter(|line| line.starts_with("| "))
        .flat_map(|line| line.split('`').skip(1).step_by(2));
    let on_page: BTreeSet<&str> =
        rows.filter(|code| code.contains('.') && !code.contains("config_changes")).collect();
    let listed: BTreeSet<&str> = TUNABLE.iter().flat_map(|(_, keys)| *keys).copied().collect();
    assert_eq!(on_page, listed);
}

/// Collects the paths of the values in a config.
fn leaves<'a>(node: Node<'a>, path: &mut Vec<PathStep<'a>>, found: &mut Vec<Vec<PathStep<'a>>>) {
    if !matches!(node.value(), YamlValue::Mapping(_) | YamlValue::Sequence(_)) {
        found.push(path.clone());
    }
    let named = node.entries().map(|(name, value)| (PathStep::Key(name), value));
    let listed = node.elements().enumerate().map(|(number, value)| (PathStep::Element(number, value), value));
    for (step, value) in named.chain(listed) {
        path.push(step);
        leaves(value, path, found);
        path.pop();
    }
}

#[test]
fn every_key_of_the_table_exists_and_has_values_of_its_kind() {
    let document = Document::parse("a", EVERY_SECTION).unwrap();
    let mut found = Vec::new();
    leaves(document.root(), &mut Vec::new(), &mut found);
    let mut tunable: BTreeSet<String> = BTreeSet::new();
    for (_, keys) in TUNABLE {
        for key in keys.iter().flat_map(|key| spelt_out(key)) {
            let is_met = found.iter().any(|path| tunable::leads_to(&key, path));
            assert!(is_met, "{key} is in no line of every_section.yaml");
        }
    }
    for path in &found {
        let node = path.iter().fold(document.root(), |node, step| match step {
            PathStep::Key(name) => node.get(name).unwrap(),
            PathStep::Element(number, _) => node.elements().nth(*number).unwrap(),
        });
        let Some(plain) = tunable::plain_value(path) else { continue };
        let text = tunable::text(path);
        let is_reference = text == "quotas.monthly.limit";
        // The file may have what cannot be chosen over the API.
        assert!(plain.takes(node.value()) || is_reference || text.ends_with("].mode"), "{text}");
        tunable.insert(text);
    }
    assert!(
        (100..150).contains(&tunable.len()),
        "{} of {} values may be changed",
        tunable.len(),
        found.len()
    );
}

/// Returns a path of the table for each of the keys that it stands for.
fn spelt_out(key: &str) -> Vec<String> {
    let Some((before, keys)) = key.split_once('{') else { return vec![key.to_owned()] };
    keys.trim_end_matches('}').split(',').map(|key| format!("{before}{key}")).collect()
}

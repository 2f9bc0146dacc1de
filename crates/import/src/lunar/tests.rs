//! Tests of whole configs: bad and hostile input, and shapes without an equivalent.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::report::ItemOutcome;

fn write(directory: &Path, name: &str, text: &str) {
    let file = directory.join(name);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
}

fn imported(files: &[(&str, &str)]) -> Result<Translation, ImportError> {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        write(directory.path(), name, text);
    }
    import(directory.path())
}

/// A flow on `a.example` with these processors and arrows of the request side.
fn flow(processors: &str, request: &str) -> String {
    format!(
        "name: F\nfilter: {{ url: a.example/* }}\nprocessors:\n{processors}flow:\n  request:\n{request}  response:\n    \
         - from: {{ stream: {{ name: globalStream, at: start }} }}\n      to: {{ stream: {{ name: globalStream, at: end }} }}\n"
    )
}

const START: &str = "from: { stream: { name: globalStream, at: start } }";

fn lost(translation: &Translation) -> Vec<String> {
    let items = translation.items.iter();
    items.filter(|item| matches!(item.verdict, ItemOutcome::Lost(_))).map(ToString::to_string).collect()
}

#[test]
fn a_circle_of_arrows_is_reported() {
    let text = flow(
        "  A: { processor: MockProcessor }\n  B: { processor: MockProcessor }\n",
        &format!(
            "    - {START}\n      to: {{ processor: {{ name: A }} }}\n    - from: {{ processor: {{ name: A }} }}\n      \
             to: {{ processor: {{ name: B }} }}\n    - from: {{ processor: {{ name: B }} }}\n      to: {{ processor: {{ name: A }} }}\n"
        ),
    );
    let translation = imported(&[("flows/f.yaml", &text)]).unwrap();
    assert!(lost(&translation)[0].contains("circle"), "{:?}", translation.items);
    assert!(!translation.config.contains("flows:"), "{}", translation.config);
}

#[test]
fn a_filter_that_cannot_be_written_never_widens_a_flow() {
    let text = flow(
        "  A:\n    processor: Filter\n    parameters: [{ key: headers, value: [{ key: x, value: \"^a\", operation: regex }] }]\n  \
         B:\n    processor: GenerateResponse\n    parameters: [{ key: status, value: 403 }]\n",
        &format!(
            "    - {START}\n      to: {{ processor: {{ name: A }} }}\n    - from: {{ processor: {{ name: A, condition: miss }} }}\n      \
             to: {{ processor: {{ name: B }} }}\n"
        ),
    );
    let translation = imported(&[("flows/f.yaml", &text)]).unwrap();
    assert!(lost(&translation)[0].contains("opposite"), "{:?}", translation.items);
    assert!(translation.config.contains("  compat: [lunar]\n"), "{}", translation.config);
    assert!(!translation.config.contains("fixed-response"), "{}", translation.config);
}

#[test]
fn shared_steps_before_a_filter_are_written_once() {
    let text = flow(
        "  L: { processor: Limiter, parameters: [{ key: quota_id, value: q }] }\n  A: { processor: Filter, parameters: [{ key: header, value: x=1 }] }\n  \
         B: { processor: GenerateResponse }\n",
        &format!(
            "    - {START}\n      to: {{ processor: {{ name: L }} }}\n    - from: {{ processor: {{ name: L, condition: below_limit }} }}\n      \
             to: {{ processor: {{ name: A }} }}\n    - from: {{ processor: {{ name: A, condition: hit }} }}\n      to: {{ processor: {{ name: B }} }}\n    \
             - from: {{ processor: {{ name: A, condition: miss }} }}\n      to: {{ stream: {{ name: globalStream, at: end }} }}\n"
        ),
    );
    let quota = "quotas: [{ id: q, filter: { url: a.example/* }, strategy: { concurrent: { max_request_count: 3 } } }]";
    let translation = imported(&[("flows/f.yaml", &text), ("quotas/q.yaml", quota)]).unwrap();
    assert_eq!(translation.config.matches("limit: { quota: q }").count(), 1, "{}", translation.config);
    assert!(lost(&translation).is_empty(), "{:?}", translation.items);
}

#[test]
fn mistakes_are_reported_with_their_places_and_all_at_once() {
    let error = imported(&[
        ("flows/f.yaml", "name: F\nfilter: { url: a.example }\nprocessors: 5\nflow: {}\n"),
        ("quotas/q.yaml", "quotas:\n  - id: q\n    strategy: { fixed_window: { max: 0, interval: x } }\n"),
    ])
    .unwrap_err()
    .to_string();
    for expected in [
        "flows/f.yaml:3:13: expected a mapping, found `5`",
        "quotas/q.yaml:3:38: `max`: expected a whole number from 1, found `0`",
        "quotas/q.yaml:3:51: `interval`: expected a whole number from 0, found another text",
    ] {
        assert!(error.contains(expected), "{expected} is not in\n{error}");
    }
}

#[test]
fn hostile_yaml_is_refused_quickly() {
    let mut bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 0..9 {
        let (before, name) = (char::from(b'a' + level), char::from(b'b' + level));
        bomb += &[
            name.to_string(),
            format!(": &{name} ["),
            vec![format!("*{before}"); 9].join(","),
            "]\n".to_owned(),
        ]
        .concat();
    }
    let deep = "[".repeat(10_000);
    let long = "x: 1\n".repeat(300_000);
    for text in [bomb.as_str(), deep.as_str(), long.as_str()] {
        assert!(imported(&[("policies.yaml", text)]).is_err());
    }
}

#[test]
fn a_comment_cannot_end_early() {
    let text = "endpoints:\n  - url: \"a.example/x\\nflows: []\"\n    method: GET\n    remedies:\n      - name: \"r\\nevil: 1\"\n        \
                enabled: true\n        config: { fixed_response: { status_code: 503 } }\n";
    let translation = imported(&[("policies.yaml", text)]).unwrap();
    assert!(!translation.config.lines().any(|line| line.starts_with("evil") || line == "flows: []"));
    assert!(egret_config::parse_yaml(&translation.config).is_ok(), "{}", translation.config);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_input_makes_the_importer_panic(policies in ".{0,200}", flow in "(name|filter|processors|flow|url|: |\n  |- |a|\\{|\\}){0,60}") {
        let files = [("policies.yaml", policies.as_str()), ("flows/f.yaml", &flow), ("quotas/q.yaml", &flow)];
        if let Ok(translation) = imported(&files) {
            prop_assert!(egret_config::parse_yaml(&translation.config).is_ok());
        }
    }

    /// Whatever texts stand at the places of names and values, the result is YAML.
    #[test]
    fn every_text_survives(name: String, url: String, method: String, header: String) {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let policies = format!(
            "endpoints: [{{ url: {}, method: {}, remedies: [{{ name: {}, enabled: true, config: {{ strategy_based_throttling: {{ \
             allowed_request_count: 4, window_size_in_seconds: 1, group_quota_allocation: {{ group_by: {{ header_name: {} }}, groups: [] }} }} }} }}] }}]",
            quoted(&url), quoted(&method), quoted(&name), quoted(&header)
        );
        if let Ok(translation) = imported(&[("policies.yaml", &policies)]) {
            prop_assert!(egret_config::parse_yaml(&translation.config).is_ok(), "{}", translation.config);
        }
    }
}

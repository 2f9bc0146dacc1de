//! Attacks with the token of the control port: a client that may change the config must not read or write
//! other files through it, nor learn whether they exist.

use egret_tests::config_api::ConfigApi;
use egret_tests::egret::{Config, Egret};
use egret_tests::provider::Provider;

const MARK: &str = "content-of-a-file-of-the-owner";

/// Replaces the first word in the text that Egret started with.
fn changed(egret: &Egret, from: &str, to: &str) -> String {
    let text = std::fs::read_to_string(egret.directory().join("egret.yaml")).unwrap();
    assert!(text.contains(from), "{from} is not in {text}");
    text.replacen(from, to, 1)
}

/// Returns a config with an account, an exporter, a quota and a flow.
fn config(origin: &Provider, egret_keys: &str) -> Config {
    Config::with_origin(origin.url()).control(egret_keys).flows(
        "accounts: { live: { provider: origin, bearer: { token: '${env:PATH}' } } }\n\
         exporters: { archive: { type: har, directory: ./har } }\n\
         quotas: { live: { limit: 5, window: 1h } }\n\
         flows: [{ name: f, match: { provider: origin }, remedies: [limit: { quota: live }] }]\n",
    )
}

/// Returns changes that would read or write the file, or send what is read elsewhere.
fn attacks(file: &str) -> Vec<(&'static str, String)> {
    let reference = format!("'${{file:{file}}}'");
    vec![
        ("'${env:PATH}'", reference.clone()),
        ("quotas:", format!("quotas: &q {{ x: {{ limit: {reference}, window: 1h }} }}\nx:")),
        ("live: { limit: 5", format!("x: &x {{ limit: {reference} }}, y: *x, live: {{ limit: 5")),
        ("limit: { quota: live }", format!("fixed-response: {{ body: {reference} }}")),
        ("limit: { quota: live }", "fixed-response: { body: '${env:HOME}' }".to_owned()),
        ("limit: { quota: live }", format!("fixed-response: {{ body: '${{env:X:-${{file:{file}}}}}' }}")),
        ("limit: { quota: live }", format!("script: {{ file: '{file}' }}")),
        ("limit: { quota: live }", format!("cache: {{ disk: {{ directory: '{file}' }} }}")),
        (
            "providers:\n",
            format!("providers:\n  evil: {{ url: 'http://127.0.0.1:1', tls: {{ ca: '{file}' }} }}\n"),
        ),
        ("directory: ./har", format!("directory: '{file}'")),
        ("type: har, directory: ./har", "type: otlp, endpoint: 'http://127.0.0.1:1'".to_owned()),
        ("gateway:\n", format!("gateway:\n  access_log: {{ output: '{file}' }}\n")),
        ("gateway:\n", format!("data_dir: '{file}'\ngateway:\n")),
        ("gateway:\n", "secrets: { world_readable: allow }\ngateway:\n".to_owned()),
        ("control:\n", "control:\n  allowed_hosts: [evil.example]\n".to_owned()),
        ("control:\n", "control:\n  config_changes: unrestricted\n".to_owned()),
        ("url: \"http://127.0.0.1", "url: \"http://localhost".to_owned()),
        ("provider: origin, bearer", "provider: [origin, evil], bearer".to_owned()),
    ]
}

#[test]
fn no_change_reads_or_writes_another_file() {
    let origin = Provider::plain();
    let egret = config(&origin, "allowed_hosts: []").start();
    let api = ConfigApi::of(&egret);
    let file = egret.directory().write_secret("secret", MARK).display().to_string();
    let missing = file.replace("secret", "absent");
    let before = std::fs::read_to_string(egret.directory().join("egret.yaml")).unwrap();
    for ((from, to), (_, other)) in attacks(&file).into_iter().zip(attacks(&missing)) {
        // The key is in the text already.
        let (from, to, other) = if to.contains("allowed_hosts") || to.contains("config_changes") {
            ("  allowed_hosts: []\n", to.replace("control:\n", ""), other.replace("control:\n", ""))
        } else {
            (from, to, other)
        };
        let text = changed(&egret, from, &to);
        let response = api.put(&text);
        assert_eq!(response.status, 403, "{to}: {}", response.text());
        assert!(!response.text().contains(MARK), "{to}");
        // Whether the file exists makes no difference.
        let [one, two] = [text, changed(&egret, from, &other)].map(|text| api.validate(&text).to_string());
        assert_eq!(one.replace(&file, &missing), two, "{to}");
        assert!(one.contains("\"valid\":false"), "{to}: {one}");
    }
    assert_eq!(std::fs::read_to_string(egret.directory().join("egret.yaml")).unwrap(), before);
    assert_eq!(api.put(&changed(&egret, "limit: 5", "limit: 6")).status, 200, "what is harmless is accepted");
}

#[test]
fn the_owner_of_the_file_may_allow_everything_but_the_rules_themselves() {
    let origin = Provider::plain();
    let egret = config(&origin, "config_changes: unrestricted").start();
    let api = ConfigApi::of(&egret);
    let file = egret.directory().write_secret("secret", MARK).display().to_string();
    let text = changed(&egret, "'${env:PATH}'", &format!("'${{file:{file}}}'"));
    let response = api.put(&text);
    assert_eq!(response.status, 200, "{}", response.text());
    for (from, to) in [
        ("config_changes: unrestricted", "config_changes: restricted"),
        ("gateway:\n", "data_dir: ./elsewhere\ngateway:\n"),
    ] {
        assert_eq!(api.put(&changed(&egret, from, to)).status, 403, "{to}");
    }
}

#[test]
fn what_the_owner_has_taken_out_of_the_file_cannot_be_rolled_back() {
    let origin = Provider::plain();
    let egret = config(&origin, "allowed_hosts: []").start();
    let api = ConfigApi::of(&egret);
    egret.rewrite(changed(&egret, "'${env:PATH}'", "'${env:HOME}'"));
    egret_tests::wait::until_true("the file is applied", || api.versions()[0]["origin"] == "file");
    let response = api.roll_back(1);
    assert_eq!((response.status, response.json()["problems"][0]["path"].as_str()), (403, Some("accounts")));
}

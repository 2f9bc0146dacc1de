//! Several accounts for one provider: together they carry more than each of them, and a rejected one is
//! skipped without an effect on clients.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use egret_tests::bench::{count, summary};
use egret_tests::built_in::BuiltIn;
use egret_tests::egret::{Config, Egret};
use egret_tests::http::Response;
use egret_tests::load::Load;
use egret_tests::process::Directory;
use egret_tests::provider::{Provider, ok};
use egret_tests::wait;
use serde_json::{Value, json};

/// The accounts `a`, `b` and `c`: each is a key in `x-api-key`, in its own file.
const NAMES: [&str; 3] = ["a", "b", "c"];

fn key(name: &str) -> String {
    format!("k3y-0f-{name}-0123456789")
}

/// Starts Egret in front of `url` with these accounts, and a flow with `remedies`, each on its own line.
fn rotating(url: &str, remedies: &[&str]) -> (Egret, Directory) {
    let directory = Directory::default();
    let (mut accounts, mut lines) = (String::new(), String::new());
    for name in NAMES {
        let file = directory.write_secret(name, key(name));
        let value = format!("\"${{file:{}}}\"", file.display());
        writeln!(
            accounts,
            "  {name}: {{ provider: origin, api_key: {{ header: x-api-key, value: {value} }} }}"
        )
        .unwrap();
    }
    for remedy in remedies {
        writeln!(lines, "      - {remedy}").unwrap();
    }
    let egret = Config::with_origin(url)
        .flows(format!(
            "accounts:\n{accounts}quotas: {{ each: {{ limit: 10, window: 1s, group_by: account }} }}\n\
             flows:\n  - name: f\n    match: {{ provider: origin }}\n    remedies:\n{lines}"
        ))
        .start();
    (egret, directory)
}

/// Starts a provider that accepts all keys except the revoked ones.
fn revoking() -> (Provider, Arc<Mutex<BTreeSet<String>>>) {
    let revoked: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let known = Arc::clone(&revoked);
    let provider = Provider::with_responses(move |request| {
        if known.lock().unwrap().contains(&request.values("x-api-key").concat()) {
            return b"HTTP/1.1 401 No\r\nWWW-Authenticate: Key\r\nContent-Length: 0\r\n\r\n".to_vec();
        }
        ok(&String::from_utf8(request.body.clone()).unwrap())
    });
    (provider, revoked)
}

/// Returns the state of an account from the control port.
fn standing(egret: &Egret, name: &str) -> Value {
    let accounts = egret.control_get("/api/v1/accounts").json();
    let found = accounts["accounts"].as_array().unwrap().iter().find(|account| account["name"] == name);
    found.unwrap().clone()
}

/// Waits until no exchange uses an account: one may end a moment after its response has arrived.
fn until_unused(egret: &Egret) {
    wait::until_true("nothing is in progress", || {
        NAMES.iter().all(|name| standing(egret, name)["in_flight"] == 0)
    });
}

fn ask(egret: &Egret, request: &str, fields: &str) -> Response {
    let (line, body) = request.split_once('\n').unwrap_or((request, ""));
    egret.ask(line, fields, body)
}

#[test]
fn three_accounts_of_ten_a_second_carry_thirty_and_nobody_is_refused() {
    let rotation = "accounts: { use: [a, b, c], repeat: 20, wait_max: 15s }";
    let queue = "queue: { quota: each, max_wait: 15s }";
    for remedies in [&[rotation][..], &[rotation, queue]] {
        let provider = BuiltIn::start(&[]);
        let (egret, _keys) = rotating(&format!("http://{}", provider.address()), remedies);
        let url = format!("{}/origin/rate-limit/10/1s?by=x-api-key", egret.url());
        let result = summary(&["-k", "-c", "20", "--rate", "30", "-n", "120", &url]);
        assert_eq!((count(&result, "/failed"), count(&result, "/statuses/200")), (0, 120), "{result:#}");
        let windows = &provider.counters()["rate_limits"];
        for name in NAMES {
            let window = &windows[key(name)];
            let admitted = window["admitted"].as_u64().unwrap();
            assert!((20..=60).contains(&admitted), "{name}: {windows:#}");
            if remedies.contains(&queue) {
                assert_eq!(window["refused"], 0, "{windows:#}");
            }
        }
    }
}

#[test]
fn traffic_leaves_a_revoked_account_without_loss() {
    let (provider, revoked) = revoking();
    let (egret, _keys) = rotating(&provider.url(), &["accounts: { use: [a, b, c] }"]);
    let load = Load::start(egret.address(), "/origin/a", 8, true);
    wait::until_true("every account is in use", || {
        NAMES.iter().all(|name| standing(&egret, name)["calls"].as_u64().unwrap() >= 20)
    });
    revoked.lock().unwrap().insert(key("b"));
    wait::until_true("the revoked one is not used", || standing(&egret, "b")["state"] == "cooling");
    let before = standing(&egret, "a")["calls"].as_u64().unwrap();
    wait::until_true("the others go on", || standing(&egret, "a")["calls"].as_u64().unwrap() >= before + 50);
    let tally = load.finish();
    until_unused(&egret);
    assert!(tally.failures.is_empty() && tally.sent == tally.completed && tally.refused == 0, "{tally:?}");
    let b = standing(&egret, "b");
    assert_eq!(b["reason"], "401");
    // Only calls that were in flight at that moment, none after it.
    let refused = b["refused"]["401"].as_u64().unwrap();
    assert!((1..=8).contains(&refused), "{b}");
    for name in ["a", "c"] {
        assert_eq!(standing(&egret, name)["state"], "usable");
    }
}

#[test]
fn a_refused_call_is_repeated_with_its_body_whatever_its_method() {
    let (provider, revoked) = revoking();
    let (egret, _keys) = rotating(&provider.url(), &["accounts: { use: [a, b, c] }"]);
    revoked.lock().unwrap().extend([key("a"), key("b")]);
    assert_eq!(ask(&egret, "POST /origin/a\nan order", "").assert_forwarded(200).text(), "an order");
    let seen = provider.requests();
    let keys: Vec<String> = seen.iter().map(|request| request.values("x-api-key").concat()).collect();
    assert_eq!(keys, NAMES.map(key));
    assert!(seen.iter().all(|request| request.body == b"an order"), "{seen:?}");
}

#[test]
fn revoked_accounts_refuse_until_a_new_key() {
    let (provider, revoked) = revoking();
    let (egret, keys) = rotating(&provider.url(), &["accounts: { use: [a, b, c] }"]);
    revoked.lock().unwrap().extend(NAMES.map(key));
    // The last account's rejection is forwarded from the provider.
    assert_eq!(ask(&egret, "GET /origin/a", "").assert_forwarded(401).field("www-authenticate"), Some("Key"));
    let refused = ask(&egret, "GET /origin/a", "");
    let wait: u64 =
        refused.assert_generated(503, "account-unavailable").field("retry-after").unwrap().parse().unwrap();
    assert!((1..=30).contains(&wait), "{refused:?}");
    assert_eq!(provider.requests().len(), 3);
    for name in NAMES {
        assert_eq!(standing(&egret, name)["state"], "cooling");
    }
    keys.write_secret("b", "a-new-k3y");
    wait::until_true("the new key is used", || ask(&egret, "GET /origin/a", "").status == 200);
    assert_eq!(provider.requests()[3].values("x-api-key"), ["a-new-k3y"]);
    let states = NAMES.map(|name| standing(&egret, name)["state"].clone());
    assert_eq!(states, ["cooling", "usable", "cooling"]);
}

#[test]
fn a_group_keeps_its_account() {
    let (provider, _) = revoking();
    let (egret, _keys) =
        rotating(&provider.url(), &["accounts: { use: [a, b, c], sticky: 'header:x-tenant' }"]);
    let key_of = |tenant: u32| {
        ask(&egret, "GET /origin/a", &format!("X-Tenant: {tenant}\r\n")).assert_forwarded(200);
        provider.requests().last().unwrap().values("x-api-key").concat()
    };
    let first: Vec<String> = (0..20).map(key_of).collect();
    let second: Vec<String> = (0..20).map(key_of).collect();
    assert_eq!(first, second);
    assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 3);
}

#[test]
fn a_conversation_keeps_its_account() {
    let (provider, _) = revoking();
    let (egret, _keys) = rotating(&provider.url(), &["accounts: { use: [a, b, c], sticky: prompt }"]);
    let key_of = |number: u32, more: &str| {
        let request = format!(
            "POST /origin/v1/messages\n{{\"messages\":[{{\"role\":\"user\",\"content\":{number}}}{more}]}}"
        );
        ask(&egret, &request, "Content-Type: application/json\r\n").assert_forwarded(200);
        provider.requests().last().unwrap().values("x-api-key").concat()
    };
    let begun: Vec<String> = (0..20).map(|number| key_of(number, "")).collect();
    let grown: Vec<String> = (0..20).map(|number| key_of(number, ",{\"role\":\"assistant\"}")).collect();
    assert_eq!(begun, grown);
    assert_eq!(begun.iter().collect::<BTreeSet<_>>().len(), 3);
}

#[test]
fn how_accounts_stand_is_shown_and_their_keys_are_not() {
    let (provider, revoked) = revoking();
    let (egret, _keys) = rotating(&provider.url(), &["accounts: { use: [a, b, c] }"]);
    revoked.lock().unwrap().insert(key("a"));
    for _ in 0..4 {
        ask(&egret, "GET /origin/a", "").assert_forwarded(200);
    }
    until_unused(&egret);
    let a = standing(&egret, "a");
    assert!(a["until_us"].as_u64().is_some_and(|until| until > 0), "{a}");
    let shown = json!({
        "name": "a", "kind": "api_key", "providers": ["origin"], "state": "cooling", "until_us": a["until_us"],
        "reason": "401", "in_flight": 0, "calls": 1, "refused": { "401": 1, "403": 0, "429": 0 }, "failed": 0,
        "remaining": null, "reset_us": null,
    });
    assert_eq!(a, shown);
    let metrics = egret.control_get("/metrics").text().to_owned();
    for line in [
        "egret_account_calls_total{account=\"a\",outcome=\"401\"} 1",
        "egret_account_calls_total{account=\"b\",outcome=\"answered\"} 2",
        "egret_account_cooling{account=\"a\"} 1",
        "egret_account_cooling{account=\"c\"} 0",
        "egret_account_in_flight{account=\"b\"} 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
    }
    egret.until_logged("an account cools down because the provider refuses it");
    let paths = ["/api/v1/accounts", "/api/v1/flows", "/api/v1/config", "/api/v1/quotas", "/api/v1/stats"];
    let shown: String = paths.iter().map(|path| egret.control_get(path).text().to_owned()).collect();
    for text in [shown, metrics, egret.log()] {
        assert!(!text.contains("k3y"), "{text}");
    }
}

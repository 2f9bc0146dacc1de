use std::collections::BTreeMap;

use egret_accounts::token::TokenResponse;
use egret_fixture::{TestCluster, TestExchange, TestFlows, TestStep};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const GET: &str = "GET https://one.example/";

/// Returns three accounts for the provider `one`, and one for `two`.
fn accounts() -> Value {
    // Any secret will do; this variable exists wherever tests run.
    let of = |provider: &str| json!({ "provider": provider, "bearer": { "token": "${env:CARGO_PKG_NAME}" } });
    json!({ "a": of("one"), "b": of("one"), "c": of("one"), "elsewhere": of("two") })
}

fn config(remedies: &Value) -> Value {
    json!({ "accounts": accounts(), "flows": [{ "name": "f", "remedies": remedies }] })
}

/// Creates a harness with a pool of `a`, `b` and `c`, plus `keys`.
fn harness(keys: &Value) -> TestFlows {
    let mut remedy = json!({ "use": ["a", "b", "c"] });
    remedy.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    TestFlows::new(config(&json!([{ "accounts": remedy }])))
}

fn problems(remedy: &Value) -> Vec<String> {
    let mut config = config(&json!([{ "accounts": remedy }]));
    config["flows"][0]["match"] = json!({ "provider": "one", "path": "/users/{id}" });
    let Err(problems) = egret_fixture::compiled(config) else { return Vec::new() };
    problems
}

/// Returns the name of the account that a exchange uses.
fn account(harness: &TestFlows, exchange: &TestExchange) -> String {
    let number = exchange.draft.call.account;
    number.and_then(|number| harness.flows.accounts.get(number)).map_or("", Account::name).to_owned()
}

/// Starts an exchange that is called. Returns it with the name of its account.
fn sent(harness: &TestFlows, lines: &str) -> (TestExchange, String) {
    let mut exchange = harness.send(lines);
    assert_eq!(exchange.poll(harness), TestStep::Call);
    let account = account(harness, &exchange);
    (exchange, account)
}

/// Returns the account of an exchange that gets this response.
fn answered(harness: &TestFlows, lines: &str, response: &str) -> String {
    let (mut exchange, account) = sent(harness, lines);
    assert!(matches!(exchange.response(harness, response), TestStep::Response(_)));
    exchange.end(harness);
    account
}

/// Polls a exchange that is to be repeated up to its next call. Returns the account.
fn again(harness: &TestFlows, exchange: &mut TestExchange) -> String {
    assert_eq!(exchange.poll(harness), TestStep::Call);
    account(harness, exchange)
}

fn standing(harness: &TestFlows, name: &str) -> egret_accounts::AccountSnapshot {
    let account = harness.flows.accounts.find(name).and_then(|number| harness.flows.accounts.get(number));
    account.unwrap().snapshot(harness.now)
}

/// Returns the remaining cool-down of an account in milliseconds.
fn cools_ms(harness: &TestFlows, name: &str) -> Option<u128> {
    standing(harness, name).cooling.map(|cooling| cooling.until.since(harness.now).as_millis())
}

/// The config of a gateway with one account, whose secret is this variable.
fn sharing(variable: &str) -> Value {
    let account = json!({ "provider": "one", "bearer": { "token": format!("${{env:{variable}}}") } });
    let remedies = json!([{ "accounts": { "use": ["a"] } }]);
    json!({ "accounts": { "a": account }, "flows": [{ "name": "f", "remedies": remedies }] })
}

#[test]
fn an_account_cools_down_for_the_whole_cluster() {
    let cluster = TestCluster::default();
    let [mut one, mut two] = [(), ()].map(|()| TestFlows::in_cluster(sharing("CARGO_PKG_NAME"), &cluster));
    let mut early = two.send(GET);
    assert_eq!(early.poll(&two), TestStep::Call);
    one.pass_ms(10);
    two.pass_ms(10);
    answered(&one, GET, "401");
    assert_eq!(cluster.pass(one.now), 1);
    assert_eq!((cools_ms(&one, "a"), cools_ms(&two, "a")), (Some(30_000), Some(30_000)));
    early.response(&two, "200");
    assert_eq!(cools_ms(&two, "a"), Some(30_000), "the call began before the refusal");
    one.pass_ms(30_000);
    two.pass_ms(30_000);
    answered(&two, GET, "401");
    assert_eq!(cools_ms(&two, "a"), Some(60_000), "it is the second refusal in the cluster");
    cluster.pass(two.now);
    one.pass_ms(60_000);
    answered(&one, GET, "200");
    assert_eq!(cluster.pass(one.now), 1, "the success");
    two.pass_ms(60_000);
    answered(&two, GET, "401");
    assert_eq!(cools_ms(&two, "a"), Some(30_000), "it is the first refusal since");
}

#[test]
fn a_new_secret_ends_the_cool_down_for_those_who_have_it() {
    let cluster = TestCluster::default();
    let [mut one, mut two] = [(), ()].map(|()| TestFlows::in_cluster(sharing("CARGO_PKG_NAME"), &cluster));
    answered(&one, GET, "401");
    cluster.pass(one.now);
    assert_eq!(cools_ms(&two, "a"), Some(30_000));
    two.reload(sharing("CARGO_PKG_VERSION"));
    assert_eq!(cools_ms(&two, "a"), None);
    one.pass_ms(30_000);
    answered(&one, GET, "401");
    assert_eq!(cluster.pass(one.now), 1);
    assert_eq!((cools_ms(&one, "a"), cools_ms(&two, "a")), (Some(60_000), None));
}

#[test]
fn accounts_decide_on_the_seen_body_and_masking() {
    for masks in [false, true] {
        let signing = json!({ "access_key_id": "${env:CARGO_PKG_NAME}", "secret_access_key": "${env:CARGO_PKG_NAME}", "region": "r", "service": "s3", "body": "3MiB" });
        let mut config = config(&json!([{ "accounts": { "use": ["a", "signs"], "mask_echoes": masks } }]));
        config["accounts"]["signs"] = json!({ "provider": "one", "sigv4": signing });
        let (exchange, _) = sent(&TestFlows::new(config), GET);
        assert_eq!(exchange.draft.call.masks_echoes, masks);
        assert_eq!(exchange.body_seen_max(), 3 << 20);
    }
}

#[test]
fn accounts_take_turns_and_by_weight_evenly_spread() {
    let harness = harness(&json!({}));
    let turns: String = (0..6).map(|_| answered(&harness, GET, "200")).collect();
    assert_eq!(turns, "abcabc");
    let weighted = json!({ "use": ["a", { "account": "b", "weight": 3 }, "c"] });
    let harness = TestFlows::new(config(&json!([{ "accounts": weighted }])));
    let turns: String = (0..10).map(|_| answered(&harness, GET, "200")).collect();
    assert_eq!(turns, "babcbbabcb");
}

#[test]
fn a_refused_call_is_made_again_on_another_account_whatever_its_method() {
    for status in ["401", "403", "429"] {
        let harness = harness(&json!({}));
        let mut exchange = harness.send("POST https://one.example/");
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        assert_eq!(exchange.response(&harness, status), TestStep::Repeat(harness.now));
        assert_eq!(again(&harness, &mut exchange), "b");
        assert_eq!(exchange.response(&harness, "200"), TestStep::Response(200));
        assert_eq!(standing(&harness, "a").cooling.unwrap().reason(), status);
        // The other accounts continue.
        let turns: String = (0..4).map(|_| answered(&harness, GET, "200")).collect();
        assert_eq!(turns, "cbcb");
    }
}

#[test]
fn only_safe_methods_are_repeated_with_another_account() {
    let harness = harness(&json!({ "cool_down": { "on": ["503"] }, "methods": ["PATCH"] }));
    let is_repeated = |method: &str| {
        let (mut exchange, _) = sent(&harness, &format!("{method} https://one.example/"));
        matches!(exchange.response(&harness, "503"), TestStep::Repeat(_))
    };
    assert!(!is_repeated("POST"));
    assert!(is_repeated("PATCH"));
    let harness = self::harness(&json!({}));
    let (mut gone, _) = sent(&harness, GET);
    gone.repeatable = false;
    assert_eq!(gone.response(&harness, "401"), TestStep::Response(401));
    assert_eq!(cools_ms(&harness, "a"), Some(30_000));
}

#[test]
fn repeats_end_at_the_limit_or_without_accounts() {
    let calls = |keys: &Value| {
        let harness = harness(keys);
        let mut exchange = harness.send(GET);
        let mut calls = 0;
        while exchange.poll(&harness) == TestStep::Call {
            calls += 1;
            if exchange.response(&harness, "401") == TestStep::Response(401) {
                break;
            }
        }
        calls
    };
    assert_eq!(calls(&json!({ "repeat": 0 })), 1);
    assert_eq!(calls(&json!({ "repeat": 1 })), 2);
    assert_eq!(calls(&json!({})), 3);
    assert_eq!(
        calls(&json!({ "repeat": 20 })),
        3,
        "the client gets the last response, because no other account is left"
    );
}

#[test]
fn an_account_rests_as_long_as_the_provider_says() {
    for (response, cools) in [
        ("429", 30_000),
        ("429\nRetry-After: 7", 7_000),
        ("429\nRetry-After: 0", 1_000),
        ("429\nRetry-After: 86400", 600_000),
        ("429\nX-RateLimit-Reset: 12", 12_000),
        ("403\nRetry-After: 60", 60_000),
        ("403\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 90", 90_000),
        ("403\nX-RateLimit-Remaining: 4\nX-RateLimit-Reset: 90", 30_000),
    ] {
        let harness = harness(&json!({ "repeat": 0 }));
        answered(&harness, GET, response);
        assert_eq!(cools_ms(&harness, "a"), Some(cools), "{response}");
    }
}

#[test]
fn the_cool_down_grows_until_the_credential_works() {
    let keys = json!({ "use": ["a"], "repeat": 0, "cool_down": { "max": "2m" } });
    let mut harness = harness(&keys);
    for cools in [30_000, 60_000, 120_000, 120_000] {
        answered(&harness, GET, "401");
        assert_eq!(cools_ms(&harness, "a"), Some(cools.into()));
        harness.pass_ms(cools);
    }
    // A 503 means that the provider is overloaded and says nothing about the credential.
    answered(&harness, GET, "503");
    harness.pass_ms(1);
    answered(&harness, GET, "200");
    answered(&harness, GET, "401");
    assert_eq!(cools_ms(&harness, "a"), Some(30_000));
    harness.pass_ms(30_000);
    // A 429 does not make the cool-down grow.
    for _ in 0..2 {
        answered(&harness, GET, "429");
        assert_eq!(cools_ms(&harness, "a"), Some(30_000));
        harness.pass_ms(30_000);
    }
}

#[test]
fn calls_that_were_under_way_together_say_together_what_one_says() {
    let mut harness = harness(&json!({ "use": ["a"], "repeat": 0 }));
    let mut together: Vec<_> = (0..5).map(|_| sent(&harness, GET).0).collect();
    harness.pass_ms(10);
    for exchange in &mut together[..3] {
        assert_eq!(exchange.response(&harness, "401"), TestStep::Response(401));
    }
    // A call that began before the refusal does not show that the account works again.
    assert_eq!(together[3].response(&harness, "200"), TestStep::Response(200));
    assert_eq!(cools_ms(&harness, "a"), Some(30_000));
    assert_eq!(together[4].response(&harness, "429\nRetry-After: 40"), TestStep::Response(429));
    assert_eq!(cools_ms(&harness, "a"), Some(40_000));
    harness.pass_ms(40_000);
    answered(&harness, GET, "401");
    assert_eq!(cools_ms(&harness, "a"), Some(60_000), "the second time, not the sixth");
}

#[test]
fn exchanges_wait_while_all_accounts_cool_down() {
    let mut harness = harness(&json!({ "repeat": 0, "wait_max": "8s" }));
    for seconds in [20, 10, 30] {
        answered(&harness, GET, &format!("429\nRetry-After: {seconds}"));
    }
    let refusal = harness.send(GET).poll(&harness).refusal(&harness);
    assert_eq!(refusal, (ErrorKind::AccountUnavailable, Some(10_000)));
    harness.pass_ms(2_000);
    let mut exchange = harness.send(GET);
    let TestStep::Wait(Some(at)) = exchange.poll(&harness) else { panic!() };
    assert_eq!(at.since(harness.now).as_millis(), 8_000);
    harness.now = at;
    assert_eq!(again(&harness, &mut exchange), "b");
    assert_eq!(exchange.response(&harness, "200"), TestStep::Response(200));
}

#[test]
fn a_request_refused_by_all_accounts_waits() {
    let mut harness = harness(&json!({ "repeat": 8, "wait_max": "2s" }));
    let mut exchange = harness.send(GET);
    for _ in 0..3 {
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        assert_eq!(exchange.response(&harness, "429\nRetry-After: 1"), TestStep::Repeat(harness.now));
    }
    let TestStep::Wait(Some(at)) = exchange.poll(&harness) else { panic!() };
    harness.now = at;
    assert_ne!(again(&harness, &mut exchange), "c", "the account that was just refused");
    assert_eq!(exchange.response(&harness, "200"), TestStep::Response(200));
}

#[test]
fn a_group_keeps_its_account_and_comes_back_to_it() {
    let mut harness = harness(&json!({ "sticky": "header:x-tenant" }));
    let tenant = |number: u32| format!("{GET}\nX-Tenant: {number}");
    let of_all = |harness: &TestFlows| -> Vec<String> {
        (0..60).map(|number| answered(harness, &tenant(number), "200")).collect()
    };
    let before = of_all(&harness);
    assert_eq!(of_all(&harness), before);
    for name in ["a", "b", "c"] {
        let count = before.iter().filter(|account| *account == name).count();
        assert!((8..=32).contains(&count), "{name} has {count} of 60");
    }
    let of_b = u32::try_from(before.iter().position(|account| account == "b").unwrap()).unwrap();
    let (mut exchange, _) = sent(&harness, &tenant(of_b));
    assert_eq!(exchange.response(&harness, "429\nRetry-After: 10"), TestStep::Repeat(harness.now));
    assert_ne!(again(&harness, &mut exchange), "b");
    drop(exchange);
    for (now, then) in of_all(&harness).iter().zip(&before) {
        assert!(now == then || then == "b" && now != "b", "{then} has become {now}");
    }
    harness.pass_ms(10_000);
    assert_eq!(of_all(&harness), before);
    // Without a group, each account in turn.
    let turns: BTreeSet<String> = (0..3).map(|_| answered(&harness, GET, "200")).collect();
    assert_eq!(turns.len(), 3);
}

#[test]
fn the_least_used_is_the_one_with_the_fewest_under_way() {
    let harness = harness(&json!({ "by": "least-used" }));
    let (first, a) = sent(&harness, GET);
    let (second, b) = sent(&harness, GET);
    let (third, c) = sent(&harness, GET);
    assert_eq!([a, b, c], ["a", "b", "c"]);
    assert_eq!(standing(&harness, "b").in_flight, 1);
    drop(second);
    let (fourth, next) = sent(&harness, GET);
    assert_eq!(next, "b");
    drop((first, third, fourth));
    assert_eq!(standing(&harness, "b").in_flight, 0);
    // With no exchange in flight, the account with the fewest calls is chosen.
    assert_eq!(answered(&harness, GET, "200"), "a");
    assert_eq!(answered(&harness, GET, "200"), "b");
}

#[test]
fn the_account_with_most_reported_units_is_chosen() {
    let mut harness = harness(&json!({ "by": "most-remaining" }));
    let left = |count: u32| format!("200\nRateLimit: \"default\";r={count};t=60");
    for (name, count) in [("a", 5), ("b", 9), ("c", 7)] {
        assert_eq!(answered(&harness, GET, &left(count)), name, "accounts without a report come first");
    }
    let (_first, next) = sent(&harness, GET);
    assert_eq!(next, "b");
    let under_way: Vec<_> = (0..3).map(|_| sent(&harness, GET)).collect();
    let names: Vec<&str> = under_way.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["b", "c", "b"], "calls in flight are counted as used");
    assert_eq!(standing(&harness, "b").remaining, Some(9));
    harness.pass_ms(60_000);
    assert_eq!(standing(&harness, "b").remaining, None, "an old report does not count");
}

#[test]
fn an_account_that_has_nothing_left_is_passed_over_while_others_have() {
    let harness = harness(&json!({}));
    answered(&harness, GET, "200\nRateLimit: \"default\";r=0;t=60");
    let turns: String = (0..4).map(|_| answered(&harness, GET, "200")).collect();
    assert!(!turns.contains('a'), "{turns}");
    assert_eq!(cools_ms(&harness, "a"), None);
    for _ in 0..2 {
        answered(&harness, GET, "200\nRateLimit: \"default\";r=0;t=60");
    }
    assert_eq!(sent(&harness, GET).1.len(), 1, "an account without calls left is tried if there is no other");
}

#[test]
fn calls_go_only_with_accounts_of_the_provider_that_is_called() {
    let pool = json!([{ "accounts": { "use": ["a", "elsewhere"] } }]);
    let harness = TestFlows::new(config(&pool));
    for (host, name) in [("one", "a"), ("two", "elsewhere"), ("three", "")] {
        for _ in 0..2 {
            assert_eq!(answered(&harness, &format!("GET https://{host}.example/"), "200"), name);
        }
    }
}

#[test]
fn another_providers_response_does_not_cool_an_account() {
    let remedies = json!([
        { "accounts": { "use": ["a", "b"] } },
        { "fallback": { "on": ["5xx"], "provider": "two" } },
    ]);
    let harness = TestFlows::new(config(&remedies));
    let (mut exchange, name) = sent(&harness, GET);
    assert_eq!(name, "a");
    assert_eq!(exchange.response(&harness, "503"), TestStep::Repeat(harness.now));
    assert_eq!(exchange.poll(&harness), TestStep::Call);
    assert_eq!(exchange.draft.call.provider, Some(1));
    assert_eq!(exchange.response(&harness, "401"), TestStep::Response(401));
    let snapshot = standing(&harness, "a");
    assert_eq!((snapshot.cooling, snapshot.endings), (None, [1, 0, 0, 0, 0]));
}

#[test]
fn an_inner_remedys_refusal_does_not_cool_an_account() {
    let remedies = json!([
        { "accounts": { "use": ["a", "b"], "cool_down": { "on": ["429"] } } },
        { "limit": { "quota": "q", "status": 429 } },
    ]);
    let mut config = config(&remedies);
    config["quotas"] = json!({ "q": { "limit": 1, "window": "10s" } });
    let harness = TestFlows::new(config);
    answered(&harness, GET, "200");
    assert_eq!(harness.exchange(GET, "200").refusal(&harness).0, ErrorKind::QuotaExceeded);
    assert_eq!((cools_ms(&harness, "a"), cools_ms(&harness, "b")), (None, None));
}

#[test]
fn a_quota_further_in_counts_for_each_account() {
    for remedy in [json!({ "limit": { "quota": "q" } }), json!({ "queue": { "quota": "q" } })] {
        let remedies = json!([{ "accounts": { "use": ["a", "b"] } }, remedy]);
        let mut config = config(&remedies);
        config["quotas"] = json!({ "q": { "limit": 2, "window": "10s", "group_by": "account" } });
        let harness = TestFlows::new(config);
        let turns: String = (0..4).map(|_| answered(&harness, GET, "200")).collect();
        assert_eq!(turns, "abab");
        assert_ne!(harness.send(GET).poll(&harness), TestStep::Call);
    }
}

#[test]
fn each_call_counts_for_the_account_that_it_was_made_with() {
    let quota = json!({ "limit": 1, "window": "10s", "group_by": "account" });
    let remedies = json!([{ "accounts": { "use": ["a", "b"] } }, { "limit": { "quota": "q" } }]);
    let mut config = config(&remedies);
    config["quotas"] = json!({ "q": quota });
    let harness = TestFlows::new(config);
    let (mut exchange, _) = sent(&harness, GET);
    assert_eq!(exchange.response(&harness, "401"), TestStep::Repeat(harness.now));
    assert_eq!(again(&harness, &mut exchange), "b");
    assert_eq!(exchange.response(&harness, "200"), TestStep::Response(200));
    let quotas = harness.flows.snapshot(harness.now, 10).quotas;
    let used: BTreeMap<&str, u64> =
        quotas[0].groups.iter().map(|group| (group.name.as_str(), group.used)).collect();
    assert_eq!(used, BTreeMap::from([("a", 1), ("b", 1)]));
}

#[test]
fn in_report_mode_nothing_is_changed() {
    let remedy = json!([{ "accounts": { "use": ["a", "b"] }, "mode": "report" }]);
    let harness = TestFlows::new(config(&remedy));
    let (mut exchange, name) = sent(&harness, GET);
    assert_eq!((name.as_str(), standing(&harness, "a").in_flight), ("", 0));
    assert_eq!(exchange.response(&harness, "401"), TestStep::Response(401));
    let snapshot = standing(&harness, "a");
    assert_eq!((snapshot.cooling, snapshot.endings), (None, [0; 5]));
}

#[test]
fn remedies_know_of_each_other_what_an_account_is_used_for() {
    let flows = json!([
        { "name": "one", "match": { "path": "/fixed" }, "remedies": [{ "authenticate": { "account": "a" } }] },
        { "name": "pool", "match": { "path": "/pool" }, "remedies": [{ "accounts": { "use": ["a", "b"], "by": "least-used" } }] },
    ]);
    let mut harness = TestFlows::new(json!({ "accounts": accounts(), "flows": flows }));
    let fixed = sent(&harness, "GET https://one.example/fixed");
    assert_eq!(fixed.1, "a");
    assert_eq!(standing(&harness, "a").in_flight, 1);
    let pool = sent(&harness, "GET https://one.example/pool");
    assert_eq!(pool.1, "b");
    drop((fixed, pool));
    let (mut refused, name) = sent(&harness, "GET https://one.example/pool");
    assert_eq!(name, "a");
    assert_eq!(refused.response(&harness, "401"), TestStep::Repeat(harness.now));
    drop(refused);
    // A success ends the cool-down, whichever remedy made the call.
    harness.pass_ms(1);
    assert_eq!(answered(&harness, "GET https://one.example/fixed", "200"), "a");
    assert_eq!(cools_ms(&harness, "a"), None);
    assert_eq!(standing(&harness, "a").endings, [1, 1, 0, 0, 0]);
}

#[test]
fn a_reload_keeps_how_accounts_stand() {
    let mut harness = harness(&json!({}));
    let (mut exchange, _) = sent(&harness, GET);
    assert_eq!(exchange.response(&harness, "429\nRetry-After: 30"), TestStep::Repeat(harness.now));
    assert_eq!(again(&harness, &mut exchange), "b");
    harness.reload(config(&json!([{ "accounts": { "use": ["a", "b", "c"], "repeat": 1 } }])));
    assert_eq!(cools_ms(&harness, "a"), Some(30_000));
    assert_eq!((standing(&harness, "a").endings, standing(&harness, "b").in_flight), ([0, 0, 0, 1, 0], 1));
    drop(exchange);
    assert_eq!(standing(&harness, "b").in_flight, 0);
    // The turns are kept too.
    assert_eq!(sent(&harness, GET).1, "c");
}

#[test]
fn an_account_that_no_token_can_be_had_for_is_passed_over() {
    let mut accounts = accounts();
    let oauth2 = json!({ "token_url": "https://id.example/", "client_id": "me" });
    accounts["a"] = json!({ "provider": "one", "oauth2": oauth2 });
    let remedies = json!([{ "accounts": { "use": ["a", "b"] } }]);
    let harness =
        TestFlows::new(json!({ "accounts": accounts, "flows": [{ "name": "f", "remedies": remedies }] }));
    let mut exchange = harness.send(GET);
    assert!(matches!(exchange.poll(&harness), TestStep::Wait(Some(_))));
    let body = br#"{"error":"invalid_client"}"#;
    exchange
        .draft
        .fetch
        .take()
        .unwrap()
        .end(harness.now, Ok(TokenResponse { status: 400, retry_after: None, body }));
    assert_eq!(again(&harness, &mut exchange), "b");
    let a = standing(&harness, "a");
    assert_eq!((a.cooling.unwrap().reason().as_str(), a.in_flight), ("token", 0));
    assert_eq!(sent(&harness, GET).1, "b", "account `a` is not tried again");
}

#[test]
fn keys_of_aws_that_are_refused_are_fetched_again() {
    let sigv4 = json!({ "region": "r", "service": "s", "identity": { "instance": true } });
    let accounts = json!({ "a": { "provider": "one", "sigv4": sigv4 } });
    let remedies = json!([{ "authenticate": { "account": "a" } }]);
    let harness =
        TestFlows::new(json!({ "accounts": accounts, "flows": [{ "name": "f", "remedies": remedies }] }));
    let mut exchange = harness.send(GET);
    assert!(matches!(exchange.poll(&harness), TestStep::Wait(Some(_))));
    let mut fetch = exchange.draft.fetch.take();
    for body in ["session", "reader", r#"{"AccessKeyId":"ASIA","SecretAccessKey":"s"}"#] {
        let response = TokenResponse { status: 200, retry_after: None, body: body.as_bytes() };
        fetch = fetch.unwrap().end(harness.now, Ok(response));
    }
    assert_eq!(exchange.poll(&harness), TestStep::Call);
    // Not repeated: a 403 can have other causes.
    assert_eq!(exchange.response(&harness, "403"), TestStep::Response(403));
    assert!(matches!(harness.send(GET).poll(&harness), TestStep::Wait(Some(_))));
}

#[test]
fn sticky_is_a_prompt_or_a_group() {
    for (text, expected) in [
        ("prompt", Some(StickyBy::Prompt)),
        ("consumer", Some(StickyBy::Group(GroupBy::Consumer))),
        ("prompts", None),
    ] {
        let read = text.parse::<StickyBy>().ok();
        assert_eq!(read, expected);
        assert!(read.is_none_or(|by| by.to_string() == text));
    }
}

#[test]
fn a_conversation_keeps_its_account() {
    let harness = harness(&json!({ "sticky": "prompt" }));
    let account_of = |body: Option<String>| {
        let mut exchange =
            harness.send("POST https://one.example/v1/messages\ncontent-type: application/json");
        assert!(exchange.body_seen_max() > 0);
        exchange.body = body.map(String::into_bytes);
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        let account = account(&harness, &exchange);
        assert_eq!(exchange.response(&harness, "200"), TestStep::Response(200));
        exchange.end(&harness);
        account
    };
    let turn = |number: u32, rest: &str| {
        let first = format!("{{\"role\":\"user\",\"content\":\"{number}\"}}");
        account_of(Some(format!("{{\"system\":\"s\",\"messages\":[{first}{rest}]}}")))
    };
    let begun: Vec<String> = (0..40).map(|number| turn(number, "")).collect();
    let grown: Vec<String> = (0..40).map(|number| turn(number, ",{\"role\":\"assistant\"}")).collect();
    assert_eq!(begun, grown);
    assert_eq!(begun.iter().collect::<BTreeSet<_>>().len(), 3);
    let turns: BTreeSet<String> = (0..3).map(|_| account_of(None)).collect();
    assert_eq!(turns.len(), 3, "without a prompt, each account in turn");
}

#[test]
fn nonsense_is_refused() {
    for (remedy, key, message) in [
        (json!({}), "use", "must name at least one account"),
        (json!({ "use": ["a", "nobody"] }), "use[1]", "no account is called `nobody`"),
        (json!({ "use": ["elsewhere"] }), "use[0]", "is for `two`"),
        (json!({ "use": ["a", "b", "a"] }), "use[2]", "named twice"),
        (json!({ "use": [{ "account": "a", "weight": 0 }] }), "use[0].weight", "from 1 to 1000"),
        (json!({ "use": [{ "account": "a", "weight": 2 }], "by": "least-used" }), "by", "weights require"),
        (json!({ "use": ["a"], "sticky": "account" }), "sticky", "is the result of this choice"),
        (json!({ "use": ["a"], "sticky": "param:name" }), "sticky", "no path or host of a match here"),
        (json!({ "use": ["a"], "sticky": "cel:1 +" }), "sticky", ""),
        (json!({ "use": ["a"], "cool_down": { "on": [] } }), "cool_down.on", "one or more statuses"),
        (json!({ "use": ["a"], "cool_down": { "on": ["connect"] } }), "cool_down.on", "one or more statuses"),
        (json!({ "use": ["a"], "cool_down": { "for": "0s" } }), "cool_down.for", "must be greater than 0"),
        (json!({ "use": ["a"], "cool_down": { "max": "1s" } }), "cool_down.max", "from `for`"),
        (json!({ "use": ["a"], "repeat": 21 }), "repeat", "at most 20"),
        (json!({ "use": ["a"], "methods": ["post"] }), "methods", "capitals"),
        (json!({ "use": ["a"], "body": "17MiB" }), "body", "16MiB"),
    ] {
        let found = problems(&remedy);
        let place = format!("flows[0].remedies[0].accounts.{key}: ");
        assert!(found.len() == 1 && found[0].starts_with(&place) && found[0].contains(message), "{found:?}");
    }
    assert_eq!(problems(&json!({ "use": ["a", { "account": "b" }], "sticky": "param:id" })), [""; 0]);
}

#[test]
fn an_entry_of_the_pool_is_written_either_way() {
    for written in [json!("a"), json!({ "account": "a", "weight": 2 })] {
        let entry: PoolEntry = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(serde_json::to_value(&entry).unwrap(), written);
    }
    for (wrong, message) in
        [(json!(1), "an account's name, or"), (json!({ "accounts": "a" }), "unknown field")]
    {
        let error = serde_json::from_value::<PoolEntry>(wrong).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

fn candidates(weights: &[u32]) -> Candidates {
    let of = |(index, weight): (usize, &u32)| Candidate {
        index,
        number: index,
        weight: *weight,
        in_flight: 0,
        calls: 0,
        left: None,
    };
    weights.iter().enumerate().map(of).collect()
}

proptest! {
    /// In each full round, every account is chosen exactly as often as its weight says.
    #[test]
    fn weights_are_held_exactly(weights in prop::collection::vec(1_u32..20, 1..8), rounds in 1_u32..4) {
        let all = candidates(&weights);
        let mut behind = vec![0; weights.len()];
        for _ in 0..rounds {
            let mut chosen = vec![0; weights.len()];
            for _ in 0..weights.iter().sum() {
                chosen[turn(&all, &mut behind).unwrap().index] += 1;
            }
            prop_assert_eq!(&chosen, &weights);
        }
    }

    /// Only available accounts are chosen, and a group changes its account only if that account has become
    /// unavailable.
    #[test]
    fn a_group_moves_only_with_its_account(
        weights in prop::collection::vec(1_u32..20, 2..8),
        gone in 0_usize..8,
        groups in prop::collection::vec(any::<u64>(), 1..50),
    ) {
        let all = candidates(&weights);
        let gone = gone % weights.len();
        let rest: Candidates = all.iter().filter(|one| one.index != gone).copied().collect();
        let seed = |index: usize| mixed(hash(format!("account {index}").as_bytes()));
        for group in groups {
            let before = sticky_one(&all, group, seed).unwrap().index;
            let after = sticky_one(&rest, group, seed).unwrap().index;
            prop_assert!(after != gone && (before == gone || after == before));
        }
    }

    /// An account that cools down is never called, and an exchange is refused only if all accounts cool down.
    #[test]
    fn an_account_that_cools_down_is_never_called(
        by in prop::sample::select(vec!["round-robin", "least-used", "most-remaining"]),
        sticky in any::<bool>(),
        steps in prop::collection::vec((0_u64..20_000, 0_usize..6, 0_u32..5), 1..60),
    ) {
        let sticky = if sticky { json!("header:x-tenant") } else { Value::Null };
        let mut harness = harness(&json!({ "by": by, "sticky": sticky, "repeat": 0 }));
        for (time_ms, response, tenant) in steps {
            harness.pass_ms(time_ms);
            let responses =
                ["200", "401", "429", "429\nRetry-After: 3", "200\nRateLimit: \"d\";r=0;t=9", "403"];
            let usable: Vec<&str> =
                ["a", "b", "c"].into_iter().filter(|name| cools_ms(&harness, name).is_none()).collect();
            let mut exchange = harness.send(&format!("{GET}\nX-Tenant: {tenant}"));
            match exchange.poll(&harness) {
                TestStep::Call => {
                    let name = account(&harness, &exchange);
                    prop_assert!(usable.contains(&name.as_str()), "{name} of {usable:?}");
                    exchange.response(&harness, responses[response]);
                    exchange.end(&harness);
                }
                refused => {
                    prop_assert!(usable.is_empty(), "{usable:?}");
                    let back = ["a", "b", "c"].iter().filter_map(|name| cools_ms(&harness, name)).min();
                    prop_assert_eq!(refused.refusal(&harness), (ErrorKind::AccountUnavailable, back));
                }
            }
        }
        for name in ["a", "b", "c"] {
            prop_assert_eq!(standing(&harness, name).in_flight, 0);
        }
    }
}

/// Creates a harness whose provider `one` has a preset.
fn with_preset(preset: &str, keys: &Value) -> TestFlows {
    let mut remedy = json!({ "use": ["a", "b"] });
    remedy.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    let mut config = config(&json!([{ "accounts": remedy }]));
    config["presets"] = json!({ "one": preset });
    TestFlows::new(config)
}

const POST: &str = "POST https://one.example/";

#[test]
fn a_refusal_that_everybody_sees_cools_no_account() {
    let on = json!({ "cool_down": { "on": ["429", "5xx"] } });
    for (preset, cools) in [("anthropic", false), ("stripe", true)] {
        let harness = with_preset(preset, &on);
        let (mut exchange, used) = sent(&harness, POST);
        exchange.response(&harness, "529");
        assert_eq!(cools_ms(&harness, &used).is_some(), cools, "{preset}");
    }
}

#[test]
fn an_account_without_credit_is_out_and_another_one_is_used() {
    let spent = "429\n\n{\"error\":{\"code\":\"insufficient_quota\"}}";
    for (preset, refusal, cools) in [
        ("openai", spent, Some(600_000)),
        ("openai", "429\nretry-after-ms: 2500", Some(2_500)),
        ("deepseek", "402", Some(600_000)),
        ("stripe", "402", None),
    ] {
        let harness = with_preset(preset, &json!({}));
        let (mut exchange, used) = sent(&harness, POST);
        let step = exchange.response(&harness, refusal);
        assert_eq!(cools_ms(&harness, &used), cools, "{preset} {refusal}");
        assert_eq!(matches!(step, TestStep::Response(_)), cools.is_none(), "{preset} {refusal}");
        if cools.is_some() {
            assert_ne!(again(&harness, &mut exchange), used, "{preset} {refusal}");
        }
    }
}

#[test]
fn the_account_with_most_left_is_known_by_the_providers_fields() {
    let harness = with_preset("anthropic", &json!({ "by": "most-remaining" }));
    let reset = "anthropic-ratelimit-requests-reset: 2027-01-01T00:00:00Z";
    let (mut exchange, poor) = sent(&harness, GET);
    exchange.response(&harness, &format!("200\nanthropic-ratelimit-requests-remaining: 3\n{reset}"));
    exchange.end(&harness);
    let rich = format!("200\nanthropic-ratelimit-requests-remaining: 50\n{reset}");
    let other = answered(&harness, GET, &rich);
    assert_ne!(poor, other);
    for _ in 0..3 {
        assert_eq!(answered(&harness, GET, &rich), other);
    }
}

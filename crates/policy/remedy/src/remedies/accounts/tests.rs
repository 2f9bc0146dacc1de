use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use egret_accounts::token::Answered;
use egret_fixture::{Stage, Stand, Visit};

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

/// Creates a stage with a pool of `a`, `b` and `c`, plus `keys`.
fn stage(keys: &Value) -> Stage {
    let mut remedy = json!({ "use": ["a", "b", "c"] });
    remedy.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    Stage::new(config(&json!([{ "accounts": remedy }])))
}

fn problems(remedy: &Value) -> Vec<String> {
    let mut config = config(&json!([{ "accounts": remedy }]));
    config["flows"][0]["match"] = json!({ "provider": "one", "path": "/users/{id}" });
    let Err(problems) = egret_fixture::compiled(config) else { return Vec::new() };
    problems
}

/// Returns the name of the account that a visit uses.
fn account(stage: &Stage, visit: &Visit) -> String {
    let number = visit.draft.call.account;
    number.and_then(|number| stage.flows.accounts.get(number)).map_or("", Account::name).to_owned()
}

/// Starts an exchange that is called. Returns it with the name of its account.
fn sent(stage: &Stage, lines: &str) -> (Visit, String) {
    let mut visit = stage.send(lines);
    assert_eq!(visit.poll(stage), Stand::Call);
    let account = account(stage, &visit);
    (visit, account)
}

/// Returns the account of an exchange that gets this response.
fn answered(stage: &Stage, lines: &str, response: &str) -> String {
    let (mut visit, account) = sent(stage, lines);
    assert!(matches!(visit.response(stage, response), Stand::Response(_)));
    visit.end(stage);
    account
}

/// Polls a visit that is to be repeated up to its next call. Returns the account.
fn again(stage: &Stage, visit: &mut Visit) -> String {
    assert_eq!(visit.poll(stage), Stand::Call);
    account(stage, visit)
}

fn standing(stage: &Stage, name: &str) -> egret_accounts::AccountSnapshot {
    let account = stage.flows.accounts.find(name).and_then(|number| stage.flows.accounts.get(number));
    account.unwrap().snapshot(stage.now)
}

/// Returns the remaining cool-down of an account in milliseconds.
fn cools_ms(stage: &Stage, name: &str) -> Option<u128> {
    standing(stage, name).cooling.map(|cooling| cooling.until.since(stage.now).as_millis())
}

#[test]
fn what_its_accounts_need_to_see_is_held_back_and_echoes_are_masked_where_it_says_so() {
    for masks in [false, true] {
        let signing = json!({ "access_key_id": "${env:CARGO_PKG_NAME}", "secret_access_key": "${env:CARGO_PKG_NAME}", "region": "r", "service": "s3", "body": "3MiB" });
        let mut config = config(&json!([{ "accounts": { "use": ["a", "signs"], "mask_echoes": masks } }]));
        config["accounts"]["signs"] = json!({ "provider": "one", "sigv4": signing });
        let (visit, _) = sent(&Stage::new(config), GET);
        assert_eq!(visit.draft.call.masks_echoes, masks);
        assert_eq!(visit.body_seen_max(), 3 << 20);
    }
}

#[test]
fn accounts_take_turns_and_by_weight_evenly_spread() {
    let stage = stage(&json!({}));
    let turns: String = (0..6).map(|_| answered(&stage, GET, "200")).collect();
    assert_eq!(turns, "abcabc");
    let weighted = json!({ "use": ["a", { "account": "b", "weight": 3 }, "c"] });
    let stage = Stage::new(config(&json!([{ "accounts": weighted }])));
    let turns: String = (0..10).map(|_| answered(&stage, GET, "200")).collect();
    assert_eq!(turns, "babcbbabcb");
}

#[test]
fn a_refused_call_is_made_again_on_another_account_whatever_its_method() {
    for status in ["401", "403", "429"] {
        let stage = stage(&json!({}));
        let mut visit = stage.send("POST https://one.example/");
        assert_eq!(visit.poll(&stage), Stand::Call);
        assert_eq!(visit.response(&stage, status), Stand::Repeat(stage.now));
        assert_eq!(again(&stage, &mut visit), "b");
        assert_eq!(visit.response(&stage, "200"), Stand::Response(200));
        assert_eq!(standing(&stage, "a").cooling.unwrap().reason(), status);
        // The other accounts continue.
        let turns: String = (0..4).map(|_| answered(&stage, GET, "200")).collect();
        assert_eq!(turns, "cbcb");
    }
}

#[test]
fn what_the_provider_may_have_acted_on_is_made_again_only_where_that_does_no_harm() {
    let stage = stage(&json!({ "cool_down": { "on": ["503"] }, "methods": ["PATCH"] }));
    let is_repeated = |method: &str| {
        let (mut visit, _) = sent(&stage, &format!("{method} https://one.example/"));
        matches!(visit.response(&stage, "503"), Stand::Repeat(_))
    };
    assert!(!is_repeated("POST"));
    assert!(is_repeated("PATCH"));
    let stage = self::stage(&json!({}));
    let (mut gone, _) = sent(&stage, GET);
    gone.repeatable = false;
    assert_eq!(gone.response(&stage, "401"), Stand::Response(401));
    assert_eq!(cools_ms(&stage, "a"), Some(30_000));
}

#[test]
fn no_more_calls_are_made_than_allowed_and_none_where_no_account_is_left() {
    let calls = |keys: &Value| {
        let stage = stage(keys);
        let mut visit = stage.send(GET);
        let mut calls = 0;
        while visit.poll(&stage) == Stand::Call {
            calls += 1;
            if visit.response(&stage, "401") == Stand::Response(401) {
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
fn an_account_is_left_alone_for_as_long_as_the_provider_says_within_bounds() {
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
        let stage = stage(&json!({ "repeat": 0 }));
        answered(&stage, GET, response);
        assert_eq!(cools_ms(&stage, "a"), Some(cools), "{response}");
    }
}

#[test]
fn a_credential_that_is_refused_again_and_again_is_left_out_for_longer_until_it_works() {
    let keys = json!({ "use": ["a"], "repeat": 0, "cool_down": { "max": "2m" } });
    let mut stage = stage(&keys);
    for cools in [30_000, 60_000, 120_000, 120_000] {
        answered(&stage, GET, "401");
        assert_eq!(cools_ms(&stage, "a"), Some(cools.into()));
        stage.pass_ms(cools);
    }
    // A 503 means that the provider is overloaded and says nothing about the credential.
    answered(&stage, GET, "503");
    stage.pass_ms(1);
    answered(&stage, GET, "200");
    answered(&stage, GET, "401");
    assert_eq!(cools_ms(&stage, "a"), Some(30_000));
    stage.pass_ms(30_000);
    // A 429 does not make the cool-down grow.
    for _ in 0..2 {
        answered(&stage, GET, "429");
        assert_eq!(cools_ms(&stage, "a"), Some(30_000));
        stage.pass_ms(30_000);
    }
}

#[test]
fn calls_that_were_under_way_together_say_together_what_one_says() {
    let mut stage = stage(&json!({ "use": ["a"], "repeat": 0 }));
    let mut together: Vec<_> = (0..5).map(|_| sent(&stage, GET).0).collect();
    stage.pass_ms(10);
    for visit in &mut together[..3] {
        assert_eq!(visit.response(&stage, "401"), Stand::Response(401));
    }
    // A call that began before the refusal does not show that the account works again.
    assert_eq!(together[3].response(&stage, "200"), Stand::Response(200));
    assert_eq!(cools_ms(&stage, "a"), Some(30_000));
    assert_eq!(together[4].response(&stage, "429\nRetry-After: 40"), Stand::Response(429));
    assert_eq!(cools_ms(&stage, "a"), Some(40_000));
    stage.pass_ms(40_000);
    answered(&stage, GET, "401");
    assert_eq!(cools_ms(&stage, "a"), Some(60_000), "the second time, not the sixth");
}

#[test]
fn where_all_cool_down_exchanges_are_refused_or_wait_for_the_first_to_come_back() {
    let mut stage = stage(&json!({ "repeat": 0, "wait_max": "8s" }));
    for seconds in [20, 10, 30] {
        answered(&stage, GET, &format!("429\nRetry-After: {seconds}"));
    }
    let refusal = stage.send(GET).poll(&stage).refusal(&stage);
    assert_eq!(refusal, (Reason::AccountUnavailable, Some(10_000)));
    stage.pass_ms(2_000);
    let mut visit = stage.send(GET);
    let Stand::Wait(Some(at)) = visit.poll(&stage) else { panic!() };
    assert_eq!(at.since(stage.now).as_millis(), 8_000);
    stage.now = at;
    assert_eq!(again(&stage, &mut visit), "b");
    assert_eq!(visit.response(&stage, "200"), Stand::Response(200));
}

#[test]
fn who_is_refused_by_all_waits_within_his_time_and_is_called_again() {
    let mut stage = stage(&json!({ "repeat": 8, "wait_max": "2s" }));
    let mut visit = stage.send(GET);
    for _ in 0..3 {
        assert_eq!(visit.poll(&stage), Stand::Call);
        assert_eq!(visit.response(&stage, "429\nRetry-After: 1"), Stand::Repeat(stage.now));
    }
    let Stand::Wait(Some(at)) = visit.poll(&stage) else { panic!() };
    stage.now = at;
    assert_ne!(again(&stage, &mut visit), "c", "the account that was just refused");
    assert_eq!(visit.response(&stage, "200"), Stand::Response(200));
}

#[test]
fn a_group_keeps_its_account_and_comes_back_to_it() {
    let mut stage = stage(&json!({ "sticky": "header:x-tenant" }));
    let tenant = |number: u32| format!("{GET}\nX-Tenant: {number}");
    let of_all = |stage: &Stage| -> Vec<String> {
        (0..60).map(|number| answered(stage, &tenant(number), "200")).collect()
    };
    let before = of_all(&stage);
    assert_eq!(of_all(&stage), before);
    for name in ["a", "b", "c"] {
        let count = before.iter().filter(|account| *account == name).count();
        assert!((8..=32).contains(&count), "{name} has {count} of 60");
    }
    let of_b = u32::try_from(before.iter().position(|account| account == "b").unwrap()).unwrap();
    let (mut visit, _) = sent(&stage, &tenant(of_b));
    assert_eq!(visit.response(&stage, "429\nRetry-After: 10"), Stand::Repeat(stage.now));
    assert_ne!(again(&stage, &mut visit), "b");
    drop(visit);
    for (now, then) in of_all(&stage).iter().zip(&before) {
        assert!(now == then || then == "b" && now != "b", "{then} has become {now}");
    }
    stage.pass_ms(10_000);
    assert_eq!(of_all(&stage), before);
    // Without a group, each account in turn.
    let turns: BTreeSet<String> = (0..3).map(|_| answered(&stage, GET, "200")).collect();
    assert_eq!(turns.len(), 3);
}

#[test]
fn the_least_used_is_the_one_with_the_fewest_under_way() {
    let stage = stage(&json!({ "by": "least-used" }));
    let (first, a) = sent(&stage, GET);
    let (second, b) = sent(&stage, GET);
    let (third, c) = sent(&stage, GET);
    assert_eq!([a, b, c], ["a", "b", "c"]);
    assert_eq!(standing(&stage, "b").in_flight, 1);
    drop(second);
    let (fourth, next) = sent(&stage, GET);
    assert_eq!(next, "b");
    drop((first, third, fourth));
    assert_eq!(standing(&stage, "b").in_flight, 0);
    // With no exchange in flight, the account with the fewest calls is chosen.
    assert_eq!(answered(&stage, GET, "200"), "a");
    assert_eq!(answered(&stage, GET, "200"), "b");
}

#[test]
fn the_one_with_the_most_left_is_the_one_of_which_the_provider_says_so() {
    let mut stage = stage(&json!({ "by": "most-remaining" }));
    let left = |count: u32| format!("200\nRateLimit: \"default\";r={count};t=60");
    for (name, count) in [("a", 5), ("b", 9), ("c", 7)] {
        assert_eq!(answered(&stage, GET, &left(count)), name, "accounts without a report come first");
    }
    let (_first, next) = sent(&stage, GET);
    assert_eq!(next, "b");
    let under_way: Vec<_> = (0..3).map(|_| sent(&stage, GET)).collect();
    let names: Vec<&str> = under_way.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["b", "c", "b"], "calls in flight are counted as used");
    assert_eq!(standing(&stage, "b").remaining, Some(9));
    stage.pass_ms(60_000);
    assert_eq!(standing(&stage, "b").remaining, None, "an old report does not count");
}

#[test]
fn an_account_that_has_nothing_left_is_passed_over_while_others_have() {
    let stage = stage(&json!({}));
    answered(&stage, GET, "200\nRateLimit: \"default\";r=0;t=60");
    let turns: String = (0..4).map(|_| answered(&stage, GET, "200")).collect();
    assert!(!turns.contains('a'), "{turns}");
    assert_eq!(cools_ms(&stage, "a"), None);
    for _ in 0..2 {
        answered(&stage, GET, "200\nRateLimit: \"default\";r=0;t=60");
    }
    assert_eq!(sent(&stage, GET).1.len(), 1, "an account without calls left is tried if there is no other");
}

#[test]
fn calls_go_only_with_accounts_of_the_provider_that_is_called() {
    let pool = json!([{ "accounts": { "use": ["a", "elsewhere"] } }]);
    let stage = Stage::new(config(&pool));
    for (host, name) in [("one", "a"), ("two", "elsewhere"), ("three", "")] {
        for _ in 0..2 {
            assert_eq!(answered(&stage, &format!("GET https://{host}.example/"), "200"), name);
        }
    }
}

#[test]
fn what_another_provider_answers_is_not_held_against_an_account() {
    let remedies = json!([
        { "accounts": { "use": ["a", "b"] } },
        { "fallback": { "on": ["5xx"], "provider": "two" } },
    ]);
    let stage = Stage::new(config(&remedies));
    let (mut visit, name) = sent(&stage, GET);
    assert_eq!(name, "a");
    assert_eq!(visit.response(&stage, "503"), Stand::Repeat(stage.now));
    assert_eq!(visit.poll(&stage), Stand::Call);
    assert_eq!(visit.draft.call.provider, Some(1));
    assert_eq!(visit.response(&stage, "401"), Stand::Response(401));
    let snapshot = standing(&stage, "a");
    assert_eq!((snapshot.cooling, snapshot.endings), (None, [1, 0, 0, 0, 0]));
}

#[test]
fn what_a_remedy_further_in_refuses_is_not_held_against_an_account() {
    let remedies = json!([
        { "accounts": { "use": ["a", "b"], "cool_down": { "on": ["429"] } } },
        { "limit": { "quota": "q", "status": 429 } },
    ]);
    let mut config = config(&remedies);
    config["quotas"] = json!({ "q": { "limit": 1, "window": "10s" } });
    let stage = Stage::new(config);
    answered(&stage, GET, "200");
    assert_eq!(stage.exchange(GET, "200").refusal(&stage).0, Reason::QuotaExceeded);
    assert_eq!((cools_ms(&stage, "a"), cools_ms(&stage, "b")), (None, None));
}

#[test]
fn a_quota_further_in_counts_for_each_account() {
    for remedy in [json!({ "limit": { "quota": "q" } }), json!({ "queue": { "quota": "q" } })] {
        let remedies = json!([{ "accounts": { "use": ["a", "b"] } }, remedy]);
        let mut config = config(&remedies);
        config["quotas"] = json!({ "q": { "limit": 2, "window": "10s", "group_by": "account" } });
        let stage = Stage::new(config);
        let turns: String = (0..4).map(|_| answered(&stage, GET, "200")).collect();
        assert_eq!(turns, "abab");
        assert_ne!(stage.send(GET).poll(&stage), Stand::Call);
    }
}

#[test]
fn each_call_counts_for_the_account_that_it_was_made_with() {
    let quota = json!({ "limit": 1, "window": "10s", "group_by": "account" });
    let remedies = json!([{ "accounts": { "use": ["a", "b"] } }, { "limit": { "quota": "q" } }]);
    let mut config = config(&remedies);
    config["quotas"] = json!({ "q": quota });
    let stage = Stage::new(config);
    let (mut visit, _) = sent(&stage, GET);
    assert_eq!(visit.response(&stage, "401"), Stand::Repeat(stage.now));
    assert_eq!(again(&stage, &mut visit), "b");
    assert_eq!(visit.response(&stage, "200"), Stand::Response(200));
    let quotas = stage.flows.snapshot(stage.now, 10).quotas;
    let used: BTreeMap<&str, u64> =
        quotas[0].groups.iter().map(|group| (group.name.as_str(), group.used)).collect();
    assert_eq!(used, BTreeMap::from([("a", 1), ("b", 1)]));
}

#[test]
fn in_report_mode_nothing_is_changed() {
    let remedy = json!([{ "accounts": { "use": ["a", "b"] }, "mode": "report" }]);
    let stage = Stage::new(config(&remedy));
    let (mut visit, name) = sent(&stage, GET);
    assert_eq!((name.as_str(), standing(&stage, "a").in_flight), ("", 0));
    assert_eq!(visit.response(&stage, "401"), Stand::Response(401));
    let snapshot = standing(&stage, "a");
    assert_eq!((snapshot.cooling, snapshot.endings), (None, [0; 5]));
}

#[test]
fn remedies_know_of_each_other_what_an_account_is_used_for() {
    let flows = json!([
        { "name": "one", "match": { "path": "/fixed" }, "remedies": [{ "authenticate": { "account": "a" } }] },
        { "name": "pool", "match": { "path": "/pool" }, "remedies": [{ "accounts": { "use": ["a", "b"], "by": "least-used" } }] },
    ]);
    let mut stage = Stage::new(json!({ "accounts": accounts(), "flows": flows }));
    let fixed = sent(&stage, "GET https://one.example/fixed");
    assert_eq!(fixed.1, "a");
    assert_eq!(standing(&stage, "a").in_flight, 1);
    let pool = sent(&stage, "GET https://one.example/pool");
    assert_eq!(pool.1, "b");
    drop((fixed, pool));
    let (mut refused, name) = sent(&stage, "GET https://one.example/pool");
    assert_eq!(name, "a");
    assert_eq!(refused.response(&stage, "401"), Stand::Repeat(stage.now));
    drop(refused);
    // A success ends the cool-down, whichever remedy made the call.
    stage.pass_ms(1);
    assert_eq!(answered(&stage, "GET https://one.example/fixed", "200"), "a");
    assert_eq!(cools_ms(&stage, "a"), None);
    assert_eq!(standing(&stage, "a").endings, [1, 1, 0, 0, 0]);
}

#[test]
fn a_reload_keeps_how_accounts_stand() {
    let mut stage = stage(&json!({}));
    let (mut visit, _) = sent(&stage, GET);
    assert_eq!(visit.response(&stage, "429\nRetry-After: 30"), Stand::Repeat(stage.now));
    assert_eq!(again(&stage, &mut visit), "b");
    stage.reload(config(&json!([{ "accounts": { "use": ["a", "b", "c"], "repeat": 1 } }])));
    assert_eq!(cools_ms(&stage, "a"), Some(30_000));
    assert_eq!((standing(&stage, "a").endings, standing(&stage, "b").in_flight), ([0, 0, 0, 1, 0], 1));
    drop(visit);
    assert_eq!(standing(&stage, "b").in_flight, 0);
    // The turns are kept too.
    assert_eq!(sent(&stage, GET).1, "c");
}

#[test]
fn an_account_that_no_token_can_be_had_for_is_passed_over() {
    let mut accounts = accounts();
    let oauth2 = json!({ "token_url": "https://id.example/", "client_id": "me" });
    accounts["a"] = json!({ "provider": "one", "oauth2": oauth2 });
    let remedies = json!([{ "accounts": { "use": ["a", "b"] } }]);
    let stage = Stage::new(json!({ "accounts": accounts, "flows": [{ "name": "f", "remedies": remedies }] }));
    let mut visit = stage.send(GET);
    assert!(matches!(visit.poll(&stage), Stand::Wait(Some(_))));
    let body = br#"{"error":"invalid_client"}"#;
    visit.draft.fetch.take().unwrap().end(stage.now, Ok(Answered { status: 400, retry_after: None, body }));
    assert_eq!(again(&stage, &mut visit), "b");
    let a = standing(&stage, "a");
    assert_eq!((a.cooling.unwrap().reason().as_str(), a.in_flight), ("token", 0));
    assert_eq!(sent(&stage, GET).1, "b", "account `a` is not tried again");
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
        (json!({ "use": ["a"], "sticky": "param:name" }), "sticky", "no path of a match here"),
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
    let of = |(place, weight): (usize, &u32)| Candidate {
        place,
        number: place,
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
                chosen[turn(&all, &mut behind).unwrap().place] += 1;
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
        let rest: Candidates = all.iter().filter(|one| one.place != gone).copied().collect();
        let seed = |place: usize| mixed(hash(format!("account {place}").as_bytes()));
        for group in groups {
            let before = sticky_one(&all, group, seed).unwrap().place;
            let after = sticky_one(&rest, group, seed).unwrap().place;
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
        let mut stage = stage(&json!({ "by": by, "sticky": sticky, "repeat": 0 }));
        for (time_ms, response, tenant) in steps {
            stage.pass_ms(time_ms);
            let responses =
                ["200", "401", "429", "429\nRetry-After: 3", "200\nRateLimit: \"d\";r=0;t=9", "403"];
            let usable: Vec<&str> =
                ["a", "b", "c"].into_iter().filter(|name| cools_ms(&stage, name).is_none()).collect();
            let mut visit = stage.send(&format!("{GET}\nX-Tenant: {tenant}"));
            match visit.poll(&stage) {
                Stand::Call => {
                    let name = account(&stage, &visit);
                    prop_assert!(usable.contains(&name.as_str()), "{name} of {usable:?}");
                    visit.response(&stage, responses[response]);
                    visit.end(&stage);
                }
                refused => {
                    prop_assert!(usable.is_empty(), "{usable:?}");
                    let back = ["a", "b", "c"].iter().filter_map(|name| cools_ms(&stage, name)).min();
                    prop_assert_eq!(refused.refusal(&stage), (Reason::AccountUnavailable, back));
                }
            }
        }
        for name in ["a", "b", "c"] {
            prop_assert_eq!(standing(&stage, name).in_flight, 0);
        }
    }
}

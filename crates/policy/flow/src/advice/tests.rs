use serde_json::{Value, json};

use super::*;

/// Returns the paths of the warnings, each with the path that it is related to.
fn paths(flows: &Value) -> Vec<String> {
    let flows: Vec<FlowConfig> = serde_json::from_value(flows.clone()).unwrap();
    let quotas = json!({
        "calls": { "limit": 5, "window": "1s" },
        "child": { "limit": 5, "window": "1s", "parent": "calls" },
        "slots": { "limit": 5, "kind": "concurrency" },
    });
    let quotas: QuotaConfigs = serde_json::from_value(quotas).unwrap();
    let path = |problem: Problem| match problem.related {
        Some(related) => format!("{} -> {related}", problem.path),
        None => problem.path,
    };
    advise(&flows, &quotas).into_iter().map(path).collect()
}

fn none() -> Vec<String> {
    Vec::new()
}

#[test]
fn a_quota_outside_of_what_repeats_its_calls_is_warned_of() {
    let queue = json!({ "queue": { "quota": "calls" } });
    let retry = json!({ "retry": {} });
    let flow = |remedies: Value| json!([{ "name": "a", "remedies": remedies }]);
    assert_eq!(
        paths(&flow(json!([queue, retry]))),
        ["flows[0].remedies[0].queue -> flows[0].remedies[1].retry"]
    );
    let hedge = json!({ "hedge": {} });
    assert_eq!(
        paths(&flow(json!([queue, hedge]))),
        ["flows[0].remedies[0].queue -> flows[0].remedies[1].hedge"]
    );
    assert_eq!(paths(&flow(json!([hedge, queue]))), none());
    let limit = json!({ "limit": { "quota": "child" } });
    assert_eq!(paths(&flow(json!([limit, { "timeout": { "total": "1s" } }, retry]))).len(), 1);
    for remedies in [
        json!([retry, queue]),
        json!([queue, { "retry": { "attempts": 1 } }]),
        json!([queue, { "retry": {}, "mode": "report" }]),
        json!([{ "queue": { "quota": "calls" }, "mode": "report" }, retry]),
        json!([{ "limit": { "quota": "slots" } }, retry]),
        json!([queue, retry, limit]),
        json!([queue, retry, queue]),
    ] {
        assert_eq!(paths(&flow(remedies.clone())), none(), "{remedies}");
    }
}

#[test]
fn a_quota_outside_a_retry_warns_if_both_match() {
    let flows = |outer: Value, inner: Value| {
        json!([
            { "name": "a", "match": outer, "remedies": [{ "queue": { "quota": "calls" } }] },
            { "name": "b", "match": inner, "remedies": [{ "retry": {} }] },
        ])
    };
    let warned = ["flows[0].remedies[0].queue -> flows[1].remedies[0].retry"];
    assert_eq!(paths(&flows(json!({}), json!({ "provider": "p" }))), warned);
    assert_eq!(paths(&flows(json!({ "path": "/v1/*" }), json!({ "path": "/v1/x" }))), warned);
    assert_eq!(paths(&flows(json!({ "path": "/v1/x" }), json!({ "path": "/v1/*" }))), none());
    assert_eq!(paths(&flows(json!({ "provider": "p" }), json!({}))), none());
}

#[test]
fn remedies_behind_a_fixed_response_are_warned_of_once_for_each_flow() {
    let fixed = json!({ "fixed-response": { "status": 503 } });
    let retry = json!({ "retry": {} });
    let flows = json!([
        { "name": "a", "match": { "path": "/x/*" }, "remedies": [fixed, retry, retry] },
        { "name": "b", "match": { "path": "/x/y" }, "remedies": [retry, retry], "diagnoses": [{ "discovery": {} }] },
        { "name": "c", "match": { "path": "/*" }, "remedies": [retry] },
    ]);
    let expected = [
        "flows[0].remedies[1].retry -> flows[0].remedies[0].fixed-response",
        "flows[1].remedies -> flows[0].remedies[0].fixed-response",
    ];
    assert_eq!(paths(&flows), expected);
    for first in [
        json!({ "fixed-response": {}, "mode": "report" }),
        json!({ "fixed-response": { "body": "${params.id}" } }),
        json!({ "fixed-response": { "headers": { "x": "${now}" } } }),
    ] {
        let flows = json!([{ "name": "a", "remedies": [first, retry] }]);
        assert_eq!(paths(&flows), none(), "{flows}");
    }
}

#[test]
fn flows_that_never_apply_and_flows_that_do_nothing_are_warned_of() {
    let remedies = json!([{ "retry": {} }]);
    for (flow, expected) in [
        (json!({ "match": { "when": "1 == 2" } }), vec!["flows[0].match.when"]),
        (json!({ "match": { "when": "1 / 0 == 1" } }), vec!["flows[0].match.when"]),
        (json!({ "match": { "sample": 0 } }), vec!["flows[0].match.sample"]),
        (json!({ "when_response": "'a' == 'b'" }), vec!["flows[0].when_response"]),
        (json!({ "match": { "when": "1 == 1" } }), vec![]),
        (json!({ "match": { "when": "now < 0" } }), vec![]),
        (json!({ "match": { "sample": 0.5 } }), vec![]),
        (json!({ "remedies": [] }), vec!["flows[0]"]),
    ] {
        let mut whole = flow.clone();
        whole["name"] = json!("a");
        if whole.get("remedies").is_none() {
            whole["remedies"] = remedies.clone();
        }
        assert_eq!(paths(&json!([whole])), expected, "{flow}");
    }
}

#[test]
fn many_flows_take_no_long_time() {
    let flow = |number: usize| {
        json!({ "name": format!("f{number}"), "match": { "path": format!("/v1/{number}/{{id}}") },
                "remedies": [{ "queue": { "quota": "calls" } }, { "retry": {} }] })
    };
    let flows: Vec<Value> = (0..4_000).map(flow).collect();
    // Every quota is drawn from again by a later flow, but the last one.
    assert_eq!(paths(&json!(flows)).len(), 1);
}

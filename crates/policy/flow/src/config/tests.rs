use serde_json::json;

use super::*;

const PROVIDERS: [KnownProvider<'_>; 2] = [
    KnownProvider { name: "stripe", host: Some("api.stripe.com"), tls: true },
    KnownProvider { name: "maps", host: Some("maps.example"), tls: true },
];

fn found(flows: serde_json::Value) -> Vec<String> {
    let flows: Vec<FlowConfig> = serde_json::from_value(flows).unwrap();
    let problems = problems(&flows, &PROVIDERS);
    let words = |problem: Problem| match problem.suggestion {
        Some(meant) => format!("{}: {} [{meant}]", problem.path, problem.message),
        None => format!("{}: {}", problem.path, problem.message),
    };
    problems.into_iter().map(words).collect()
}

#[test]
fn good_flows_have_no_problem() {
    let none: [&str; 0] = [];
    assert_eq!(found(json!([])), none);
    assert_eq!(
        found(json!([{ "name": "a" }, { "name": "b", "match": { "provider": ["stripe", "-"] } }])),
        none
    );
    assert_eq!(
        found(json!([{ "name": "a", "match": { "provider": "stripe", "host": "*.stripe.com" } }])),
        none
    );
    assert_eq!(found(json!([{ "name": "a", "match": { "provider": "-", "host": "other.com" } }])), none);
}

#[test]
fn a_name_is_plain_and_has_one_flow() {
    assert_eq!(
        found(json!([{ "name": "a" }, { "name": "b" }, { "name": "a" }])),
        ["flows[2].name: the name `a` is already used by `flows[0]`"]
    );
    for name in ["", "a b", "a\n", &"a".repeat(65)] {
        let found = found(json!([{ "name": name }]));
        assert_eq!(found, ["flows[0].name: a flow's name is 1 to 64 letters, digits, `-`, `_` and `.`"]);
    }
}

#[test]
fn a_provider_that_is_not_there_is_refused_with_what_was_meant() {
    assert_eq!(
        found(json!([{ "name": "a", "match": { "provider": ["maps", "strip"] } }])),
        ["flows[0].match.provider[1]: no provider is called `strip` [stripe]"]
    );
}

#[test]
fn a_provider_and_a_host_that_never_meet_are_refused() {
    assert_eq!(
        found(json!([{ "name": "a", "match": { "provider": ["stripe", "maps"], "host": "*.other.com" } }])),
        ["flows[0].match.host: none of the named providers is on a named host: the flow would match nothing"]
    );
}

#[test]
fn more_flows_than_allowed_are_refused() {
    let too_many = |flows| {
        let flows: Vec<FlowConfig> = serde_json::from_value(flows).unwrap();
        too_many(&flows).map(|problem| format!("{}: {}", problem.path, problem.message))
    };
    let flows: Vec<_> = (0..=10_000).map(|number| json!({ "name": number.to_string() })).collect();
    assert_eq!(too_many(json!(flows[1..])), None);
    assert_eq!(too_many(json!(flows)).unwrap(), "flows: more than 10000 flows");
    let script = json!({ "script": { "source": "function onRequest() {}" } });
    let scripts = |count| json!([{ "name": "a" }, { "name": "b", "remedies": vec![&script; count] }]);
    assert_eq!(too_many(scripts(64)), None);
    let refused = too_many(scripts(65)).unwrap();
    assert_eq!(refused, "flows[1].remedies[64].script: all flows together have more than 64 scripts");
}

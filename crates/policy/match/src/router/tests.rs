use egret_clock::Timestamp;
use egret_fixture::with_request;
use egret_message::Request;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::matching::{MatchConfig, Percent};

/// A flow's name and its match.
type Flow = (String, MatchConfig);

fn compile(flows: &[Flow]) -> Result<Router, Vec<Problem>> {
    let rules: Vec<_> = flows.iter().map(|(name, matching)| MatchRule { name, matching }).collect();
    Router::compile(&rules)
}

fn flow(name: &str, config: serde_json::Value) -> Flow {
    flow_with(name, serde_json::from_value(config).unwrap())
}

fn flow_with(name: &str, matching: MatchConfig) -> Flow {
    (name.to_owned(), matching)
}

fn question<'a>(request: &'a Request<'a>, roll: u64) -> MatchInput<'a> {
    MatchInput { request, roll, now: Timestamp::from_secs(1_000), has_body: true }
}

/// Returns the flows found, each with the parameters of its path.
fn found(
    router: &Router,
    matches: &mut Matches,
    provider: &str,
    lines: &str,
    roll: u64,
) -> Vec<(usize, String)> {
    with_request(provider, lines, |request| router.find(question(request, roll), matches));
    let parameters = |found| {
        let pairs = router.parameters(found, matches).iter();
        let words = pairs.map(|(name, value)| format!("{name}={}", String::from_utf8_lossy(value)));
        words.collect::<Vec<_>>().join(" ")
    };
    matches.iter().map(|found| (found.flow(), parameters(found))).collect()
}

#[test]
fn all_flows_that_match_are_found_in_the_order_of_the_config() {
    let router = compile(&[
        flow("charges", json!({ "provider": "stripe", "path": "/v1/charges/{id}" })),
        flow("everything", json!({})),
        flow("adyen", json!({ "provider": "adyen" })),
        flow("names", json!({ "host": "*.stripe.com", "path": ["/x", "/v1/{kind}/{number}", "/v1/*"] })),
        flow("host", json!({ "host": "api.stripe.com", "method": "POST" })),
        flow("both", json!({ "provider": ["stripe", "-"], "host": "other.com" })),
    ])
    .unwrap();
    let matches = &mut Matches::default();
    let with = |flow: usize, parameters: &str| (flow, parameters.to_owned());
    assert_eq!(
        found(&router, matches, "stripe", "GET https://api.stripe.com/v1/charges/c%681", 0),
        [with(0, "id=ch1"), with(1, ""), with(3, "kind=charges number=ch1")]
    );
    assert_eq!(
        found(&router, matches, "stripe", "POST https://api.stripe.com/v1", 0),
        [with(1, ""), with(3, ""), with(4, "")]
    );
    assert_eq!(found(&router, matches, "-", "GET https://other.com/", 0), [with(1, ""), with(5, "")]);
    assert_eq!(found(&router, matches, "adyen", "GET https://adyen.com/", 0), [with(1, ""), with(2, "")]);
    assert_eq!(found(&Router::default(), matches, "adyen", "GET https://adyen.com/", 0), []);
}

#[test]
fn a_parameter_is_captured_as_the_first_reading_that_fits_has_it() {
    let router = compile(&[
        flow("project", json!({ "path": "/projects/{id}" })),
        flow("issue", json!({ "path": "/projects/{id}/{issue}" })),
    ])
    .unwrap();
    let matches = &mut Matches::default();
    let found = found(&router, matches, "gitlab", "GET https://h/projects/group%2Fname", 0);
    assert_eq!(found, [(0, "id=group/name".to_owned()), (1, "id=group issue=name".to_owned())]);
}

#[test]
fn a_host_gives_parameters_too() {
    let router = compile(&[
        flow("tenant", json!({ "host": "{tenant}.api.example.com", "path": "/{id}" })),
        flow("region", json!({ "host": ["x.com", "api.{region}"], "when": "request.params.region == 'eu'" })),
        flow("provider", json!({ "provider": "p", "host": "{a}.{b}.example.com" })),
        flow("below", json!({ "host": "*.api.example.com" })),
    ])
    .unwrap();
    let matches = &mut Matches::default();
    let mut ask = |provider: &str, url: &str| found(&router, matches, provider, &format!("GET {url}"), 0);
    let with = |flow: usize, parameters: &str| (flow, parameters.to_owned());
    let both = [with(0, "tenant=acme id=7"), with(3, "")];
    assert_eq!(ask("-", "https://acme.api.example.com/7"), both);
    assert_eq!(ask("-", "https://a.acme.api.example.com/7"), [with(3, "")], "one label only");
    assert_eq!(ask("-", "https://api.eu/"), [with(1, "region=eu")]);
    assert_eq!(ask("-", "https://api.us/"), []);
    assert_eq!(ask("-", "https://x.com/"), [], "without the parameter its value is empty");
    assert_eq!(ask("p", "https://x.y.example.com/"), [with(2, "a=x b=y")]);
    assert_eq!(ask("p", "https://y.example.com/"), []);
}

#[test]
fn regular_expressions_are_found_below_every_origin() {
    let router = compile(&[
        flow("path", json!({ "path": ["/x", r"regex:/v1/(?P<kind>[a-z]+)/(?P<id>\d+)"] })),
        flow("provider", json!({ "provider": "p", "path": "regex:/v1/.*" })),
        flow("host", json!({ "host": r"regex:(api|www)\d*\.example\.com", "path": ["/v1/*", "/v2/{id}"] })),
        flow("both", json!({ "host": r"regex:(api|www)\d*\.example\.com", "path": "regex:/v[12]/.*" })),
        flow("value", json!({ "header": { "x-tier": "regex:gold|silver" }, "query": { "q": r"regex:\d+" } })),
        flow("id", json!({ "path": "regex:/v1/.*/(?P<id>.*)", "when": "request.params.id == '8'" })),
    ])
    .unwrap();
    let matches = &mut Matches::default();
    let mut ask = |provider: &str, lines: &str| found(&router, matches, provider, &format!("GET {lines}"), 0);
    let with = |flow: usize, parameters: &str| (flow, parameters.to_owned());
    assert_eq!(
        ask("p", "https://other.com//v1/x/../charges/%38/"),
        [with(0, "kind=charges id=8"), with(1, ""), with(5, "id=8")]
    );
    assert_eq!(ask("-", "https://API7.example.com/v2/a%2Fb"), [with(2, "id=a/b"), with(3, "")]);
    assert_eq!(ask("-", "https://api.example.com.evil/v2/a"), []);
    assert_eq!(ask("-", "https://h/?q=7%38\nx-tier: silver"), [with(4, "")]);
    assert_eq!(ask("-", "https://h/?q=7a\nx-tier: silver"), []);
    assert_eq!(ask("-", "https://h/?q=7\nx-tier: silverish"), []);
}

#[test]
fn too_many_patterns_without_an_index_are_refused() {
    let paths: Vec<String> = (0..100).map(|path| format!("regex:/{path}")).collect();
    let flows: Vec<_> = (0..3).map(|_| flow("f", json!({ "path": paths }))).collect();
    let problems = compile(&flows).unwrap_err();
    assert_eq!(problems.len(), 1);
    assert!(problems[0].path == "flows[2].match" && problems[0].message.contains("256"), "{problems:?}");
}

#[test]
fn matches_that_multiply_beyond_bounds_are_refused() {
    let hosts: Vec<String> = (0..256).map(|host| format!("h{host}")).collect();
    let paths: Vec<String> = (0..256).map(|path| format!("/{path}")).collect();
    let flows: Vec<_> = (0..4).map(|_| flow("f", json!({ "host": hosts, "path": paths }))).collect();
    let problems = compile(&flows).unwrap_err();
    assert_eq!(problems.len(), 1);
    assert!(problems[0].path == "flows[3].match" && problems[0].message.contains("200000"), "{problems:?}");
}

#[test]
fn an_expression_sees_what_the_path_has_captured() {
    let router = compile(&[
        flow(
            "a",
            json!({ "path": ["/x", "/v1/{kind}/{id}"], "when": "request.params.id.startsWith('ch_')" }),
        ),
        flow("b", json!({ "when": "now == 1000 && request.method in ['GET', 'HEAD']" })),
        flow("c", json!({ "when": "request.body.missing == 1" })),
    ])
    .unwrap();
    let matches = &mut Matches::default();
    let flows = |found: Vec<(usize, String)>| found.into_iter().map(|(flow, _)| flow).collect::<Vec<_>>();
    assert_eq!(flows(found(&router, matches, "-", "GET http://h/v1/charges/ch%5F1", 0)), [0, 1]);
    assert_eq!(matches.failures().collect::<Vec<_>>(), [(2, EvaluationError::Types)]);
    assert_eq!(flows(found(&router, matches, "-", "POST http://h/v1/charges/x", 0)), [] as [usize; 0]);
}

#[test]
fn a_flow_is_undecided_until_its_body_arrives() {
    let router = compile(&[
        flow("all", json!({})),
        flow("large", json!({ "method": "POST", "when": "request.body.amount > 100" })),
    ])
    .unwrap();
    assert!(router.reads_bodies());
    let matches = &mut Matches::default();
    let mut ask = |method: &str, body: Option<&[u8]>, has_body| {
        with_request("-", &format!("{method} http://h/"), |request| {
            let request = Request { body, ..*request };
            router.find(MatchInput { has_body, ..question(&request, 0) }, matches);
        });
        (matches.iter().map(Match::flow).collect::<Vec<_>>(), matches.is_undecided())
    };
    assert_eq!(ask("POST", None, false), (vec![0], true));
    assert_eq!(ask("POST", Some(br#"{"amount":200}"#), true), (vec![0, 1], false));
    assert_eq!(ask("POST", Some(br#"{"amount":1}"#), true), (vec![0], false));
    assert_eq!(ask("POST", None, true), (vec![0], false));
    assert_eq!(ask("GET", None, false), (vec![0], false));
}

/// Second implementation of path patterns, as simple as possible, for paths with one reading.
fn slow_path(pattern: &str, path: &str) -> Option<String> {
    if let Some(source) = pattern.strip_prefix("regex:") {
        return slow_path(&source.replace("[^/]+", "{p}"), path).map(|_| String::new());
    }
    let segments =
        |path: &str| path.split('/').filter(|segment| !segment.is_empty()).map(str::to_owned).collect();
    let (mut pattern, mut path): (Vec<String>, Vec<String>) = (segments(pattern), segments(path));
    if pattern.last().is_some_and(|last| last == "*") {
        pattern.pop();
        path.truncate(pattern.len());
    }
    let mut parameters = Vec::new();
    for (pattern, segment) in pattern.iter().zip(&path) {
        if pattern == "*" {
            continue;
        }
        match pattern.strip_prefix('{') {
            Some(name) => parameters.push(format!("{}={segment}", name.trim_end_matches('}'))),
            None if pattern == segment => (),
            None => return None,
        }
    }
    (pattern.len() == path.len()).then(|| parameters.join(" "))
}

fn slow(config: &MatchConfig, provider: &str, host: &str, method: &str, path: &str) -> Option<String> {
    let is_in = |any: &[String], word: &str| any.is_empty() || any.iter().any(|other| other == word);
    let has_host = |pattern: &String| match pattern.strip_prefix('*') {
        Some(end) => host.ends_with(end),
        None => slow_host(pattern, host).is_some(),
    };
    if !is_in(&config.provider, provider) || !is_in(&config.method, method) {
        return None;
    }
    if !config.host.is_empty() && !config.host.iter().any(has_host) {
        return None;
    }
    let of_host = config.host.iter().find(|pattern| has_host(pattern));
    let of_host = of_host.and_then(|pattern| slow_host(pattern, host)).unwrap_or_default();
    let of_path = if config.path.is_empty() {
        String::new()
    } else {
        config.path.iter().find_map(|pattern| slow_path(pattern, path))?
    };
    Some([of_host, of_path].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" "))
}

/// Second implementation of host patterns without `*`.
fn slow_host(pattern: &str, host: &str) -> Option<String> {
    if let Some(source) = pattern.strip_prefix("regex:") {
        return slow_host(&source.replace(r"\.", "."), host).map(|_| String::new());
    }
    let (pattern, host): (Vec<_>, Vec<_>) = (pattern.split('.').collect(), host.split('.').collect());
    let mut parameters = Vec::new();
    for (pattern, label) in pattern.iter().zip(&host) {
        match pattern.strip_prefix('{') {
            Some(name) => parameters.push(format!("{}={label}", name.trim_end_matches('}'))),
            None if pattern == label => (),
            None => return None,
        }
    }
    (pattern.len() == host.len()).then(|| parameters.join(" "))
}

fn configs() -> impl Strategy<Value = MatchConfig> {
    let any_of = |word: &'static str, max: usize| prop::collection::vec(word, 0..=max);
    let path = prop::collection::vec(
        "/(a|b|\\*|\\{p\\}|\\{q\\})(/(a|b|\\*|\\{r\\}))?(/(a|b|\\{s\\}))?(/\\*)?/?|/\\*|/|\
         regex:/(a|b|\\[\\^/\\]\\+)(/a)?(/b)?",
        0..=3,
    );
    (
        any_of("[xyz-]", 2),
        any_of(
            "(\\*\\.)?([ab]\\.){0,2}c|([ab]\\.)?\\{t\\}\\.(a\\.)?(c|\\{u\\})|regex:([ab]\\\\\\.){0,2}c",
            2,
        ),
        path,
        any_of("GET|POST|HEAD|MOVE", 2),
    )
        .prop_map(|(provider, host, path, method)| MatchConfig {
            provider: provider.into_iter().collect(),
            host: host.into_iter().collect(),
            path: path.into_iter().collect(),
            method: method.into_iter().collect(),
            ..MatchConfig::default()
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_router_finds_what_asking_each_flow_finds(
        configs in prop::collection::vec(configs(), 0..12),
        requests in prop::collection::vec(("[xyz-]", "([ab]\\.){0,3}c", "GET|POST|HEAD|MOVE", "(/{1,2}(a|b|z)){0,5}/?"), 1..6),
    ) {
        let flows: Vec<Flow> = configs.iter().map(|config| flow_with("f", config.clone())).collect();
        let router = compile(&flows).unwrap();
        let matches = &mut Matches::default();
        for (provider, host, method, path) in &requests {
            let lines = format!("{method} http://{host}{path}");
            let expected: Vec<_> = configs
                .iter()
                .enumerate()
                .filter_map(|(flow, config)| Some((flow, slow(config, provider, host, method, path)?)))
                .collect();
            prop_assert_eq!(found(&router, matches, provider, &lines, 0), expected.clone(), "{}", lines);
            with_request(provider, &lines, |request| {
                let asked = (0..flows.len()).filter(|flow| router.mismatch(*flow, question(request, 0)).is_none());
                assert!(asked.eq(expected.iter().map(|(flow, _)| *flow)), "{lines}");
            });
        }
    }

    #[test]
    fn the_router_and_the_flow_itself_agree_on_paths_with_many_readings(
        patterns in prop::collection::vec("(/(a|b|\\{p\\}))(/(a|b|\\*|\\{q\\}))?(/(a|b|\\{r\\}))?(/\\*)?|regex:[/ab.\\*+]{1,6}", 1..6),
        path in "/[ab./;%2fF5cC]{0,24}",
        share in 0.0..100.0,
        roll in any::<u64>(),
    ) {
        let sample = Percent::new(share).unwrap();
        let patterns: Vec<String> =
            patterns.into_iter().filter(|text| crate::matching::PathPattern::parse(text).is_ok()).collect();
        let config = |path: &String| MatchConfig { path: [path.as_str()].into_iter().collect(), sample, ..MatchConfig::default() };
        let flows: Vec<Flow> = patterns.iter().map(|path| flow_with(path, config(path))).collect();
        let router = compile(&flows).unwrap();
        let lines = format!("GET http://h{path}");
        let found: Vec<usize> =
            found(&router, &mut Matches::default(), "-", &lines, roll).into_iter().map(|(flow, _)| flow).collect();
        let asked: Vec<usize> = with_request("-", &lines, |request| {
            (0..flows.len()).filter(|flow| router.mismatch(*flow, question(request, roll)).is_none()).collect()
        });
        prop_assert_eq!(found, asked);
    }
}

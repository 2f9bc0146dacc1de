use egret_fixture::with_request;
use serde_json::json;

use super::*;

/// Returns the explanation of the mismatch, or `None` if all keys match.
fn mismatch(config: serde_json::Value, lines: &str) -> Option<String> {
    let config: MatchConfig = serde_json::from_value(config).unwrap();
    let matcher = Matcher::compile(&config, "flow", "flows[0].match").unwrap();
    with_request("stripe", lines, |request| {
        let mut readings = Readings::default();
        readings.read(request.path);
        readings.join();
        let question = MatchInput { request, roll: 7, now: Timestamp::default(), has_body: false };
        let mismatch = matcher.mismatch(question, &readings)?;
        Some(mismatch.in_words(&config, request))
    })
}

fn problems(config: serde_json::Value) -> Vec<String> {
    let config: MatchConfig = serde_json::from_value(config).unwrap();
    let problems = Matcher::compile(&config, "flow", "match").err().unwrap_or_default();
    problems.into_iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect()
}

const REQUEST: &str = "GET https://api.stripe.com/v1/charges?limit=10&expand%5B%5D=a+b&empty\n\
                       X-Tenant: acme-7\nX-Tenant: other\nX-Egret-Consumer: billing";

#[test]
fn an_empty_match_is_for_everything() {
    assert_eq!(mismatch(json!({}), REQUEST), None);
    assert_eq!(mismatch(json!({}), "OPTIONS http://h*"), None);
}

#[test]
fn grpc_calls_match_by_service_and_method() {
    let call = "POST https://api.example/hello.v1.Greeter/SayHello\nContent-Type: application/grpc+proto";
    for config in [
        json!({ "grpc": {} }),
        json!({ "grpc": { "service": "hello.v1.Greeter", "method": "SayHello" } }),
        json!({ "grpc": { "service": ["other.A", "hello.*"] } }),
        json!({ "grpc": { "method": ["SayBye", "regex:Say(Hello|Hi)"] } }),
    ] {
        assert_eq!(mismatch(config.clone(), call), None, "{config}");
    }
    let wrong = json!({ "grpc": { "service": "hello.v1.Greeter", "method": ["SayBye", "sayhello"] } });
    assert_eq!(
        mismatch(wrong, call).unwrap(),
        "its gRPC method is `hello.v1.Greeter/SayHello`, expected the service `hello.v1.Greeter` and the method \
         `SayBye` or `sayhello`"
    );
    let web = call.replace("grpc+proto", "grpc-web");
    let message = "it is no gRPC call: its content type is not `application/grpc`";
    for lines in [&*web, "POST https://api.example/hello.v1.Greeter/SayHello"] {
        assert_eq!(mismatch(json!({ "grpc": {} }), lines).as_deref(), Some(message));
    }
    let found = problems(json!({ "grpc": { "service": "a\\b" } }));
    assert!(found.len() == 1 && found[0].starts_with("match.grpc.service: "), "{found:?}");
}

#[test]
fn every_given_key_must_match_one_list_entry() {
    for config in [
        json!({ "provider": "stripe" }),
        json!({ "provider": ["adyen", "stripe"] }),
        json!({ "host": "*.STRIPE.com" }),
        json!({ "host": ["other.com", "api.stripe.com"] }),
        json!({ "path": "/v1/*" }),
        json!({ "path": ["/v2/*", "/v1/{kind}"] }),
        json!({ "method": ["POST", "GET"] }),
        json!({ "query": { "limit": "10" } }),
        json!({ "query": { "limit": "*", "empty": "*" } }),
        json!({ "query": { "expand[]": "a b" } }),
        json!({ "header": { "x-tenant": "acme-*" } }),
        json!({ "header": { "X-TENANT": ["no", "other"] } }),
        json!({ "consumer": "billing" }),
        json!({ "consumer": "regex:bill.*" }),
        json!({ "host": "{service}.stripe.com", "path": "regex:/v1/.*", "query": { "expand[]": "regex:a b" } }),
        json!({ "sample": 100 }),
        json!({ "provider": "stripe", "host": "api.stripe.com", "path": "/v1/charges", "method": "GET" }),
    ] {
        assert_eq!(mismatch(config.clone(), REQUEST), None, "{config}");
    }
}

#[test]
fn a_mismatch_is_explained_in_words() {
    for (config, expected) in [
        (json!({ "provider": ["adyen", "-"] }), "its provider is `stripe`, not `adyen` or `-`"),
        (json!({ "host": "stripe.com" }), "its host is `api.stripe.com`, not `stripe.com`"),
        (json!({ "path": "/v1/charges/{id}" }), "its path `/v1/charges` does not match `/v1/charges/{id}`"),
        (json!({ "method": ["POST", "PUT", "X"] }), "its method is GET, not `POST`, `PUT` or `X`"),
        (json!({ "query": { "limit": "1" } }), "no query parameter `limit` has the value `1`"),
        (json!({ "query": { "offset": "*" } }), "no query parameter `offset` has the value `*`"),
        (json!({ "query": { "LIMIT": "10" } }), "no query parameter `LIMIT` has the value `10`"),
        (json!({ "header": { "x-tenant": "ACME-7" } }), "no header field `x-tenant` has the value `ACME-7`"),
        (json!({ "consumer": ["b", "c"] }), "its consumer is `billing`, not `b` or `c`"),
        (json!({ "when": "request.query.limit == '9'" }), "`request.query.limit == '9'` is false"),
        (
            json!({ "when": "int(request.path) == 9" }),
            "`int(request.path) == 9` fails: a function cannot process the value it got",
        ),
        (json!({ "when": "request.body == 9" }), "`when` reads the body, which is not available"),
        (json!({ "sample": 0 }), "it is not among the sampled 0 %"),
        (json!({ "provider": "x", "method": "PUT" }), "its provider is `stripe`, not `x`"),
    ] {
        assert_eq!(mismatch(config.clone(), REQUEST).as_deref(), Some(expected), "{config}");
    }
    let anonymous = mismatch(json!({ "consumer": "b" }), "GET http://h/");
    assert_eq!(anonymous.as_deref(), Some("it names no consumer, expected `b`"));
}

#[test]
fn head_and_options_match_where_no_method_is_named_or_they_are() {
    for method in ["HEAD", "OPTIONS", "QUERY"] {
        let lines = format!("{method} http://h/");
        assert_eq!(mismatch(json!({}), &lines), None);
        assert_eq!(mismatch(json!({ "method": method }), &lines), None);
        assert!(mismatch(json!({ "method": "GET" }), &lines).is_some());
    }
}

#[test]
fn bad_patterns_are_problems_at_their_place() {
    for (config, expected) in [
        (json!({ "path": ["/a", "b"] }), "match.path[1]: `b` is not a path"),
        (json!({ "path": "b" }), "match.path: `b` is not a path"),
        (json!({ "host": "h:1" }), "match.host: `h:1` is not a host: write it without a port"),
        (json!({ "method": "get" }), "match.method: methods are case-sensitive: `get` is not GET"),
        (json!({ "method": "GE T" }), "match.method: `GE T` is not a method"),
        (json!({ "query": { "a": r"\d" } }), "match.query.a: a backslash must be followed"),
        (json!({ "header": { "x y": "*" } }), "match.header.x y: `x y` is not a valid header field name"),
        (json!({ "when": "request.pth == 1" }), "match.when: there is no variable `request.pth`"),
        (
            json!({ "path": "/{a}", "when": "request.params.b == ''" }),
            "match.when: no path or host of a match here has",
        ),
        (json!({ "consumer": ["a", r"\"] }), "match.consumer[1]: a backslash"),
        (json!({ "path": ["/a", "regex:/("] }), "match.path[1]: `/(` is not a regular expression"),
        (json!({ "header": { "a": "regex:" } }), "match.header.a: no regular expression follows"),
        (json!({ "host": "{a}.{a}.com" }), "match.host: `{a}.{a}.com` has two parameters"),
        (
            json!({ "host": "{id}.com", "path": ["/a", "/{id}"] }),
            "match.path: the parameter `id` is in a host and in a path",
        ),
    ] {
        let problems = problems(config);
        assert!(problems.len() == 1 && problems[0].starts_with(expected), "{problems:?}");
    }
}

#[test]
fn a_config_that_is_written_down_reads_back() {
    for text in [
        json!({}),
        json!({ "provider": "a", "path": ["/a", "/b"], "query": { "a": "*" }, "header": { "b": ["c", "d"] }, "sample": 0.5 }),
    ] {
        let config: MatchConfig = serde_json::from_value(text.clone()).unwrap();
        assert_eq!(serde_json::to_value(&config).unwrap(), text);
    }
}

use egret_fixture::{Decision, TestExchange, TestFlows, TestStep, compiled, problems, pseudonym_key};
use egret_message::{ErrorKind, FailureKind};
use serde_json::json;

use super::*;

/// Creates a harness with one flow for users, which has these remedies.
fn of_users(remedies: &Value) -> TestFlows {
    TestFlows::new(json!({ "flows": [
        { "name": "f", "match": { "path": "/users/{id}" }, "remedies": remedies },
    ]}))
}

const POST: &str = "POST https://one.example/users/7?debug=1&page=2&debug&x=%41\nContent-Type: application/json\nContent-Length: 1\nX-Internal: 1\nx-internal: 2\nContent-Digest: sha-256=::";

/// Starts an exchange with this request body.
fn post(harness: &TestFlows, body: &str) -> TestExchange {
    let mut exchange = harness.send(POST);
    exchange.body = Some(body.as_bytes().to_vec());
    exchange
}

#[test]
fn a_request_is_changed_in_all_its_parts() {
    let harness = of_users(&json!([{ "transform": { "request": {
        "headers": {
            "set": { "x-tenant": "${params.id}", "X-Copy": "${request.headers.x-internal}" },
            "add": { "x-tag": "a" },
            "remove": ["X-INTERNAL"],
        },
        "path": "/v2/people/${params.id}",
        "query": { "set": { "page": "a b&c=${query.x}", "limit": "50" }, "add": { "x": "1" }, "remove": ["debug"] },
        "json": {
            "set": { "/source/name": "egret \"${params.id}\"", "/amount": 5, "/none": null },
            "add": { "/tags": "new" },
            "remove": ["/user/email"],
        },
    }}}]));
    let body = r#"{"user":{"email":"a@b","name":"c"},"amount":1.0,"tags":["old"]}"#;
    let mut exchange = post(&harness, body);
    assert_eq!(exchange.poll(&harness), TestStep::Call);
    let (target, fields, body) = exchange.sent(&harness);
    assert_eq!(target, "/v2/people/7?page=a%20b%26c%3DA&x=%41&limit=50&x=1");
    let expected = [
        "Host: one.example",
        "Content-Type: application/json",
        "Content-Length: 1",
        "X-Copy: 1",
        "x-tenant: 7",
        "x-tag: a",
    ];
    assert_eq!(fields, expected);
    assert_eq!(
        body.as_deref(),
        Some(
            r#"{"user":{"name":"c"},"amount":5,"tags":["old","new"],"none":null,"source":{"name":"egret \"7\""}}"#
        )
    );
}

#[test]
fn a_response_is_changed_and_its_tag_made_weak() {
    let harness = of_users(&json!([{ "transform": { "response": {
        "headers": { "set": { "x-status": "${response.status}", "x-old": "${response.headers.x-gone}" }, "remove": ["x-gone"] },
        "json": { "set": { "/id": "${params.id}" } },
    }}}]));
    let fields = "200\nContent-Type: application/json\nContent-Length: 2\nETag: \"a\"\nX-Gone: 1\nDigest: x";
    let mut exchange = harness.send("GET https://one.example/users/7\nAccept-Encoding: gzip");
    exchange.poll(&harness);
    assert!(exchange.sent(&harness).1.contains(&"accept-encoding: identity".to_owned()));
    assert_eq!(exchange.response_with(&harness, fields, Some(b"{}")), TestStep::Response(200));
    assert_eq!(exchange.draft.response_body.as_deref(), Some(&br#"{"id":"7"}"#[..]));
    let added = exchange.added();
    let added: Vec<_> = added.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(added, [("etag", "W/\"a\""), ("x-old", "1"), ("x-status", "200")]);
    assert!(exchange.draft.response.removes(b"digest") && exchange.draft.response.removes(b"X-Gone"));
    // An unchanged body keeps its digests and tag.
    let mut exchange = harness.send("GET https://one.example/users/7");
    exchange.poll(&harness);
    exchange.response_with(&harness, fields, Some(br#"{"id":"7"}"#));
    assert_eq!((exchange.draft.response_body.is_none(), exchange.added().len()), (true, 2));
}

#[test]
fn only_whole_json_is_touched() {
    let harness = of_users(&json!([{
        "transform": { "response": { "json": { "set": { "/a": 1 } } } },
        "on_error": "closed",
    }]));
    for fields in [
        "200\nContent-Type: text/plain\nContent-Length: 2",
        "200\nContent-Type: application/json\nContent-Length: 0",
        "206\nContent-Type: application/json\nContent-Length: 2",
        "204\nContent-Type: application/json",
        "200\nContent-Length: 2",
    ] {
        let mut exchange = harness.send("GET https://one.example/users/7");
        exchange.poll(&harness);
        let body: &[u8] = if fields.contains("Length: 2") { b"{}" } else { b"" };
        let step = exchange.response_with(&harness, fields, Some(body));
        assert!(matches!(step, TestStep::Response(_)), "{fields} {step:?}");
        assert_eq!(exchange.draft.response_body, None, "{fields}");
    }
    let mut exchange = harness.send("GET https://one.example/users/7");
    exchange.poll(&harness);
    assert_eq!(exchange.failure(&harness, FailureKind::Reset), TestStep::Failure(FailureKind::Reset));
}

#[test]
fn an_unchangeable_body_fails_the_whole_remedy() {
    let config = |on_error: &str| {
        of_users(&json!([{
            "transform": {
                "request": { "headers": { "set": { "x-a": "1" } }, "query": { "remove": ["page"] }, "json": { "set": { "/a/b": 1 } } },
                "body": "32B",
            },
            "on_error": on_error,
        }]))
    };
    let (open, closed) = (config("open"), config("closed"));
    let long = format!("{{\"a\":{{\"text\":\"{}\"}}}}", "x".repeat(32));
    for body in [Some("{"), Some(r#"{"a":1}"#), Some(long.as_str()), None] {
        let mut exchange = open.send(POST);
        exchange.body = body.map(|body| body.as_bytes().to_vec());
        assert_eq!(exchange.poll(&open), TestStep::Call);
        let (target, fields, sent) = exchange.sent(&open);
        assert!(
            target.contains("page=2") && fields.contains(&"X-Internal: 1".to_owned()),
            "{target} {fields:?}"
        );
        assert!(!fields.contains(&"x-a: 1".to_owned()) && sent.as_deref() == body, "{fields:?} {sent:?}");
        let mut exchange = closed.send(POST);
        exchange.body = body.map(|body| body.as_bytes().to_vec());
        assert_eq!(exchange.poll(&closed).refusal(&closed).0, ErrorKind::RemedyFailed);
    }
    assert_eq!((open.decided(0, Decision::Fail), closed.decided(0, Decision::Fail)), (4, 4));
    let mut exchange = closed.send(&format!("{POST}\nContent-Encoding: gzip"));
    assert_eq!(exchange.poll(&closed).refusal(&closed).0, ErrorKind::RemedyFailed);
}

#[test]
fn no_value_becomes_more_than_a_value() {
    let harness = of_users(&json!([{
        "transform": { "request": {
            "headers": { "set": { "x-a": "${query.field}" } },
            "path": "/v2/${query.segment}",
            "query": { "set": { "q": "${query.parameter}" } },
            "json": { "set": { "/a": "${query.text}" } },
        }},
        "on_error": "closed",
    }]));
    let sent = |query: &str| {
        let mut exchange = harness.send(&POST.replace("debug=1", query));
        exchange.body = Some(b"{}".to_vec());
        match exchange.poll(&harness) {
            TestStep::Call => Ok(exchange.sent(&harness)),
            other => Err(other.refusal(&harness).0),
        }
    };
    for query in ["field=a%0d%0aX-B:%201", "field=%00", "segment=..", "segment=x%2f..%2fy"] {
        assert_eq!(sent(query), Err(ErrorKind::RemedyFailed), "{query}");
    }
    let long = "x".repeat(FIELD_BYTES_MAX + 1);
    assert_eq!(sent(&format!("field={long}")), Err(ErrorKind::RemedyFailed));
    assert_eq!(sent(&format!("segment={long}")), Err(ErrorKind::RemedyFailed));
    let (target, _, body) =
        sent("segment=a%2fb%3fc&parameter=1%26admin%3d1%23&text=%22%2c%22admin%22%3a%22%0a").unwrap();
    assert!(target.starts_with("/v2/a%2Fb%3Fc?") && target.ends_with("&q=1%26admin%3D1%23"), "{target}");
    assert_eq!(body.unwrap(), r#"{"a":"\",\"admin\":\"\u000a"}"#);
}

#[test]
fn a_repeated_call_is_changed_once() {
    let transform = json!({ "transform": {
        "request": {
            "headers": { "add": { "x-tag": "a" } },
            "query": { "add": { "expand": "b" } },
            "json": { "add": { "/tags/-": "c" } },
        },
        "response": { "headers": { "add": { "x-seen": "${response.status}" } }, "json": { "set": { "/a": 1 } } },
    }});
    let fallback = json!({ "fallback": { "provider": "two", "path": "/other", "methods": ["POST"] } });
    let harness = of_users(
        &json!([fallback, { "retry": { "methods": ["POST"], "budget": { "min_per_second": 9 } } }, transform]),
    );
    let mut exchange = post(&harness, r#"{"tags":[]}"#);
    for call in 0..4 {
        let step = exchange.poll(&harness);
        assert_eq!(step, TestStep::Call);
        let (target, fields, body) = exchange.sent(&harness);
        let path = if call == 3 { "/other" } else { "/users/7" };
        assert_eq!(target, format!("{path}?debug=1&page=2&debug&x=%41&expand=b"));
        assert_eq!(fields.iter().filter(|field| *field == "x-tag: a").count(), 1, "{fields:?}");
        assert_eq!(body.as_deref(), Some(r#"{"tags":["c"]}"#));
        let status = if call == 3 { "200" } else { "503" };
        let fields = format!("{status}\nContent-Type: application/json\nContent-Length: 2");
        exchange.response_with(&harness, &fields, Some(b"{}"));
    }
    assert_eq!(exchange.draft.call.provider, Some(1));
    assert_eq!(exchange.added(), [("x-seen".to_owned(), "200".to_owned())]);
}

#[test]
fn a_response_that_is_answered_over_leaves_nothing_of_itself() {
    let harness = of_users(&json!([
        { "fallback": { "response": { "status": 200, "body": "[]" } } },
        { "transform": { "response": { "headers": { "set": { "x-seen": "1" } }, "json": { "set": { "/a": 1 } } } } },
    ]));
    let mut exchange = harness.send("GET https://one.example/users/7");
    exchange.poll(&harness);
    let fields = "503\nContent-Type: application/json\nContent-Length: 2";
    assert!(matches!(exchange.response_with(&harness, fields, Some(b"{}")), TestStep::Fixed(_)));
    assert_eq!((exchange.added(), exchange.draft.response_body.is_none()), (Vec::new(), true));
}

#[test]
fn later_remedies_see_what_earlier_ones_have_made_of_a_message() {
    let harness = of_users(&json!([
        { "transform": {
            "request": { "headers": { "set": { "x-a": "1" } }, "query": { "set": { "b": "2" } }, "json": { "set": { "/a": 1 } } },
            "response": { "headers": { "set": { "x-out": "${response.headers.x-in}" } }, "json": { "remove": ["/b"] } },
        }},
        { "transform": {
            "request": { "headers": { "set": { "x-b": "${request.headers.x-a}${query.b}" } }, "json": { "set": { "/b": 2 } } },
            "response": { "headers": { "set": { "x-in": "3" } }, "json": { "set": { "/b": 2, "/c": 3 } } },
        }},
    ]));
    let mut exchange = post(&harness, "{}");
    exchange.poll(&harness);
    let (_, fields, body) = exchange.sent(&harness);
    assert_eq!((fields.last().unwrap().as_str(), body.as_deref()), ("x-b: 12", Some(r#"{"a":1,"b":2}"#)));
    exchange.response_with(&harness, "200\nContent-Type: application/json\nContent-Length: 2", Some(b"{}"));
    assert_eq!(exchange.draft.response_body.as_deref(), Some(&br#"{"c":3}"#[..]));
    assert!(exchange.added().contains(&("x-out".to_owned(), "3".to_owned())));
}

#[test]
fn in_report_mode_nothing_is_changed() {
    let harness = of_users(&json!([{
        "transform": {
            "request": { "headers": { "set": { "x-a": "1" } }, "path": "/b", "json": { "set": { "/a": 1 } } },
            "response": { "headers": { "set": { "x-a": "1" } }, "json": { "set": { "/a": 1 } } },
        },
        "mode": "report",
    }]));
    let mut exchange = post(&harness, "{}");
    exchange.poll(&harness);
    let (target, fields, body) = exchange.sent(&harness);
    assert!(target.starts_with("/users/7?debug=1") && fields.len() == 6, "{target} {fields:?}");
    assert_eq!(body.as_deref(), Some("{}"));
    exchange.response_with(&harness, "200\nContent-Type: application/json\nContent-Length: 2", Some(b"{}"));
    assert_eq!((exchange.added(), exchange.draft.response_body.is_none()), (Vec::new(), true));
}

#[test]
fn the_transformation_is_described() {
    let harness = of_users(&json!([{ "transform": {
        "request": { "headers": { "add": { "x-a": "1" } }, "path": "/b", "query": { "set": { "a": "1" }, "remove": ["b"] } },
        "response": { "json": { "remove": ["/a", "/b"] } },
    }}]));
    let (_, does) = harness.flows.describe(0).next().unwrap();
    assert_eq!(
        does,
        "changes 1 field, the path, 2 parameters of the request, and 2 members of the JSON of the response"
    );
}

#[test]
fn nonsense_is_refused_where_it_stands() {
    let found = problems(&json!([
        { "transform": {} },
        { "transform": { "request": { "headers": { "set": { "Host": "a", "x-a": "a\nb" }, "remove": ["Transfer-Encoding"] } } } },
        { "transform": { "request": { "headers": { "set": { "x-a": "1" }, "remove": ["X-A"] } } } },
        { "transform": { "request": { "headers": { "set": { "x-a": "1", "X-A": "2" } } } } },
        { "transform": { "request": { "path": "b", "query": { "set": { "a": "${params.no}", "": "1" } } } } },
        { "transform": { "request": { "query": { "add": { "a": "1" }, "remove": ["a"] } } } },
        { "transform": { "request": { "json": { "set": { "a": 1, "/b": "${response.status}", "/c": { "${now}": 1 } } } } } },
        { "transform": { "response": { "json": { "set": { "/a": 1 }, "remove": ["/a/b", "/~"] } } } },
        { "transform": { "response": { "headers": { "set": { "x-egret-generated": "true" }, "remove": ["proxy-status"] } } } },
        { "transform": { "request": { "path": "/a" }, "body": "17MiB" } },
    ]));
    let places: Vec<_> = found.iter().map(|problem| problem.split(": ").next().unwrap()).collect();
    let expected = [
        (0, "request"),
        (1, "request.headers.set.Host"),
        (1, "request.headers.set.x-a"),
        (1, "request.headers.remove"),
        (2, "request.headers.remove"),
        (3, "request.headers.set.x-a"),
        (4, "request.path"),
        (4, "request.query.set."),
        (4, "request.query.set.a"),
        (5, "request.query.remove"),
        (6, "request.json.set./b"),
        (6, "request.json.set./c"),
        (6, "request.json.set.a"),
        (7, "response.json.remove"),
        (7, "response.json.remove"),
        (8, "response.headers.set.x-egret-generated"),
        (8, "response.headers.remove"),
        (9, "body"),
    ];
    let expected = expected.map(|(at, key)| format!("flows[0].remedies[{at}].transform.{key}"));
    assert_eq!(places, expected, "{found:#?}");
}

const WITH_CREDENTIALS: &str =
    "GET https://one.example/users/7?page=2&api_key=k\nAuthorization: Bearer t\nCookie: s=1\nX-Kept: 1";

#[test]
fn a_moved_request_loses_its_credentials() {
    let sent = |change: Value| {
        let harness = of_users(&json!([{ "transform": { "request": change } }]));
        let mut exchange = harness.send(WITH_CREDENTIALS);
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        assert_eq!(exchange.draft.call.provider, Some(1));
        let (target, mut fields, _) = exchange.sent(&harness);
        fields.retain(|field| !field.starts_with("Host"));
        (target, fields)
    };
    // The other changes see the request without credentials, and may set those of the other provider.
    let (target, fields) = sent(json!({
        "provider": "two",
        "headers": { "set": { "authorization": "Bearer ${env:CARGO_PKG_NAME}", "x-copy": "[${query.api_key}]" } },
        "query": { "set": { "page": "3" } },
    }));
    assert_eq!(target, "/users/7?page=3");
    assert_eq!(fields, ["X-Kept: 1", "authorization: Bearer egret-remedy", "x-copy: []"]);
    let (target, fields) = sent(json!({ "provider": "two", "forward_credentials": true }));
    assert_eq!(target, "/users/7?page=2&api_key=k");
    assert_eq!(fields, ["Authorization: Bearer t", "Cookie: s=1", "X-Kept: 1"]);
}

#[test]
fn a_change_that_fails_leaves_the_provider_and_the_credentials() {
    let harness = of_users(&json!([{ "transform": { "request": {
        "provider": "two", "path": "/a/${query.up}",
    } } }]));
    let mut exchange = harness.send("GET https://one.example/users/7?up=..\nAuthorization: Bearer t");
    assert_eq!(exchange.poll(&harness), TestStep::Call);
    assert_eq!(exchange.draft.call.provider, None);
    assert_eq!(exchange.sent(&harness).1, ["Host: one.example", "Authorization: Bearer t"]);
    assert_eq!(harness.decided(0, Decision::Fail), 1);
}

#[test]
fn a_fallbacks_provider_gets_no_credential_of_another() {
    let to_two = json!({ "transform": { "request": {
        "provider": "two", "headers": { "set": { "authorization": "of two" } },
    } } });
    let fallback = json!({ "fallback": { "provider": "one" } });
    for (remedies, provider, credentials) in [
        // Outside the transformation, the fallback's choice is kept; the header field is still set.
        (json!([fallback, to_two]), Some(0), 1),
        // Inside it, the credential set for `two` does not go to `one`.
        (json!([to_two, fallback]), Some(0), 0),
    ] {
        let harness = of_users(&remedies);
        let mut exchange = harness.send(WITH_CREDENTIALS);
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        assert_eq!(exchange.draft.call.provider, Some(1));
        assert_eq!(exchange.response(&harness, "503"), TestStep::Repeat(harness.now));
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        assert_eq!(exchange.draft.call.provider, provider);
        let fields = exchange.sent(&harness).1;
        let found = fields.iter().filter(|field| *field == "authorization: of two").count();
        assert_eq!(found, credentials, "{remedies}: {fields:?}");
    }
}

#[test]
fn a_provider_that_changes_nothing_is_refused() {
    let to = |provider: &str| json!({ "transform": { "request": { "provider": provider } } });
    let found = |matching: Value, remedies: Value| {
        let account = json!({ "provider": "two", "bearer": { "token": "${env:CARGO_PKG_NAME}" } });
        let config = json!({
            "accounts": { "b": account },
            "flows": [{ "name": "f", "match": matching, "remedies": remedies }],
        });
        compiled(config).err().unwrap_or_default().concat()
    };
    let at = "flows[0].remedies[0].transform.request.provider: ";
    let all = json!({});
    assert_eq!(found(all.clone(), json!([to("tow")])), format!("{at}no provider is called `tow`"));
    let only = json!({ "provider": "two" });
    let message = format!("{at}has no effect: the calls of the flow already go to `two`");
    assert_eq!(found(only, json!([to("two")])), message);
    let message = format!("{at}has no effect: the transform in `remedies[1]` sets the provider again");
    assert_eq!(found(all, json!([to("two"), to("one")])), message);
    // An account of the other provider can be used once the call is switched, and only then.
    let of_one = json!({ "provider": "one" });
    let authenticate = json!({ "authenticate": { "account": "b" } });
    assert_eq!(found(of_one.clone(), json!([to("two"), authenticate])), "");
    assert!(found(of_one, json!([authenticate, to("two")])).contains("would never be used"));
}

/// Returns the body of a POST after these changes to its JSON.
fn body_after(changes: &Value, body: &str) -> Option<String> {
    let harness = of_users(&json!([{ "transform": { "request": { "json": changes } } }]));
    let mut exchange = post(&harness, body);
    assert_eq!(exchange.poll(&harness), TestStep::Call);
    exchange.sent(&harness).2
}

#[test]
fn obfuscated_members_have_the_pseudonyms_of_recordings() {
    let key = pseudonym_key();
    let text = |text: &str| key.text(text.as_bytes()).to_string();
    let sent = body_after(
        &json!({ "set": { "/user/id": "7" }, "remove": ["/user/phone"], "obfuscate": ["/user", "/none", "/n"] }),
        r#"{"user": {"email": "a\u0040b", "phone": "1", "tags": ["x", ""], "old": true}, "n": 1.0, "kept": "y"}"#,
    );
    let expected = format!(
        r#"{{"user": {{"email":"{}","tags":["{}",""],"old":true,"id":"{}"}}, "n": {}, "kept": "y"}}"#,
        text("a@b"),
        text("x"),
        text("7"),
        key.number(b"1"),
    );
    assert_eq!(sent.as_deref(), Some(&*expected));
    let unchanged = r#"{"a": 1}"#;
    assert_eq!(body_after(&json!({ "obfuscate": ["/none"] }), unchanged).as_deref(), Some(unchanged));
}

#[test]
fn a_value_too_long_to_obfuscate_fails_the_remedy() {
    let harness = of_users(&json!([
        { "transform": { "request": { "json": { "obfuscate": ["/a"] } } }, "on_error": "closed" },
    ]));
    let mut exchange = post(&harness, &format!(r#"{{"a":"{}"}}"#, "x".repeat(OBFUSCATED_BYTES_MAX)));
    assert_eq!(exchange.poll(&harness).refusal(&harness).0, ErrorKind::RemedyFailed);
    exchange.end(&harness);
}

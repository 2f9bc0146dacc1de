use egret_fixture::{Decision as Counted, TestExchange, TestFlows, TestStep, problems};
use egret_message::{ErrorKind, FailureKind};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Creates a harness with one flow for users, which has this script with these other keys.
fn with(source: &str, keys: &Value, on_error: &str) -> TestFlows {
    let mut script = keys.clone();
    script["source"] = json!(source);
    TestFlows::new(json!({ "flows": [{
        "name": "f", "match": { "path": "/users/{id}" }, "remedies": [{ "script": script, "on_error": on_error }],
    }]}))
}

fn of(source: &str) -> TestFlows {
    with(source, &json!({ "time": "100ms" }), "open")
}

const POST: &str = "POST https://one.example/users/7?page=1\nX-A: 1\nContent-Type: application/json\nContent-Length: 2\nContent-Digest: sha-256=::";

fn polled(harness: &TestFlows, lines: &str) -> (TestExchange, TestStep) {
    let mut exchange = harness.send(lines);
    exchange.body = Some(br#"{"a":1}"#.to_vec());
    let step = exchange.poll(harness);
    (exchange, step)
}

#[test]
fn a_request_and_its_response_are_edited() {
    let harness = with(
        "function onRequest(request) {
            request.path = `/v2/people/${request.params.id}`;
            request.query.set('page', +request.query.get('page') + 1);
            request.headers.set('x-b', request.headers.get('x-a') + request.provider);
            request.headers.delete('x-a');
            request.body = JSON.stringify({ ...request.json(), b: 2 });
        }
        function onResponse(request, response) {
            response.headers.set('x-seen', `${response.status} ${request.path} ${request.headers.get('x-b')}`);
            response.body = JSON.stringify({ wrapped: response.json() });
        }",
        &json!({ "bodies": "1KiB", "time": "100ms" }),
        "closed",
    );
    let (mut exchange, step) = polled(&harness, POST);
    assert_eq!(step, TestStep::Call);
    let (target, fields, body) = exchange.sent(&harness);
    assert_eq!(target, "/v2/people/7?page=2");
    assert!(fields.contains(&"x-b: 1one".to_owned()), "{fields:?}");
    assert!(fields.contains(&"accept-encoding: identity".to_owned()), "{fields:?}");
    assert!(!fields.iter().any(|field| field.starts_with("X-A") || field.contains("Digest")), "{fields:?}");
    assert_eq!(body.as_deref(), Some(r#"{"a":1,"b":2}"#));
    let head = "200\nContent-Type: application/json\nContent-Length: 2\nETag: \"a\"";
    assert_eq!(exchange.response_with(&harness, head, Some(b"[]")), TestStep::Response(200));
    assert_eq!(exchange.draft.response_body.as_deref(), Some(&br#"{"wrapped":[]}"#[..]));
    let added = exchange.added();
    assert!(added.contains(&("x-seen".to_owned(), "200 /v2/people/7 1one".to_owned())), "{added:?}");
    assert!(added.contains(&("etag".to_owned(), "W/\"a\"".to_owned())), "{added:?}");
}

#[test]
fn a_script_responds_and_refuses_on_both_sides() {
    let harness = of("function onRequest(request) {
            if (request.headers.has('x-hold')) return respond({ status: 202, headers: { 'x-b': '1' }, body: 'held' });
            if (request.headers.has('x-stop')) return refuse({ status: 451, detail: 'not here' });
        }
        function onResponse(request, response) {
            if (response.status === 500) return respond({ body: 'calm' });
            if (response.status === 501) return refuse();
        }");
    let TestStep::Fixed(fixed) = polled(&harness, &format!("{POST}\nX-Hold: 1")).1 else { panic!() };
    assert_eq!((fixed.status, fixed.body.as_slice()), (202, &b"held"[..]));
    let TestStep::Refused(refused) = polled(&harness, &format!("{POST}\nX-Stop: 1")).1 else { panic!() };
    assert_eq!((refused.reason, refused.status), (ErrorKind::ScriptRefused, Some(451)));
    assert_eq!(refused.detail, "not here");
    let get = "GET https://one.example/users/7";
    assert!(matches!(harness.exchange(get, "500"), TestStep::Fixed(_)));
    assert_eq!(harness.exchange(get, "501").refusal(&harness).0, ErrorKind::ScriptRefused);
    assert_eq!(harness.exchange(get, "200"), TestStep::Response(200));
    let mut exchange = harness.send(get);
    exchange.poll(&harness);
    assert_eq!(exchange.failure(&harness, FailureKind::Reset), TestStep::Failure(FailureKind::Reset));
    assert_eq!(harness.decided(0, Counted::LocalResponse), 4);
}

#[test]
fn a_failed_call_leaves_nothing_of_itself() {
    let source = "function onRequest(request) {
            request.path = '/v2'; request.headers.set('x-b', '1'); request.query.delete('page');
            request.body = 'a'; respond();
            throw new Error(request.headers.get('x-a'));
        }
        function onResponse(request, response) { response.headers.set('x-b', '1'); throw 1 }";
    let keys = json!({ "bodies": "1KiB", "time": "100ms" });
    let open = with(source, &keys, "open");
    let (mut exchange, step) = polled(&open, POST);
    assert_eq!(step, TestStep::Call);
    let (target, fields, body) = exchange.sent(&open);
    assert_eq!((target.as_str(), body.as_deref()), ("/users/7?page=1", Some(r#"{"a":1}"#)));
    assert!(fields.contains(&"X-A: 1".to_owned()) && !fields.contains(&"x-b: 1".to_owned()), "{fields:?}");
    assert_eq!(exchange.response(&open, "200"), TestStep::Response(200));
    assert_eq!(exchange.added(), []);
    let closed = with(source, &keys, "closed");
    let TestStep::Refused(refused) = polled(&closed, POST).1 else { panic!() };
    assert_eq!(refused.reason, ErrorKind::RemedyFailed);
    // Nothing that a script throws reaches the log or the client.
    assert!(refused.detail.contains("the script threw an error in line 4, column"), "{}", refused.detail);
    assert!(!refused.detail.contains("Error: 1"), "{}", refused.detail);
}

#[test]
fn bodies_are_seen_only_as_configured() {
    let source = "function onRequest(request) {
            try { request.headers.set('x-body', String(request.body)) } catch (error) { request.headers.set('x-body', error.message) }
        }";
    let seen = |keys: &Value, lines: &str, body: Option<&[u8]>| {
        let harness = with(source, keys, "closed");
        let mut exchange = harness.send(lines);
        exchange.body = body.map(<[u8]>::to_vec);
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        let (name, value) = exchange.draft.request.added().last().unwrap();
        format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
    };
    let keys = json!({ "bodies": "4B", "time": "100ms" });
    assert_eq!(seen(&keys, POST, Some(b"abcd")), "x-body: abcd");
    assert_eq!(seen(&keys, POST, Some(b"")), "x-body: ");
    assert_eq!(seen(&keys, "GET https://one.example/users/7", None), "x-body: null");
    assert!(seen(&keys, POST, Some(b"abcde")).contains("longer than `bodies`"));
    assert!(seen(&keys, POST, None).contains("longer than `bodies`"));
    assert!(seen(&keys, POST, Some(b"\xff")).contains("not UTF-8"));
    assert!(seen(&keys, &format!("{POST}\nContent-Encoding: gzip"), Some(b"abc")).contains("content coding"));
    assert!(seen(&json!({ "time": "100ms" }), POST, Some(b"abc")).contains("only with `bodies`"));
    assert_eq!(of(source).send(POST).body_seen_max(), 0);
    assert_eq!(with(source, &keys, "open").send(POST).body_seen_max(), 4);
}

#[test]
fn ten_overruns_make_a_script_rest() {
    let source = "function onRequest(request) { if (request.headers.has('x-loop')) for (;;); request.headers.set('x-b', '1') }";
    // More than a call needs on a busy machine that has other virtual machines beside it.
    let script = json!({ "source": source, "time": "20ms" });
    let config = json!({ "flows": [{ "name": "f", "remedies": [{ "script": script }] }] });
    let mut harness = TestFlows::new(config.clone());
    let get = "GET https://one.example/";
    let runs = |harness: &TestFlows| {
        let mut exchange = harness.send(get);
        exchange.poll(harness);
        exchange.sent(harness).1.contains(&"x-b: 1".to_owned())
    };
    let loops = |harness: &mut TestFlows, times: u32, every_ms: u64| {
        for _ in 0..times {
            assert!(runs(harness));
            harness.send(&format!("{get}\nX-Loop: 1")).poll(harness);
            harness.pass_ms(every_ms);
        }
    };
    // Nine in 10 s, and any number of them over a longer time, are no reason.
    loops(&mut harness, 9, 10);
    harness.pass_ms(10_000);
    loops(&mut harness, 12, 1_200);
    harness.pass_ms(10_000);
    loops(&mut harness, 10, 10);
    assert!(!runs(&harness));
    // A reload of the same script does not wake it.
    harness.reload(config);
    assert!(!runs(&harness));
    harness.pass_ms(30_000);
    assert!(runs(&harness));
    assert_eq!(harness.decided(0, Counted::Fail), 9 + 12 + 10 + 2);
    let counted = harness.flows.snapshot(harness.now, 0).flows[0].remedies[0].script;
    let counted = counted.map(|counted| (counted.overruns, counted.rests));
    assert_eq!(counted, Some((9 + 12 + 10, 1)));
}

#[test]
fn an_engine_without_memory_is_replaced() {
    let harness = with(
        "function onRequest(request) {
            const a = []; if (request.headers.has('x-eat')) for (;;) a.push('x'.repeat(100000) + a.length);
            request.headers.set('x-b', '1');
        }",
        &json!({ "time": "100ms" }),
        "closed",
    );
    for _ in 0..3 {
        let step = polled(&harness, &format!("{POST}\nX-Eat: 1")).1;
        assert_eq!(step.refusal(&harness).0, ErrorKind::RemedyFailed);
        let (mut exchange, _) = polled(&harness, POST);
        assert!(exchange.sent(&harness).1.contains(&"x-b: 1".to_owned()));
    }
}

#[test]
fn in_report_mode_a_script_runs_and_changes_nothing() {
    let source = "function onRequest(request) { request.headers.set('x-b', '1'); return respond() }";
    let script = json!({ "source": source, "time": "100ms" });
    let harness = TestFlows::with(&json!([{ "script": script, "mode": "report" }]));
    let (mut exchange, step) = polled(&harness, POST);
    assert_eq!(step, TestStep::Call);
    assert!(!exchange.sent(&harness).1.contains(&"x-b: 1".to_owned()));
    assert_eq!(harness.decided(0, Counted::LocalResponse), 1);
}

#[test]
fn the_script_is_described() {
    let harness = of("function onRequest() {}\nfunction onResponse() {}");
    let (_, does) = harness.flows.describe(0).next().unwrap();
    assert_eq!(
        does,
        "runs a script on requests and responses, for at most 100ms and with 8MiB of memory each"
    );
}

#[test]
fn nonsense_is_refused_where_it_stands() {
    let found = problems(&json!([
        { "script": {} },
        { "script": { "source": "function onRequest() {}", "time": "1s" } },
        { "script": { "source": "function onRequest() {}", "memory": "1KiB" } },
        { "script": { "source": "function onRequest() {}", "bodies": "3MiB" } },
        { "script": { "source": "let a = ;" } },
        { "script": { "source": "function onReqest() {}" } },
        { "script": { "source": format!("function onRequest() {{}}{}", " ".repeat(70_000)) } },
    ]));
    let expected = [
        "[0].script: expected a script in `source` or `file`",
        "[1].script.time: must be from `1ms`",
        "[2].script.memory: must be from `1MiB`",
        "[3].script.bodies: must be from `1B`",
        "[4].script.source: line 1, column 9 of the script: invalid JavaScript",
        "[5].script.source: expected `function onRequest(request)`",
        "[6].script.source: is longer than 64KiB",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(&format!("flows[0].remedies{expected}")), "{found}");
    }
}

/// A text that a script sets, as a JavaScript literal: any characters, with those that could end a line or a
/// header more often.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "\\PC{0,8}",
        "[a-zA-Z-]{1,12}",
        "[\\r\\n\\t :\\x00\\x7f]{1,3}",
        Just("/../".to_owned()),
        Just("transfer-encoding".to_owned())
    ];
    prop::collection::vec(piece, 0..4).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a script sets, the message that goes out is one message, framed by the gateway.
    #[test]
    fn no_value_becomes_more_than_a_value(name in text(), value in text(), path in text(), status in -1_000..1_000) {
        let [name, value, path] = [name, value, path].map(|text| serde_json::to_string(&text).unwrap());
        let harness = of(&format!(
            "function onRequest(request) {{
                for (const act of [
                    () => request.headers.set({name}, {value}), () => request.headers.append({value}, {name}),
                    () => request.headers.delete({name}), () => {{ request.path = {path} }},
                    () => {{ request.path = '/' + {name} }}, () => request.query.set({name}, {value}),
                    () => request.query.append({value}, {path}), () => request.query.delete({path}),
                ]) try {{ act() }} catch {{}}
                try {{ return respond({{ status: {status}, headers: {{ [{name}]: {value} }}, body: {value} }}) }} catch {{}}
            }}"
        ));
        let (mut exchange, step) = polled(&harness, POST);
        if let TestStep::Fixed(fixed) = step {
            prop_assert!((200..=599).contains(&fixed.status));
            for (name, value) in &fixed.fields {
                prop_assert!(field_name_problem(name).is_none() && !value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
            }
            return Ok(());
        }
        prop_assert_eq!(step, TestStep::Call);
        for (name, value) in exchange.draft.request.added() {
            let name = std::str::from_utf8(name).unwrap();
            prop_assert!(field_name_problem(name).is_none(), "{name}");
            prop_assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)), "{value:?}");
        }
        let (target, ..) = exchange.sent(&harness);
        prop_assert!(target.starts_with('/') && target.bytes().all(|byte| byte.is_ascii_graphic()), "{target}");
        exchange.response(&harness, "200");
    }
}

//! `transform`: fields, path, query and JSON bodies as received by the provider and the client, and their
//! framing.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use egret_tests::built_in::BuiltIn;
use egret_tests::egret::{Config, Egret, egret};
use egret_tests::http::Client;
use egret_tests::peers::{Httpbin, curl};
use egret_tests::process::{Directory, run, run_checked};
use egret_tests::provider::{Provider, Request, ok};
use serde_json::{Value, json};

/// Starts Egret with one flow with these remedies for `/items/{id}` of the origin.
fn with_remedies(url: &str, remedies: &str) -> Egret {
    let flows =
        format!("flows: [{{ name: items, match: {{ path: \"/items/{{id}}\" }}, remedies: [{remedies}] }}]\n");
    Config::with_origin(url).flows(flows).start()
}

const SET_IN_REQUEST: &str =
    "transform: { request: { json: { set: { /source: egret }, add: { /tags/-: x } } } }";
const SET_IN_RESPONSE: &str =
    "transform: { response: { json: { set: { /source: egret }, remove: [/secret] } }, body: 4KiB }";

fn json_response(fields: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{fields}\r\n{body}").into_bytes()
}

fn with_length(body: &str) -> Vec<u8> {
    json_response(&format!("Content-Length: {}\r\n", body.len()), body)
}

fn with_status(status: u16, mut response: Vec<u8>) -> Vec<u8> {
    response[9..12].copy_from_slice(status.to_string().as_bytes());
    response
}

/// Returns a POST request with a JSON body and this framing field.
fn post(egret: &Egret, fields: &str, body: &str) -> String {
    let host = egret.address();
    format!(
        "POST /origin/items/7 HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{fields}\r\n{body}"
    )
}

fn post_with_length(egret: &Egret, body: &str) -> String {
    post(egret, &format!("Content-Length: {}\r\n", body.len()), body)
}

fn only(request: &Request, name: &str) -> String {
    let values = request.values(name);
    assert_eq!(values.len(), 1, "{name} in {request:?}");
    values[0].to_owned()
}

#[test]
fn whoever_uses_curl_sees_both_messages_changed() {
    let remedies = "transform: {
        request: {
          headers: { set: { x-tenant: \"${params.id}\" }, add: { x-tag: a }, remove: [x-internal] },
          path: \"/anything/v2/${params.id}\",
          query: { set: { limit: \"50\" }, add: { expand: a b }, remove: [debug] },
          json: { set: { /metadata/source: \"egret ${params.id}\", /amount: 5 }, add: { /tags: egret }, remove: [/user/email] },
        },
        response: {
          headers: { set: { x-status: \"${response.status}\" }, remove: [content-type] },
          json: { set: { /via/name: egret }, remove: [/origin] },
        },
      }, on_error: closed";
    let (httpbin, built_in) = (Httpbin::start(), BuiltIn::start(&[]));
    for url in [httpbin.url(), format!("http://{}", built_in.address())] {
        let egret = with_remedies(&url, &format!("{{ {remedies} }}"));
        let target = format!("{}/origin/items/7?debug=1&page=2", egret.url());
        let body = r#"{"user":{"email":"a@b","name":"c"},"amount":1.0,"tags":["old"]}"#;
        for framing in ["Content-Length:", "Transfer-Encoding: chunked"] {
            // curl omits an empty field and sends the length itself.
            let framing = if framing.ends_with(':') { "X-None: 1" } else { framing };
            let printed = run_checked(curl().args(["--compressed", "--include", "-H", framing]).args([
                "-H",
                "Content-Type: application/json",
                "-H",
                "X-Internal: 1",
                "--data-binary",
                body,
                &target,
            ]));
            let (head, echoed) = printed.split_once("\r\n\r\n").unwrap();
            assert!(
                head.contains("x-status: 200") && !head.to_ascii_lowercase().contains("content-type"),
                "{head}"
            );
            let echoed: Value = serde_json::from_str(echoed).unwrap();
            let text = |pointer: &str| echoed.pointer(pointer).map(ToString::to_string).unwrap_or_default();
            let changed = json!({
                "user": { "name": "c" }, "amount": 5, "tags": ["old", "egret"], "metadata": { "source": "egret 7" },
            });
            assert_eq!(echoed.pointer("/json"), Some(&changed));
            assert!(text("/url").contains("/anything/v2/7?page=2&limit=50&expand=a%20b"), "{echoed}");
            assert!(
                text("/headers/X-Tenant").contains('7') && text("/headers/X-Tag").contains('a'),
                "{echoed}"
            );
            assert_eq!((text("/headers/X-Internal"), text("/origin")), (String::new(), String::new()));
            assert!(text("/headers/Accept-Encoding").contains("identity"), "{echoed}");
            assert_eq!(text("/via"), r#"{"name":"egret"}"#);
        }
    }
}

#[test]
fn a_changed_request_tells_its_length_and_the_next_one_is_found() {
    let origin = Provider::plain();
    let egret = with_remedies(&origin.url(), &format!("{{ {SET_IN_REQUEST}, on_error: closed }}"));
    let chunks = "4\r\n{\"ta\r\n6\r\ngs\":[]\r\n1;ext\r\n}\r\n0\r\nX-Sum: 1\r\n\r\n";
    let digests = "Content-MD5: a\r\nContent-Digest: b\r\n";
    let mut client = egret.client();
    // Pipelined without waiting.
    client.send(post(&egret, &format!("{digests}Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n"), chunks));
    client.send(post_with_length(&egret, r#"{"tags":[]}"#));
    client.send(post(&egret, "Content-Length: 0\r\n", ""));
    client.get(egret.address(), "/origin/other");
    for _ in 0..4 {
        client.response().assert_forwarded(200);
    }
    let requests = origin.requests();
    for request in &requests[..2] {
        assert_eq!(request.body, br#"{"tags":["x"],"source":"egret"}"#);
        assert_eq!(only(request, "content-length"), "31");
        for gone in ["transfer-encoding", "trailer", "content-md5", "content-digest"] {
            assert!(request.values(gone).is_empty(), "{request:?}");
        }
        assert!(request.trailers.is_empty());
    }
    assert_eq!((requests[2].body.len(), requests[3].target()), (0, "/other"));
    // An HTTP/1.0 request as well.
    let old = post_with_length(&egret, r#"{"tags":[1]}"#).replace("HTTP/1.1", "HTTP/1.0");
    egret.client().send(old).response().assert_forwarded(200);
    assert_eq!(origin.requests()[4].body, br#"{"tags":[1,"x"],"source":"egret"}"#);
}

#[test]
fn a_changed_response_tells_its_length_however_the_provider_ends_it() {
    let body = "{\"secret\":1,\r\n \"a\":2.0}";
    let expected = r#"{"a":2.0,"source":"egret"}"#;
    let chunks = format!("1\r\n{{\r\n{:x}\r\n{}\r\n0\r\nX-Sum: 1\r\n\r\n", body.len() - 1, &body[1..]);
    let etag = "ETag: \"1\"\r\nDigest: a\r\nAccept-Ranges: bytes\r\n";
    let responses = [
        json_response(&format!("{etag}Content-Length: {}\r\n", body.len()), body),
        json_response(&format!("{etag}Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n"), &chunks),
        json_response(&format!("{etag}Connection: close\r\n"), body),
    ];
    for answer in responses {
        let closes = answer.windows(5).any(|part| part == b"close");
        let origin = Provider::scripted(move |peer| {
            while peer.request().is_some() {
                peer.send(&answer);
                if closes {
                    return;
                }
            }
        });
        let egret = with_remedies(&origin.url(), &format!("{{ {SET_IN_RESPONSE}, on_error: closed }}"));
        let mut client = egret.client();
        for _ in 0..2 {
            let response = client.get(egret.address(), "/origin/items/7").response();
            assert_eq!(response.assert_forwarded(200).text(), expected);
            assert_eq!(response.field("content-length"), Some("26"), "{response:?}");
            assert_eq!(response.field("etag"), Some("W/\"1\""));
            for gone in ["transfer-encoding", "trailer", "digest", "accept-ranges"] {
                assert_eq!(response.field(gone), None, "{response:?}");
            }
        }
        assert_eq!(origin.connections(), if closes { 2 } else { 1 });
        let old = format!(
            "GET /origin/items/7 HTTP/1.0\r\nHost: {}\r\nConnection: keep-alive\r\n\r\n",
            egret.address()
        );
        let response = egret.client().send(old).response();
        assert_eq!((response.text(), response.field("connection")), (expected, Some("keep-alive")));
    }
}

#[test]
fn head_and_partial_responses_are_left_alone() {
    for (status, body) in [(200, ""), (206, "{\"secret\":")] {
        let length = body.len().max(9);
        let answer = with_status(status, json_response(&format!("Content-Length: {length}\r\n"), body));
        let origin = Provider::responding(answer);
        let egret = with_remedies(&origin.url(), &format!("{{ {SET_IN_RESPONSE}, on_error: closed }}"));
        let method = if body.is_empty() { "HEAD" } else { "GET" };
        let request = format!("{method} /origin/items/7 HTTP/1.1\r\nHost: {}\r\n\r\n", egret.address());
        let response = egret.client().send(request).response_to(method);
        assert_eq!(response.assert_forwarded(status).text(), body);
        assert_eq!(response.field("content-length"), Some(length.to_string().as_str()));
    }
}

#[test]
fn unreadable_responses_are_refused_or_forwarded_unchanged() {
    let encoded = json_response("Content-Encoding: gzip\r\nContent-Length: 3\r\n", "abc");
    let malformed = with_length("{\"a\":1,}");
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(5000));
    let in_chunks =
        json_response("Transfer-Encoding: chunked\r\n", &format!("{:x}\r\n{long}\r\n0\r\n\r\n", long.len()));
    for (response, body) in
        [(encoded, "abc"), (malformed, "{\"a\":1,}"), (with_length(&long), &long), (in_chunks, &long)]
    {
        let origin = Provider::responding(response);
        let closed = with_remedies(&origin.url(), &format!("{{ {SET_IN_RESPONSE}, on_error: closed }}"));
        closed.get("/items/7").assert_generated(503, "remedy-failed");
        assert_eq!(only(&origin.only_request(), "accept-encoding"), "identity");
        let open = with_remedies(&origin.url(), &format!("{{ {SET_IN_RESPONSE} }}"));
        assert_eq!(open.get("/items/7").assert_forwarded(200).text(), body);
        // A client that asks for the trace gets it.
        let mut client = open.client();
        client.request(open.address(), "GET /origin/items/7", "x-egret-trace: 1\r\n", "");
        let trace = client.response().field("x-egret-trace").map(str::to_owned);
        assert!(trace.is_some_and(|trace| trace.contains("items/transform=fail")));
    }
}

#[test]
fn an_unreadable_request_is_refused_or_forwarded_unchanged() {
    let origin = Provider::plain();
    let remedy = format!("{}, body: 4KiB }}", SET_IN_REQUEST.strip_suffix(" }").unwrap());
    let open = with_remedies(&origin.url(), &format!("{{ {remedy} }}"));
    let closed = with_remedies(&origin.url(), &format!("{{ {remedy}, on_error: closed }}"));
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(5000));
    let brackets = "[".repeat(4000);
    let mut sent = 0;
    for body in [long.as_str(), &brackets, "{\"tags\":5}}", "{\"a\":\"\u{7f}\", \"b\" 1}"] {
        for chunked in [false, true] {
            let message = |egret: &Egret| {
                if chunked {
                    let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
                    post(egret, "Transfer-Encoding: chunked\r\n", &chunks)
                } else {
                    post_with_length(egret, body)
                }
            };
            let mut client = closed.client();
            client.send(message(&closed));
            client.response().assert_generated(503, "remedy-failed");
            open.client().send(message(&open)).response().assert_forwarded(200);
            sent += 1;
            let requests = origin.requests();
            assert_eq!(requests.len(), sent);
            assert!(requests[sent - 1].body == body.as_bytes(), "{:?}", requests[sent - 1]);
        }
    }
}

#[test]
fn a_large_body_of_nothing_but_brackets_does_no_harm() {
    let origin = Provider::plain();
    let egret = with_remedies(&origin.url(), &format!("{{ {SET_IN_REQUEST}, on_error: closed }}"));
    for body in ["[".repeat(1 << 20), "{\"tags\":".repeat(1 << 17), "[{\"tags\":[".repeat(100_000)] {
        let mut client = egret.client();
        client.offer(post_with_length(&egret, &body));
        client.response().assert_generated(503, "remedy-failed");
    }
    egret.assert_well();
}

#[test]
fn names_that_stand_twice_reach_nobody_twice() {
    let origin = Provider::plain();
    let remedy = "{ transform: { request: { json: { set: { /amount: 5 }, remove: [/user/email] } } } }";
    let egret = with_remedies(&origin.url(), remedy);
    let body =
        r#"{"amount":1,"user":{"email":"a"},"\u0061mount":2,"user":{"em\u0061il":"b","x":1},"amount":3}"#;
    egret.client().send(post_with_length(&egret, body)).response().assert_forwarded(200);
    assert_eq!(origin.only_request().body, br#"{"amount":5,"user":{},"user":{"x":1}}"#);
}

#[test]
fn no_value_makes_another_field_or_request() {
    let origin = Provider::plain();
    let remedy =
        "{ transform: { request: { headers: { set: { x-a: \"${query.a}\" } }, path: \"/v2/${query.b}\" } } }";
    let egret = with_remedies(&origin.url(), remedy);
    for query in
        ["a=1%0d%0aX-Evil:%201%0d%0a%0d%0aGET%20/evil%20HTTP/1.1", "a=1%00", "b=..", "b=%2e%2e%2fadmin"]
    {
        egret.get(&format!("/items/7?{query}")).assert_forwarded(200);
        let request = origin.requests().pop().unwrap();
        assert!(request.values("x-evil").is_empty() && request.values("x-a").is_empty(), "{request:?}");
        assert!(request.target().starts_with("/items/7?"), "{request:?}");
    }
    egret.get("/items/7?a=1&b=x%2f%3fy%20HTTP/1.1").assert_forwarded(200);
    assert!(origin.requests().pop().unwrap().target().starts_with("/v2/x%2F%3Fy%20HTTP%2F1.1?"));
}

#[test]
fn a_repeated_call_carries_the_changed_body_once_more() {
    let failures = AtomicU32::new(0);
    let origin = Provider::with_responses(move |_| match failures.fetch_add(1, Relaxed) {
        0 | 1 => with_status(503, with_length(r#"{"busy":true}"#)),
        _ => with_length(r#"{"secret":1}"#),
    });
    let both = "{ transform: {
        request: { headers: { add: { x-tag: a } }, query: { add: { n: \"${attempt}\" } }, json: { add: { /tags/-: x } } },
        response: { headers: { add: { x-tag: b } }, json: { remove: [/secret] } } } }";
    let retry = "{ retry: { on: [503], methods: [POST], backoff: { base: 1ms } } }";
    let egret = with_remedies(&origin.url(), &format!("{retry}, {both}"));
    let mut client = egret.client();
    let response = client.send(post_with_length(&egret, r#"{"tags":[0]}"#)).response();
    assert_eq!((response.assert_forwarded(200).text(), response.values("x-tag")), ("{}", vec!["b"]));
    let requests = origin.requests();
    assert_eq!(requests.len(), 3);
    for (request, target) in requests.iter().zip(["/items/7?n=1", "/items/7?n=2", "/items/7?n=3"]) {
        assert_eq!((request.target(), request.values("x-tag")), (target, vec!["a"]));
        assert_eq!(request.body, br#"{"tags":[0,"x"]}"#);
    }
    // The next request is parsed from its correct start.
    client.send(post_with_length(&egret, r#"{"tags":[]}"#)).response().assert_forwarded(200);
}

#[test]
fn a_response_broken_while_gathered_is_retried() {
    let calls = AtomicU32::new(0);
    let origin = Provider::scripted(move |peer| {
        while peer.request().is_some() {
            if calls.fetch_add(1, Relaxed) == 0 {
                peer.send(json_response("Content-Length: 50\r\n", "{\"a\":"));
                return;
            }
            peer.send(with_length("{}"));
        }
    });
    let retry = "{ retry: { on: [reset], backoff: { base: 1ms } } }";
    let egret = with_remedies(&origin.url(), &format!("{retry}, {{ {SET_IN_RESPONSE} }}"));
    assert_eq!(egret.get("/items/7").assert_forwarded(200).text(), r#"{"source":"egret"}"#);
    assert_eq!(origin.requests().len(), 2);
}

#[test]
fn whoever_stops_while_a_response_is_wanted_whole_is_not_waited_for() {
    let origin = Provider::scripted(|peer| {
        peer.request();
        peer.send(json_response("Transfer-Encoding: chunked\r\n", "1\r\n{\r\n"));
        peer.stall();
    });
    let flows = format!("flows: [{{ name: items, remedies: [{{ {SET_IN_RESPONSE} }}] }}]\n");
    let timeouts = "timeouts: { idle: 100ms }";
    let egret = Config::default().provider_with("origin", origin.url(), timeouts).flows(&flows).start();
    egret.get("/items/7").assert_generated(504, "idle-timeout");
    origin.until_ended(1);
    // If a client leaves, the provider's connection is closed as well.
    let egret = Config::with_origin(origin.url()).flows(&flows).start();
    let mut client = egret.client();
    client.get(egret.address(), "/origin/items/7");
    origin.until_requested(2);
    client.reset();
    origin.until_ended(2);
}

#[test]
fn a_second_call_beside_a_slow_one_carries_the_changed_body() {
    let calls = AtomicU32::new(0);
    let origin = Provider::scripted(move |peer| {
        while peer.request().is_some() {
            if calls.fetch_add(1, Relaxed) == 0 {
                return peer.stall();
            }
            peer.send(ok("second"));
        }
    });
    let hedge = "{ hedge: { after: 20ms, methods: [POST] } }";
    let egret = with_remedies(&origin.url(), &format!("{hedge}, {{ {SET_IN_REQUEST} }}"));
    let response = egret.client().send(post_with_length(&egret, r#"{"tags":[]}"#)).response();
    assert_eq!(response.assert_forwarded(200).text(), "second");
    let requests = origin.requests();
    assert_eq!(requests.len(), 2);
    assert!(
        requests.iter().all(|request| request.body == br#"{"tags":["x"],"source":"egret"}"#),
        "{requests:?}"
    );
}

#[test]
fn a_client_that_waits_to_be_asked_for_its_body_is_asked() {
    let origin = Provider::plain();
    let egret = with_remedies(&origin.url(), &format!("{{ {SET_IN_REQUEST} }}"));
    let mut client = egret.client();
    client.send(post(&egret, "Expect: 100-continue\r\nContent-Length: 11\r\n", ""));
    assert_eq!(client.any_response_to("POST").status, 100);
    client.send(r#"{"tags":[]}"#).response().assert_forwarded(200);
    assert_eq!(origin.only_request().body, br#"{"tags":["x"],"source":"egret"}"#);
}

#[test]
fn a_stream_of_events_is_not_held_back() {
    let origin = Provider::scripted(|peer| {
        peer.request();
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {}\n\n");
        peer.stall();
    });
    let egret = with_remedies(&origin.url(), &format!("{{ {SET_IN_RESPONSE}, on_error: closed }}"));
    let mut client: Client = egret.client();
    client.get(egret.address(), "/origin/items/7");
    assert_eq!(client.head().status, 200);
    assert_eq!(client.bytes(4 + 10), b"a\r\ndata: {}\n\n\r\n"[..14]);
}

#[test]
fn a_response_from_further_in_is_changed_like_one_of_the_provider() {
    let origin = Provider::plain();
    let fixed = "{ fixed-response: { headers: { content-type: application/json }, body: '{\"secret\":1}' } }";
    let egret = with_remedies(&origin.url(), &format!("{{ {SET_IN_RESPONSE} }}, {fixed}"));
    let mut client = egret.client();
    for _ in 0..2 {
        let response = client.get(egret.address(), "/origin/items/7").response();
        assert_eq!((response.status, response.text()), (200, r#"{"source":"egret"}"#));
    }
    assert!(origin.requests().is_empty());
}

#[test]
fn a_request_goes_to_another_provider_with_a_credential_from_the_environment() {
    let (first, second) = (Provider::plain(), Provider::responding(ok("from the second")));
    let flows = "flows:\n\
        - name: moved\n\
        \x20 match: { provider: origin, path: '/users/{id}' }\n\
        \x20 remedies:\n\
        \x20   - transform:\n\
        \x20       request:\n\
        \x20         provider: second\n\
        \x20         path: '/people/${params.id}'\n\
        \x20         headers: { set: { x-key: '${env:EGRET_TEST_KEY}', x-region: '${env:EGRET_TEST_NONE:-eu}' } }\n\
        - { name: of-second, match: { provider: second }, remedies: [fixed-response: { status: 418 }] }\n";
    let config = Config::with_origin(first.url()).provider("second", second.url()).flows(flows);
    let egret = Egret::start_with(&config, |command| {
        command.env("EGRET_TEST_KEY", "hunter-2");
    });
    let request = format!(
        "GET /origin/users/7?page=2&api_key=k HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer t\r\nX-Kept: 1\r\n\r\n",
        egret.address()
    );
    let response = egret.client().send(request).response();
    // The flows of the original request apply, and only those.
    assert_eq!(response.assert_forwarded(200).text(), "from the second");
    let seen = second.only_request();
    assert_eq!(seen.target(), "/people/7?page=2");
    let fields = ["authorization", "x-kept", "x-key", "x-region"].map(|name| seen.values(name).concat());
    assert_eq!(fields, ["", "1", "hunter-2", "eu"]);
    assert_eq!(only(&seen, "host"), second.address().to_string());
    assert!(first.requests().is_empty());
    for path in ["/api/v1/config", "/api/v1/flows", "/metrics"] {
        assert!(!egret.control_get(path).text().contains("hunter-2"), "{path}");
    }
    assert!(!egret.log().contains("hunter-2"));
}

#[test]
fn a_variable_that_is_not_set_is_a_mistake_in_the_config() {
    let directory = Directory::default();
    let file = directory.write(
        "egret.yaml",
        "flows:\n- name: f\n  remedies:\n  - fixed-response: { body: 'a ${env:EGRET_TEST_NONE} b' }\n",
    );
    let output = run(egret(["check"]).arg(&file));
    let stderr = String::from_utf8(output.stderr).unwrap();
    let message = "fixed-response.body: the environment variable EGRET_TEST_NONE is not set";
    assert!(output.status.code() == Some(2) && stderr.contains(message), "{stderr}");
}

#[test]
fn members_are_obfuscated_in_both_messages_with_one_pseudonym() {
    let origin = Provider::with_responses(|request| {
        with_length(&format!(
            r#"{{"echo":{},"owner":"ann@example.com"}}"#,
            String::from_utf8_lossy(&request.body)
        ))
    });
    let transform = "{ transform: { request: { json: { obfuscate: [/user/email] } }, \
                     response: { json: { obfuscate: [/owner] } } }, on_error: closed }";
    let egret = with_remedies(&origin.url(), transform);
    let body = r#"{"user":{"email":"ann@example.com","name":"Ann"}}"#;
    let response = egret.client().send(post_with_length(&egret, body)).response();
    let told = response.assert_forwarded(200).json();
    let pseudonym = told["owner"].as_str().unwrap();
    assert!(pseudonym.starts_with("egr_") && pseudonym.len() == 28, "{told}");
    // The provider received the same pseudonym, and the rest as it was.
    assert_eq!(told["echo"], json!({ "user": { "email": pseudonym, "name": "Ann" } }));
    assert!(egret.directory().path().join("egret-data/har.key").exists());
    let refused = egret.client().send(post_with_length(&egret, "{")).response();
    refused.assert_generated(503, "remedy-failed");
}

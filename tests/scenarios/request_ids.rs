//! Request ids: taken from the client or made, in every response, in logs, records and spans, and never in a
//! stored response.

use std::collections::BTreeSet;
use std::fs;

use egret_tests::cached::{flow, ok_response, status};
use egret_tests::dns::{Answer, NameServer};
use egret_tests::egret::{Config, Egret};
use egret_tests::http::Response;
use egret_tests::provider::Provider;
use egret_tests::recorded::{content, files, until_recorded};
use egret_tests::wait;
use serde_json::Value;

/// Sends a GET with these fields through the provider `origin`.
fn get(egret: &Egret, fields: &str) -> Response {
    egret.get_with("/origin/a", fields)
}

/// Returns the id of a response, after checking that it is a UUID of version 7.
fn made(response: &Response) -> String {
    let [id] = response.values("x-egret-request-id")[..] else { panic!("one id: {response:?}") };
    let groups: Vec<usize> = id.split('-').map(str::len).collect();
    assert_eq!(groups, [8, 4, 4, 4, 12], "{id}");
    assert!(id.as_bytes()[14] == b'7' && id.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit()));
    id.to_owned()
}

#[test]
fn a_response_carries_the_clients_id_or_one_that_egret_makes() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    let (first, second) = (get(&egret, ""), get(&egret, ""));
    assert_ne!(made(&first), made(&second));
    let long = "x".repeat(129);
    for (fields, expected) in [
        ("X-Request-ID: abc-1\r\n", Some("abc-1")),
        ("x-lunar-sequence-id: s\r\nx-lunar-req-id: r\r\n", Some("r")),
        ("x-request-id: two words\r\nx-lunar-sequence-id: s\r\n", Some("s")),
        (&format!("x-request-id: {long}\r\n"), None),
        ("x-request-id:\r\n", None),
    ] {
        let response = get(&egret, fields);
        match expected {
            Some(id) => assert_eq!(response.values("x-egret-request-id"), [id], "{fields}"),
            None => drop(made(&response)),
        }
        assert_eq!(response.field("x-request-id"), None, "{fields}");
    }
    let sent: Vec<_> = origin.requests().iter().map(|request| request.values("x-request-id").len()).collect();
    assert_eq!(sent, [0, 0, 1, 0, 1, 1, 1], "the client's field is forwarded, a made id is not");
}

#[test]
fn the_providers_id_stays_and_a_forged_one_of_egret_does_not() {
    let origin =
        Provider::with_responses(|_| ok_response("X-Request-Id: theirs\r\nX-Egret-Request-Id: forged", "a"));
    let egret = Config::with_origin(origin.url()).start();
    let response = get(&egret, "x-request-id: mine\r\n");
    assert_eq!(response.values("x-request-id"), ["theirs"]);
    assert_eq!(response.values("x-egret-request-id"), ["mine"]);
}

#[test]
fn a_generated_id_is_sent_if_configured() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).gateway("request_ids: { send: true }").start();
    let id = made(&get(&egret, ""));
    get(&egret, "x-request-id: mine\r\n");
    let sent: Vec<Vec<String>> = origin
        .requests()
        .iter()
        .map(|request| request.values("x-request-id").into_iter().map(str::to_owned).collect())
        .collect();
    assert_eq!(sent, [[id], ["mine".to_owned()]]);
}

#[test]
fn templates_insert_the_id_and_new_uuids() {
    let origin = Provider::plain();
    let flows = "flows: [{ name: f, remedies: [{ transform: { request: { headers: { set: \
                 { x-call: 'c-${request.id}', idempotency-key: '${uuid}', x-two: '${uuid}/${uuid}' } } } } }] }]\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    let id = made(&get(&egret, ""));
    get(&egret, "x-request-id: mine\r\n");
    let sent = origin.requests();
    let field = |number: usize, name| sent[number].values(name).concat();
    assert_eq!([field(0, "x-call"), field(1, "x-call")], [format!("c-{id}"), "c-mine".to_owned()]);
    let two = [field(0, "x-two"), field(1, "x-two")];
    let uuids = two.iter().flat_map(|two| two.split('/').map(str::to_owned));
    let uuids: BTreeSet<String> =
        uuids.chain((0..2).map(|number| field(number, "idempotency-key"))).collect();
    assert_eq!(uuids.len(), 6, "{uuids:?}");
    assert!(uuids.iter().all(|uuid| uuid.len() == 36 && &uuid[14..15] == "4"), "{uuids:?}");
}

#[test]
fn without_request_ids_nothing_is_added() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).gateway("request_ids: { enabled: false }").start();
    for response in
        [get(&egret, "x-request-id: mine\r\n"), egret.get("/a"), egret.client().get("x:y", "/").response()]
    {
        assert_eq!((response.field("x-egret-request-id"), response.field("x-request-id")), (None, None));
    }
}

#[test]
fn egrets_own_responses_carry_the_id_and_problems_name_it() {
    let flows = "flows:\n\
        - { name: tea, match: { path: /tea }, remedies: [fixed-response: { status: 418, body: tea }] }\n\
        - { name: none, match: { path: /none }, remedies: [limit: { quota: none, status: 429 }] }\n\
        quotas: { none: { limit: 1, window: 1h } }\n";
    let (origin, names) = (Provider::plain(), NameServer::start(|_| Answer::NoSuchName));
    let egret = Config::with_origin(origin.url()).gateway(names.config()).flows(flows).start();
    let tea = egret.get("/tea");
    assert_eq!(tea.status, 418);
    made(&tea);
    egret.get("/none").assert_forwarded(200);
    let refused = egret.get("/none");
    refused.assert_generated(429, "quota-exceeded");
    assert_eq!(refused.json()["request_id"], made(&refused));
    let unknown = egret.client().get("unknown.invalid", "/").response();
    unknown.assert_generated(502, "dns-failed");
    assert_eq!(unknown.json()["request_id"], made(&unknown));
    let malformed = egret.client().send("GET / HTTP/1.1\r\nHost: a\r\nbad line\r\n\r\n").response();
    malformed.assert_generated(400, "bad-request");
    assert_eq!(malformed.json()["request_id"], made(&malformed));
    let address = origin.address();
    let tunnel = egret.client().send(format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n")).head();
    assert_eq!(tunnel.status, 200);
    made(&tunnel);
}

#[test]
fn a_stored_response_gets_the_id_of_its_request() {
    let origin = Provider::with_responses(|_| {
        ok_response("Cache-Control: max-age=60\r\nx-egret-request-id: forged", "a")
    });
    let egret = Config::with_origin(origin.url()).flows(flow("{}")).start();
    let stored = get(&egret, "x-request-id: one\r\n");
    let hit = get(&egret, "x-request-id: two\r\n");
    assert!(status(&hit).starts_with("egret; hit"), "{hit:?}");
    assert_eq!(stored.values("x-egret-request-id"), ["one"]);
    assert_eq!(hit.values("x-egret-request-id"), ["two"]);
    let not_modified = get(&egret, "x-request-id: three\r\nif-none-match: *\r\n");
    assert_eq!((not_modified.status, not_modified.values("x-egret-request-id")), (304, vec!["three"]));
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn the_access_log_names_the_id_the_consumer_and_the_host() {
    let origin = Provider::plain();
    let config =
        Config::with_origin(origin.url()).gateway("access_log: { output: access.log, format: json }");
    let egret = config.start();
    let address = origin.address();
    let fields = "x-request-id: id-1\r\nx-egret-consumer: shop\r\n";
    egret
        .client()
        .send(format!("GET http://localhost:{}/a HTTP/1.1\r\nHost: x\r\n{fields}\r\n", address.port()))
        .response()
        .assert_forwarded(200);
    let log = egret.directory().join("access.log");
    let line = wait::until("a line of the access log", || {
        let text = fs::read_to_string(&log).ok()?;
        serde_json::from_str::<Value>(text.lines().next()?).ok()
    });
    assert_eq!((&line["request_id"], &line["consumer"]), (&"id-1".into(), &"shop".into()));
    assert_eq!(
        (&line["provider"], &line["host"]),
        (&"-".into(), &format!("localhost:{}", address.port()).into())
    );
    assert!(line["upstream_sent_bytes"].as_u64() > Some(40), "{line}");
    assert!(line["upstream_received_bytes"].as_u64() > Some(15), "{line}");
}

#[test]
fn recordings_and_the_lines_of_a_flow_name_the_id() {
    let origin = Provider::plain();
    let flows = "exporters:\n\
        \x20 archive: { type: ndjson, directory: ./har }\n\
        \x20 access: { type: lines, directory: ./access }\n\
        flows:\n\
        - name: all\n\
        \x20 diagnoses: [har: { export: archive }, access-log: { export: access }]\n";
    let mut egret = Config::with_origin(origin.url()).flows(flows).start();
    get(&egret, "x-request-id: id-1\r\n");
    until_recorded(&egret, 1);
    egret.terminate();
    assert!(egret.until_ended().success());
    let only = |directory: &str| -> Value {
        let files = files(&egret.directory().join(directory));
        let text: Vec<u8> = files.iter().flat_map(|file| content(file)).collect();
        serde_json::from_slice(text.split(|byte| *byte == b'\n').next().unwrap()).unwrap()
    };
    assert_eq!(only("har")["comment"], "request_id=id-1");
    assert_eq!(only("access")["request_id"], "id-1");
}

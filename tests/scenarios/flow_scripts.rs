//! `script`: what the provider and the client receive, what a script never sees, and what happens to one that
//! fails.

use egret_tests::egret::{Config, Egret, egret};
use egret_tests::process::{Directory, run};
use egret_tests::provider::Provider;
use egret_tests::wait;
use serde_json::json;

/// Starts Egret with one flow for all calls to the origin, with this script. `keys` are more keys of it,
/// `rest` are more of the remedy, both beginning with a comma.
fn with_script(url: &str, source: &str, keys: &str, rest: &str) -> Egret {
    let source = json!(source);
    let flows = format!(
        "flows: [{{ name: scripted, remedies: [{{ script: {{ source: {source}, time: 100ms{keys} }}{rest} }}] }}]\n"
    );
    Config::with_origin(url).flows(flows).start()
}

fn json_response(fields: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{fields}Content-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

#[test]
fn both_messages_are_edited_and_framed_again() {
    let origin = Provider::responding(json_response("ETag: \"1\"\r\nX-Inner: 1\r\n", r#"{"items":[1,2,3]}"#));
    let egret = with_script(
        &origin.url(),
        "function onRequest(request) {
            request.path = `/v2${request.path}`;
            request.query.set('q', 'a&b');
            request.headers.append('x-tag', `${request.method} ${request.provider}`);
            request.headers.append('x-tag', 'two');
            request.body = JSON.stringify({ ...request.json(), extra: 'é' });
        }
        function onResponse(request, response) {
            response.headers.delete('x-inner');
            response.body = JSON.stringify({ count: response.json().items.length });
        }",
        ", bodies: 64KiB",
        ", on_error: closed",
    );
    let response = egret.ask("POST /origin/items?page=1", "Content-Type: application/json\r\n", r#"{"a":1}"#);
    assert_eq!(response.assert_forwarded(200).text(), r#"{"count":3}"#);
    assert_eq!((response.field("etag"), response.field("x-inner")), (Some("W/\"1\""), None));
    let request = origin.only_request();
    assert_eq!(request.target(), "/v2/items?page=1&q=a%26b");
    assert_eq!(request.values("x-tag"), ["POST origin", "two"]);
    assert_eq!(String::from_utf8_lossy(&request.body), r#"{"a":1,"extra":"é"}"#);
    assert_eq!(request.values("content-length"), [request.body.len().to_string()]);
}

#[test]
fn a_script_responds_and_refuses_without_a_call() {
    let origin = Provider::plain();
    let egret = with_script(
        &origin.url(),
        "function onRequest(request) {
            if (request.path === '/hold') return respond({ status: 202, headers: { 'x-a': ['1', '2'] }, body: 'held' });
            if (request.path === '/stop') return refuse({ status: 451, detail: 'not \"here\"' });
            if (request.path === '/framing') return respond({ headers: { 'transfer-encoding': 'chunked' } });
            if (request.path === '/split') request.headers.set('x-a', 'a\\r\\nContent-Length: 5');
        }",
        "",
        ", on_error: closed",
    );
    let held = egret.ask("GET /origin/hold", "", "");
    assert_eq!((held.text(), held.values("x-a")), ("held", vec!["1", "2"]));
    assert_eq!(held.field("x-egret-generated"), Some("true"));
    let refused = egret.ask("GET /origin/stop", "", "");
    refused.assert_generated(451, "script-refused");
    assert_eq!(refused.json()["detail"], "not \"here\"");
    egret.ask("GET /origin/framing", "", "").assert_generated(503, "remedy-failed");
    egret.ask("GET /origin/split", "", "").assert_generated(503, "remedy-failed");
    assert_eq!(origin.requests().len(), 0);
}

#[test]
fn a_script_failing_open_leaves_the_exchange_untouched() {
    let origin = Provider::plain();
    let egret = with_script(
        &origin.url(),
        "function onRequest(request) {
            request.path = '/changed';
            request.headers.set('x-a', '1');
            throw new Error(`${request.headers.get('authorization')} ${secrets.key}`);
        }",
        ", secrets: { key: \"${env:PATH}\" }",
        "",
    );
    for _ in 0..3 {
        egret.ask("GET /origin/kept", "Authorization: Bearer hunter2\r\n", "").assert_forwarded(200);
    }
    assert_eq!(origin.requests()[2].target(), "/kept");
    assert!(origin.requests().iter().all(|request| request.values("x-a").is_empty()));
    egret.until_logged("the script threw an error in line 4");
    let log = egret.log();
    let warnings = log.lines().filter(|line| line.contains("WARN") && line.contains("the script threw"));
    assert_eq!(warnings.count(), 1, "{log}");
    assert!(!log.contains("hunter2") && !log.contains(&std::env::var("PATH").unwrap()), "{log}");
}

#[test]
fn a_runaway_script_is_ended_and_rests() {
    let origin = Provider::plain();
    let source = "function onRequest(request) {
        if (request.path === '/loop') for (;;);
        request.headers.set('x-ran', '1');
    }";
    let script = format!("{{ source: {}, time: 5ms }}", json!(source));
    let flows = format!("flows: [{{ name: scripted, remedies: [script: {script}] }}]\n");
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    // It rests after ten failures within 10 seconds, which may take longer on a busy machine.
    wait::until_true("the script rests", || {
        egret.ask("GET /origin/loop", "", "").assert_forwarded(200);
        egret.log().contains("the script rests for 30 seconds")
    });
    egret.ask("GET /origin/next", "", "").assert_forwarded(200);
    let requests = origin.requests();
    assert!(requests.len() > 10, "{} requests", requests.len());
    assert!(requests.last().unwrap().values("x-ran").is_empty(), "{:?}", requests.last());
    egret.until_logged("the script ran for longer than `time`");
    egret.assert_well();
}

#[test]
fn a_script_sees_no_credential_of_an_account_in_either_direction() {
    let origin = Provider::with_responses(|request| {
        let text = request.values("authorization").join(",");
        json_response(&format!("X-Echo: {text}\r\n"), &json!({ "echo": text }).to_string())
    });
    let directory = Directory::default();
    let secret = directory.write_secret("secret", "s3cr3t-0123456789").display().to_string();
    let outer = json!(
        "function onRequest(request) { request.headers.set('x-outer', `${request.headers.get('authorization')}`) }
        function onResponse(request, response) { response.headers.set('x-seen', request.headers.names().join()) }"
    );
    let inner = json!(
        "function onRequest(request) { request.headers.set('x-inner', `${request.headers.get('authorization')}`) }
        function onResponse(request, response) {
            const seen = [request.headers.get('authorization'), response.headers.get('x-echo'), response.body];
            return respond({ body: seen.join() });
        }"
    );
    let egret = Config::with_origin(origin.url())
        .flows(format!(
            "accounts:\n  main: {{ provider: origin, bearer: {{ token: \"${{file:{secret}}}\" }} }}\n\
             flows: [{{ name: f, remedies: [\
               {{ script: {{ source: {outer}, time: 100ms }}, on_error: closed }},\
               {{ authenticate: {{ account: main, mask_echoes: true }} }},\
               {{ script: {{ source: {inner}, bodies: 1KiB, time: 100ms }}, on_error: closed }}] }}]\n"
        ))
        .start();
    let response = egret.ask("GET /origin/x", "", "");
    assert!(response.text().contains("Bearer *****************"), "{}", response.text());
    assert!(!response.text().contains("s3cr3t"), "{}", response.text());
    let request = origin.only_request();
    assert_eq!(request.values("authorization"), ["Bearer s3cr3t-0123456789"]);
    assert_eq!((request.values("x-outer"), request.values("x-inner")), (vec!["null"], vec!["null"]));
    assert_eq!(response.field("x-seen").map(|names| names.contains("authorization")), Some(false));
}

#[test]
fn a_script_in_a_file_is_reloaded_when_it_changes() {
    let origin = Provider::plain();
    let config = Config::with_origin(origin.url());
    let egret = config.start();
    let write = |text: &str| std::fs::write(egret.directory().path().join("sign.js"), text).unwrap();
    let flows = "flows: [{ name: f, remedies: [{ script: { file: sign.js, time: 100ms } }] }]\n";
    let scripted = config.clone().flows(flows);
    write("function onRequest(request) { request.headers.set('x-version', '1') }");
    let version = || {
        egret.ask("GET /origin/x", "", "").assert_forwarded(200);
        origin.requests().last().unwrap().values("x-version").join(",")
    };
    egret.rewrite(scripted.yaml());
    wait::until_true("the script is in effect", || version() == "1");
    write("function onRequest(request) { request.headers.set('x-version', '2') }");
    wait::until_true("the change is in effect", || version() == "2");
    write("function onRequest(request) { request.headers.set('x-version', '3' }");
    egret.until_logged("sign.js:1:68: invalid JavaScript");
    assert_eq!(version(), "2");
}

#[test]
fn check_places_a_mistake_in_the_line_of_the_config() {
    let directory = Directory::default();
    let file = directory.write(
        "egret.yaml",
        "flows:\n  - name: f\n    remedies:\n      - script:\n          source: |\n            function onRequest(request) {\n              let x = ;\n            }\n",
    );
    let output = run(&mut egret(["check", file.to_str().unwrap()]));
    assert_eq!(output.status.code(), Some(2));
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(printed.contains("egret.yaml:7:23: flows[0].remedies[0].script.source: "), "{printed}");
    assert!(printed.contains("invalid JavaScript: unexpected token"), "{printed}");
}

#[test]
fn explain_runs_the_script_on_the_request() {
    let directory = Directory::default();
    let file = directory.write(
        "egret.yaml",
        "flows:\n  - name: f\n    match: { path: \"/users/{id}\" }\n    remedies:\n      - script:\n          bodies: 1KiB\n          time: 100ms\n          source: |\n            function onRequest(request) {\n              if (request.params.id === '0') return refuse({ detail: 'no such user' });\n              if (request.params.id === '1') null.a;\n              request.headers.set('x-body', request.body);\n              request.query.set('id', request.params.id);\n            }\n",
    );
    let explain = |id: &str| {
        let request = format!("POST http://one.example/users/{id}");
        let output =
            run(egret(["explain", file.to_str().unwrap(), "--request", &request]).args(["--data", "hi"]));
        String::from_utf8(output.stdout).unwrap()
    };
    let told = explain("7");
    assert!(told.contains("with this request: calls /users/7?id=7; sets x-body: hi"), "{told}");
    assert!(explain("0").contains("refuses the request with 403: no such user"));
    assert!(explain("1").contains("line 3, column"), "{}", explain("1"));
}

#[test]
fn the_reference_prints_the_declarations() {
    let output = run(&mut egret(["reference", "script"]));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("interface EgretRequest {"), "{printed}");
}

//! `when_response`: flows that depend on the response, for the exchanges that a provider, a remedy or Egret
//! itself responded to.

use egret_tests::built_in::BuiltIn;
use egret_tests::egret::{Config, Egret, egret};
use egret_tests::process::{Directory, run};
use egret_tests::provider::Provider;
use egret_tests::recorded::{content, diagnosed, files};
use egret_tests::wait;
use serde_json::Value;

/// Responds with the status that the path names, in JSON.
fn provider() -> Provider {
    Provider::with_responses(|request| {
        let status = request.target().trim_start_matches('/');
        let body = format!(r#"{{"status":{status},"code":"c{status}"}}"#);
        let len = body.len();
        format!(
            "HTTP/1.1 {status} Told\r\nContent-Type: application/json\r\nContent-Length: {len}\r\n\r\n{body}"
        )
        .into_bytes()
    })
}

/// Waits until the first diagnosis of the first flow has judged `exchanges`. Returns how many it recorded.
fn until_judged(egret: &Egret, exchanges: u64) -> u64 {
    wait::until_true(&format!("{exchanges} exchanges are judged"), || {
        diagnosed(egret, "recorded") + diagnosed(egret, "skipped") == exchanges
    });
    assert_eq!(["dropped", "shed", "failed", "queued"].map(|what| diagnosed(egret, what)), [0; 4]);
    diagnosed(egret, "recorded")
}

#[test]
fn only_what_failed_is_recorded_whoever_made_the_response() {
    let origin = provider();
    let flows = "exporters: { kept: { type: ndjson, directory: ./kept } }\n\
        flows:\n\
        - name: failures\n\
        \x20 when_response: response.status == 0 || response.status >= 400\n\
        \x20 diagnoses: [har: { export: kept, obfuscate: false }]\n\
        - { name: tea, match: { path: /tea }, remedies: [fixed-response: { status: 418 }] }\n";
    // Nothing listens on the discard port.
    let config = Config::with_origin(origin.url()).provider("dead", "http://127.0.0.1:9").flows(flows);
    let mut egret = config.start();
    for status in [200, 404, 204, 503, 301] {
        egret.get(&format!("/{status}")).assert_forwarded(status);
    }
    assert_eq!(egret.get("/tea").status, 418);
    egret.client().get(egret.address(), "/dead/x").response().assert_generated(502, "connect-failed");
    assert_eq!(until_judged(&egret, 7), 4);
    let metrics = egret.control_get("/metrics");
    let line = "egret_diagnosis_exchanges_total{flow=\"failures\",diagnosis=\"har\",result=\"skipped\"} 3";
    assert!(metrics.text().contains(line), "{}", metrics.text());
    egret.terminate();
    assert!(egret.until_ended().success());
    let written = files(&egret.directory().path().join("kept"));
    let text = String::from_utf8(written.iter().flat_map(|file| content(file)).collect()).unwrap();
    let status = |line: &str| {
        let entry: Value = serde_json::from_str(line).unwrap();
        entry["response"]["status"].as_u64().unwrap()
    };
    let mut found: Vec<u64> = text.lines().map(status).collect();
    found.sort_unstable();
    assert_eq!(found, [404, 418, 502, 503]);
}

#[test]
fn a_field_is_added_to_responses_with_one_status() {
    let origin = provider();
    let flows = "flows:\n\
        - name: unpaid\n\
        \x20 when_response: response.status == 402\n\
        \x20 remedies:\n\
        \x20   - transform: { response: { headers: { set: { x-pay-at: 'https://pay.example/' } } } }\n\
        - name: named\n\
        \x20 when_response: response.headers['content-type'] == 'application/json' && response.status >= 500\n\
        \x20 remedies: [transform: { response: { json: { set: { /seen: true } } } }]\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    let seen = |status: u16| {
        let response = egret.get(&format!("/{status}"));
        response.assert_forwarded(status);
        let is_changed = response.json()["seen"] == true;
        (response.field("x-pay-at").is_some(), is_changed)
    };
    assert_eq!((seen(402), seen(200), seen(500)), ((true, false), (false, false), (false, true)));
}

#[test]
fn slow_responses_and_bodies_with_an_error_are_counted() {
    let provider = BuiltIn::start(&[]);
    let flows = "flows:\n\
        - name: slow\n\
        \x20 when_response: response.duration_ms > 300 && response.provider_ms > 300\n\
        \x20 diagnoses: [metrics: { labels: [status] }]\n\
        - name: told\n\
        \x20 when_response: response.body.url.contains('told')\n\
        \x20 diagnoses: [metrics: { labels: [] }]\n\
        - name: refused\n\
        \x20 when_response: response.generated && response.error == 'connect-failed'\n\
        \x20 diagnoses: [metrics: { labels: [] }]\n\
        - name: never\n\
        \x20 when_response: response.duration_ms > 100000 || response.provider_ms > 100000\n\
        \x20 diagnoses: [metrics: { labels: [] }]\n";
    let config = Config::with_origin(format!("http://{}", provider.address()));
    let egret = config.provider("dead", "http://127.0.0.1:9").flows(flows).start();
    for target in ["/delay/0.4", "/get?told", "/get", "/status/204"] {
        egret.get(target);
    }
    egret.client().get(egret.address(), "/dead/x").response().assert_generated(502, "connect-failed");
    let slow = until_judged(&egret, 5);
    let of_flow = |flow: usize| {
        let all = egret.control_get("/api/v1/flows").json();
        let flow = &all["flows"][flow];
        let count = |key: &str| flow["diagnoses"][0][key].as_u64().unwrap();
        (count("recorded"), count("skipped"), flow["match_failures"].as_u64().unwrap())
    };
    wait::until_true("all flows have judged", || {
        [1, 2, 3].map(of_flow).iter().all(|(recorded, skipped, _)| recorded + skipped == 5)
    });
    // On a busy machine, the others may be slow too.
    assert!(slow > 0 && of_flow(0) == (slow, 5 - slow, 0), "{slow} {:?}", of_flow(0));
    // Without a body there is no URL in it: the condition has no value.
    assert_eq!((of_flow(1), of_flow(2), of_flow(3)), ((1, 4, 2), (1, 4, 0), (0, 5, 0)));
}

#[test]
fn a_flow_that_acts_before_the_response_is_refused_and_explained() {
    let directory = Directory::default();
    let flow = |lines: &str| format!("flows:\n- name: f\n  when_response: response.status == 402\n{lines}");
    let file = directory.write("egret.yaml", flow("  remedies: [retry: {}]\n"));
    let output = run(egret(["check"]).arg(&file));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    let message = "egret.yaml:4:14: flows[0].remedies[0].retry: `retry` cannot depend on `when_response`";
    assert!(stderr.contains(message) && stderr.contains("a flow of its own"), "{stderr}");

    let file = directory.write("egret.yaml", flow("  diagnoses: [metrics: {}]\n"));
    let output = run(egret(["explain"]).arg(&file).args(["--request", "GET http://a.example/"]));
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.contains("f: matches if the response meets `response.status == 402`"), "{stdout}");
}

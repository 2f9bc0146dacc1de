//! `egret explain` must say what the gateway does: a wrong answer lets a bad config pass.

use egret_tests::egret::egret;
use egret_tests::process::{Directory, run};

/// Runs `egret explain`. Returns exit code, standard output and standard error.
fn explain(config: &str, request: &str) -> (i32, String, String) {
    let directory = Directory::default();
    let file = directory.write("egret.yaml", config);
    let output = run(egret(["explain", "--request", request]).arg(file));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_flow_that_exports_is_explained() {
    let config = "providers: { one: { url: 'https://one.example' } }\n\
                  exporters: { log: { type: lines, directory: ./log } }\n\
                  flows:\n- name: all\n  remedies: [ { timeout: { total: 5s } } ]\n  \
                  diagnoses: [ { access-log: { export: log } } ]\n";
    let (code, printed, stderr) = explain(config, "GET https://one.example/a");
    assert_eq!((code, stderr.as_str()), (0, ""), "{printed}");
    assert!(printed.contains("all: matches") && printed.contains("timeout of all"), "{printed}");
}

#[test]
fn a_host_that_the_egress_policy_denies_is_denied() {
    let config = "gateway:\n  egress:\n    default: deny\n    allow: [ { host: good.example } ]\n    \
                  deny: [ { host: worse.example }, { host: '*.bad.example', ports: [443] } ]\n";
    for (request, code, text) in [
        ("GET https://a.bad.example/", 1, "denied by `gateway.egress.deny[1]`"),
        ("GET https://other.example/", 1, "no rule in `allow` names this target"),
        ("GET https://good.example/", 0, "allowed by `gateway.egress.allow[0]`"),
    ] {
        let (found, printed, stderr) = explain(config, request);
        assert_eq!(found, code, "{request}: {printed}");
        assert_eq!(stderr.contains("403 with the error `egress-denied`"), code == 1, "{request}: {stderr}");
        assert!(printed.contains(text), "{request}: {printed}");
    }
}

#[test]
fn a_metadata_service_is_denied() {
    for host in ["169.254.169.254", "[::ffff:169.254.169.254]", "metadata.google.internal"] {
        let (code, printed, stderr) = explain("", &format!("GET http://{host}/latest/meta-data/"));
        assert_eq!(code, 1, "{host}: {printed}");
        assert!(
            stderr.contains("egress-denied") && printed.contains("metadata service"),
            "{host}: {printed}"
        );
    }
}

#[test]
fn a_client_that_proves_nothing_is_refused() {
    let directory = Directory::default();
    let token = directory.write_secret("token", "0123456789abcdef0123").display().to_string();
    let config = format!(
        "gateway:\n  listen:\n  - {{ address: '127.0.0.1:8000', clients: {{ tokens: {{ web: '${{file:{token}}}' }} }} }}\n\
         providers: {{ one: {{ url: 'https://one.example' }} }}\n"
    );
    let (code, printed, stderr) = explain(&config, "GET http://127.0.0.1:8000/one/a");
    assert_eq!(code, 1, "{printed}");
    assert!(stderr.contains("407 with the error `client-unproven`"), "{stderr}");
    assert!(stderr.contains("`--consumer NAME` stands for a client"), "{stderr}");
    let file = directory.write("egret.yaml", config);
    let words = ["explain", "--consumer", "web", "-r", "GET http://127.0.0.1:8000/one/a"];
    let output = run(egret(words).arg(file));
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_credential_in_the_clear_is_warned_of() {
    let directory = Directory::default();
    let secret = directory.write_secret("secret", "s3cr3tK3y0123").display().to_string();
    let config = format!(
        "providers: {{ one: {{ url: 'http://one.example' }} }}\n\
         accounts: {{ main: {{ provider: one, bearer: {{ token: '${{file:{secret}}}' }} }} }}\n\
         flows: [ {{ name: f, remedies: [ authenticate: {{ account: main }} ] }} ]\n"
    );
    let (code, printed, stderr) = explain(&config, "GET http://one.example/a");
    assert_eq!(code, 0, "{stderr}");
    assert!(printed.contains("authenticate of f"), "{printed}");
    assert!(stderr.contains("warning: ") && stderr.contains("in the clear"), "no warning: {stderr:?}");
}

#[test]
fn a_request_that_the_gateway_refuses_is_refused() {
    let config = "providers: { one: { url: 'https://one.example/v1' } }\n\
                  flows:\n- name: closed\n  match: { path: /closed }\n  remedies:\n  - script: \
                  { source: 'function onRequest() { return refuse({ detail: \"closed\" }); }' }\n";
    let directory = Directory::default();
    let file = directory.write("egret.yaml", config);
    for (request, field, slug) in [
        ("OPTIONS http://127.0.0.1:8000/one/x", "Max-Forwards: 0", "no-forwards-left"),
        ("GET http://127.0.0.1:8000/one/closed", "Accept: */*", "script-refused"),
    ] {
        let output = run(egret(["explain", "-r", request, "-H", field]).arg(&file));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{request}: {stderr}");
        assert!(stderr.contains(&format!("the error `{slug}`")), "{request}: {stderr}");
    }
}

#[test]
fn an_explanation_reads_no_secret_and_shows_none() {
    let directory = Directory::default();
    let ran = directory.join("ran");
    let config = format!(
        "secrets: {{ commands: {{ manager: {{ command: [touch, '{}'] }} }} }}\n\
         providers: {{ one: {{ url: 'https://one.example' }} }}\n\
         accounts:\n  main: {{ provider: one, bearer: {{ token: '${{exec:manager}}' }} }}\n  \
         other: {{ provider: one, bearer: {{ token: '${{file:/no/such/file}}' }} }}\n\
         flows:\n- name: f\n  remedies:\n  - accounts: {{ use: [main, other] }}\n  - script:\n      \
         time: 100ms\n      secrets: {{ key: '${{env:EGRET_TEST_KEY}}' }}\n      \
         source: \"function onRequest(request) {{ request.headers.set('x-key', secrets.key); }}\"\n",
        ran.display()
    );
    let file = directory.write("egret.yaml", config);
    let mut command = egret(["explain", "-r", "GET https://one.example/a"]);
    let output = run(command.arg(file).env("EGRET_TEST_KEY", "planted-3f9a"));
    let (printed, stderr) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(printed.contains("with this request: sets x-key: "), "{printed}");
    assert!(!ran.exists() && !(printed + &stderr).contains("planted"), "a secret was read");
}

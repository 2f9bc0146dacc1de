//! The output of `egret check` for programs, standard input, and checks without secrets.

use std::process::Command;

use egret_tests::egret::{binary, egret};
use egret_tests::process::{Directory, run};
use serde_json::{Value, json};

const BAD: &str = "providers: { a: { ulr: x } }\n";

#[test]
fn sarif_has_every_problem_with_its_place() {
    let directory = Directory::default();
    let file = directory.write("egret.yaml", BAD);
    let output = run(egret(["check", "--format", "sarif"]).arg(&file));
    assert_eq!(output.status.code(), Some(2));
    let log: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(log["version"], "2.1.0");
    let result = &log["runs"][0]["results"][0];
    assert_eq!((&result["level"], &result["ruleId"]), (&json!("error"), &json!("config-error")));
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(place["region"], json!({ "startLine": 1, "startColumn": 19 }));
    assert_eq!(place["artifactLocation"]["uri"], format!("file://{}", file.display()));
    let file = directory.write("good.yaml", "flows: [{ name: idle }]\n");
    let output = run(egret(["check", "--format", "sarif"]).arg(&file));
    assert_eq!(output.status.code(), Some(0));
    let log: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(log["runs"][0]["results"][0]["level"], "warning");
}

#[test]
fn standard_input_is_checked_but_not_fixed() {
    let directory = Directory::default();
    let check = |text: &str, arguments: &str| {
        let file = directory.write("input", text);
        let script = format!("'{}' check {arguments} - < '{}'", binary().display(), file.display());
        let output = run(Command::new("sh").args(["-c", &script]).env("NO_COLOR", "1"));
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout) + &text(output.stderr))
    };
    assert_eq!(
        check("log: {}\n", ""),
        (Some(0), "standard input: OK (1 listener, 0 providers)\n".to_owned())
    );
    let (code, printed) = check(BAD, "");
    assert!(code == Some(2) && printed.contains("standard input:1:19: providers.a.ulr"), "{printed}");
    let (code, printed) = check(BAD, "--fix");
    assert!(code == Some(2) && printed.contains("does not take `-`"), "{printed}");
}

/// A config with secrets of every kind, none of which exists.
const SECRETS: &str = r#"
gateway: { listen: [{ address: "127.0.0.1:0", tls: { certificate: /no/such.pem, key: "${file:/no/such.key}" } }] }
control: { token: "${env:EGRET_NO_SUCH}" }
providers:
  a: { url: https://a.example, tls: { certificate: /no/such.pem, key: "${file:/no/such.key}" } }
accounts:
  basic: { provider: a, basic: { user: me, password: "${env:EGRET_NO_SUCH}" } }
  key: { provider: a, api_key: { header: x-key, value: "${file:/no/such}" }, placeholder: { text: __KEY_OF_A__ } }
  token: { provider: a, oauth2: { token_url: https://id.example/, client_id: me, client_secret: "${env:EGRET_NO_SUCH}" } }
  aws: { provider: a, sigv4: { access_key_id: "${env:EGRET_NO_SUCH}", secret_access_key: "${env:EGRET_NO_SUCH}", region: eu-west-1, service: s3 } }
exporters:
  otel: { type: otlp, endpoint: https://o.example, headers: { x-key: "${env:EGRET_NO_SUCH}" } }
cluster: { name: c, redis: { url: "rediss://r.example", password: "${env:EGRET_NO_SUCH}" }, key: "${env:EGRET_NO_SUCH}" }
flows:
  - name: keys
    match: { provider: a }
    remedies:
      - accounts: { use: [basic, key, token, aws] }
      - transform: { request: { headers: { set: { x-tenant: "${env:EGRET_NO_SUCH}" } } } }
    diagnoses: [traces: { export: otel }]
"#;

#[test]
fn everything_but_the_secrets_is_checked_without_them() {
    let directory = Directory::default();
    let run_with = |text: &str, arguments: &[&str]| {
        let file = directory.write("egret.yaml", text);
        let output = run(egret([arguments[0]]).arg(file).args(&arguments[1..]));
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, stderr) = run_with(SECRETS, &["check"]);
    assert!(code == Some(2) && stderr.contains("EGRET_NO_SUCH is not set"), "{stderr}");
    let (code, stderr) = run_with(SECRETS, &["check", "--no-secrets", "--deny-warnings"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let wrong = SECRETS.replace("region: eu-west-1", "regoin: eu-west-1");
    let (code, stderr) = run_with(&wrong, &["check", "--no-secrets"]);
    assert!(code == Some(2) && stderr.contains("did you mean `region`"), "{stderr}");
    let clear = SECRETS.replace("\"${env:EGRET_NO_SUCH}\" } }\n  key", "hunter2 } }\n  key");
    let (code, stderr) = run_with(&clear, &["check", "--no-secrets"]);
    assert!(
        code == Some(2) && !stderr.contains("hunter2") && stderr.contains("accounts.basic.basic.password"),
        "{stderr}"
    );
}

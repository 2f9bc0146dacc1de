//! `egret explain`: the flows of a request, the reasons why others do not match, and the effects of their
//! remedies.

use egret_tests::egret::egret;
use egret_tests::process::{Directory, run};
use serde_json::{Value, json};

const CONFIG: &str = r#"
providers:
  stripe: { url: https://api.stripe.example/v1 }
flows:
  - name: charges
    match: { provider: stripe, path: "/charges/{id}" }
    remedies:
      - timeout: { total: 5s }
      - retry: {}
  - name: large
    match: { method: POST, when: "request.body.amount > 100" }
  - name: billing
    match: { consumer: billing, header: { x-tier: "gold*" } }
    remedies:
      - timeout: { first_byte: 1s }
  - name: sampled
    match: { sample: 10 }
"#;

/// Runs `egret explain`. Returns exit code, standard output and standard error.
fn explain(config: &str, arguments: &[&str]) -> (i32, String, String) {
    let directory = Directory::default();
    let file = directory.write("egret.yaml", config);
    let mut command = egret(["explain", file.to_str().unwrap()]);
    let output = run(command.args(arguments));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn every_flow_says_whether_it_matches_and_why_not() {
    let (code, printed, stderr) =
        explain(CONFIG, &["--request", "GET https://api.stripe.example/v1/charges/ch_1?limit=3"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    for line in [
        "GET /charges/ch_1?limit=3 is sent to the provider `stripe`, at https://api.stripe.example:443",
        "  charges: matches, id = `ch_1`",
        "  large: does not match: its method is GET, not `POST`",
        "  billing: does not match: no header field `x-tier` has the value `gold*`",
        "  sampled: matches 10 % of such requests",
        "Remedies, outermost first",
        "  1. timeout of charges: ",
        "  2. retry of charges: ",
    ] {
        assert!(printed.contains(line), "{line:?} is not in\n{printed}");
    }
}

#[test]
fn headers_body_and_consumer_decide_too() {
    let arguments = [
        "--request",
        "POST http://127.0.0.1:8000/stripe/charges/7",
        "-H",
        "X-Tier: golden",
        "-d",
        r#"{"amount":200}"#,
        "--consumer",
        "billing",
        "--json",
    ];
    let (code, printed, stderr) = explain(CONFIG, &arguments);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let received: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(received["provider"], "stripe");
    assert_eq!(received["target"], "/charges/7");
    let matching: Vec<&Value> = received["flows"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|flow| flow["matches"] == true)
        .map(|flow| &flow["flow"])
        .collect();
    assert_eq!(json!(matching), json!(["charges", "large", "billing", "sampled"]));
    let remedies: Vec<String> = received["remedies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| format!("{}/{}", step["flow"], step["remedy"]))
        .collect();
    assert_eq!(remedies, [r#""charges"/"timeout""#, r#""charges"/"retry""#, r#""billing"/"timeout""#]);
}

#[test]
fn a_request_that_goes_nowhere_or_is_none_says_what_to_do() {
    for (request, code, message) in [
        ("GET http://127.0.0.1:8000/strip/x", 1, "`strip` is not a provider's name"),
        ("GET /charges", 1, "expected a whole URL"),
        ("GET https://h/a b", 2, "this request cannot be sent"),
        ("GET https://h/\r\nX: 1", 2, "this request cannot be sent"),
    ] {
        let (found, printed, stderr) = explain(CONFIG, &["--request", request]);
        assert_eq!((found, printed.as_str()), (code, ""), "{request}: {stderr}");
        assert!(stderr.contains(message), "{request}: {stderr}");
    }
    let (code, _, stderr) =
        explain("flows: [{ name: a, match: { path: b } }]", &["--request", "GET https://h/"]);
    assert_eq!(code, 2);
    assert!(
        stderr.contains("egret.yaml:1:") && stderr.contains("flows[0].match.path: `b` is not a path"),
        "{stderr}"
    );
    let (code, printed, _) = explain("", &["--request", "https://h/"]);
    assert_eq!(code, 0);
    assert!(printed.contains("no configured provider") && printed.contains("no flows"), "{printed}");
}

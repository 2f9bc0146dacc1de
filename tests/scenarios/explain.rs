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
        "GET /charges/ch_1?limit=3 goes to the provider `stripe`, at https://api.stripe.example:443",
        "Egress: api.stripe.example:443 is allowed, as the URL of a configured provider",
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
        ("GET http://127.0.0.1:8000/strip/x", 1, "404 with the error `unknown-provider`"),
        ("GET /charges", 1, "404 with the error `unknown-provider`"),
        ("GET https://h/a b", 1, "400 with the error `bad-request`"),
        ("GET ftp://h/", 1, "only the schemes http and https can be forwarded"),
        ("GET https://h/ HTTP/1.1\r\n\r\nGET /", 2, "contains a line end"),
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
    let line = "GET / goes to https://h:443, which is not a configured provider\n";
    assert!(printed.starts_with(line) && printed.contains("no flows"), "{printed}");
}

#[test]
fn a_request_is_named_with_or_without_the_option() {
    let directory = Directory::default();
    directory.write("egret.yaml", CONFIG);
    let explain = |words: &[&str]| {
        let output = run(egret(["explain"]).args(words).current_dir(directory.path()));
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout) + &text(output.stderr))
    };
    let (code, expected) = explain(&["--request", "GET /stripe/charges/7"]);
    assert!(code == 0 && expected.starts_with("GET /charges/7 goes to the provider `stripe`"), "{expected}");
    for words in [
        &["egret.yaml", "GET", "/stripe/charges/7"][..],
        &["GET", "/stripe/charges/7"],
        &["egret.yaml", "/stripe/charges/7"],
        &["egret.yaml", "-r", "GET http://localhost:8000/stripe/charges/7"],
        &["http://localhost:8000/stripe/charges/7"],
        &["--listener", "127.0.0.1:8000", "http://127.0.0.1:8000/stripe/charges/7"],
    ] {
        assert_eq!(explain(words), (0, expected.clone()), "{words:?}");
    }
    for (words, message) in [
        (&["egret.yaml"][..], "no request is named"),
        (&["egret.yaml", "GET"], "the URL is missing: write it after the method"),
        (&["egret.yaml", "get", "/stripe/charges/7"], "methods are case-sensitive; did you mean `GET`?"),
        (&["get", "/stripe/charges/7"], "methods are case-sensitive; did you mean `GET`?"),
        (&["-r", "GET /", "egret.yaml", "GET", "/"], "named twice"),
        (&["--listener", "127.0.0.1:9", "GET", "/"], "the config has no listener at 127.0.0.1:9"),
    ] {
        let (code, printed) = explain(words);
        assert!(code == 2 && printed.contains(message), "{words:?}: {printed}");
    }
}

#[test]
fn the_client_of_a_redirected_listener_knows_no_gateway() {
    let config = "gateway: { listen: [ { address: '127.0.0.1:15001', redirect: true } ] }\n\
                  providers: { one: { url: 'http://one.example' } }\n\
                  interception: { hosts: [ api.example ], tunnel: [ bank.example ] }\n";
    for (url, line) in [
        ("http://one.example/x", "GET /x goes to the provider `one`, at http://one.example:80"),
        (
            "https://api.example/x",
            "GET /x goes to https://api.example:443, which is not a configured provider",
        ),
        ("https://bank.example/x", "GET opens a tunnel to bank.example:443"),
    ] {
        let (code, printed, stderr) = explain(config, &[url]);
        assert_eq!((code, stderr.as_str()), (0, ""), "{url}");
        assert!(printed.starts_with(line), "{url}: {printed}");
    }
}

#[test]
fn the_client_of_a_socks_listener_opens_tunnels() {
    let config = "gateway: { listen: [ { address: '127.0.0.1:1080', socks5: true } ] }\n\
                  providers: { one: { url: 'http://one.example' } }\n\
                  interception: { hosts: [ api.example ], tunnel: [ bank.example ] }\n";
    for (url, line) in [
        ("http://one.example/x", "GET /x goes to the provider `one`, at http://one.example:80"),
        (
            "https://api.example/x",
            "GET /x goes to https://api.example:443, which is not a configured provider",
        ),
        ("https://bank.example/x", "GET opens a tunnel to bank.example:443"),
        ("http://bank.example/x", "GET opens a tunnel to bank.example:80"),
    ] {
        let (code, printed, stderr) = explain(config, &[url]);
        assert_eq!((code, stderr.as_str()), (0, ""), "{url}");
        assert!(printed.starts_with(line), "{url}: {printed}");
    }
}

#[test]
fn each_way_to_the_gateway_is_explained() {
    let config = "gateway:\n  listen:\n  - 127.0.0.1:8000\n  - { address: 127.0.0.1:8002, provider: maps, keep_host: true }\n\
                  providers: { maps: { url: 'http://maps.example/v2' }, bank: { url: 'https://bank.example' } }\n\
                  interception: { hosts: [api.example], tunnel: [bank.example] }\n\
                  flows: [ { name: f, match: { host: api.example }, remedies: [ { fixed-response: { status: 204 } } ] } ]\n";
    for (words, code, line) in [
        (
            &["http://127.0.0.1:8002/x"][..],
            0,
            "GET /x goes to the provider `maps`, at http://maps.example:80",
        ),
        (
            &["http://127.0.0.1:8000/v2/x", "-H", "Host: maps.example"],
            0,
            "GET /x goes to the provider `maps`",
        ),
        (
            &["http://127.0.0.1:8000/x", "-H", "x-egret-host: h.example"],
            0,
            "GET /x goes to http://h.example:80, which",
        ),
        (&["https://api.example/x"], 0, "Answer: a remedy responds with 204"),
        (&["https://api.example/x", "-H", "Host: other.example"], 1, "421 with the error `misdirected`"),
        (&["CONNECT", "api.example:443"], 0, "Answer: Egret serves the requests in the tunnel itself"),
        (&["CONNECT", "bank.example:443"], 0, "Answer: Egret relays the tunnel unread"),
        (&["CONNECT", "169.254.169.254:80"], 1, "egress-denied"),
        (&["CONNECT", "h.example:443", "--listener", "127.0.0.1:8002"], 1, "connect-not-allowed"),
    ] {
        let (found, printed, stderr) = explain(config, words);
        assert_eq!(found, code, "{words:?}: {printed}{stderr}");
        assert!(printed.contains(line) || stderr.contains(line), "{words:?}: {printed}{stderr}");
    }
}

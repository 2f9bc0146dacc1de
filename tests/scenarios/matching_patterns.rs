//! Regular expressions, parameters in hosts, and stars within a path: no spelling avoids the flow that they
//! select.

use egret_tests::egret::{Config, Egret, egret};
use egret_tests::process::{Directory, run};
use egret_tests::provider::Provider;

const FLOWS: &str = r#"
flows:
  - name: expression
    match: { path: 'regex:/v\d+/(?P<kind>charges|refunds)/(?P<id>[^/]+)' }
    remedies:
      - transform: { request: { headers: { set: { x-kind: "${params.kind}", x-id: "${params.id}" } } } }
  - name: tenant
    match: { host: ["{tenant}.localhost", "{tenant}"] }
    remedies:
      - transform: { request: { headers: { set: { x-tenant: "${params.tenant}" } } } }
  - name: star
    match: { path: "/v1/*/items/*" }
    remedies:
      - transform: { request: { headers: { set: { x-star: "yes" } } } }
  - name: values
    match: { header: { x-tier: "regex:gold|silver-\\d" }, query: { q: "regex:[a-z ]+" }, host: "regex:.*localhost" }
    remedies:
      - transform: { request: { headers: { set: { x-values: "yes" } } } }
"#;

fn start(origin: &Provider) -> Egret {
    Config::with_origin(origin.url()).gateway("dns: { resolver: system }").flows(FLOWS).start()
}

#[test]
fn an_expression_sees_every_reading_of_a_path_and_captures_its_groups() {
    let origin = Provider::plain();
    let egret = start(&origin);
    let spelled = [
        ("/v1/charges/7", "7"),
        ("/v2/charges/7/", "7"),
        ("//v1//charges///7", "7"),
        ("/v1/%63harges/%37", "7"),
        ("/v1%2Fcharges/7", "7"),
        ("/v1/charges;a=b/7", "7"),
        ("/v1/x/../charges/7", "7"),
        ("/v1/charges/a%2Fb", "a%2Fb"),
    ];
    for (path, id) in spelled {
        egret.get(&format!("{path}?x")).assert_forwarded(200);
        let request = origin.requests().last().unwrap().clone();
        assert_eq!((request.values("x-kind"), request.values("x-id")), (vec!["charges"], vec![id]), "{path}");
    }
    for path in ["/v1/charges", "/v1/charges/7/8", "/x/v1/charges/7", "/v1/Charges/7", "/v/charges/7"] {
        egret.get(path).assert_forwarded(200);
        assert!(origin.requests().last().unwrap().values("x-kind").is_empty(), "{path}");
    }
    egret.assert_well();
}

#[test]
fn a_label_of_a_host_is_a_parameter() {
    let origin = Provider::plain();
    let egret = start(&origin);
    let port = origin.address().port();
    for host in ["localhost", "LocalHost."] {
        egret.client().get(format!("{host}:{port}"), "/a").response().assert_forwarded(200);
        assert_eq!(origin.requests().last().unwrap().values("x-tenant"), ["localhost"], "{host}");
    }
    egret.client().get(origin.address(), "/a").response().assert_forwarded(200);
    assert!(origin.requests().last().unwrap().values("x-tenant").is_empty(), "an address has no labels");
    let (_, printed, _) = explain(FLOWS, "GET http://acme.localhost/a");
    assert!(printed.contains("tenant: matches, tenant = `acme`"), "{printed}");
    let (_, printed, _) = explain(FLOWS, "GET http://b.acme.localhost/a");
    assert!(printed.contains("tenant: does not match: its host is `b.acme.localhost`"), "{printed}");
}

#[test]
fn a_star_within_a_path_is_one_segment_and_values_match_whole() {
    let origin = Provider::plain();
    let egret = start(&origin);
    for (path, is_for_flow) in [
        ("/v1/a/items", true),
        ("/v1/a/items/7/8", true),
        ("/v1/a%2Fb/items", true),
        ("/v1/items", false),
        ("/v1/a/b/items", false),
    ] {
        egret.get(path).assert_forwarded(200);
        let received = origin.requests().last().unwrap().clone();
        assert_eq!(!received.values("x-star").is_empty(), is_for_flow, "{path}");
    }
    let authority = format!("localhost:{}", origin.address().port());
    for (target, tier, is_for_flow) in [
        ("/?q=a+b", "gold", true),
        ("/?q=%61", "silver-7", true),
        ("/?q=a1", "gold", false),
        ("/?q=a", "golden", false),
        ("/?q=a", "silver-77", false),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {authority}\r\nx-tier: {tier}\r\n\r\n");
        egret.client().send(request).response().assert_forwarded(200);
        let received = origin.requests().last().unwrap().clone();
        assert_eq!(!received.values("x-values").is_empty(), is_for_flow, "{target} {tier}");
    }
}

fn explain(config: &str, request: &str) -> (Option<i32>, String, String) {
    let directory = Directory::default();
    let file = directory.write("egret.yaml", config);
    let output = run(&mut egret(["explain", file.to_str().unwrap(), "--request", request]));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_bad_pattern_is_refused_where_it_stands() {
    let directory = Directory::default();
    for (pattern, problem) in [
        (r#"path: "regex:/v1/(""#, "3:20: flows[0].match.path: `/v1/(` is not a regular expression"),
        (
            r#"path: "regex:v1/.*""#,
            "3:20: flows[0].match.path: the regular expression `v1/.*` matches no path",
        ),
        (r#"path: "regex:/(?=x)""#, "3:20: flows[0].match.path: `/(?=x)` is not a regular expression"),
        (r#"path: "regex:/[a-z]{1000}{9}""#, "3:20: flows[0].match.path: the regular expression"),
        (r#"path: "/a*/b""#, "3:20: flows[0].match.path: `/a*/b`: a star must be a whole segment"),
        (r#"host: "regex:*.a.example""#, r"write `regex:.*\.a\.example`"),
        (
            r#"host: "{a}b.example""#,
            "3:20: flows[0].match.host: `{a}b.example` is not a host: a parameter must be",
        ),
        (r#"header: { x: "regex:(" }"#, "3:27: flows[0].match.header.x: `(` is not a regular expression"),
    ] {
        let text = format!("flows:\n  - name: f\n    match: {{ {pattern} }}\n");
        let output = run(egret(["check"]).arg(directory.write("bad.yaml", &text)));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}\n{stderr}");
        assert!(stderr.contains(problem), "no {problem:?} in\n{stderr}");
    }
}

//! Routing by query parameters: the provider gets the rest of the query byte for byte, and no record shows
//! the parameters.

use std::fs;

use egret_tests::egret::{Config, egret};
use egret_tests::process::{Directory, run};
use egret_tests::provider::Provider;
use egret_tests::wait;

const LISTEN: [&str; 1] = ["{ address: \"127.0.0.1:0\", route_by_query: true }"];

#[test]
fn the_parameters_route_and_the_rest_is_forwarded_byte_for_byte() {
    let origin = Provider::plain();
    let there = origin.address();
    let egret = Config::default().listen(LISTEN).start();
    for (query, forwarded) in [
        (format!("lunar_original_host={there}"), "/a"),
        (format!("egret_host={there}&egret_scheme=http&egret_consumer=web"), "/a"),
        (format!("x=%2f+&&egret%5Fhost={there}&y&lunar_consumer_tag=w%20b&=z"), "/a?x=%2f+&&y&=z"),
        (format!("%6cunar_original_host={}&", there.to_string().replace(':', "%3A")), "/a?"),
        (format!("a=b&lunar_original_scheme=HTTP&lunar_original_host={there}"), "/a?a=b"),
    ] {
        egret.get_with(&format!("/a?{query}"), "").assert_forwarded(200);
        let received = origin.requests().last().unwrap().clone();
        assert_eq!(received.target(), forwarded, "{query}");
        assert_eq!(received.values("host"), [there.to_string()]);
        for name in ["x-egret-host", "x-egret-scheme", "x-egret-consumer"] {
            assert!(received.values(name).is_empty(), "{name}");
        }
    }
    egret.assert_well();
}

#[test]
fn a_body_and_the_next_request_follow_a_rewritten_head() {
    let origin = Provider::plain();
    let there = origin.address();
    let egret = Config::default().listen(LISTEN).start();
    let own = egret.address();
    let post =
        format!("POST /a?egret_host={there}&b HTTP/1.1\r\nHost: {own}\r\nContent-Length: 4\r\n\r\nbody");
    let get = format!("GET /c?egret_consumer=x&egret_host={there} HTTP/1.1\r\nHost: {own}\r\n\r\n");
    let long = format!(
        "POST /d?egret_host={there} HTTP/1.1\r\nHost: {own}\r\nX: {}\r\nContent-Length: 40000\r\n\r\n{}",
        "x".repeat(16_000),
        "y".repeat(40_000)
    );
    let mut client = egret.client();
    client.send(format!("{post}{get}{long}{post}"));
    for _ in 0..4 {
        client.response().assert_forwarded(200);
    }
    let received = origin.requests();
    let seen: Vec<_> = received.iter().map(|request| (request.target(), request.body.len())).collect();
    assert_eq!(seen, [("/a?b", 4), ("/c", 0), ("/d", 40_000), ("/a?b", 4)]);
}

#[test]
fn twice_or_in_disagreement_is_refused_and_nothing_is_sent() {
    let origin = Provider::plain();
    let there = origin.address();
    let egret = Config::default().listen(LISTEN).start();
    for (query, fields, detail) in [
        (format!("egret_host={there}&egret_host={there}"), String::new(), "names the host more than once"),
        (format!("egret_host={there}&lunar_original_host=b"), String::new(), "names the host more than once"),
        (format!("egret_host={there}&egret%5fhost=b"), String::new(), "names the host more than once"),
        ("egret_host=".to_owned(), String::new(), "is empty"),
        (format!("egret_host={there}%0d%0ax-a:%20b"), String::new(), "control characters"),
        (
            format!("egret_host={there}"),
            "x-egret-host: b.example\r\n".to_owned(),
            "different values for the host",
        ),
        (
            format!("egret_host={there}&egret_scheme=http"),
            "x-lunar-scheme: https\r\n".to_owned(),
            "the scheme",
        ),
        (format!("egret_host={there}&egret_scheme=ftp"), String::new(), "only the schemes http and https"),
    ] {
        let response = egret.get_with(&format!("/a?{query}"), &fields);
        response.assert_generated(400, "bad-request");
        assert!(response.text().contains(detail), "{query}: {}", response.text());
    }
    assert_eq!(origin.connections(), 0);
    egret
        .get_with(&format!("/a?egret_host={there}"), &format!("x-lunar-host: {there}\r\n"))
        .assert_forwarded(200);
}

#[test]
fn other_ways_still_apply_and_other_listeners_forward_the_parameters() {
    let origin = Provider::plain();
    let there = origin.address();
    let egret = Config::with_origin(origin.url()).listen(["\"127.0.0.1:0\"", LISTEN[0]]).start();
    let by_query = egret.listener(1);
    let client = || egret_tests::http::Client::connect(by_query);
    client().get(by_query, "/origin/a?b").response().assert_forwarded(200);
    client().get(there, "/a?egret_scheme=http").response().assert_forwarded(200);
    client()
        .send(format!("GET http://{there}/a?egret_host=b.example HTTP/1.1\r\nHost: b\r\n\r\n"))
        .response()
        .assert_forwarded(200);
    egret.get_with("/origin/a?egret_host=b.example&lunar_consumer_tag=x", "").assert_forwarded(200);
    let targets: Vec<_> = origin.requests().iter().map(|request| request.target().to_owned()).collect();
    assert_eq!(targets, ["/a?b", "/a", "/a", "/a?egret_host=b.example&lunar_consumer_tag=x"]);
}

#[test]
fn query_routing_obeys_egress_and_hides_its_parameters() {
    let origin = Provider::plain();
    let there = origin.address();
    let flows = "exporters: { kept: { type: ndjson, directory: ./kept } }\n\
                 flows:\n\
                 - { name: web, match: { consumer: web, path: /a, query: { b: '*' } },\n    \
                     diagnoses: [har: { export: kept, obfuscate: false, detect_secrets: false }] }\n";
    let mut egret = Config::default()
        .listen(LISTEN)
        .gateway("access_log: { output: access.log }")
        .gateway("egress: { deny: [{ host: \"regex:(.+\\\\.)?denied\\\\.example\" }] }")
        .flows(flows)
        .start();
    for host in ["denied.example", "a.DENIED.example.", "x.denied.example:81"] {
        egret.get_with(&format!("/a?egret_host={host}"), "").assert_generated(403, "egress-denied");
    }
    egret.get_with(&format!("/a?b=1&egret_host={there}&egret_consumer=web"), "").assert_forwarded(200);
    egret
        .get_with("/refused?egret_host=a&lunar_original_host=b&c=1", "")
        .assert_generated(400, "bad-request");
    let log = || fs::read_to_string(egret.directory().path().join("access.log")).unwrap_or_default();
    wait::until_true("five lines are logged", || log().lines().count() == 5);
    let log = log();
    assert!(log.contains("path=/a status=200") && log.contains("/refused"), "{log}");
    egret.terminate();
    assert!(egret.until_ended().success());
    let files = fs::read_dir(egret.directory().path().join("kept")).unwrap();
    let kept: String = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    assert!(kept.contains(&format!("http://{there}/a?b=1")), "{kept}");
    for text in [log, kept] {
        assert!(!text.contains("egret_") && !text.contains("lunar_"), "{text}");
    }
}

#[test]
fn explain_and_check_know_the_listener() {
    let directory = Directory::default();
    let config = "gateway: { listen: [{ address: \"127.0.0.1:8000\", route_by_query: true }] }\n\
                  providers: { maps: { url: \"http://maps.example/v2\" } }\n\
                  flows: [{ name: web, match: { consumer: web } }]\n";
    let file = directory.write("egret.yaml", config);
    let request = "GET http://127.0.0.1:8000/v2/a?lunar_original_host=maps.example&b=1&egret_consumer=web";
    let output = run(&mut egret(["explain", file.to_str().unwrap(), "--request", request]));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        printed.contains("GET /a?b=1 goes to the provider `maps`, at http://maps.example:80"),
        "{printed}"
    );
    assert!(printed.contains("web: matches"), "{printed}");
    let bad = config.replace("route_by_query: true", "route_by_query: true, provider: maps");
    let output = run(egret(["check"]).arg(directory.write("bad.yaml", bad)));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("gateway.listen[0].route_by_query: not allowed on a listener with a `provider`"),
        "{stderr}"
    );
}

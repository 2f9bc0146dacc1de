//! Imported flows with conditions on the response, patterns, scripts, and routing by the query.

use egret_tests::imported::Imported;
use egret_tests::provider::{Provider, ok};
use egret_tests::recorded::{entries, files};
use egret_tests::wait::{until, until_true};

#[test]
fn the_response_decides_what_is_marked_and_archived() {
    let provider = Provider::with_responses(|request| {
        let status = if request.target().ends_with("/bad") { "404 Not Found" } else { "200 OK" };
        format!("HTTP/1.1 {status}\r\nx-items: 7\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let imported = Imported::start("shapes", "api.shapes.example", provider.address());
    let get = |path: &str| imported.send("GET", path, "x-version: v2\r\nx-kind: book\r\n", "");
    assert_eq!((get("/things/good").status, get("/things/good").field("x-marked")), (200, None));
    assert_eq!((get("/things/bad").status, get("/things/bad").field("x-marked")), (404, Some("yes")));
    // Another version is not the flow's.
    assert_eq!(imported.send("GET", "/things/bad", "x-version: beta\r\n", "").field("x-marked"), None);
    let directory = imported.egret.directory().join("har");
    let found = until("both failures are archived", || {
        Some(entries(&files(&directory))).filter(|entries| entries.len() >= 2)
    });
    assert!(found.iter().all(|entry| entry["response"]["status"] == 404), "{found:?}");
    until_true("the values are counted", || {
        let metrics = imported.egret.control_get("/metrics").text().to_owned();
        metrics.lines().any(|line| {
            line.starts_with("egret_custom_items_bucket")
                && line.contains("kind=\"book\"")
                && line.contains("le=\"10\"")
        })
    });
}

#[test]
fn a_body_is_obfuscated_and_a_field_set_from_the_environment() {
    let provider = Provider::plain();
    let imported = Imported::start("shapes", "api.shapes.example", provider.address());
    let fields = "x-version: v2\r\nContent-Type: application/json\r\n";
    assert_eq!(
        imported.send("POST", "/things/1", fields, "{\"email\":\"kim@example.com\",\"n\":1}").status,
        200
    );
    let request = provider.only_request();
    let body = String::from_utf8(request.body.clone()).unwrap();
    assert!(!body.contains("kim@") && body.contains("\"n\":1"), "{body}");
    assert_eq!(request.values("x-from"), ["token-of-the-second"]);
}

#[test]
fn a_login_gets_its_credentials_in_the_body() {
    let provider = Provider::plain();
    let imported = Imported::start("shapes", "api.shapes.example", provider.address());
    let fields = "Content-Type: application/json\r\n";
    assert_eq!(
        imported.send("POST", "/login", fields, "{\"grant_type\":\"client_credentials\"}").status,
        200
    );
    let body = String::from_utf8(provider.only_request().body).unwrap();
    for member in ["\"client_id\":\"web\"", "\"client_secret\":\"password-of-the-reader\""] {
        assert!(body.contains(member), "{member} is not in {body}");
    }
}

#[test]
fn a_script_runs_on_the_request() {
    let provider = Provider::plain();
    let imported = Imported::start("shapes", "api.shapes.example", provider.address());
    // Where it takes longer than a millisecond, on a busy machine, the exchange goes on without it.
    until_true("the script runs in time", || {
        assert_eq!(imported.get("/scripted").status, 200);
        provider.requests().last().unwrap().values("x-scripted") == ["GET"]
    });
}

#[test]
fn the_query_names_the_target() {
    let provider = Provider::responding(ok("found"));
    let imported = Imported::start("shapes", "api.shapes.example", provider.address());
    let request = format!(
        "GET /things/1?a=1&lunar_original_host={}&lunar_original_scheme=http&b=2 HTTP/1.1\r\nHost: {}\r\n\r\n",
        provider.address(),
        imported.egret.address()
    );
    assert_eq!(imported.egret.client().send(request).response().text(), "found");
    assert_eq!(provider.only_request().target(), "/things/1?a=1&b=2");
}

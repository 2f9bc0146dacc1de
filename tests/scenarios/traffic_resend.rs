//! A recorded request is sent again by the gateway itself, through its flows, for the owner of the token
//! alone.

use std::time::{Duration, Instant};

use egret_tests::config_api::ConfigApi;
use egret_tests::egret::{Config, Egret};
use egret_tests::http::{Client, Response};
use egret_tests::intercepted::{Intercepting, SecureProvider, config};
use egret_tests::provider::Provider;
use egret_tests::traffic::LiveTraffic;
use egret_tests::wait;
use serde_json::{Value, json};

const SECRET: &str = "sk_live_51HxAbCdEfGh23456789JkLmNp";

/// Sends a POST with a secret and this body.
fn post(egret: &Egret, path: &str, fields: &str, body: &str) -> Response {
    let host = egret.address();
    let request = format!(
        "POST /origin{path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {SECRET}\r\n\
         Content-Type: application/json\r\n{fields}\r\n{body}"
    );
    egret.client().send(request).response()
}

fn sized(body: &str) -> String {
    format!("Content-Length: {}\r\n", body.len())
}

fn resend(egret: &Egret, id: &Value, query: &str) -> Response {
    ConfigApi::of(egret).call(&format!("POST /api/v1/traffic/{id}/resend{query}"), "", "")
}

/// Time that the gateway waits until the new exchange is recorded.
const RECORDED_MAX: Duration = Duration::from_secs(2);

/// Sends it again until the response names the new exchange, and returns that response and how often it was
/// sent. The thread that records has the lowest priority, so on a busy machine it may be too late.
fn resend_recorded(egret: &Egret, id: &Value, query: &str) -> (Response, usize) {
    let mut sent = 0;
    let response = wait::until("the new exchange is recorded in time", || {
        let start = Instant::now();
        let response = resend(egret, id, query);
        assert_eq!(response.status, 200, "{}", response.text());
        sent += 1;
        let is_recorded = !response.json()["id"].is_null();
        assert!(is_recorded || start.elapsed() >= RECORDED_MAX, "{}", response.text());
        is_recorded.then_some(response)
    });
    (response, sent)
}

/// The exchange that the response of a repetition names.
fn resent<'a>(listed: &'a [Value], response: &Response) -> &'a Value {
    let id = &response.json()["id"];
    listed.iter().find(|exchange| exchange["id"] == *id).unwrap()
}

#[test]
fn the_provider_gets_the_same_request_and_the_reader_gets_no_secret() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    let traffic = LiveTraffic::open(&egret);
    let body = format!(r#"{{"amount":7,"api_key":"{SECRET}"}}"#);
    post(&egret, "/charges?page=2", &sized(&body), &body).assert_forwarded(200);
    let first = traffic.until("provider=origin", 1).remove(0);
    assert_eq!(
        traffic.details(&first)["resend"],
        json!({ "possible": true, "acts_again": true, "reason": null })
    );
    let unconfirmed = resend(&egret, &first["id"], "");
    assert_eq!(unconfirmed.status, 409, "{}", unconfirmed.text());
    assert_eq!(origin.requests().len(), 1);
    let (response, sent) = resend_recorded(&egret, &first["id"], "?confirmed=true");
    let requests = origin.requests();
    assert_eq!(requests.len(), 1 + sent);
    for other in &requests[1..] {
        assert_eq!((&requests[0].line, &requests[0].body), (&other.line, &other.body));
        assert_eq!(other.values("authorization"), [format!("Bearer {SECRET}")]);
    }
    assert_eq!(response.json()["status"], 200);
    let listed = traffic.until("provider=origin", 1 + sent);
    let second = resent(&listed, &response);
    assert_eq!((&second["resent_of"], first.get("resent_of")), (&first["id"], None));
    for text in [response.text().to_owned(), traffic.details(second).to_string()] {
        assert!(!text.contains(SECRET), "{text}");
    }
}

#[test]
fn flows_apply_to_it() {
    let origin = Provider::plain();
    let rest = "quotas: { few: { limit: 1, window: 1h } }\n\
        flows: [{ name: charges, match: { provider: origin }, remedies: [{ limit: { quota: few } }] }]\n";
    let egret = Config::with_origin(origin.url()).flows(rest).start();
    let traffic = LiveTraffic::open(&egret);
    egret.get("/once").assert_forwarded(200);
    let first = traffic.until("provider=origin", 1).remove(0);
    let (response, sent) = resend_recorded(&egret, &first["id"], "");
    assert_eq!(response.json()["status"], 429);
    let listed = traffic.until("error=quota-exceeded", sent);
    assert_eq!(resent(&listed, &response)["resent_of"], first["id"]);
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn a_request_out_of_an_intercepted_tunnel_goes_to_the_same_provider() {
    let origin = Provider::plain();
    let secure = SecureProvider::before(&origin.url());
    let intercepting = Intercepting::start(&config(&secure, "interception: {}\n"), &secure);
    let traffic = LiveTraffic::open(&intercepting.egret);
    assert_eq!(intercepting.get(&secure, "/inside?a=1").status, 200);
    let first = traffic.until("provider=origin", 1).remove(0);
    assert_eq!(first["intercepted"], true);
    let (response, sent) = resend_recorded(&intercepting.egret, &first["id"], "");
    assert_eq!(response.json()["status"], 200);
    let listed = traffic.until("provider=origin", 1 + sent);
    let second = resent(&listed, &response);
    assert_eq!((&second["url"], &second["resent_of"]), (&first["url"], &first["id"]));
    let lines: Vec<_> = origin.requests().into_iter().map(|request| request.line).collect();
    assert_eq!(lines, vec!["GET /inside?a=1 HTTP/1.1"; 1 + sent]);
}

#[test]
fn an_incomplete_record_is_not_resent() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).control("traffic: { bodies: 64B }").start();
    let traffic = LiveTraffic::open(&egret);
    let long = format!(r#"{{"text":"{}"}}"#, "x".repeat(100));
    post(&egret, "/long", &sized(&long), &long).assert_forwarded(200);
    post(&egret, "/chunked", "Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n").assert_forwarded(200);
    for (path, reason) in [("/long", "longer than `control.traffic.bodies`"), ("/chunked", "came in chunks")]
    {
        let exchange = traffic.until(&format!("path={path}"), 1).remove(0);
        let refused = resend(&egret, &exchange["id"], "?confirmed=true");
        assert_eq!(refused.status, 409, "{path}");
        let details = traffic.details(&exchange);
        for told in [refused.text().to_owned(), details["resend"]["reason"].to_string()] {
            assert!(told.contains(reason), "{path}: {told}");
        }
        assert_eq!(details["resend"]["possible"], false);
    }
    assert_eq!(resend(&egret, &json!(9_999), "").status, 404);
    assert_eq!(resend(&egret, &json!(1), "?confirm=true").status, 400);
    assert_eq!(origin.requests().len(), 2);
}

#[test]
fn only_the_token_holder_can_resend() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    let traffic = LiveTraffic::open(&egret);
    egret.get("/once").assert_forwarded(200);
    let id = traffic.until("provider=origin", 1).remove(0)["id"].clone();
    let (host, token) = (egret.control(), ConfigApi::of(&egret).token().to_owned());
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let status = |method: &str, fields: String| {
        let line = format!("{method} /api/v1/traffic/{id}/resend HTTP/1.1\r\n");
        Client::connect(host).send(format!("{line}{fields}Content-Length: 0\r\n\r\n")).response().status
    };
    assert_eq!(status("POST", format!("Host: {host}\r\n")), 401);
    for origin in ["Origin: https://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site"] {
        assert_eq!(status("POST", format!("Host: {host}\r\n{bearer}{origin}\r\n")), 403, "{origin}");
    }
    assert_eq!(status("POST", format!("Host: evil.example\r\n{bearer}")), 421);
    assert_eq!(status("GET", format!("Host: {host}\r\n{bearer}")), 405);
    assert_eq!(origin.requests().len(), 1);
    let reading = Config::with_origin(origin.url()).control("config_changes: off").start();
    let traffic = LiveTraffic::open(&reading);
    reading.get("/once").assert_forwarded(200);
    let exchange = traffic.until("provider=origin", 1).remove(0);
    let refused = resend(&reading, &exchange["id"], "");
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert_eq!(origin.requests().len(), 2);
}

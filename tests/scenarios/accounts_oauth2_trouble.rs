//! Token endpoints that fail, send invalid responses, hang or redirect: each has a defined response and a
//! back-off, and no secret is exposed.

use std::time::Duration;

use egret_tests::egret::{Config, Egret};
use egret_tests::http::Response;
use egret_tests::peers::{AuthorizationServer, Nginx};
use egret_tests::pki::Authority;
use egret_tests::process::Directory;
use egret_tests::provider::{Provider, ok};
use egret_tests::wait;

const SECRET: &str = "s3cr3t-of-the-client-0123456789";
const GRANTED: &str = r#"{"access_token":"the-granted-token","token_type":"bearer"}"#;

fn with_endpoint(config: Config, token_url: &str, more: &str) -> Config {
    let [client, _] = AuthorizationServer::CLIENT;
    config.flows(format!(
        "accounts:\n  main:\n    provider: origin\n    oauth2: {{ token_url: '{token_url}', client_id: '{client}', client_secret: '${{env:SECRET}}'{more} }}\n\
         flows: [{{ name: f, match: {{ provider: origin }}, remedies: [{{ authenticate: {{ account: main }} }}] }}]\n"
    ))
}

fn start(config: &Config) -> Egret {
    Egret::start_with(config, |command| {
        command.env("SECRET", SECRET);
    })
}

fn ok_response(status: &str, fields: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Returns the reported reason for the missing token. The response must be retriable and must not reveal
/// secrets.
fn why(response: &Response) -> String {
    response.assert_generated(503, "account-unavailable");
    let retry_after_s: u64 = response.field("retry-after").unwrap().parse().unwrap();
    assert!((1..=600).contains(&retry_after_s), "{response:?}");
    let detail = response.json()["detail"].as_str().unwrap().to_owned();
    assert!(!detail.contains("hunter2") && !detail.contains(SECRET), "{detail}");
    detail
}

fn assert_discreet(egret: &Egret) {
    egret.until_logged("a token could not be fetched");
    let log = egret.log();
    for secret in [SECRET, "hunter2", "Basic ", "the-granted-token"] {
        assert!(!log.contains(secret), "{secret} is in the log: {log}");
    }
}

#[test]
fn an_endpoint_that_responds_something_else_is_named_and_left_alone() {
    let page = ok_response("200 OK", "Content-Type: text/html\r\n", "<html>hunter2</html>");
    let refusal = r#"{"error":"invalid_client","error_description":"hunter2"}"#;
    let long = format!(r#"{{"access_token":"{}"}}"#, "a".repeat(70 << 10));
    let split = r#"{"access_token":"a\r\nX-Smuggled: hunter2","token_type":"bearer"}"#;
    for (response, says) in [
        (page, "returned something other than JSON"),
        (ok_response("401 Unauthorized", "", refusal), "refused the request: 401 invalid_client"),
        (ok_response("400 Bad", "", "hunter2"), "refused the request: 400"),
        (ok_response("503 Busy", "", "hunter2"), "responded with 503"),
        (ok_response("200 OK", "", &long), "response exceeds 65536 bytes"),
        (ok_response("200 OK", "", split), "returned no token that is valid"),
        (ok_response("200 OK", "", &GRANTED.replace("bearer", "mac")), "not a bearer token"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhunter2".to_vec(), "response was truncated"),
        (b"hunter2\r\n\r\n".to_vec(), "has not responded (bad-response)"),
        (Vec::new(), "has not responded (provider-closed)"),
    ] {
        let endpoint = Provider::scripted(move |peer| {
            peer.request();
            peer.send(&response);
        });
        let origin = Provider::plain();
        let long = ", retry: { base: 1m, max: 1m }";
        let egret = start(&with_endpoint(Config::with_origin(origin.url()), &endpoint.url(), long));
        for _ in 0..5 {
            let detail = why(&egret.get("/a"));
            assert!(
                detail.starts_with("there is no token for the account main: the token endpoint")
                    && detail.contains(says),
                "{detail}"
            );
        }
        // The first call asked the endpoint, the others did not, and none was sent without a token.
        assert_eq!((endpoint.requests().len(), origin.requests().len()), (1, 0));
        assert_discreet(&egret);
    }
}

#[test]
fn a_secret_follows_no_redirect() {
    let elsewhere = Provider::responding(ok_response("200 OK", "", GRANTED));
    let location = format!("Location: {}/token\r\n", elsewhere.url());
    for status in ["302 Found", "307 Temporary Redirect", "308 Permanent Redirect"] {
        let endpoint = Provider::responding(ok_response(status, &location, ""));
        let origin = Provider::plain();
        let egret = start(&with_endpoint(Config::with_origin(origin.url()), &endpoint.url(), ""));
        assert!(
            why(&egret.get("/a"))
                .contains("redirects are not followed, to protect the secret: correct its URL")
        );
        assert_discreet(&egret);
    }
    assert_eq!(elsewhere.connections(), 0);
}

#[test]
fn an_endpoint_that_hangs_holds_nobody_up_for_longer_than_is_allowed() {
    let hanging = || {
        Provider::scripted(|peer| {
            peer.request();
            peer.stall();
        })
    };
    let origin = Provider::plain();
    let config = || Config::with_origin(origin.url());
    let endpoint = hanging();
    let egret = start(&with_endpoint(config(), &endpoint.url(), ", timeout: 300ms"));
    assert!(why(&egret.get("/a")).contains("has not responded (total-timeout)"));
    // On a busy machine the time may be over before the request is sent.
    assert!(endpoint.requests().len() <= 1);
    let endpoint = hanging();
    let egret = start(&with_endpoint(config(), &endpoint.url(), ", wait_max: 300ms, timeout: 1h"));
    assert!(
        why(&egret.get("/a"))
            .contains("there is still no token for the account main after 300ms (`wait_max`)")
    );
    // The first request is still in progress.
    why(&egret.get("/a"));
    endpoint.until_requested(1);
    assert_eq!((endpoint.requests().len(), origin.requests().len()), (1, 0));

    // An endpoint that sends a byte now and then is treated the same.
    let dripping = Provider::scripted(|peer| {
        peer.request();
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
        while peer.send(" ") && !peer.stopped() {
            std::thread::park_timeout(Duration::from_millis(20));
        }
    });
    let egret = start(&with_endpoint(config(), &dripping.url(), ", timeout: 300ms"));
    let reason = why(&egret.get("/a"));
    // On a busy machine the time may be over before the head has arrived.
    let is_late = ["response was truncated", "has not responded"].iter().any(|late| reason.contains(late));
    assert!(is_late, "{reason}");
    egret.assert_well();
}

#[test]
fn a_wrong_secret_is_told_by_its_name_alone() {
    let (origin, server) = (Provider::plain(), AuthorizationServer::start());
    let egret = start(&with_endpoint(
        Config::with_origin(origin.url()),
        &server.token_url(),
        ", retry: { base: 30s }",
    ));
    for _ in 0..3 {
        assert!(why(&egret.get("/a")).contains("the token endpoint refused the request: 401 invalid_client"));
    }
    assert_eq!((server.received().len(), origin.requests().len()), (1, 0));
    // The back-off is longer than after a transient failure, when it would be half a minute at most.
    assert!(egret.get("/a").field("retry-after").unwrap().parse::<u64>().unwrap() > 60);
    assert_discreet(&egret);
}

#[test]
fn an_endpoint_that_is_changed_is_asked_at_once() {
    let (origin, endpoint) = (Provider::plain(), Provider::responding(ok_response("200 OK", "", GRANTED)));
    // Nothing listens there.
    let before = with_endpoint(Config::with_origin(origin.url()), "http://127.0.0.1:1/token", "");
    let egret = start(&before);
    assert!(why(&egret.get("/a")).contains("has not responded (connect-failed)"));
    egret.rewrite(with_endpoint(Config::with_origin(origin.url()), &endpoint.url(), "").yaml());
    wait::until_true("the config is reloaded", || egret.stat("/reloads") == 1);
    egret.get("/a").assert_forwarded(200);
    assert_eq!(origin.only_request().values("authorization"), ["Bearer the-granted-token"]);
    assert_discreet(&egret);
}

#[test]
fn an_endpoint_is_reached_as_the_provider_at_its_place_is() {
    let authority = Authority::default();
    let location = format!("location = /token {{ default_type application/json; return 200 '{GRANTED}'; }}");
    let nginx = Nginx::start(&authority, &location);
    let directory = Directory::default();
    let ca = directory.write("ca.pem", authority.certificate());
    let origin = Provider::plain();
    let token_url = format!("{}/token", nginx.tls_url());
    let without = start(&with_endpoint(Config::with_origin(origin.url()), &token_url, ""));
    assert!(why(&without.get("/a")).contains("has not responded (tls-failed)"));
    let keys = format!("tls: {{ ca: '{}' }}", ca.display());
    let config =
        Config::with_origin(origin.url()).provider_with("id", format!("{}/below", nginx.tls_url()), &keys);
    let with = start(&with_endpoint(config, &token_url, ""));
    with.get("/a").assert_forwarded(200);
    assert_eq!(origin.only_request().values("authorization"), ["Bearer the-granted-token"]);
    // It counts for that provider, and flows are not applied to it.
    assert_eq!(with.provider_stat("id", "connects"), 1);
}

#[test]
fn a_configured_endpoint_is_allowed_despite_egress_rules() {
    let (origin, endpoint) = (Provider::plain(), Provider::responding(ok_response("200 OK", "", GRANTED)));
    let config =
        |egress: &str| with_endpoint(Config::with_origin(origin.url()).gateway(egress), &endpoint.url(), "");
    let egret = start(&config("egress: { default: deny }"));
    egret.get("/a").assert_forwarded(200);
    let elsewhere = format!("GET {}/ HTTP/1.1\r\nHost: h\r\n\r\n", endpoint.url());
    egret.client().send(elsewhere).response().assert_generated(403, "egress-denied");
    // A deny rule applies to it as well.
    let port = endpoint.address().port();
    let egret = start(&config(&format!("egress: {{ deny: [{{ net: 127.0.0.1/32, ports: [{port}] }}] }}")));
    assert!(why(&egret.get("/a")).contains("has not responded (egress-denied)"));
    assert_eq!(endpoint.requests().len(), 1);
}

#[test]
fn a_response_in_chunks_after_informational_ones_is_read() {
    let endpoint = Provider::scripted(|peer| {
        while peer.request().is_some() {
            peer.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            for byte in GRANTED.chars() {
                peer.send(format!("1\r\n{byte}\r\n"));
            }
            peer.send("0\r\n\r\n");
        }
    });
    let origin = Provider::responding(ok("done"));
    let egret = start(&with_endpoint(Config::with_origin(origin.url()), &endpoint.url(), ""));
    egret.get("/a").assert_forwarded(200);
    assert_eq!(origin.only_request().values("authorization"), ["Bearer the-granted-token"]);
}

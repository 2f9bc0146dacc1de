//! Accounts of GitHub Apps: against a stand-in of GitHub's API, which the tests hold back and break.

use std::sync::Arc;

use egret_tests::clock::Clock;
use egret_tests::egret::{Config, Egret};
use egret_tests::http::Client;
use egret_tests::issuer::base64url;
use egret_tests::process::{Directory, raise_open_files};
use egret_tests::provider::Provider;
use egret_tests::wait::{self, Watched};
use rcgen::{KeyPair, PKCS_RSA_SHA256, SigningKey as _};
use serde_json::json;

/// Start time of the test clocks.
const NOW_S: u64 = 1_795_307_476;

/// Creates a key of an app, as GitHub does.
fn private_key() -> KeyPair {
    KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap()
}

/// Returns a config whose calls to the origin use an installation at this stand-in.
fn with_app(origin: &Provider, github: &Provider) -> Config {
    Config::with_origin(origin.url()).flows(format!(
        "accounts:\n  main: {{ provider: origin, github: {{ app: Iv23liAbCdEf, installation: 7, key: '${{env:KEY}}', url: '{}/api/v3', wait_max: 1h, timeout: 1h }} }}\n\
         flows: [{{ name: f, match: {{ provider: origin }}, remedies: [{{ authenticate: {{ account: main }} }}] }}]\n",
        github.url()
    ))
}

fn start(config: &Config, key: &str, clock: Option<&Clock>) -> Egret {
    Egret::start_with(config, |command| {
        command.env("KEY", key);
        if let Some(clock) = clock {
            clock.govern(command);
        }
    })
}

fn response(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Returns the end of a token that is granted at this time, for a minute.
fn end(now_s: u64) -> String {
    jiff::Timestamp::from_second(i64::try_from(now_s + 60).unwrap()).unwrap().to_string()
}

fn granted(token: &str, end: &str) -> Vec<u8> {
    let body = json!({ "token": token, "expires_at": end, "permissions": { "contents": "read" } });
    response("201 Created", &body.to_string())
}

#[test]
fn a_thousand_first_calls_share_the_token_of_an_installation() {
    const CLIENTS: usize = 1_000;
    let gate = Arc::new(Watched::<bool>::default());
    let opened = Arc::clone(&gate);
    let github = Provider::with_responses(move |_| {
        opened.until("the token may be sent", |is_open| is_open.then_some(()));
        granted("ghs_token-of-the-installation", "2099-01-01T00:00:00Z")
    });
    let (origin, pair) = (Provider::plain(), private_key());
    let key = pair.serialize_pem();
    raise_open_files();
    let config = with_app(&origin, &github).gateway("workers: 2").gateway("forwarded_for: true");
    // The provider may be slow to accept a thousand connections at once.
    let egret = start(&config.gateway("timeouts: { connect: 1h }"), &key, None);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| egret.client()).collect();
    for client in &mut clients {
        client.get(egret.address(), "/origin/a");
    }
    wait::until_true("all calls wait", || {
        egret.stat("/clients/open") == CLIENTS as u64 && egret.stat("/clients/idle") == 0
    });
    github.until_requested(1);
    gate.change(|is_open| *is_open = true);
    for client in &mut clients {
        client.response().assert_forwarded(200);
    }
    let asked = github.only_request();
    assert_eq!(asked.line, "POST /api/v3/app/installations/7/access_tokens HTTP/1.1");
    assert_eq!(asked.values("accept"), ["application/vnd.github+json"]);
    let [proof] = asked.values("authorization")[..] else { panic!("{asked:?}") };
    let assertion = proof.strip_prefix("Bearer ").unwrap();
    let (signed, signature) = assertion.rsplit_once('.').unwrap();
    assert!(signed.starts_with(&base64url(br#"{"alg":"RS256","typ":"JWT"}"#)), "{assertion}");
    // The same message has always the same signature.
    assert_eq!(signature, base64url(&pair.sign(signed.as_bytes()).unwrap()));
    assert!(asked.values("x-forwarded-for").is_empty(), "{asked:?}");
    let requests = origin.requests();
    assert_eq!(requests.len(), CLIENTS);
    let is_sent = |value: Vec<&str>| value == ["Bearer ghs_token-of-the-installation"];
    assert!(requests.iter().all(|request| is_sent(request.values("authorization"))));
    let shown = egret.log() + egret.control_get("/api/v1/accounts").text();
    for secret in ["ghs_token", assertion, "PRIVATE KEY", key.lines().nth(1).unwrap()] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[test]
fn a_token_of_an_installation_is_renewed_and_outlives_an_outage() {
    let directory = Directory::default();
    let Some(clock) = Clock::new(&directory, NOW_S) else { return };
    let answer = Arc::new(Watched::<Vec<u8>>::default());
    answer.change(|answer| *answer = granted("ghs_first", &end(NOW_S)));
    let given = Arc::clone(&answer);
    let github = Provider::with_responses(move |_| given.read(Vec::clone));
    let (origin, key) = (Provider::plain(), private_key().serialize_pem());
    let egret = start(&with_app(&origin, &github), &key, Some(&clock));
    egret.get("/a").assert_forwarded(200);
    answer.change(|answer| *answer = granted("ghs_second", &end(NOW_S + 46)));
    // More than three quarters of its lifetime.
    clock.pass(46);
    wait::until_true("the token is renewed", || {
        egret.get("/a").assert_forwarded(200);
        origin.requests().last().unwrap().values("authorization") == ["Bearer ghs_second"]
    });
    answer.change(|answer| *answer = response("503 Busy", "hunter2"));
    clock.pass(59);
    egret.get("/a").assert_forwarded(200);
    egret.until_logged("a token could not be fetched");
    clock.pass(2);
    let refusal = egret.get("/a");
    refusal.assert_generated(503, "account-unavailable");
    assert!(refusal.text().contains("the token endpoint responded with 503"), "{refusal:?}");
}

#[test]
fn a_response_without_a_token_of_an_installation_is_named() {
    for (answer, says) in [
        (response("200 OK", "<html>hunter2</html>"), "returned something other than JSON"),
        (granted("hunter2 x", "2099-01-01T00:00:00Z"), "returned no token that is valid"),
        (granted("hunter2", "soon"), "an `expires_at` that is not a time"),
        (response("404 Not Found", r#"{"message":"hunter2"}"#), "refused the request: 404"),
        (response("401 Unauthorized", r#"{"message":"hunter2"}"#), "refused the request: 401"),
    ] {
        let (origin, github) = (Provider::plain(), Provider::responding(answer));
        let key = private_key().serialize_pem();
        let egret = start(&with_app(&origin, &github), &key, None);
        let refusal = egret.get("/a");
        refusal.assert_generated(503, "account-unavailable");
        let detail = refusal.text();
        assert!(detail.contains(says) && !detail.contains("hunter2"), "{detail}");
        egret.until_logged("a token could not be fetched");
        assert!(!egret.log().contains("hunter2"), "{}", egret.log());
        assert_eq!(origin.requests().len(), 0);
    }
}

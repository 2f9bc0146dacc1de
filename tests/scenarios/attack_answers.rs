//! Wrong answers: regression tests. A status, a name or a field of a response told something else than what
//! had happened.

use egret_tests::closed_port::ClosedPort;
use egret_tests::egret::{Config, Egret};
use egret_tests::http::Response;
use egret_tests::provider::{Peer, Provider};
use egret_tests::traffic::LiveTraffic;

/// A key for the cluster.
const KEY: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn a_quota_whose_store_is_lost_is_not_called_used_up() {
    let (origin, nowhere) = (Provider::plain(), ClosedPort::take());
    let flows = |remedy: &str| {
        format!(
            "cluster: {{ name: tests, member: one, key: '${{env:EGRET_TEST_KEY}}', redis: {{ url: 'redis://{}' }} }}\n\
             quotas: {{ shared: {{ limit: 10, window: 1s, store: redis, on_store_error: closed }} }}\n\
             flows: [{{ name: all, remedies: [{remedy}] }}]\n",
            nowhere.address()
        )
    };
    for remedy in ["limit: { quota: shared, status: 429 }", "queue: { quota: shared, max_wait: 20s }"] {
        let config = Config::with_origin(origin.url()).flows(flows(remedy));
        let egret = Egret::start_with(&config, |command| {
            command.env("EGRET_TEST_KEY", KEY);
        });
        let refused = egret.get("/");
        refused.assert_generated(503, "store-unavailable");
        assert!(refused.field("retry-after").is_some(), "{refused:?}");
        assert!(refused.text().contains("`shared`"), "{}", refused.text());
        assert_eq!((egret.generated("store-unavailable"), egret.generated("quota-exceeded")), (1, 0));
    }
    assert_eq!(origin.requests().len(), 0);
}

#[test]
fn a_body_too_large_to_sign_is_the_clients_to_change() {
    let origin = Provider::plain();
    let account = "sigv4: { access_key_id: '${env:EGRET_TEST_ID}', secret_access_key: '${env:EGRET_TEST_KEY}', \
                   region: us-east-1, service: execute-api, body: 1KiB }";
    let flows = format!(
        "accounts: {{ one: {{ provider: origin, {account} }} }}\n\
         flows: [{{ name: all, remedies: [authenticate: {{ account: one }}] }}]\n"
    );
    let config = Config::with_origin(origin.url()).flows(flows);
    let egret = Egret::start_with(&config, |command| {
        command.env("EGRET_TEST_ID", "AKIDEXAMPLE").env("EGRET_TEST_KEY", KEY);
    });
    let post = |length: usize| -> Response {
        let head = format!(
            "POST /origin/ HTTP/1.1\r\nHost: {}\r\nContent-Length: {length}\r\n\r\n",
            egret.address()
        );
        egret.client().send(head + &"x".repeat(length)).response()
    };
    post(1024).assert_forwarded(200);
    let refused = post(1025);
    refused.assert_generated(413, "body-too-large-to-sign");
    assert!(
        refused.text().contains("1024 bytes") && refused.text().contains("sigv4.body"),
        "{}",
        refused.text()
    );
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn a_response_carries_the_id_of_its_request_once() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    for (host, status) in [(egret.address().to_string(), 200), ("unknown.invalid".to_owned(), 502)] {
        let response = egret.client().get(&host, "/origin/").response();
        assert_eq!(response.status, status);
        let [id] = response.values("x-egret-request-id")[..] else { panic!("{response:?}") };
        let with_it: Vec<&str> =
            response.fields.iter().filter(|(_, value)| value == id).map(|(name, _)| name.as_str()).collect();
        assert_eq!(with_it, ["x-egret-request-id"]);
    }
}

/// A provider that takes requests and never responds.
fn silent() -> Provider {
    Provider::scripted(|peer: &mut Peer| {
        let _ = peer.request();
        peer.stall();
    })
}

#[test]
fn a_client_that_closes_before_its_response_is_recorded_as_gone() {
    let origin = silent();
    let egret = Config::with_origin(origin.url()).gateway("timeouts: { half_close: 1h }").start();
    let traffic = LiveTraffic::open(&egret);
    let mut client = egret.client();
    client.get(egret.address(), "/origin/late");
    origin.until_requested(1);
    drop(client);
    // The call is cancelled.
    origin.until_ended(1);
    let gone = traffic.until("answered_by=nobody", 1).remove(0);
    assert_eq!((&gone["status"], &gone["attempts"]), (&0.into(), &1.into()), "{gone}");
    let (closed_us, ended_us) =
        (gone["client_closed_us"].as_u64().unwrap(), gone["duration_us"].as_u64().unwrap());
    assert!(closed_us <= ended_us && ended_us > 0, "{gone}");
    assert_eq!(traffic.exchanges("status=none").len(), 1);
}

#[test]
fn a_generated_server_error_is_logged_with_its_cause() {
    let nowhere = ClosedPort::take();
    let mut egret = Config::with_origin(format!("http://{}", nowhere.address())).start();
    for _ in 0..3 {
        egret.get("/").assert_generated(502, "connect-failed");
    }
    egret.terminate();
    assert!(egret.until_ended().success());
    let log = egret.log();
    let lines: Vec<&str> =
        log.lines().filter(|line| line.contains("\"WARN\"") && line.contains("connect-failed")).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("refused"), "{lines:?}");
}

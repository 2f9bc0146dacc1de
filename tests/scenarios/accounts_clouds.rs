//! Accounts of clouds, and clients that prove themselves by signed assertions: against stand-ins of the token
//! endpoints and metadata services, which the tests hold back, break and replace.

use std::net::Ipv4Addr;
use std::sync::Arc;

use egret_tests::clock::Clock;
use egret_tests::dns::{Answer, NameServer};
use egret_tests::egret::{Config, Egret};
use egret_tests::http::{Client, Response};
use egret_tests::process::{Directory, raise_open_files};
use egret_tests::provider::{Provider, Request};
use egret_tests::wait::{self, Watched};
use rcgen::KeyPair;
use serde_json::json;

/// Start time of the test clocks.
const NOW_S: u64 = 1_795_307_476;

/// The path that the metadata server of Google Cloud has the token at.
const GOOGLE_PATH: &str = "/computeMetadata/v1/instance/service-accounts/default/token";

/// Returns a config whose calls to the origin use this account.
fn with_account(origin: &Provider, account: &str) -> Config {
    Config::with_origin(origin.url()).flows(format!(
        "accounts:\n  main: {{ provider: origin, {account} }}\n\
         flows: [{{ name: f, match: {{ provider: origin }}, remedies: [{{ authenticate: {{ account: main }} }}] }}]\n"
    ))
}

/// Returns an account of the machine that the stand-in is the metadata server of; `more` are further keys.
fn of_machine(service: &Provider, more: &str) -> String {
    format!("gcp: {{ metadata: true, metadata_host: '{}'{more} }}", service.address())
}

fn response(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn granted(token: &str, life_s: u64) -> Vec<u8> {
    let body = json!({ "access_token": token, "expires_in": life_s, "token_type": "Bearer" });
    response("200 OK", &body.to_string())
}

/// Returns the value of a parameter in the form of a request.
fn parameter(request: &Request, name: &str) -> Option<String> {
    let form = String::from_utf8(request.body.clone()).unwrap();
    let value = |pair: &str| Some(pair.strip_prefix(name)?.strip_prefix('=')?.to_owned());
    form.split('&').find_map(value)
}

/// Asserts that a parameter is a signed token in the compact form: three parts in Base64.
fn assert_signed(request: &Request, name: &str) {
    let assertion = parameter(request, name).unwrap_or_else(|| panic!("{request:?}"));
    let parts: Vec<_> = assertion.split('.').collect();
    let is_base64 = |part: &&str| {
        part.len() > 30 && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    assert!(parts.len() == 3 && parts.iter().all(is_base64), "{assertion}");
}

/// Returns the reported reason for the missing token.
fn why(response: &Response) -> String {
    response.assert_generated(503, "account-unavailable");
    response.json()["detail"].as_str().unwrap().to_owned()
}

/// Starts a gateway whose environment has the private key of an account.
fn start_with_key(config: &Config, name: &str, value: &str) -> Egret {
    Egret::start_with(config, |command| {
        command.env(name, value);
    })
}

fn service_account(endpoint: &Provider, private_key: &str) -> String {
    json!({
        "type": "service_account", "client_email": "robot@shop.example", "private_key": private_key,
        "private_key_id": "k1", "token_uri": format!("{}/token", endpoint.url()),
    })
    .to_string()
}

#[test]
fn a_thousand_first_calls_have_one_token_of_the_machine() {
    const CLIENTS: usize = 1_000;
    let gate = Arc::new(Watched::<bool>::default());
    let opened = Arc::clone(&gate);
    let service = Provider::scripted(move |peer| {
        while peer.request().is_some() {
            opened.until("the token may be sent", |is_open| is_open.then_some(()));
            peer.send(granted("token-of-the-machine", 3_600));
        }
    });
    let origin = Provider::plain();
    raise_open_files();
    let config = with_account(&origin, &of_machine(&service, ", wait_max: 1h, timeout: 1h"));
    // The provider may be slow to accept a thousand connections at once.
    let egret = config.gateway("workers: 2").gateway("timeouts: { connect: 1h }").start();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| egret.client()).collect();
    for client in &mut clients {
        client.get(egret.address(), "/origin/a");
    }
    wait::until_true("all calls wait", || {
        egret.stat("/clients/open") == CLIENTS as u64 && egret.stat("/clients/idle") == 0
    });
    service.until_requested(1);
    gate.change(|is_open| *is_open = true);
    for client in &mut clients {
        client.response().assert_forwarded(200);
    }
    let asked = service.only_request();
    assert_eq!(asked.line, format!("GET {GOOGLE_PATH} HTTP/1.1"));
    assert_eq!(asked.values("metadata-flavor"), ["Google"]);
    assert_eq!(asked.values("x-forwarded-for"), [""; 0]);
    let requests = origin.requests();
    assert_eq!(requests.len(), CLIENTS);
    let is_sent = |request: &Request| request.values("authorization") == ["Bearer token-of-the-machine"];
    assert!(requests.iter().all(is_sent));
    assert!(!egret.log().contains("token-of-the-machine"), "{}", egret.log());
}

#[test]
fn a_token_of_the_machine_is_renewed_and_outlives_a_dead_service() {
    let directory = Directory::default();
    let Some(clock) = Clock::new(&directory, NOW_S) else { return };
    let answer = Arc::new(Watched::<Vec<u8>>::default());
    answer.change(|answer| *answer = granted("the-first-token", 60));
    let given = Arc::clone(&answer);
    let service = Provider::with_responses(move |_| given.read(Vec::clone));
    let origin = Provider::plain();
    let egret = Egret::start_with(&with_account(&origin, &of_machine(&service, "")), |command| {
        clock.govern(command);
    });
    egret.get("/a").assert_forwarded(200);
    answer.change(|answer| *answer = granted("the-second-token", 60));
    // More than three quarters of its lifetime.
    clock.pass(46);
    wait::until_true("the token is renewed", || {
        egret.get("/a").assert_forwarded(200);
        origin.requests().last().unwrap().values("authorization") == ["Bearer the-second-token"]
    });
    assert_eq!(service.requests().len(), 2);
    answer.change(|answer| *answer = response("503 Busy", ""));
    clock.pass(59);
    egret.get("/a").assert_forwarded(200);
    egret.until_logged("a token could not be fetched");
    clock.pass(2);
    assert!(why(&egret.get("/a")).contains("the token endpoint responded with 503"));
    answer.change(|answer| *answer = granted("the-third-token", 60));
    // A clock that is set forward by a day ends the wait as well as the token.
    clock.pass(86_400);
    egret.get("/a").assert_forwarded(200);
    assert_eq!(origin.requests().last().unwrap().values("authorization"), ["Bearer the-third-token"]);
}

#[test]
fn a_service_that_responds_something_else_is_named() {
    let long = format!(r#"{{"access_token":"{}"}}"#, "a".repeat(70 << 10));
    for (answer, says) in [
        (response("200 OK", "<html>hunter2</html>"), "returned something other than JSON"),
        (response("200 OK", &long), "response exceeds 65536 bytes"),
        (response("200 OK", r#"{"token_type":"Bearer"}"#), "returned no token that is valid"),
        (response("404 Not Found", "hunter2"), "refused the request: 404"),
    ] {
        let (origin, service) = (Provider::plain(), Provider::responding(answer));
        let egret = with_account(&origin, &of_machine(&service, "")).start();
        let detail = why(&egret.get("/a"));
        assert!(detail.contains(says) && !detail.contains("hunter2"), "{detail}");
        egret.until_logged("a token could not be fetched");
        assert!(!egret.log().contains("hunter2"), "{}", egret.log());
        assert_eq!(origin.requests().len(), 0);
    }
}

#[test]
fn clients_are_denied_the_service_that_an_account_uses() {
    let (origin, service) = (Provider::plain(), Provider::plain());
    let egret = with_account(&origin, &of_machine(&service, "")).start();
    for host in ["169.254.169.254", "metadata.google.internal"] {
        let request = format!(
            "GET http://{host}{GOOGLE_PATH} HTTP/1.1\r\nHost: {host}\r\nMetadata-Flavor: Google\r\n\r\n"
        );
        egret.client().send(request).response().assert_generated(403, "egress-denied");
    }
}

#[test]
fn a_service_of_the_machine_is_called_through_no_proxy() {
    let (origin, proxy) = (Provider::plain(), Provider::plain());
    let service = Provider::responding(granted("token-of-the-machine", 3_600));
    // A proxy is asked for everything but loopback addresses.
    let names = NameServer::start(|_| Answer::Addresses(vec![Ipv4Addr::LOCALHOST], 60));
    let host = format!("service.test:{}", service.address().port());
    let config = with_account(&origin, &format!("gcp: {{ metadata: true, metadata_host: '{host}' }}"));
    let egret = config
        .gateway(names.config())
        .gateway(format!("upstream_proxy: {{ url: '{}' }}", proxy.url()))
        .start();
    egret.get("/a").assert_forwarded(200);
    assert_eq!((service.requests().len(), proxy.connections()), (1, 0));
}

#[test]
fn a_service_account_signs_an_assertion_for_its_endpoint() {
    let endpoint = Provider::responding(granted("token-of-the-robot", 3_600));
    let (origin, key) = (Provider::plain(), KeyPair::generate().unwrap().serialize_pem());
    let config = with_account(&origin, "gcp: { service_account: '${env:KEY_FILE}' }");
    let egret = start_with_key(&config, "KEY_FILE", &service_account(&endpoint, &key));
    egret.get("/a").assert_forwarded(200);
    assert_eq!(origin.only_request().values("authorization"), ["Bearer token-of-the-robot"]);
    let asked = endpoint.only_request();
    assert_eq!(asked.line, "POST /token HTTP/1.1");
    let grant = parameter(&asked, "grant_type").unwrap();
    assert_eq!(grant, "urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer");
    assert_signed(&asked, "assertion");
    assert_eq!(parameter(&asked, "client_id"), None);
    let assertion = parameter(&asked, "assertion").unwrap();
    let secrets = ["token-of-the-robot", "PRIVATE KEY", &assertion, key.lines().nth(1).unwrap()];
    let shown = egret.log() + egret.control_get("/api/v1/accounts").text();
    assert!(secrets.iter().all(|secret| !shown.contains(secret)), "{shown}");
}

#[test]
fn a_client_proves_itself_by_a_key_or_a_federated_token() {
    let endpoint = Provider::responding(granted("token-of-the-client", 3_600));
    let key = KeyPair::generate().unwrap().serialize_pem();
    let url = endpoint.url();
    for (account, count) in [
        (
            format!(
                "oauth2: {{ token_url: '{url}/token', client_id: me, client_auth: private_key_jwt, \
                 assertion: {{ key: '${{env:KEY}}' }} }}"
            ),
            1,
        ),
        (
            format!(
                "azure: {{ authority: '{url}', tenant: t, client_id: me, resource: 'https://ai', workload: '${{env:JWT}}' }}"
            ),
            2,
        ),
    ] {
        let origin = Provider::plain();
        let egret = Egret::start_with(&with_account(&origin, &account), |command| {
            command.env("KEY", &key).env("JWT", "head.claims.signature");
        });
        egret.get("/a").assert_forwarded(200);
        assert_eq!(origin.only_request().values("authorization"), ["Bearer token-of-the-client"]);
        let requests = endpoint.requests();
        assert_eq!(requests.len(), count);
        assert_eq!(parameter(&requests[count - 1], "client_id").as_deref(), Some("me"));
        assert!(!egret.log().contains("head.claims.signature"), "{}", egret.log());
    }
    let [signed, federated] = &endpoint.requests()[..] else { panic!() };
    assert_signed(signed, "client_assertion");
    assert_eq!(federated.line, "POST /t/oauth2/v2.0/token HTTP/1.1");
    assert_eq!(parameter(federated, "client_assertion").as_deref(), Some("head.claims.signature"));
    assert_eq!(parameter(federated, "scope").as_deref(), Some("https%3A%2F%2Fai%2F.default"));
}

#[test]
fn a_managed_identity_is_asked_of_the_metadata_service() {
    // It sends the lifetime as a text.
    let body = r#"{"access_token":"token-of-the-identity","expires_in":"3599","token_type":"Bearer","resource":"r"}"#;
    let (origin, service) = (Provider::plain(), Provider::responding(response("200 OK", body)));
    let account = format!(
        "azure: {{ resource: 'https://ai', managed: true, client_id: c, metadata_host: '{}' }}",
        service.address()
    );
    let egret = with_account(&origin, &account).start();
    egret.get("/a").assert_forwarded(200);
    assert_eq!(origin.only_request().values("authorization"), ["Bearer token-of-the-identity"]);
    let asked = service.only_request();
    let target =
        "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fai&client_id=c";
    assert_eq!((asked.target(), asked.values("metadata")), (target, vec!["true"]));
}

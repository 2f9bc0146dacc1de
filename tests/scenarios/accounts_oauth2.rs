//! OAuth 2.0 tokens from a real authorization server: fetched once for all, renewed in time, replaced when
//! revoked, kept across a reload.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use egret_tests::clock::Clock;
use egret_tests::egret::{Config, Egret};
use egret_tests::http::Client;
use egret_tests::load::Load;
use egret_tests::peers::{AuthorizationServer, curl};
use egret_tests::process::{Directory, raise_open_files, run_checked};
use egret_tests::provider::{Provider, Request, ok};
use egret_tests::wait::{self, Watched};
use serde_json::json;

/// Start time of the test clocks.
const NOW_S: u64 = 1_795_307_476;

/// Returns a config whose calls to the origin use a token of this server; `more` are further keys.
fn with_token(origin: &Provider, server: &AuthorizationServer, more: &str) -> Config {
    let [client, _] = AuthorizationServer::CLIENT;
    Config::with_origin(origin.url()).flows(format!(
        "accounts:\n  main:\n    provider: origin\n    oauth2: {{ token_url: '{}', client_id: '{client}', client_secret: '${{env:SECRET}}'{more} }}\n\
         flows: [{{ name: f, remedies: [{{ authenticate: {{ account: main }} }}] }}]\n",
        server.token_url()
    ))
}

fn start(config: &Config, clock: Option<&Clock>) -> Egret {
    let [_, secret] = AuthorizationServer::CLIENT;
    Egret::start_with(config, |command| {
        command.env("SECRET", secret).env("REFRESH", "the-first-refresh-token");
        if let Some(clock) = clock {
            clock.govern(command);
        }
    })
}

/// Returns the token of a request.
fn token_of(request: &Request) -> String {
    let [value] = request.values("authorization")[..] else { panic!("{request:?}") };
    value.strip_prefix("Bearer ").unwrap().to_owned()
}

/// Asserts that Egret's log, at its most verbose, contains neither the client's secret nor a token.
fn assert_discreet(egret: &Egret, server: &AuthorizationServer) {
    egret.until_logged("a token has been fetched");
    let log = egret.log();
    let refresh_tokens = server.received();
    let refresh_tokens =
        refresh_tokens.iter().filter_map(|received| received["response"]["refresh_token"].as_str());
    let secrets = AuthorizationServer::CLIENT[1..].iter().map(|secret| (*secret).to_owned());
    for secret in server.tokens().into_iter().chain(refresh_tokens.map(str::to_owned)).chain(secrets) {
        assert!(!log.contains(&secret), "{secret} is in the log: {log}");
    }
    assert!(!log.contains("Bearer ") && !log.contains("the-first-refresh-token"), "{log}");
}

/// A provider's rejection of a token.
const REFUSAL: &[u8] =
    b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer error=\"invalid_token\"\r\nContent-Length: 0\r\n\r\n";

/// The keys of an account whose calls wait for a token for as long as the server holds it back.
const PATIENT: &str = ", wait_max: 1h, timeout: 1h";

/// Starts a provider that rejects these tokens.
fn refusing(revoked: &Arc<Mutex<HashSet<String>>>) -> Provider {
    let revoked = Arc::clone(revoked);
    Provider::with_responses(move |request| {
        let is_revoked = revoked.lock().unwrap().contains(&token_of(request));
        if is_revoked { REFUSAL.to_vec() } else { ok("done") }
    })
}

#[test]
fn a_thousand_first_calls_have_one_token_fetched() {
    const CLIENTS: usize = 1_000;
    let (origin, server) = (Provider::plain(), AuthorizationServer::start());
    server.order(&json!({ "hold": true }));
    raise_open_files();
    let config = with_token(&origin, &server, PATIENT).gateway("workers: 2");
    // The provider may be slow to accept a thousand connections at once.
    let egret = start(&config.gateway("timeouts: { connect: 1h }"), None);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| egret.client()).collect();
    for client in &mut clients {
        client.get(egret.address(), "/origin/a");
    }
    wait::until_true("all calls wait", || {
        egret.stat("/clients/open") == CLIENTS as u64 && egret.stat("/clients/idle") == 0
    });
    server.until_held();
    server.order(&json!({ "hold": false }));
    for client in &mut clients {
        client.response().assert_forwarded(200);
    }
    let [token] = &server.tokens()[..] else { panic!("{:?}", server.received()) };
    let requests = origin.requests();
    assert_eq!(requests.len(), CLIENTS);
    assert!(requests.iter().all(|request| token_of(request) == *token));
    assert_discreet(&egret, &server);
}

#[test]
fn a_departed_waiter_does_not_cancel_the_fetch() {
    let (origin, server) = (Provider::plain(), AuthorizationServer::start());
    server.order(&json!({ "hold": true }));
    let egret = start(&with_token(&origin, &server, PATIENT), None);
    let mut first = egret.client();
    first.get(egret.address(), "/origin/a");
    server.until_held();
    let mut second = egret.client();
    second.get(egret.address(), "/origin/a");
    wait::until_true("both wait", || egret.stat("/clients/open") == 2 && egret.stat("/clients/idle") == 0);
    first.reset();
    server.order(&json!({ "hold": false }));
    second.response().assert_forwarded(200);
    assert_eq!(server.received().len(), 1);
}

#[test]
fn a_token_is_requested_as_configured() {
    let (origin, server) = (Provider::plain(), AuthorizationServer::start());
    let more =
        ", scope: [read, 'write:all'], audience: 'https://api.example/', parameters: { tenant: 'a&b' }";
    let egret = start(&with_token(&origin, &server, more), None);
    let url = format!("{}/origin/a", egret.url());
    run_checked(curl().args(["--header", "Authorization: Basic bWluZTptaW5l", "--data", "body", &url]));
    assert_eq!(vec![token_of(&origin.only_request())], server.tokens());
    let asked = &server.received()[0]["request"];
    let expected = json!({
        "grant_type": "client_credentials",
        "scope": "read write:all",
        "audience": "https://api.example/",
        "tenant": "a&b",
    });
    assert_eq!(*asked, expected);
    assert_discreet(&egret, &server);
}

#[test]
fn a_token_is_renewed_before_its_end_while_traffic_flows() {
    let directory = Directory::default();
    let Some(clock) = Clock::new(&directory, NOW_S) else { return };
    let (seen, over) = (Arc::new(Watched::<Vec<String>>::default()), Arc::new(Mutex::new(HashSet::new())));
    let (seeing, refused) = (Arc::clone(&seen), Arc::clone(&over));
    let origin = Provider::with_responses(move |request| {
        let token = token_of(request);
        let is_over = refused.lock().unwrap().contains(&token);
        seeing.change(|seen| seen.push(token));
        if is_over { REFUSAL.to_vec() } else { ok("done") }
    });
    let server = AuthorizationServer::start();
    server.order(&json!({ "expires_in": 60 }));
    let egret = start(&with_token(&origin, &server, ""), Some(&clock));
    egret.get("/a").assert_forwarded(200);
    clock.pass(15);
    for count in 2..=4 {
        let load = Load::start(egret.address(), "/origin/load", 4, true);
        let old = server.tokens().pop().unwrap();
        // The token is 46 seconds old now, more than three quarters of its lifetime.
        clock.pass(31);
        server.until_received(count);
        let then = seen.read(Vec::len);
        seen.until("the new one is used", |seen| {
            (seen.len() > then + 100 && !seen[seen.len() - 50..].contains(&old)).then_some(())
        });
        // A call with the old one may still be under way.
        let tally = load.finish();
        assert!(tally.failures.is_empty() && tally.completed == tally.sent, "{tally:?}");
        over.lock().unwrap().insert(old);
        clock.pass(15);
    }
    assert_eq!(server.received().len(), 4);
    assert!(!egret.log().contains("a provider has refused a token"), "{}", egret.log());
    assert_discreet(&egret, &server);
}

#[test]
fn a_failed_server_matters_once_the_token_expires() {
    let directory = Directory::default();
    let Some(clock) = Clock::new(&directory, NOW_S) else { return };
    let (origin, server) = (Provider::plain(), AuthorizationServer::start());
    server.order(&json!({ "expires_in": 60 }));
    let egret = start(&with_token(&origin, &server, ""), Some(&clock));
    egret.get("/a").assert_forwarded(200);
    server.order(&json!({ "status": 503 }));
    for now_s in [46, 50, 55, 59] {
        clock.set(NOW_S + now_s);
        egret.get("/a").assert_forwarded(200);
    }
    egret.until_logged("a token could not be fetched");
    clock.set(NOW_S + 60);
    let is_refused = || {
        let refusal = egret.get("/a");
        refusal.assert_generated(503, "account-unavailable");
        assert!(
            (1..=60).contains(&refusal.field("retry-after").unwrap().parse::<u64>().unwrap()),
            "{refusal:?}"
        );
        let detail = refusal.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.starts_with("there is no token for the account main: the token endpoint responded with 503; next attempt in"), "{detail}");
    };
    is_refused();
    let asked = server.received().len();
    is_refused();
    // The second call did not ask the server again, and no call was sent without a token.
    assert_eq!((server.received().len(), origin.requests().len()), (asked, 5));
    server.order(&json!({ "status": 200 }));
    clock.pass(60);
    egret.get("/a").assert_forwarded(200);
    assert_discreet(&egret, &server);
}

#[test]
fn a_revoked_token_is_replaced_and_the_call_made_again() {
    let revoked = Arc::default();
    let (origin, server) = (refusing(&revoked), AuthorizationServer::start());
    let egret = start(&with_token(&origin, &server, ""), None);
    egret.get("/first").assert_forwarded(200);
    revoked.lock().unwrap().extend(server.tokens());
    let post =
        format!("POST /origin/second HTTP/1.1\r\nHost: {}\r\nContent-Length: 4\r\n\r\nbody", egret.address());
    assert_eq!(egret.client().send(post).response().assert_forwarded(200).text(), "done");
    let (requests, tokens) = (origin.requests(), server.tokens());
    let [first, second] = &tokens[..] else { panic!("{tokens:?}") };
    let seen: Vec<_> =
        requests.iter().map(|request| (request.target(), token_of(request), &*request.body)).collect();
    let expected = [("/first", first, &b""[..]), ("/second", first, b"body"), ("/second", second, b"body")];
    assert_eq!(seen, expected.map(|(target, token, body)| (target, token.clone(), body)));
    assert_discreet(&egret, &server);
}

#[test]
fn an_unrepeatable_call_is_refused_before_renewal() {
    let revoked = Arc::default();
    let (origin, server) = (refusing(&revoked), AuthorizationServer::start());
    let egret = start(&with_token(&origin, &server, ""), None);
    egret.get("/first").assert_forwarded(200);
    revoked.lock().unwrap().extend(server.tokens());
    let body = "a".repeat(1 << 20);
    let head = format!(
        "POST /origin/large HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n",
        egret.address(),
        body.len()
    );
    let mut client = egret.client();
    client.send(head + &body).response().assert_forwarded(401);
    egret.get("/next").assert_forwarded(200);
    assert_eq!((origin.requests().len(), server.received().len()), (3, 2));
}

#[test]
fn refused_tokens_are_not_fetched_for_each_call() {
    let directory = Directory::default();
    let Some(clock) = Clock::new(&directory, NOW_S) else { return };
    let origin = Provider::responding(REFUSAL);
    let server = AuthorizationServer::start();
    let egret = start(&with_token(&origin, &server, ""), Some(&clock));
    for _ in 0..20 {
        egret.get("/a").assert_forwarded(401);
    }
    // The first provider is called twice, with two tokens.
    assert_eq!((origin.requests().len(), server.received().len()), (21, 2));
    clock.pass(6);
    for _ in 0..20 {
        egret.get("/a").assert_forwarded(401);
    }
    assert_eq!((origin.requests().len(), server.received().len()), (42, 3));
}

#[test]
fn a_reload_keeps_the_token_unless_its_config_changed() {
    let (origin, server) = (Provider::plain(), AuthorizationServer::start());
    let config = with_token(&origin, &server, "");
    let egret = start(&config, None);
    egret.get("/a").assert_forwarded(200);
    let reload = |config: &Config, count| {
        egret.rewrite(config.yaml());
        wait::until_true("the config is reloaded", || egret.stat("/reloads") >= count);
    };
    reload(&config.clone().provider("other", origin.url()), 1);
    egret.get("/a").assert_forwarded(200);
    assert_eq!(server.received().len(), 1);
    reload(&with_token(&origin, &server, ", scope: [more]"), 2);
    egret.get("/a").assert_forwarded(200);
    assert_eq!(server.received().len(), 2);
    assert_discreet(&egret, &server);
}

#[test]
fn a_refresh_token_that_is_rotated_is_followed() {
    let directory = Directory::default();
    let Some(clock) = Clock::new(&directory, NOW_S) else { return };
    let (origin, server) = (Provider::plain(), AuthorizationServer::start());
    server.order(&json!({ "expires_in": 60 }));
    let egret = start(
        &with_token(&origin, &server, ", grant: refresh_token, refresh_token: '${env:REFRESH}'"),
        Some(&clock),
    );
    for _ in 0..3 {
        egret.get("/a").assert_forwarded(200);
        clock.pass(61);
    }
    let received = server.received();
    assert_eq!(received.len(), 3, "{received:?}");
    assert_eq!(received[0]["request"]["refresh_token"], "the-first-refresh-token");
    for pair in received.windows(2) {
        assert_eq!(pair[1]["request"]["refresh_token"], pair[0]["response"]["refresh_token"]);
    }
    assert_discreet(&egret, &server);
}

#[test]
fn of_several_accounts_those_whose_endpoint_fails_are_left_out() {
    let (origin, server) = (Provider::plain(), AuthorizationServer::start());
    let [client, _] = AuthorizationServer::CLIENT;
    let account = |name: &str, token_url: &str| {
        format!(
            "  {name}: {{ provider: origin, oauth2: {{ token_url: '{token_url}', client_id: '{client}', client_secret: '${{env:SECRET}}', \
             retry: {{ base: 1m }} }} }}\n"
        )
    };
    // Nothing listens at the first account's endpoint.
    let accounts = account("a", "http://127.0.0.1:1/") + &account("b", &server.token_url());
    let config = Config::with_origin(origin.url()).flows(format!(
        "accounts:\n{accounts}flows: [{{ name: f, remedies: [{{ accounts: {{ use: [a, b] }} }}] }}]\n"
    ));
    let egret = start(&config, None);
    // The first call detects the failure and continues with the other account.
    for _ in 0..5 {
        egret.get("/a").assert_forwarded(200);
    }
    let [token] = &server.tokens()[..] else { panic!("{:?}", server.received()) };
    let requests = origin.requests();
    assert!(requests.len() == 5 && requests.iter().all(|request| token_of(request) == *token));
    assert_discreet(&egret, &server);
}

//! Tokens of accounts in a cluster: fetched once for all gateways; a refresh token that is accepted once is
//! used once, whichever gateway dies; and nothing of it can be read in the store.

use egret_tests::egret::{Config, Egret};
use egret_tests::http::Client;
use egret_tests::members::KEY;
use egret_tests::peers::AuthorizationServer;
use egret_tests::provider::Provider;
use egret_tests::redis::{Flavor, RedisServer};
use egret_tests::rotating::RotatingServer;
use egret_tests::wait;
use serde_json::json;

/// Number of gateways.
const MEMBERS: usize = 8;
/// Time for which a store that may have lost its state learns from the gateways.
const LEARN: &str = "500ms";
/// Lifetime of access tokens, in seconds. They are renewed after three quarters of it.
const LIFE_S: u64 = 4;

/// Returns the config of a member whose calls use an account with these keys.
fn config(store: &RedisServer, origin: &Provider, member: usize, oauth2: &str) -> Config {
    Config::with_origin(origin.url()).flows(format!(
        "cluster: {{ name: tests, member: member-{member}, key: '${{env:EGRET_TEST_KEY}}', learn_for: {LEARN}, \
         redis: {{ url: 'redis://{}' }} }}\n\
         accounts: {{ main: {{ provider: origin, oauth2: {{ {oauth2} }} }} }}\n\
         flows: [{{ name: f, remedies: [{{ authenticate: {{ account: main }} }}] }}]\n",
        store.address()
    ))
}

fn start(config: &Config) -> Egret {
    let [_, secret] = AuthorizationServer::CLIENT;
    Egret::start_with(config, |command| {
        command.env("EGRET_TEST_KEY", KEY).env("SECRET", secret).env("REFRESH", RotatingServer::FIRST);
    })
}

/// The keys of an account with a refresh token.
fn rotating(server: &RotatingServer) -> String {
    format!(
        "token_url: '{}', client_id: me, grant: refresh_token, refresh_token: '${{env:REFRESH}}', timeout: 2s, \
         wait_max: 1m, retry: {{ base: 100ms, max: 200ms }}",
        server.token_url()
    )
}

/// Calls through a gateway, and returns the token that the provider received.
fn token_used(gateway: &Egret, origin: &Provider) -> String {
    gateway.get("/a").assert_forwarded(200);
    let requests = origin.requests();
    requests.last().unwrap().values("authorization")[0].to_owned()
}

/// All names and contents of keys in the store. Each key ends by itself.
fn dump(store: &RedisServer) -> String {
    let mut text = String::new();
    for key in store.command(&["KEYS", "*"]).words() {
        let ttl = store.command(&["PTTL", &key]).words();
        assert!(!ttl[0].starts_with('-'), "{key} stays for ever");
        let kind = store.command(&["TYPE", &key]).text().to_owned();
        let content = match kind.as_str() {
            "string" => store.command(&["GET", &key]),
            "hash" => store.command(&["HGETALL", &key]),
            "stream" => store.command(&["XRANGE", &key, "-", "+"]),
            other => panic!("{key} is a {other}"),
        };
        text += &format!("{key} {}\n", content.words().join(" "));
    }
    text
}

#[test]
fn eight_gateways_have_one_token_fetched() {
    let (store, origin) = (RedisServer::start(Flavor::Redis7), Provider::plain());
    let server = AuthorizationServer::start();
    server.order(&json!({ "hold": true }));
    let [client, secret] = AuthorizationServer::CLIENT;
    let oauth2 = format!(
        "token_url: '{}', client_id: '{client}', client_secret: '${{env:SECRET}}'",
        server.token_url()
    );
    let gateways: Vec<_> =
        (0..MEMBERS).map(|member| start(&config(&store, &origin, member, &oauth2))).collect();
    let mut clients: Vec<Client> = gateways.iter().map(Egret::client).collect();
    for (client, gateway) in clients.iter_mut().zip(&gateways) {
        client.get(gateway.address(), "/origin/a");
    }
    server.until_held();
    server.order(&json!({ "hold": false }));
    for client in &mut clients {
        client.response().assert_forwarded(200);
    }
    let tokens = server.tokens();
    let [token] = &tokens[..] else { panic!("{:?}", server.received()) };
    let requests = origin.requests();
    assert_eq!(requests.len(), MEMBERS);
    assert!(requests.iter().all(|request| request.values("authorization") == [format!("Bearer {token}")]));

    let text = dump(&store);
    assert!(text.contains("egret:{tests:0}:a:"), "{text}");
    for hidden in [token, client, secret, "main", server.token_url().as_str()] {
        assert!(!text.contains(hidden), "{hidden} can be read: {text}");
    }
}

#[test]
fn a_refresh_token_is_used_once_though_the_gateways_that_fetch_die() {
    let (store, origin) = (RedisServer::start(Flavor::Redis7), Provider::plain());
    let server = RotatingServer::start(LIFE_S);
    let mut gateways: Vec<_> =
        (0..MEMBERS).map(|member| start(&config(&store, &origin, member, &rotating(&server)))).collect();
    // The gateway that has fetched the latest refresh token dies, and another one goes on with it.
    for round in 1..=3 {
        let last = gateways.last().unwrap();
        let next = format!("Bearer access-{round}-of-the-grant");
        wait::until_true("the last gateway has a new token", || token_used(last, &origin) == next);
        for gateway in &gateways {
            // A gateway uses its old token while it is valid, and asks the others meanwhile.
            wait::until_true("all use the same", || token_used(gateway, &origin) == next);
        }
        assert_eq!(server.granted(), round);
        gateways.pop();
    }
    let text = dump(&store);
    for hidden in ["access-", "refresh-", "main"] {
        assert!(!text.contains(hidden), "{hidden} can be read: {text}");
    }

    // A gateway dies while it uses the refresh token. Nobody can know if it was replaced.
    server.grant().change(|grant| grant.is_held = true);
    let dying = gateways.pop().unwrap();
    wait::until_true("the refresh token is in use", || {
        dying.client().get(dying.address(), "/origin/a");
        server.grant().read(|grant| grant.held) == 1
    });
    drop(dying);
    server.grant().change(|grant| grant.is_held = false);
    let detail = wait::until("calls are refused with the reason", || {
        let response = gateways[0].get("/a");
        (response.status == 503).then(|| response.json()["detail"].as_str().unwrap_or_default().to_owned())
    });
    assert!(detail.contains("was stopped while it used the refresh token"), "{detail}");
    assert_eq!(server.granted(), 4);
}

#[test]
fn an_emptied_store_gets_the_refresh_token_again() {
    let (mut store, origin) = (RedisServer::start(Flavor::Redis7), Provider::plain());
    let server = RotatingServer::start(LIFE_S);
    let config = |member| config(&store, &origin, member, &rotating(&server));
    let configs: Vec<_> = (0..2).map(config).collect();
    let [first, second] = [start(&configs[0]), start(&configs[1])];
    assert_eq!(token_used(&first, &origin), "Bearer access-1-of-the-grant");

    // The other gateway has never fetched, and the store is empty.
    store.kill();
    let detail = wait::until("calls are refused with the reason", || {
        let response = second.get("/a");
        (response.status == 503).then(|| response.json()["detail"].as_str().unwrap_or_default().to_owned())
    });
    assert!(detail.contains("the store of the cluster cannot be used"), "{detail}");
    store.restart();
    wait::until_true("the other gateway goes on", || second.get("/a").status == 200);
    wait::until_true("both have the same token", || {
        token_used(&first, &origin) == format!("Bearer access-{}-of-the-grant", server.granted())
    });
    let granted = server.granted();

    // All gateways and the store are new; the latest refresh token is on a disk.
    drop(second);
    store.kill();
    store.restart();
    let [_, secret] = AuthorizationServer::CLIENT;
    let change = |command: &mut std::process::Command| {
        command.env("EGRET_TEST_KEY", KEY).env("SECRET", secret).env("REFRESH", RotatingServer::FIRST);
    };
    let first = first.restart_with("KILL", &configs[0], change);
    wait::until_true("the gateway goes on", || first.get("/a").status == 200);
    assert!(server.granted() > granted);
}

#[test]
fn a_token_is_fetched_without_the_store() {
    let (mut store, origin) = (RedisServer::start(Flavor::Redis7), Provider::plain());
    let server = AuthorizationServer::start();
    let [client, _] = AuthorizationServer::CLIENT;
    let oauth2 = format!(
        "token_url: '{}', client_id: '{client}', client_secret: '${{env:SECRET}}'",
        server.token_url()
    );
    let gateways = [0, 1].map(|member| start(&config(&store, &origin, member, &oauth2)));
    store.kill();
    for gateway in &gateways {
        gateway.get("/a").assert_forwarded(200);
    }
    assert_eq!(server.tokens().len(), gateways.len());
}

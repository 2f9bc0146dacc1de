//! Two gateways share a quota over each kind of store that the config can name, as a user with no more rights
//! than the docs ask for, and find the store again after its place or its password has changed.

use std::fs;
use std::time::Duration;

use egret_tests::counted::{Counted, most_in_any};
use egret_tests::egret::{Config, Egret};
use egret_tests::peers::free_port;
use egret_tests::pki::Authority;
use egret_tests::process::Directory;
use egret_tests::redis::{Flavor, RedisServer, tls_settings};
use egret_tests::redis_sets::RedisCluster;
use egret_tests::wait;
use serde_json::Value;

const LIMIT: usize = 20;
const PASSWORD: &str = "a-password-of-the-tests";
/// Calls that each gateway is seen to make.
const CALLS: usize = 5;

/// Two gateways that share a quota over this store, and the provider that they call.
struct Pair {
    provider: Counted,
    gateways: Vec<Egret>,
}

impl Pair {
    fn start(store: &str) -> Self {
        let provider = Counted::start();
        let start = |number: usize| {
            Egret::start_with(&config(&provider, number, store), |command| {
                command.env("EGRET_TEST_PASSWORD", PASSWORD).env("EGRET_TEST_OTHER", "another-one");
            })
        };
        let gateways = (0..2).map(start).collect();
        Self { provider, gateways }
    }

    /// Replaces the config by one with this store.
    fn rename_store(&self, store: &str) {
        for (number, gateway) in self.gateways.iter().enumerate() {
            gateway.rewrite(config(&self.provider, number, store).yaml());
            gateway.until_logged("config reloaded");
        }
    }

    /// Waits until both gateways are lent units, and asserts that they share them.
    fn assert_shares(&self) {
        for (number, gateway) in self.gateways.iter().enumerate() {
            let mut served = 0;
            wait::until_true(&format!("gateway {number} is lent units"), || {
                served += usize::from(gateway.get("/shared/").status == 200);
                served == CALLS
            });
            assert_eq!(gateway.control_get("/readyz").status, 200);
            wait::until_true("both gateways are known", || membership(gateway)["members"] == 2);
        }
        let worst = most_in_any(&self.provider.calls("shared"), Duration::from_secs(1));
        assert!(worst <= LIMIT, "{worst} calls in a second");
    }
}

fn config(provider: &Counted, number: usize, store: &str) -> Config {
    let text = format!(
        "cluster: {{ name: tests, member: m{number}, redis: {store} }}\n\
         quotas: {{ shared: {{ limit: {LIMIT}, window: 1s, store: redis }} }}\n\
         flows: [{{ name: all, match: {{ provider: origin }}, remedies: [limit: {{ quota: shared }}] }}]\n"
    );
    Config::with_origin(provider.url()).flows(text)
}

/// The content of `/api/v1/cluster`.
fn membership(gateway: &Egret) -> Value {
    gateway.control_get("/api/v1/cluster").json()["cluster"].take()
}

/// The rights that the docs ask for, at a server.
fn least_rights() -> String {
    let page = fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../docs/how-to/share-limits-among-gateways.md"
    ))
    .unwrap();
    let line = page.lines().find(|line| line.starts_with("ACL SETUSER egret") && line.contains("~egret:*"));
    line.unwrap().replace("ACL SETUSER ", "").replace(">PASSWORD", &format!(">{PASSWORD}"))
}

#[test]
fn a_server_with_tls_and_least_rights_works() {
    let (authority, files) = (Authority::default(), Directory::default());
    let (port, rights) = (free_port().to_string(), least_rights());
    let tls = tls_settings(&authority, &files);
    let mut settings = vec!["--tls-port", &port, "--user"];
    settings.extend(rights.split(' '));
    settings.extend(["--user", "default", "off"]);
    settings.extend(tls.iter().map(String::as_str));
    let _server = RedisServer::start_with(Flavor::Redis7, &settings);
    let client = authority.leaf(&["egret"]);
    let ca = files.write("authority.pem", authority.certificate());
    let certificate = files.write("client.pem", client.certificate);
    let key = files.write_secret("client.key", client.key);
    let pair = Pair::start(&format!(
        "{{ url: 'rediss://localhost:{port}', username: egret, password: '${{env:EGRET_TEST_PASSWORD}}', \
         tls: {{ ca: '{}', certificate: '{}', key: '${{file:{}}}' }} }}",
        ca.display(),
        certificate.display(),
        key.display(),
    ));
    pair.assert_shares();
}

#[test]
fn a_unix_socket() {
    let files = Directory::default();
    let socket = files.join("redis.sock").display().to_string();
    let _server = RedisServer::start_with(Flavor::Valkey9, &["--unixsocket", &socket]);
    Pair::start(&format!("{{ url: 'unix://{socket}' }}")).assert_shares();
}

#[test]
fn a_redis_cluster_with_one_connection_to_each_master() {
    for flavor in Flavor::ALL {
        let set = RedisCluster::start(flavor);
        let pair = Pair::start(&set.config());
        pair.assert_shares();
        for gateway in &pair.gateways {
            let membership = membership(gateway);
            let segments = membership["segments"].as_array().unwrap();
            assert!(segments.len() == 16 && membership["up"] == true, "{membership}");
        }
        for node in set.masters_with_keys().into_iter().map(|index| &set.nodes[index]) {
            let list = node.command(&["CLIENT", "LIST", "TYPE", "PUBSUB"]).text().to_owned();
            // A reply that came too late costs a segment another connection, but not all five of a master.
            assert!(list.lines().count() <= 2 * pair.gateways.len(), "{list}");
        }
    }
}

#[test]
fn another_place_and_another_password_are_applied_by_a_reload() {
    let first = RedisServer::start(Flavor::Redis7);
    let pair = Pair::start(&first.config());
    pair.assert_shares();
    let second = RedisServer::start_with(Flavor::Redis7, &["--requirepass", PASSWORD]);
    let store = |variable: &str| {
        format!("{{ url: 'redis://{}', password: '${{env:{variable}}}' }}", second.address())
    };
    pair.rename_store(&store("EGRET_TEST_OTHER"));
    for gateway in &pair.gateways {
        gateway.until_logged("the store of shared quotas failed");
        assert_eq!(membership(gateway)["up"], false);
        assert_eq!(gateway.control_get("/readyz").status, 200, "all other traffic can pass");
    }
    pair.rename_store(&store("EGRET_TEST_PASSWORD"));
    for gateway in &pair.gateways {
        gateway.until_logged("the store of shared quotas works again");
    }
    pair.assert_shares();
}

#[test]
fn a_cluster_is_joined_by_a_reload() {
    let (server, provider) = (RedisServer::start(Flavor::Redis7), Counted::start());
    let gateway = Config::with_origin(provider.url()).start();
    assert_eq!(gateway.control_get("/api/v1/cluster").json()["cluster"], Value::Null);
    gateway.rewrite(config(&provider, 0, &server.config()).yaml());
    wait::until_true("the quota is lent", || {
        gateway.get("/shared/").status == 200 && membership(&gateway)["up"] == true
    });
    gateway.rewrite(config(&provider, 1, &server.config()).yaml());
    gateway.until_logged("only a restart applies it");
    assert_eq!(membership(&gateway)["member"], "m0");
}

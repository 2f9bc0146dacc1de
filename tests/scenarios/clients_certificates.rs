//! Clients that prove who they are by a certificate, on a listener with TLS.

use egret_tests::egret::{Config, Egret};
use egret_tests::http::Client;
use egret_tests::peers::curl;
use egret_tests::pki::{Authority, Leaf, anonymous, connection};
use egret_tests::process::{Directory, run, run_checked};
use egret_tests::provider::{Provider, ok};
use egret_tests::wait;
use rustls::version::{TLS12, TLS13};

/// A gateway that asks for certificates, before a provider that responds with the consumer.
struct Asking {
    egret: Egret,
    directory: Directory,
    _origin: Provider,
    servers: Authority,
    clients: Authority,
}

fn start(more: &str) -> Asking {
    let (servers, clients, directory) = (Authority::default(), Authority::default(), Directory::default());
    let leaf = servers.leaf(&["localhost"]);
    let certificate = directory.write("server.pem", leaf.certificate);
    let key = directory.write_secret("server.key", leaf.key);
    let ca = directory.write("clients.pem", clients.certificate());
    directory.write("servers.pem", servers.certificate());
    let listen = format!(
        "{{ address: '127.0.0.1:0', tls: {{ certificate: '{}', key: '${{file:{}}}' }}, clients: {{ ca: '{}'{more} }} }}",
        certificate.display(),
        key.display(),
        ca.display()
    );
    let origin = Provider::with_responses(|request| ok(&request.values("x-seen").concat()));
    let egret = Config::with_origin(origin.url())
        .listen([&listen])
        .flows(
            "flows:\n\
             \x20 - name: seen\n\
             \x20   remedies: [{ transform: { request: { headers: { set: { x-seen: '${request.consumer}' } } } } }]\n",
        )
        .start();
    Asking { egret, directory, _origin: origin, servers, clients }
}

impl Asking {
    fn connect(&self, leaf: &Leaf) -> Client {
        let mut client = Client::connect(self.egret.address());
        client.shake_hands(leaf.client(&self.servers, &TLS13)).unwrap();
        client
    }

    /// Sends a request, and returns the status and the text of the response.
    fn call(&self, client: &mut Client, fields: &str) -> (u16, String) {
        let request = format!("GET /origin/a HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", self.egret.address());
        let response = client.send(request).response();
        (response.status, response.text().to_owned())
    }
}

#[test]
fn the_name_in_the_certificate_is_the_consumer_whatever_a_request_claims() {
    let asking = start("");
    let mut client = asking.connect(&asking.clients.leaf(&["Checkout.internal", "other.internal"]));
    for fields in
        ["", "x-egret-consumer: other\r\n", "x-lunar-consumer-tag: other\r\n", "x-egret-token: other\r\n"]
    {
        assert_eq!(asking.call(&mut client, fields), (200, "checkout.internal".to_owned()), "{fields}");
    }
}

#[test]
fn the_config_says_which_part_of_the_certificate_is_the_name() {
    for (key, expected) in
        [(", name_from: uri", "spiffe://prod/checkout"), (", name_from: common-name", "a.internal")]
    {
        let asking = start(key);
        let leaf = asking.clients.leaf_with(&["a.internal"], |params| {
            let uri = "spiffe://prod/checkout".try_into().unwrap();
            params.subject_alt_names.push(rcgen::SanType::URI(uri));
        });
        assert_eq!(asking.call(&mut asking.connect(&leaf), ""), (200, expected.to_owned()));
    }
}

#[test]
fn curl_is_served_with_a_certificate_and_gets_no_connection_without() {
    let asking = start("");
    let leaf = asking.clients.leaf(&["checkout.internal"]);
    asking.directory.write("client.pem", leaf.certificate);
    asking.directory.write_secret("client.key", leaf.key);
    let url = format!("https://localhost:{}/origin/a", asking.egret.address().port());
    let call = |arguments: &[&str]| {
        let mut command = curl();
        command
            .current_dir(asking.directory.path())
            .args(["--cacert", "servers.pem"])
            .args(arguments)
            .arg(&url);
        command
    };
    let shown = ["--cert", "client.pem", "--key", "client.key"];
    assert_eq!(run_checked(&mut call(&shown)), "checkout.internal");
    for version in ["1.2", "1.3"] {
        let refused = run(&mut call(&["--tls-max", version]));
        assert!(!refused.status.success() && refused.stdout.is_empty(), "{refused:?}");
    }
    let foreign = Authority::default().leaf(&["checkout.internal"]);
    asking.directory.write("client.pem", foreign.certificate);
    asking.directory.write_secret("client.key", foreign.key);
    assert!(!run(&mut call(&shown)).status.success());
    wait::until_true("all three are counted", || asking.egret.stat("/clients/tls_failures") == 3);
    let metrics = asking.egret.control_get("/metrics");
    assert!(
        metrics.text().contains("egret_client_unproven_total{reason=\"certificate\"} 3\n"),
        "{}",
        metrics.text()
    );
}

#[test]
fn a_connection_proves_nothing_more_once_its_authority_is_replaced() {
    let asking = start("");
    let mut before = asking.connect(&asking.clients.leaf(&["checkout.internal"]));
    assert_eq!(asking.call(&mut before, "").0, 200);
    asking.egret.hang_up();
    wait::until_true("the first reload is done", || asking.egret.stat("/reloads") == 1);
    assert_eq!(asking.call(&mut before, "").0, 200, "the file is the same");
    let other = Authority::default();
    asking.directory.write("clients.pem", other.certificate());
    asking.egret.hang_up();
    wait::until_true("the second reload is done", || asking.egret.stat("/reloads") == 2);
    let own = asking.egret.address();
    let refused = before.get(own, "/origin/a").response();
    refused.assert_generated(407, "client-unproven");
    assert_eq!(refused.field("connection"), Some("close"));
    before.assert_closed();
    assert_eq!(
        asking.call(&mut asking.connect(&other.leaf(&["reports.internal"])), "").1,
        "reports.internal"
    );
}

#[test]
fn a_session_is_never_resumed_in_place_of_a_certificate() {
    let asking = start("");
    let leaf = asking.clients.leaf(&["checkout.internal"]);
    for version in [&TLS12, &TLS13] {
        let config = leaf.client_config(&asking.servers, version);
        for _ in 0..2 {
            let mut client = Client::connect(asking.egret.address());
            client.shake_hands(connection(&config)).unwrap();
            assert_eq!(asking.call(&mut client, "").0, 200);
            let kind = client.tls().handshake_kind();
            assert_eq!(kind, Some(rustls::HandshakeKind::Full), "{version:?}");
        }
    }
    let mut nobody = Client::connect(asking.egret.address());
    if nobody.shake_hands(anonymous(&asking.servers, &TLS13)).is_ok() {
        nobody.offer("GET /origin/a HTTP/1.1\r\nHost: h\r\n\r\n").assert_closed();
    }
}

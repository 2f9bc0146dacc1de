//! Upgrades to arbitrary protocols, which would bypass the flows.

use egret_tests::egret::{Config, Egret};
use egret_tests::http::Client;
use egret_tests::peers::Nginx;
use egret_tests::pki::Authority;
use egret_tests::process::Directory;
use egret_tests::provider::{Provider, Request, ok};

/// Starts a provider that agrees to the first protocol requested, and serves further requests after it; it
/// responds 200 if there is none.
fn agreeing() -> Provider {
    Provider::scripted(|peer| {
        while let Some(request) = peer.request() {
            let asked = request.values("upgrade").join(", ");
            if asked.is_empty() {
                peer.send(ok("as ever"));
            } else {
                let first = asked.split(',').next().unwrap_or_default();
                peer.send(format!(
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: {first}\r\n\r\n"
                ));
            }
        }
    })
}

fn start_request(egret: &Egret, fields: &str) -> Client {
    let mut client = egret.client();
    client.send(format!("GET /origin/a HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", egret.address()));
    client
}

/// Asserts that nothing in the request asks for another protocol.
fn assert_plain(request: &Request) {
    for name in ["upgrade", "connection", "http2-settings"] {
        assert_eq!(request.values(name), Vec::<&str>::new(), "{name}");
    }
}

#[test]
fn a_protocol_that_is_not_allowed_is_not_asked_for() {
    for protocol in ["h2c", "TLS/1.0", "foo, h2c", "websockets"] {
        let origin = agreeing();
        let egret = Config::with_origin(origin.url()).start();
        let mut client = start_request(&egret, &format!("Connection: Upgrade\r\nUpgrade: {protocol}\r\n"));
        let response = client.head();
        assert_eq!(response.status, 200, "{protocol}: {response:?}");
        client.bytes("as ever".len());
        // An ordinary exchange, which another one can follow.
        client.get(egret.address(), "/origin/b").response().assert_forwarded(200);
        origin.requests().iter().for_each(assert_plain);
        assert_eq!((origin.requests().len(), egret.stat("/clients/tunnels")), (2, 0), "{protocol}");
    }
}

#[test]
fn an_offer_of_http_2_is_not_forwarded() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    // The fields of `java.net.http.HttpClient`, and the same without the nominated connection field.
    for connection in ["Upgrade, HTTP2-Settings", "Upgrade"] {
        let fields = format!(
            "Connection: {connection}\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAABgAGAAA\r\n"
        );
        let mut client = egret.client();
        client.send(format!(
            "POST /origin/ HTTP/1.1\r\nHost: {}\r\n{fields}Content-Length: 3\r\n\r\nabc",
            egret.address()
        ));
        client.response().assert_forwarded(200);
    }
    for request in origin.requests() {
        assert_plain(&request);
        assert_eq!(request.body, b"abc");
    }
}

#[test]
fn clients_that_offer_http_2_by_default_are_served_by_the_cache() {
    let origin =
        Provider::responding("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 2\r\n\r\nok");
    let flows = "flows:\n  - { name: all, remedies: [{ cache: {} }] }\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    for _ in 0..2 {
        let mut client = start_request(
            &egret,
            "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEA\r\n",
        );
        client.response().assert_forwarded(200);
    }
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn of_several_protocols_only_those_that_are_allowed_are_asked_for() {
    let origin = agreeing();
    let egret = Config::with_origin(origin.url()).start();
    let mut client =
        start_request(&egret, "Connection: upgrade\r\nUpgrade: foo, WebSocket\r\nUpgrade: h2c\r\n");
    let response = client.head();
    assert_eq!((response.status, response.field("upgrade")), (101, Some("WebSocket")), "{response:?}");
    assert_eq!(origin.only_request().values("upgrade"), ["WebSocket"]);
}

#[test]
fn an_unrequested_change_of_protocol_is_a_502() {
    let origin = Provider::responding(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: foo\r\n\r\nsurprise",
    );
    let egret = Config::with_origin(origin.url()).start();
    let mut client = start_request(&egret, "Connection: upgrade\r\nUpgrade: websocket\r\n");
    client.response().assert_generated(502, "bad-response");
}

#[test]
fn a_connection_that_shows_an_accounts_certificate_changes_to_nothing() {
    let authority = Authority::default();
    let own = authority.certificate();
    let locations = "location / { return 200 '$ssl_client_verify [$http_upgrade] [$http_connection]'; }";
    let nginx = Nginx::start_with(&authority, locations, |directory| {
        let ca = directory.write("client-ca.pem", own);
        format!("ssl_verify_client optional; ssl_client_certificate {};", ca.display())
    });
    let directory = Directory::default();
    let ca = directory.write("ca.pem", authority.certificate()).display().to_string();
    let leaf = authority.leaf(&["one.test"]);
    let certificate = directory.write("one.pem", &leaf.certificate).display().to_string();
    let key = directory.write_secret("one.key", &leaf.key).display().to_string();
    let egret = Config::default()
        .provider_with("origin", nginx.tls_url(), &format!("tls: {{ ca: \"{ca}\" }}"))
        .flows(format!(
            "accounts:\n  one: {{ provider: origin, certificate: {{ certificate: {certificate}, key: \"${{file:{key}}}\" }} }}\n\
             flows: [{{ name: f, match: {{ header: {{ x-app: \"*\" }} }}, remedies: [{{ authenticate: {{ account: one }} }}] }}]\n"
        ))
        .start();
    let seen = |fields: &str| {
        let asks = format!("{fields}Connection: upgrade\r\nUpgrade: websocket\r\n");
        start_request(&egret, &asks).response().assert_forwarded(200).text().to_owned()
    };
    assert_eq!(seen(""), "NONE [websocket] [upgrade]", "anybody's connection");
    assert_eq!(seen("X-App: one\r\n"), "SUCCESS [] []", "the account's");
}

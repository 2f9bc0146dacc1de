//! Listeners with `redirect: true`: their clients believe to speak with the provider.
//!
//! Without a packet filter in between, a connection's original destination is the listener itself. So the
//! destinations here have the listener's port, at another address of this machine.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use egret_tests::dns::{Answer, NameServer};
use egret_tests::egret::{Config, Egret, egret};
use egret_tests::http::Client;
use egret_tests::intercepted::{client_config, connection, hello};
use egret_tests::pki::{Authority, Leaf};
use egret_tests::process::{Directory, run};
use egret_tests::provider::{Provider, ok};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, pem::PemObject};

/// The address of the providers.
const THERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Starts a gateway with a redirecting listener. `more` follows `gateway:` in the config.
fn redirecting(names: &NameServer, rest: &str) -> Egret {
    let listen = ["{ address: \"127.0.0.1:0\", redirect: true }"];
    Config::default().listen(listen).gateway(names.config()).flows(rest).start()
}

fn names() -> NameServer {
    NameServer::start(|_| Answer::Addresses(vec![THERE], 60))
}

/// A TLS client of `name` that trusts this authority.
fn tls(authority: &str, name: &str) -> rustls::ClientConnection {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    connection(client_config(roots, &["http/1.1"]), name)
}

/// A provider at the listener's port, on another address.
fn scripted(
    egret: &Egret,
    script: impl Fn(&mut egret_tests::provider::Peer) + Send + Sync + 'static,
) -> Provider {
    Provider::scripted_on(SocketAddr::new(THERE.into(), egret.address().port()), script)
}

#[test]
fn tls_to_another_host_is_a_tunnel_to_its_name() {
    let names = names();
    let egret = redirecting(&names, "");
    let (authority, port) = (Authority::default(), egret.address().port());
    let leaf: Leaf = authority.leaf(&["secure.test"]);
    leaf.serve_on(SocketAddr::new(THERE.into(), port), "through");
    let mut client = egret.client();
    client.shake_hands(tls(&authority.certificate(), "secure.test")).unwrap();
    assert_eq!(client.get("secure.test", "/").response().text(), "through");
    assert_eq!(names.queries("secure.test"), 1);
    assert_eq!(egret.control_get("/healthz").status, 200);
}

#[test]
fn the_bytes_of_a_tunnel_are_the_clients_own() {
    let names = names();
    let egret = redirecting(&names, "");
    let sent = [hello("secure.test", &["h2"]), vec![0; 9]].concat();
    let length = sent.len();
    let echo = scripted(&egret, move |peer| {
        let bytes = peer.take(length);
        peer.send(bytes.unwrap_or_default());
    });
    assert_eq!(egret.client().send(&sent).rest(), sent);
    assert_eq!(echo.connections(), 1);
}

#[test]
fn plain_requests_go_to_the_host_that_they_name() {
    let names = names();
    let origin =
        Provider::with_responses(|request| ok(&format!("{} {:?}", request.line, request.values("host"))));
    let egret = redirecting(&names, "");
    let host = format!("plain.test:{}", origin.address().port());
    let mut client = egret.client();
    // The name server says that it is elsewhere on this machine, where nothing listens at that port.
    client.get(&host, "/a").response().assert_generated(502, "connect-failed");
    let here = format!("localhost:{}", origin.address().port());
    let mut client = egret.client();
    for path in ["/a", "/b"] {
        let response = client.get(&here, path).response();
        assert_eq!(response.assert_forwarded(200).text(), format!("GET {path} HTTP/1.1 [{here:?}]"));
    }
    // One connection is for one authority, and routing fields do not count.
    client.get("other.test", "/").response().assert_generated(421, "misdirected");
    let request = format!("GET /c HTTP/1.1\r\nHost: {here}\r\nx-egret-host: other.test\r\n\r\n");
    egret.client().send(request).response().assert_forwarded(200);
    let request = format!("CONNECT {here} HTTP/1.1\r\nHost: {here}\r\n\r\n");
    egret.client().send(request).response().assert_generated(405, "connect-not-allowed");
    assert_eq!(origin.requests().len(), 3);
}

#[test]
fn intercepted_hosts_get_their_remedies() {
    let names = names();
    let directory = Directory::default();
    let rest = format!(
        "data_dir: {}\ninterception: {{ hosts: [secure.test] }}\nflows:\n  - name: all\n    \
         remedies: [{{ fixed-response: {{ body: from a remedy }} }}]\n",
        directory.path().display()
    );
    let file = directory.write("ca.yaml", &rest);
    let made = run(egret(["ca", "init", "--config"]).arg(&file));
    assert!(made.status.success(), "{made:?}");
    let egret = redirecting(&names, &rest);
    let ca = std::fs::read_to_string(directory.join("ca/ca.pem")).unwrap();
    let mut client = egret.client();
    client.shake_hands(tls(&ca, "secure.test")).unwrap();
    for path in ["/1", "/2"] {
        assert_eq!(
            client.get(format!("secure.test:{}", egret.address().port()), path).response().text(),
            "from a remedy"
        );
    }
    assert_eq!((egret.stat("/interception/exchanges"), names.queries("secure.test")), (2, 0));
}

#[test]
fn a_denied_host_gets_an_alert_and_no_look_up() {
    let names = names();
    let listen = ["{ address: \"127.0.0.1:0\", redirect: true }"];
    let config = Config::default().listen(listen).gateway(names.config());
    let egret = config.gateway("egress: { deny: [{ host: denied.test }, { net: 127.0.0.1/32 }] }").start();
    let denied = |bytes: &[u8]| egret.client().send(bytes).rest();
    // An alert (RFC 8446 §6): fatal, access denied.
    assert_eq!(denied(&hello("denied.test", &[])), [0x15, 3, 3, 0, 2, 2, 49]);
    assert_eq!((names.queries("denied.test"), egret.denials("rule")), (0, 1));
    // Without a name the address counts: here it is the listener's own.
    assert_eq!(denied(b"\0\0\0\x08\x04\xd2\x16\x2f"), b"");
    let mut client: Client = egret.client();
    client.get("denied.test", "/").response().assert_generated(403, "egress-denied");
}

#[test]
fn a_redirecting_listener_never_leads_to_itself() {
    let names = NameServer::start(|_| Answer::Addresses(vec![Ipv4Addr::LOCALHOST], 60));
    let egret = redirecting(&names, "");
    assert_eq!(egret.client().send(hello("self.test", &[])).rest(), [0x15, 3, 3, 0, 2, 2, 49]);
    assert_eq!(egret.client().send(b"\0\0\0\x08").rest(), b"");
    assert_eq!(egret.denials("own-port"), 2);
}

#[test]
fn bad_beginnings_end_the_connection() {
    let names = names();
    let egret = redirecting(&names, "");
    // A record that is no hello, and half a hello of a client that leaves.
    for bytes in [&b"\x16\x03\x01\x00\x01\x05"[..], &hello("secure.test", &[])[..60]] {
        let mut client = egret.client();
        client.send(bytes).half_close();
        let rest = client.rest();
        assert!(rest.is_empty() || rest[0] == 0x15, "{rest:?}");
    }
    egret.client().half_close().assert_closed();
    assert_eq!(names.queries("secure.test"), 0);
    let taken = TcpListener::bind((THERE, egret.address().port()));
    assert!(taken.is_ok(), "nothing was called");
    assert_eq!(egret.control_get("/healthz").status, 200);
}

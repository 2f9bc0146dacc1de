//! Providers of intercepted calls that fail: the client gets an error response over a connection that it
//! trusts, and no byte of its request has left.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use egret_tests::closed_port::ClosedPort;
use egret_tests::egret::Config;
use egret_tests::http::Response;
use egret_tests::intercepted::{Intercepting, SecureProvider};
use egret_tests::pki::Authority;
use egret_tests::provider::Provider;

/// Starts a gateway that intercepts a provider at that port of `localhost`, trusting `authority`, and sends a
/// request with a secret through it.
fn ask(port: u16, authority: &SecureProvider, keys: &str) -> Response {
    let url = format!("https://localhost:{port}");
    let tls = format!("tls: {{ ca: provider.pem }}{keys}");
    let config = Config::default().provider_with("origin", &url, &tls).flows("interception: {}\n");
    let intercepting = Intercepting::start(&config, authority);
    let host = format!("localhost:{port}");
    let mut client = intercepting.open(&host, "localhost", &["http/1.1"]).unwrap();
    let request = format!("POST /a HTTP/1.1\r\nHost: {host}\r\nContent-Length: 6\r\n\r\nsecret");
    let response = client.send(request).response();
    // The connection stays usable: the fault is the provider's.
    client.get(&host, "/b").response();
    response
}

fn detail(response: &Response) -> String {
    response.json()["detail"].as_str().unwrap_or_default().to_owned()
}

/// Starts a server that passes each connection to `serve`.
fn server(serve: impl Fn(TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || listener.incoming().flatten().for_each(serve));
    port
}

#[test]
fn a_certificate_that_is_refused_is_a_502_with_its_reason() {
    let known = SecureProvider::before("http://127.0.0.1:9");
    let unknown = Authority::default();
    let wrong_name = known.authority().leaf(&["other.example"]);
    for (leaf, reason) in [
        // The authorities of tests have the same name.
        (unknown.leaf(&["localhost"]), "its signature is invalid"),
        (wrong_name, "issued for another name"),
        (Authority::self_signed(&["localhost"], false).own(), "not signed by a trusted authority"),
    ] {
        let port = leaf.serve("never").port();
        let response = ask(port, &known, "");
        response.assert_generated(502, "tls-failed");
        assert!(detail(&response).contains(reason), "{response:?} {}", detail(&response));
    }
}

#[test]
fn a_provider_without_usable_tls_is_a_502() {
    let known = SecureProvider::before("http://127.0.0.1:9");
    let plain = Provider::scripted(|peer| {
        let _ = peer.read(&mut [0; 1024]);
        peer.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    });
    let response = ask(plain.address().port(), &known, "");
    response.assert_generated(502, "tls-failed");
    assert!(detail(&response).contains("does not speak TLS"), "{}", detail(&response));
    // An alert: it supports no version that the gateway offers.
    let port = server(|mut stream| {
        use std::io::{Read, Write};
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(&[0x15, 3, 1, 0, 2, 2, 70]);
    });
    let response = ask(port, &known, "");
    response.assert_generated(502, "tls-failed");
    assert!(detail(&response).contains("no secure version"), "{}", detail(&response));
}

#[test]
fn a_reset_in_the_handshake_is_a_502() {
    let known = SecureProvider::before("http://127.0.0.1:9");
    let port = server(|mut stream| {
        use std::io::Read;
        let _ = stream.read(&mut [0; 1]);
        // Dropped with bytes unread: the system sends a reset.
    });
    ask(port, &known, "").assert_generated(502, "tls-failed");
}

#[test]
fn a_client_certificate_that_is_wanted_is_named() {
    let known = SecureProvider::before("http://127.0.0.1:9");
    let leaf = known.authority().leaf(&["localhost"]);
    let port = server(move |mut stream| {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        let authority = leaf.certificate.as_bytes();
        roots.add(rustls::pki_types::pem::PemObject::from_pem_slice(authority).unwrap()).unwrap();
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::clone(&provider),
        );
        let key = rustls::pki_types::pem::PemObject::from_pem_slice(leaf.key.as_bytes()).unwrap();
        let chain = vec![rustls::pki_types::pem::PemObject::from_pem_slice(authority).unwrap()];
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(chain, key)
            .unwrap();
        let mut tls = rustls::ServerConnection::new(Arc::new(config)).unwrap();
        while tls.is_handshaking() {
            if tls.complete_io(&mut stream).is_err() {
                break;
            }
        }
    });
    let response = ask(port, &known, "");
    assert_eq!(response.status, 502, "{response:?}");
    let detail = detail(&response);
    assert!(detail.contains("tls.certificate"), "{detail}");
}

#[test]
fn a_closed_port_or_unknown_name_is_502() {
    let known = SecureProvider::before("http://127.0.0.1:9");
    let closed = ClosedPort::take();
    ask(closed.address().port(), &known, "").assert_generated(502, "connect-failed");
    let config = Config::default().flows("interception: { hosts: ['*.invalid'] }\n");
    let intercepting = Intercepting::start(&config, &known);
    let mut client = intercepting.open("a.invalid:443", "a.invalid", &["http/1.1"]).unwrap();
    let response = client.get("a.invalid", "/").response();
    assert!(matches!(response.status, 502 | 504), "{response:?}");
    assert!(response.field("x-egret-error").is_some_and(|slug| slug.starts_with("dns-")), "{response:?}");
}

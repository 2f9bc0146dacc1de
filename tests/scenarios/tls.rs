//! Providers over TLS: verified unless explicitly disabled.

use std::net::TcpListener;

use egret_tests::egret::{Config, Egret};
use egret_tests::peers::Nginx;
use egret_tests::pki::{Authority, respond_without_close_notify};
use egret_tests::process::Directory;
use egret_tests::provider::Provider;

/// Starts a gateway whose provider is nginx over TLS, with more keys for `tls:`, in a directory with
/// `ca.pem`.
fn before(nginx: &Nginx, authority: &Authority, keys: &str) -> (Egret, Directory) {
    let directory = Directory::default();
    directory.write("ca.pem", authority.certificate());
    let keys = keys.replace("DIR", directory.path().to_str().unwrap());
    let config = Config::default().provider_with("origin", nginx.tls_url(), &format!("tls: {{ {keys} }}"));
    (config.start(), directory)
}

const HELLO: &str = "location /hello { default_type text/plain; return 200 'over $ssl_protocol for $host'; }";

#[test]
fn a_providers_own_authority_is_trusted_if_configured() {
    let authority = Authority::default();
    let nginx = Nginx::start(&authority, HELLO);
    let (egret, _directory) = before(&nginx, &authority, "ca: \"DIR/ca.pem\"");
    for _ in 0..3 {
        assert_eq!(egret.get("/hello").assert_forwarded(200).text(), "over TLSv1.3 for localhost");
    }
    let stat = |name| egret.provider_stat("origin", name);
    assert!(stat("tls_handshakes") <= stat("connects"));
    // A request that another worker takes borrows the connection.
    assert_eq!(stat("pool_hits") + stat("pool_steals") + stat("tls_handshakes"), 3);
}

#[test]
fn an_unknown_authority_is_a_502() {
    let nginx = Nginx::start(&Authority::default(), HELLO);
    let (egret, _directory) = before(&nginx, &Authority::default(), "ca: \"DIR/ca.pem\"");
    egret.get("/hello").assert_generated(502, "tls-failed");
    assert_eq!(egret.provider_stat("origin", "tls_failures"), 1);
    let by_header = format!(
        "GET /hello HTTP/1.1\r\nHost: {}\r\nx-egret-host: 127.0.0.1:{}\r\nx-egret-scheme: https\r\n\r\n",
        egret.address(),
        nginx.tls_address().port()
    );
    egret.client().send(by_header).response().assert_generated(502, "tls-failed");
}

#[test]
fn a_certificate_for_an_unexpected_name_is_a_502() {
    let authority = Authority::default();
    let nginx = Nginx::start(&authority, HELLO);
    let directory = Directory::default();
    let ca = directory.write("ca.pem", authority.certificate());
    let ca = ca.display();
    let by_address = format!("https://127.0.0.2:{}", nginx.tls_address().port());
    let wrong = format!("https://127.0.0.1:{}", nginx.tls_address().port());
    let config = Config::default()
        .provider_with("origin", &wrong, &format!("tls: {{ ca: \"{ca}\", server_name: other.example }}"))
        .provider_with("right", &wrong, &format!("tls: {{ ca: \"{ca}\", server_name: localhost }}"))
        .provider_with("unreached", by_address, &format!("tls: {{ ca: \"{ca}\" }}"));
    let egret = config.start();
    egret.get("/hello").assert_generated(502, "tls-failed");
    egret.client().get(egret.address(), "/right/hello").response().assert_forwarded(200);
    egret
        .client()
        .get(egret.address(), "/unreached/hello")
        .response()
        .assert_generated(502, "connect-failed");
}

#[test]
fn a_server_s_own_certificate_is_believed_where_it_stands_in_ca() {
    for is_authority in [false, true] {
        let own = Authority::self_signed(&["127.0.0.1"], is_authority);
        let directory = Directory::default();
        let ca = directory.write("ca.pem", own.certificate());
        let keys = format!("tls: {{ ca: \"{}\" }}", ca.display());
        let other = Authority::self_signed(&["127.0.0.1"], is_authority);
        let egret = Config::default()
            .provider_with("origin", format!("https://{}", own.own().serve("its own")), &keys)
            .provider_with("other", format!("https://{}", other.own().serve("another's")), &keys)
            .provider_with(
                "renamed",
                format!("https://localhost:{}", own.own().serve("by name").port()),
                &keys,
            )
            .start();
        assert_eq!(egret.get("/").assert_forwarded(200).text(), "its own");
        // Neither another certificate with that name nor this one for another name.
        for provider in ["other", "renamed"] {
            let refused = egret.client().get(egret.address(), &format!("/{provider}/")).response();
            refused.assert_generated(502, "tls-failed");
        }
    }
}

#[test]
fn verification_is_switched_off_only_with_a_warning() {
    let nginx = Nginx::start(&Authority::default(), HELLO);
    let (egret, _directory) = before(&nginx, &Authority::default(), "verify: dangerously-off");
    egret.get("/hello").assert_forwarded(200);
    let log = egret.log_with("anyone can impersonate this provider");
    let warned =
        |line: &str| line.contains("\"WARN\"") && line.contains("impersonate") && line.contains("origin");
    assert!(log.lines().any(warned), "{log}");
}

#[test]
fn a_provider_that_wants_a_client_certificate_gets_it() {
    let authority = Authority::default();
    let own = authority.certificate();
    let nginx = Nginx::start_with(&authority, HELLO, |directory| {
        let ca = directory.write("client-ca.pem", own);
        format!("ssl_verify_client on; ssl_client_certificate {};", ca.display())
    });
    let leaf = authority.leaf(&["egret.test"]);
    let directory = Directory::default();
    directory.write("ca.pem", authority.certificate());
    directory.write("client.pem", &leaf.certificate);
    directory.write_secret("client.key", &leaf.key);
    let path = directory.path().display();
    let tls = format!(
        "tls: {{ ca: \"{path}/ca.pem\", certificate: \"{path}/client.pem\", key: \"${{file:{path}/client.key}}\" }}"
    );
    let config = Config::default().provider_with("origin", nginx.tls_url(), &tls).provider_with(
        "without",
        nginx.tls_url(),
        &format!("tls: {{ ca: \"{path}/ca.pem\" }}"),
    );
    let egret = config.start();
    egret.get("/hello").assert_forwarded(200);
    egret.client().get(egret.address(), "/without/hello").response().assert_forwarded(400);
    let shown = egret.control_get("/api/v1/config");
    let key = leaf.key.lines().nth(1).unwrap();
    assert!(!shown.text().contains(key) && !egret.log().contains(key), "the private key is visible");
}

#[test]
fn a_large_body_passes_over_tls_as_it_was() {
    let authority = Authority::default();
    let nginx = Nginx::start(&authority, "");
    let directory = Directory::default();
    let ca = directory.write("ca.pem", authority.certificate());
    let locations = format!("tls: {{ ca: \"{}\" }}", ca.display());
    let egret = Config::default().provider_with("origin", nginx.tls_url(), &locations).start();
    let body: Vec<u8> = (0..8_000_003_u32).map(|at| at.to_be_bytes()[3] ^ at.to_be_bytes()[2]).collect();
    std::fs::write(nginx.directory().join("www/down"), &body).unwrap();
    assert!(egret.get("/down").assert_forwarded(200).body == body, "the body differs");
}

#[test]
fn a_body_until_close_without_the_closing_alert_is_cut_short() {
    let authority = Authority::default();
    let directory = Directory::default();
    let ca = directory.write("ca.pem", authority.certificate());
    let server = authority.leaf(&["localhost", "127.0.0.1"]).server();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let provider = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        respond_without_close_notify(&server, stream, b"\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\nonly this");
    });
    let egret = Config::default()
        .provider_with("origin", url, &format!("tls: {{ ca: \"{}\" }}", ca.display()))
        .start();
    let response = egret.client().get(egret.address(), "/origin/").any_response_to("GET");
    provider.join().unwrap();
    assert!(response.cut, "a cut connection could shorten the response unnoticed: {response:?}");
}

#[test]
fn a_plain_provider_behind_an_https_url_is_a_502() {
    let origin = Provider::scripted(|peer| {
        let _ = peer.read(&mut [0; 1024]);
        peer.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    });
    let egret = Config::with_origin(format!("https://{}", origin.address())).start();
    egret.get("/").assert_generated(502, "tls-failed");
    egret.assert_well();
}

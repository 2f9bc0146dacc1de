//! HTTP/2 over TLS: on listeners, and inside tunnels that are intercepted.

use egret_tests::egret::Config;
use egret_tests::http::Client;
use egret_tests::http2::{DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, block, frame};
use egret_tests::intercepted::{Intercepting, SecureProvider, config};
use egret_tests::peers::curl;
use egret_tests::pki::Authority;
use egret_tests::process::{Directory, run_checked};
use egret_tests::provider::{Provider, ok};

/// Returns the config of a listener with TLS, and the file of the authority that its clients trust.
fn secure_listener(directory: &Directory) -> (String, String) {
    let authority = Authority::default();
    let leaf = authority.leaf(&["localhost", "127.0.0.1"]);
    let certificate = directory.write("chain.pem", leaf.certificate);
    let key = directory.write_secret("key.pem", leaf.key);
    let ca = directory.write("ca.pem", authority.certificate()).display().to_string();
    let listener = format!(
        "{{ address: '127.0.0.1:0', tls: {{ certificate: {}, key: '${{file:{}}}' }} }}",
        certificate.display(),
        key.display()
    );
    (listener, ca)
}

#[test]
fn curl_negotiates_it_with_a_listener() {
    let origin = Provider::with_responses(|request| ok(&request.line));
    let directory = Directory::default();
    let (listener, ca) = secure_listener(&directory);
    let egret = Config::with_origin(origin.url()).listen([&listener]).start();
    for (option, version) in [("--http2", "2"), ("--http1.1", "1.1")] {
        let url = format!("https://{}/origin/[1-2]", egret.address());
        let printed = run_checked(curl().args(["--cacert", &ca, option, "-w", " %{http_version}\n", &url]));
        let line = |id| format!("GET /{id} HTTP/1.1 {version}\n");
        assert_eq!(printed, [1, 2].map(line).concat());
    }
}

/// A flow whose remedy adds a field to each request.
const ADDING: &str = "interception: {}
flows:
  - name: calls
    match: { provider: origin }
    remedies:
      - transform: { request: { headers: { set: { x-added: by-a-remedy } } } }
";

/// Starts a gateway with that flow, before a provider that responds with the request line and the field.
fn start_adding() -> (Provider, SecureProvider, Intercepting) {
    let origin =
        Provider::with_responses(|request| ok(&format!("{} {:?}", request.line, request.values("x-added"))));
    let provider = SecureProvider::before(&origin.url());
    let intercepting = Intercepting::start(&config(&provider, ADDING), &provider);
    (origin, provider, intercepting)
}

#[test]
fn curl_negotiates_it_inside_an_intercepted_tunnel() {
    let (_origin, provider, intercepting) = start_adding();
    let egret = &intercepting.egret;
    let ca = intercepting.ca().display().to_string();
    let url = format!("{}/[1-3]", provider.url());
    let arguments = ["--fail", "--http2", "--cacert", &ca, "-w", " %{http_version} %{num_connects}\n"];
    let printed = run_checked(curl().args(arguments).env("HTTPS_PROXY", egret.url()).arg(url));
    let line = |id| format!("GET /{id} HTTP/1.1 [\"by-a-remedy\"] 2 {}\n", u8::from(id == 1));
    assert_eq!(printed, [1, 2, 3].map(line).concat());
    assert_eq!(egret.stat("/interception/connections"), 1);
}

/// Receives frames until one is of this type, and returns its payload.
fn payload_of(client: &mut Client, kind: u8) -> Vec<u8> {
    loop {
        let head = client.bytes(9);
        let payload = client.bytes(usize::from(u16::from_be_bytes([head[1], head[2]])));
        if head[3] == kind {
            return payload;
        }
    }
}

#[test]
fn a_client_that_offers_it_alone_is_intercepted() {
    let (_origin, provider, intercepting) = start_adding();
    let host = provider.host();
    let mut client = intercepting.open(&host, "localhost", &["h2"]).unwrap();
    assert_eq!(client.tls().alpn_protocol(), Some(&b"h2"[..]));
    let fields = [(":method", "GET"), (":scheme", "https"), (":authority", &host), (":path", "/a")];
    let request = frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&fields));
    client.send([PREFACE, &frame(SETTINGS, 0, 0, &[]), &request].concat());
    let body = payload_of(&mut client, DATA);
    assert_eq!(String::from_utf8_lossy(&body), "GET /a HTTP/1.1 [\"by-a-remedy\"]");
    assert_eq!(intercepting.egret.stat("/interception/connections"), 1);
    assert_eq!(intercepting.egret.stat("/interception/provider_tunnels"), 0);
}

#[test]
fn http2_can_be_switched_off() {
    let origin = Provider::with_responses(|request| ok(&request.line));
    let directory = Directory::default();
    let (listener, ca) = secure_listener(&directory);
    let config = Config::with_origin(origin.url()).gateway("http2: false");
    let egret = config.listen([&listener, "'127.0.0.1:0'"]).start();
    let url = format!("https://{}/origin/1", egret.address());
    let printed = run_checked(curl().args(["--cacert", &ca, "--http2", "-w", " %{http_version}", &url]));
    assert_eq!(printed, "GET /1 HTTP/1.1 1.1");
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let mut client = Client::connect(egret.listener(1));
    client.send(preface).response().assert_generated(505, "version-not-supported");
}

//! Clients behind `HTTPS_PROXY` whose HTTPS is intercepted: flows apply to their calls, and all that HTTP can
//! do works as without.

use egret_tests::egret::Config;
use egret_tests::http::{Client, WEBSOCKET};
use egret_tests::intercepted::{Intercepting, SecureProvider, config, connection, hello, tunnel};
use egret_tests::peers::{Httpbin, curl};
use egret_tests::pki::Authority;
use egret_tests::process::run_checked;
use egret_tests::provider::{Provider, ok};
use egret_tests::recorded::{entries, files, until_exporter, until_recorded};
use egret_tests::wait;

const RECORDING: &str = "interception: {}
exporters: { archive: { type: har, directory: har } }
flows:
  - name: calls
    match: { provider: origin, path: '/items/{id}' }
    remedies:
      - transform: { request: { headers: { set: { x-added: by-a-remedy } } } }
    diagnoses:
      - har: { export: archive, obfuscate: false }
";

#[test]
fn curl_gets_a_remedy_and_a_record() {
    let origin =
        Provider::with_responses(|request| ok(&format!("{} {:?}", request.line, request.values("x-added"))));
    let provider = SecureProvider::before(&origin.url());
    let intercepting = Intercepting::start(&config(&provider, RECORDING), &provider);
    let egret = &intercepting.egret;
    let ca = intercepting.ca().display().to_string();
    let url = format!("{}/items/[1-3]?q=1", provider.url());
    let arguments = ["--fail", "--cacert", &ca, "-w", " %{num_connects} %{ssl_verify_result}\n"];
    let printed = run_checked(curl().args(arguments).env("HTTPS_PROXY", egret.url()).arg(url));
    let line = |id| format!("GET /items/{id}?q=1 HTTP/1.1 [\"by-a-remedy\"] {} 0\n", u8::from(id == 1));
    assert_eq!(printed, [1, 2, 3].map(line).concat(), "three calls on one connection");
    until_recorded(egret, 3);
    until_exporter(egret, "archive", "three entries are written", |counts| counts["written"] == 3);
    egret.terminate();
    wait::until("the files are closed", || {
        let entries = entries(&files(&egret.directory().join("har")));
        (entries.len() == 3).then(|| {
            for entry in &entries {
                assert_eq!(entry["_intercepted"], true, "{entry}");
                assert_eq!(entry["_provider"], "origin");
                let url = entry["request"]["url"].as_str().unwrap();
                assert!(url.starts_with(&format!("{}/items/", provider.url())), "{url}");
            }
        })
    });
}

#[test]
fn a_host_that_is_not_listed_shows_its_own_certificate() {
    let origin = Provider::plain();
    let (listed, other) = (SecureProvider::before(&origin.url()), SecureProvider::before(&origin.url()));
    let rest = "interception: { tunnel: [127.0.0.1] }";
    let intercepting = Intercepting::start(&config(&listed, rest), &listed);
    let egret = &intercepting.egret;
    let ca = egret.directory().write("other.pem", other.authority().certificate()).display().to_string();
    // By another port, the host is no configured provider; by an address in `tunnel`, nothing is.
    let by_address = listed.host().replace("localhost", "127.0.0.1");
    let own = egret.directory().write("own.pem", listed.authority().certificate()).display().to_string();
    for (ca, host) in [(&ca, other.host()), (&own, by_address)] {
        let url = format!("https://{host}/");
        let printed = run_checked(curl().args(["--cacert", ca, "--proxy", &egret.url(), &url]));
        assert_eq!(printed, "hello", "{host}");
    }
    assert_eq!(egret.stat("/interception/connections"), 0);
}

#[test]
fn a_tunnel_of_another_host_carries_the_bytes_as_they_are() {
    let sent = [hello("localhost", &["h2"]), vec![0; 9]].concat();
    let length = sent.len();
    let echo = Provider::scripted(move |peer| {
        let bytes = peer.take(length);
        peer.send(bytes.unwrap_or_default());
    });
    let provider = SecureProvider::before("http://127.0.0.1:9");
    let intercepting = Intercepting::start(&config(&provider, "interception: {}"), &provider);
    let mut client = tunnel(&intercepting.egret, &echo.address().to_string());
    assert_eq!(client.send(&sent).rest(), sent);
}

#[test]
fn without_the_key_a_tunnel_to_a_provider_is_reported() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    for _ in 0..3 {
        let mut client = tunnel(&egret, &origin.address().to_string());
        client.get("a", "/").response().assert_forwarded(200);
    }
    assert_eq!(egret.stat("/interception/provider_tunnels"), 3);
    let line = "a tunnel leads to a configured provider";
    let log = egret.log_with(line);
    assert_eq!(log.matches(line).count(), 1, "{log}");
}

#[test]
fn large_bodies_pass_in_both_directions() {
    let httpbin = Httpbin::start();
    let provider = SecureProvider::before(&httpbin.url());
    let intercepting = Intercepting::start(&config(&provider, "interception: {}"), &provider);
    let mut client = intercepting.client(&provider);
    let body = vec![b'x'; 8 << 20];
    client.send(format!(
        "POST /anything HTTP/1.1\r\nHost: {}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n",
        provider.host(),
        body.len()
    ));
    client.send(&body);
    let echoed = client.response();
    assert_eq!(echoed.assert_forwarded(200).json()["data"].as_str().map(str::len), Some(body.len()));
    let drip = client.get(provider.host(), "/bytes/65536?seed=1").response();
    assert_eq!(drip.assert_forwarded(200).body.len(), 65536);
}

#[test]
fn events_arrive_one_by_one() {
    let origin = Provider::scripted(|peer| {
        let _ = peer.request();
        peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
        peer.send("9\r\ndata: 1\n\n\r\n");
        // The second event waits for the client, which has to see the first one before.
        let _ = peer.request();
        peer.stall();
    });
    let provider = SecureProvider::before(&origin.url());
    let intercepting = Intercepting::start(&config(&provider, "interception: {}"), &provider);
    let mut client = intercepting.client(&provider);
    assert_eq!(client.get(provider.host(), "/events").head().status, 200);
    let event = client.bytes(b"9\r\ndata: 1\n\n\r\n".len());
    assert_eq!(event, b"9\r\ndata: 1\n\n\r\n");
}

#[test]
fn a_websocket_opens_inside() {
    let httpbin = Httpbin::start();
    let provider = SecureProvider::before(&httpbin.url());
    let intercepting = Intercepting::start(&config(&provider, "interception: {}"), &provider);
    let mut client = intercepting.client(&provider);
    client.request(provider.host(), "GET /websocket/echo", WEBSOCKET, "");
    assert_eq!(client.head().status, 101);
    // A masked text frame (RFC 6455 §5.2), with a mask of zeros.
    client.send([&[0x81, 0x85, 0, 0, 0, 0][..], b"hello"].concat());
    assert_eq!(client.bytes(7), [&[0x81, 5][..], b"hello"].concat());
}

#[test]
fn a_tunnel_on_a_listener_with_tls_is_intercepted_too() {
    let origin = Provider::plain();
    let provider = SecureProvider::before(&origin.url());
    let authority = Authority::default();
    let leaf = authority.leaf(&["localhost"]);
    let directory = egret_tests::process::Directory::default();
    let (certificate, key) =
        (directory.write("server.pem", leaf.certificate), directory.write_secret("server.key", leaf.key));
    let listen = format!(
        "{{ address: \"127.0.0.1:0\", tls: {{ certificate: \"{}\", key: \"${{file:{}}}\" }} }}",
        certificate.display(),
        key.display()
    );
    let config = config(&provider, "interception: {}").listen([&listen]);
    let intercepting = Intercepting::start(&config, &provider);
    let (proxy_ca, ca) = (directory.write("proxy.pem", authority.certificate()), intercepting.ca());
    let proxy = format!("https://localhost:{}", intercepting.egret.address().port());
    let printed = run_checked(
        curl().args(["--proxy", &proxy, "--proxy-cacert"]).arg(proxy_ca).arg("--cacert").arg(ca).args([
            "--fail",
            &format!("{}/a", provider.url()),
            &format!("{}/b", provider.url()),
        ]),
    );
    assert_eq!(printed, "hellohello");
    assert_eq!(intercepting.egret.stat("/interception/exchanges"), 2);
}

#[test]
fn one_connection_is_kept_over_a_reload_that_no_longer_intercepts() {
    let origin = Provider::plain();
    let provider = SecureProvider::before(&origin.url());
    let before = config(&provider, "interception: {}");
    let intercepting = Intercepting::start(&before, &provider);
    let egret = &intercepting.egret;
    let mut client = intercepting.client(&provider);
    client.get(provider.host(), "/1").response().assert_forwarded(200);
    egret.rewrite(config(&provider, "interception: { tunnel: [localhost] }").yaml());
    wait::until("the reload is done", || (egret.stat("/reloads") == 1).then_some(()));
    client.get(provider.host(), "/2").response().assert_forwarded(200);
    // A worker that is held up for a second gets the new config later.
    wait::until_true("a new tunnel is not intercepted", || {
        let mut after = tunnel(egret, &provider.host());
        after.shake_hands(connection(intercepting.client_config(&[]), "localhost")).is_err()
    });
}

#[test]
fn a_host_added_by_a_reload_is_relayed_and_logged() {
    let origin = Provider::plain();
    let (provider, other) = (SecureProvider::before(&origin.url()), SecureProvider::before(&origin.url()));
    let intercepting = Intercepting::start(&config(&provider, "interception: {}"), &provider);
    let egret = &intercepting.egret;
    let rest = "interception: { hosts: [127.0.0.1] }";
    egret.rewrite(config(&provider, rest).yaml());
    wait::until("the reload is done", || (egret.stat("/reloads") == 1).then_some(()));
    egret.until_logged("egret ca init --force");
    let by_address = other.host().replace("localhost", "127.0.0.1");
    let ca = egret.directory().write("other.pem", other.authority().certificate());
    let url = format!("https://{by_address}/");
    let printed = run_checked(curl().args(["--proxy", &egret.url(), "--cacert"]).arg(ca).arg(url));
    assert_eq!(printed, "hello");
}

#[test]
fn plain_http_in_a_tunnel_is_served_too() {
    let origin = Provider::with_responses(|request| ok(&request.line));
    let rest = "interception: {}\nflows:\n  - { name: all, match: { provider: origin }, remedies: [{ fixed-response: { status: 204 } }] }\n";
    let egret = Config::with_origin(origin.url()).flows(rest).start();
    let mut client: Client = tunnel(&egret, &origin.address().to_string());
    for _ in 0..2 {
        assert_eq!(client.get(origin.address(), "/a").response().status, 204);
    }
    assert_eq!(origin.connections(), 0);
    assert_eq!(egret.stat("/interception/exchanges"), 2);
}

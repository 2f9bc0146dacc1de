//! Clients of intercepted hosts that do it wrong, or otherwise: each gets a clear outcome, and the gateway
//! goes on.

use std::io::ErrorKind;

use egret_tests::closed_port::ClosedPort;
use egret_tests::egret::{Config, Egret};
use egret_tests::http::Client;
use egret_tests::intercepted::{
    Intercepting, SecureProvider, client_config, config, connection, hello, tunnel,
};
use egret_tests::provider::{Provider, ok};
use egret_tests::wait;
use rustls::{AlertDescription, Error, RootCertStore};

/// Starts a gateway that intercepts a provider, with more keys of `interception` and of `gateway`.
fn start(interception: &str, gateway: &str) -> (Provider, SecureProvider, Intercepting) {
    let origin = Provider::with_responses(|request| ok(&request.line));
    let provider = SecureProvider::before(&origin.url());
    let config = config(&provider, &format!("interception: {{ {interception} }}")).gateway(gateway);
    let intercepting = Intercepting::start(&config, &provider);
    (origin, provider, intercepting)
}

/// Asserts that the next thing that the peer sends is this alert, and that it closes then.
fn assert_alert(client: &mut Client, alert: u8) {
    let received = client.rest();
    assert_eq!(received, [0x15, 3, 3, 0, 2, 2, alert], "{received:x?}");
}

/// Returns the alert that ended a handshake.
fn alert_of(error: &std::io::Error) -> Option<AlertDescription> {
    match error.get_ref()?.downcast_ref::<Error>()? {
        Error::AlertReceived(alert) => Some(*alert),
        _ => None,
    }
}

/// Opens a tunnel with its first bytes behind the CONNECT, so that a short `timeouts.head` does not expire
/// before them on a busy machine.
fn tunnel_with(egret: &Egret, authority: &str, first: &[u8]) -> Client {
    let mut client = egret.client();
    let connect = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
    client.send([connect.as_bytes(), first].concat());
    assert_eq!(client.response_to("HEAD").status, 200);
    client
}

fn until_tls_failures(egret: &Egret, count: u64) {
    wait::until("the failure is counted", || (egret.stat("/clients/tls_failures") == count).then_some(()));
}

#[test]
fn a_hello_may_come_byte_by_byte() {
    let (_origin, provider, intercepting) = start("", "workers: 1");
    let mut client = tunnel(&intercepting.egret, &provider.host());
    let mut tls = connection(intercepting.client_config(&["http/1.1"]), "localhost");
    let mut bytes = Vec::new();
    tls.write_tls(&mut bytes).unwrap();
    for byte in bytes {
        client.send([byte]);
    }
    client.shake_hands(tls).unwrap();
    client.get(provider.host(), "/a").response().assert_forwarded(200);
}

#[test]
fn a_hello_may_follow_the_connect_at_once() {
    let (_origin, provider, intercepting) = start("", "workers: 1");
    let mut client = intercepting.egret.client();
    let mut tls = connection(intercepting.client_config(&["http/1.1"]), "localhost");
    let mut bytes = format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", provider.host()).into_bytes();
    tls.write_tls(&mut bytes).unwrap();
    client.send(bytes);
    assert_eq!(client.response_to("HEAD").status, 200);
    client.shake_hands(tls).unwrap();
    client.get(provider.host(), "/a").response().assert_forwarded(200);
}

#[test]
fn a_hello_that_is_too_large_or_broken_gets_an_alert() {
    let (origin, provider, intercepting) = start("", "workers: 1");
    let egret = &intercepting.egret;
    // A handshake message of 60,000 bytes, in records of 1 KiB.
    let mut large = Vec::new();
    for number in 0..20 {
        large.extend([0x16, 3, 1, 4, 0]);
        large.extend(if number == 0 { [1, 0, 0xea, 0x60] } else { [0; 4] });
        large.extend([0; 1020]);
    }
    let mut client = tunnel(egret, &provider.host());
    client.offer(large);
    let received = client.rest();
    // A reset may overtake the alert, because the gateway stops reading.
    assert!(received.is_empty() || received == [0x15, 3, 3, 0, 2, 2, 50], "{received:x?}");
    until_tls_failures(egret, 1);
    let mut client = tunnel(egret, &provider.host());
    client.send(b"\x16GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(client.rest().first(), Some(&0x15));
    until_tls_failures(egret, 2);
    assert_eq!(origin.connections(), 0);
    egret.assert_well();
}

#[test]
fn a_hello_that_stops_is_given_up() {
    let (_origin, provider, intercepting) = start("", "timeouts: { head: 1s }");
    let egret = &intercepting.egret;
    tunnel_with(egret, &provider.host(), &[0x16]).assert_closed();
    until_tls_failures(egret, 1);
    let hello = hello("localhost", &["http/1.1"]);
    let mut client = tunnel_with(egret, &provider.host(), &hello[..hello.len() / 2]);
    client.half_close().assert_closed();
    until_tls_failures(egret, 2);
    // The handshake itself has a timeout too.
    let mut client = tunnel_with(egret, &provider.host(), &hello);
    let _ = client.rest();
    until_tls_failures(egret, 3);
    wait::until("nobody is left", || (egret.stat("/clients/open") == 0).then_some(()));
}

#[test]
fn a_client_that_leaves_before_a_byte_is_forgotten() {
    let (origin, provider, intercepting) = start("", "workers: 1");
    let egret = &intercepting.egret;
    drop(tunnel(egret, &provider.host()));
    wait::until("nobody is left", || (egret.stat("/clients/open") == 0).then_some(()));
    assert_eq!((egret.stat("/clients/tls_failures"), origin.connections()), (0, 0));
}

/// A provider whose protocol begins with the server's greeting, and then echoes a line.
fn greeting() -> Provider {
    Provider::scripted(|peer| {
        peer.send("220 ready\r\n");
        let line = peer.take(6).unwrap_or_default();
        peer.send(line);
    })
}

#[test]
fn a_protocol_in_which_the_server_begins_is_relayed_after_a_while() {
    let server = greeting();
    let config =
        Config::with_origin(server.url()).gateway("timeouts: { head: 1s }").flows("interception: {}\n");
    let egret = config.start();
    let mut client = tunnel(&egret, &server.address().to_string());
    assert_eq!(client.bytes(11), b"220 ready\r\n");
    client.send("NOOP\r\n");
    assert_eq!(client.rest(), b"NOOP\r\n");
    assert_eq!(egret.stat("/interception/provider_tunnels"), 1);
}

#[test]
fn other_protocols_are_relayed_byte_by_byte() {
    for first in [
        &b"\x80\x2e\x01\x03\x01\0"[..],
        b"SSH-2.",
        b"HELO m",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\0\0\0\0\0\0",
    ] {
        let length = first.len();
        let echo = Provider::scripted(move |peer| {
            let bytes = peer.take(length);
            peer.send(bytes.unwrap_or_default());
        });
        let egret = Config::with_origin(echo.url()).flows("interception: {}\n").start();
        let mut client = tunnel(&egret, &echo.address().to_string());
        assert_eq!(client.send(first).rest(), first, "{}", first.escape_ascii());
    }
}

#[test]
fn a_relay_that_cannot_be_opened_closes_the_tunnel() {
    let port = ClosedPort::take();
    let closed = port.address();
    let egret = Config::with_origin(format!("http://{closed}")).flows("interception: {}\n").start();
    let mut client = tunnel(&egret, &closed.to_string());
    client.send("HELO me\r\n").assert_closed();
    wait::until("nobody is left", || (egret.stat("/clients/open") == 0).then_some(()));
}

#[test]
fn other_protocols_are_closed_if_the_config_says_so() {
    let (origin, provider, intercepting) = start("unknown: refuse", "timeouts: { head: 1s }");
    let egret = &intercepting.egret;
    for first in [&b"\x80\x2e\x01\x03\x01"[..], b"SSH-2.0-x", b"PRI * HTTP/2.0\r\n\r\n", b"GE", b""] {
        tunnel_with(egret, &provider.host(), first).assert_closed();
    }
    let hello = hello("localhost", &["h2c", "acme-tls/1"]);
    let mut client = tunnel_with(egret, &provider.host(), &hello);
    assert_alert(&mut client, AlertDescription::NoApplicationProtocol.into());
    assert_eq!(egret.stat("/interception/unknown"), 6);
    assert_eq!(origin.connections(), 0);
    // What is served, still is, unless its handshake comes late on a busy machine.
    let open = || intercepting.open(&provider.host(), "localhost", &["http/1.1"]).ok();
    let mut client = wait::until("a tunnel is served", open);
    client.get(provider.host(), "/a").response().assert_forwarded(200);
}

#[test]
fn a_client_of_unserved_protocols_reaches_the_provider_itself() {
    for (gateway, offered) in [("workers: 1", "acme-tls/1"), ("http2: false", "h2")] {
        let (_origin, provider, intercepting) = start("", gateway);
        let mut roots = RootCertStore::empty();
        let authority = provider.authority().certificate();
        roots.add(rustls::pki_types::pem::PemObject::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
        let mut client = tunnel(&intercepting.egret, &provider.host());
        // nginx rejects an ALPN of which it knows none, and would accept the client's authority otherwise.
        let refused = client.shake_hands(connection(client_config(roots, &[offered]), "localhost"));
        let refused = refused.map(|_| ()).unwrap_err();
        assert_eq!(alert_of(&refused), Some(AlertDescription::NoApplicationProtocol), "{offered}: {refused}");
        assert_eq!(intercepting.egret.stat("/interception/connections"), 0, "{offered}");
    }
}

#[test]
fn the_name_in_the_hello_must_be_the_tunnels() {
    let (origin, provider, intercepting) = start("", "workers: 1");
    let egret = &intercepting.egret;
    for name in ["other.example", "localhost.example", "a.localhost"] {
        let mut client = tunnel(egret, &provider.host());
        client.send(hello(name, &["http/1.1"]));
        assert_alert(&mut client, AlertDescription::UnrecognisedName.into());
    }
    assert_eq!(egret.stat("/interception/sni_mismatches"), 3);
    assert_eq!(origin.connections(), 0);
    // Other spellings of the name are the same name.
    for (authority, name) in
        [("LOCALHOST", "localhost"), ("localhost.", "localhost"), ("localhost", "LocalHost")]
    {
        let authority = provider.host().replace("localhost", authority);
        let mut client = intercepting.open(&authority, name, &["http/1.1"]).unwrap();
        client.get(provider.host(), "/a").response().assert_forwarded(200);
    }
}

#[test]
fn a_name_that_is_none_gets_an_alert() {
    let (_origin, provider, intercepting) = start("", "workers: 1");
    // A name of the same length, with a byte that no name has.
    let hello = hello("localhost", &["http/1.1"]);
    let at = hello.windows(9).position(|window| window == b"localhost").unwrap();
    for byte in [0, b' ', b'/', 0xff] {
        let mut changed = hello.clone();
        changed[at + 4] = byte;
        let mut client = tunnel(&intercepting.egret, &provider.host());
        client.send(changed);
        let received = client.rest();
        assert_eq!(received.first(), Some(&0x15), "{byte}: {received:x?}");
    }
    intercepting.egret.assert_well();
}

#[test]
fn a_hello_without_a_name_gets_the_tunnels_own() {
    let origin = Provider::plain();
    let provider = SecureProvider::before(&origin.url());
    let by_address = provider.host().replace("localhost", "127.0.0.1");
    let rest = "interception: { hosts: [127.0.0.1] }";
    let config = config(&provider, rest).provider_with(
        "address",
        format!("https://{by_address}"),
        "tls: { ca: provider.pem }",
    );
    let intercepting = Intercepting::start(&config, &provider);
    // A client sends no address as a name, and no protocol if it has none to offer.
    let mut client = intercepting.open(&by_address, "127.0.0.1", &[]).unwrap();
    client.get(&by_address, "/a").response().assert_forwarded(200);
    assert_eq!(client.tls().alpn_protocol(), None);
}

#[test]
fn requests_inside_must_be_for_the_tunnels_authority() {
    let (origin, provider, intercepting) = start("", "workers: 1");
    let host = provider.host();
    let mut client = intercepting.client(&provider);
    for (request, status, slug) in [
        ("GET /a HTTP/1.1\r\nHost: other.example\r\n\r\n".to_owned(), 421, "misdirected"),
        (format!("GET https://other.example/ HTTP/1.1\r\nHost: {host}\r\n\r\n"), 400, "bad-request"),
        (format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n"), 400, "bad-request"),
    ] {
        client.send(request).response().assert_generated(status, slug);
    }
    assert_eq!(origin.connections(), 0);
    let routing = "x-egret-host: other.example\r\nx-egret-scheme: http\r\nx-lunar-host: other.example\r\n";
    let line = client.send(format!("GET https://{host}/b HTTP/1.1\r\nHost: h\r\n{routing}\r\n")).response();
    assert_eq!(line.assert_forwarded(200).text(), "GET /b HTTP/1.1");
    let names = origin.only_request().fields;
    assert!(
        !names.iter().any(|(name, _)| name.starts_with("x-egret") || name.starts_with("x-lunar")),
        "{names:?}"
    );
    client.send(format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    client.response().assert_generated(405, "connect-not-allowed");
}

#[test]
fn a_bad_request_inside_is_refused_inside() {
    let (origin, provider, intercepting) = start("", "workers: 1");
    let mut client = intercepting.client(&provider);
    client.send("GET / HTTP/1.1\r\nHost : a\r\n\r\n").response().assert_generated(400, "bad-request");
    assert_eq!(client.rest(), b"");
    assert_eq!(origin.connections(), 0);
}

#[test]
fn an_alert_at_any_stage_ends_the_connection() {
    let (_origin, provider, intercepting) = start("", "workers: 1");
    let egret = &intercepting.egret;
    let alert = [0x15, 3, 3, 0, 2, 2, 80];
    // In place of a hello, it is no protocol that is served: relayed, and the provider closes.
    let mut client = tunnel(egret, &provider.host());
    client.send(alert);
    let _ = client.rest();
    // In the middle of one, and after it.
    let hello = hello("localhost", &["http/1.1"]);
    for end in [hello.len() / 2, hello.len()] {
        let mut client = tunnel(egret, &provider.host());
        client.send(&hello[..end]).offer(alert);
        let _ = client.rest();
    }
    until_tls_failures(egret, 2);
    // After the handshake, and after a request.
    for requests in 0..2 {
        let mut client = intercepting.client(&provider);
        for _ in 0..requests {
            client.get(provider.host(), "/a").response().assert_forwarded(200);
        }
        client.tls().send_close_notify();
        client.offer("");
        client.assert_closed();
    }
    egret.assert_well();
}

#[test]
fn a_host_that_the_policy_denies_is_denied_at_the_connect() {
    let origin = Provider::plain();
    let provider = SecureProvider::before(&origin.url());
    let config = config(&provider, "interception: { hosts: [denied.example] }")
        .gateway("egress: { deny: [{ host: denied.example }] }");
    let intercepting = Intercepting::start(&config, &provider);
    let mut client = intercepting.egret.client();
    client.send("CONNECT denied.example:443 HTTP/1.1\r\nHost: denied.example\r\n\r\n");
    client.response().assert_generated(403, "egress-denied");
}

#[test]
fn many_names_below_one_share_a_certificate() {
    let origin = Provider::plain();
    let provider = SecureProvider::before(&origin.url());
    let rest = "interception: { hosts: ['*.api.example'] }";
    let intercepting = Intercepting::start(&config(&provider, rest), &provider);
    let mut seen = std::collections::HashSet::new();
    for number in 0..20 {
        let name = format!("n{number}.api.example");
        let mut client = intercepting.open(&format!("{name}:443"), &name, &["http/1.1"]).unwrap();
        seen.insert(client.tls().peer_certificates().unwrap()[0].to_vec());
    }
    assert_eq!(seen.len(), 1);
}

#[test]
fn a_connection_that_ends_without_a_goodbye_is_closed_quietly() {
    let (_origin, provider, intercepting) = start("", "workers: 1");
    let mut client = intercepting.client(&provider);
    client.get(provider.host(), "/a").response().assert_forwarded(200);
    let kind = client.stream().take_error().unwrap().map(|error| error.kind());
    assert_eq!(kind, None::<ErrorKind>);
    client.reset();
    wait::until("nobody is left", || (intercepting.egret.stat("/clients/open") == 0).then_some(()));
}

//! Egress policy: allowed and denied targets, judged by the address that is actually connected to.

use std::net::SocketAddr;

use egret_tests::egret::{Config, Egret};
use egret_tests::http::Response;
use egret_tests::provider::Provider;

/// Sends a request to the gateway as a forward proxy.
fn ask(egret: &Egret, authority: impl std::fmt::Display) -> Response {
    egret.client().send(format!("GET http://{authority}/ HTTP/1.1\r\nHost: a\r\n\r\n")).response()
}

/// Requests a tunnel.
fn tunnel(egret: &Egret, authority: impl std::fmt::Display) -> Response {
    egret.client().send(format!("CONNECT {authority} HTTP/1.1\r\nHost: a\r\n\r\n")).response_to("HEAD")
}

/// Asserts that both are denied for this reason.
fn assert_denied(egret: &Egret, authority: impl std::fmt::Display, reason: &str) {
    let before = egret.denials(reason);
    ask(egret, &authority).assert_generated(403, "egress-denied");
    let refused = tunnel(egret, &authority);
    assert_eq!((refused.status, refused.field("x-egret-error")), (403, Some("egress-denied")), "{authority}");
    assert_eq!(egret.denials(reason) - before, 2, "{authority} is not denied for {reason}");
}

fn with_egress(rules: &str) -> Config {
    Config::default().gateway(format!("egress: {{ {rules} }}"))
}

#[test]
fn a_host_is_denied_by_name_in_any_spelling() {
    let origin = Provider::plain();
    let port = origin.address().port();
    let egret = with_egress("deny: [{ host: localhost }, { host: \"*.example.com\" }]").start();
    for host in ["localhost", "LocalHost", "localhost.", "a.example.com", "A.B.EXAMPLE.COM"] {
        assert_denied(&egret, format!("{host}:{port}"), "rule");
    }
    ask(&egret, origin.address()).assert_forwarded(200);
}

#[test]
fn a_range_is_denied_whatever_name_leads_there() {
    let origin = Provider::plain();
    let port = origin.address().port();
    let egret = with_egress("deny: [{ net: 127.0.0.0/8 }]").gateway("dns: { resolver: system }").start();
    for host in ["127.0.0.1", "[::ffff:127.0.0.1]"] {
        assert_denied(&egret, format!("{host}:{port}"), "rule");
    }
    // The name may also resolve to an IPv6 address without a listener.
    let by_name = ask(&egret, format!("localhost:{port}"));
    assert!(
        matches!(by_name.field("x-egret-error"), Some("egress-denied" | "connect-failed")),
        "{by_name:?}"
    );
    // Spellings of the same address that a strict parser rejects must not reach it either.
    for host in ["2130706433", "0x7f.1", "0177.0.0.1", "127.1", "0"] {
        let response = ask(&egret, format!("{host}:{port}"));
        assert_eq!(response.field("x-egret-generated"), Some("true"), "{host}: {response:?}");
    }
    assert_eq!(origin.connections(), 0);
}

#[test]
fn a_regular_expression_denies_in_every_way_of_routing() {
    let origin = Provider::plain();
    let port = origin.address().port();
    let egret =
        with_egress(r"deny: [{ host: 'regex:(.+\.)?(local|inner)[a-z]*' }, { host: 'regex:127\.0\..*' }]")
            .start();
    for host in ["localhost", "LOCALHOST.", "a.localhost", "x.y.innermost", "127.0.0.1", "[::ffff:127.0.0.1]"]
    {
        assert_denied(&egret, format!("{host}:{port}"), "rule");
        for fields in [
            format!("Host: {host}:{port}\r\n"),
            format!("Host: {}\r\nx-egret-host: {host}:{port}\r\n", egret.address()),
            format!("Host: {}\r\nMashape-Host-Override: {host}:{port}\r\n", egret.address()),
        ] {
            let response = egret.client().send(format!("GET / HTTP/1.1\r\n{fields}\r\n")).response();
            response.assert_generated(403, "egress-denied");
        }
    }
    assert_eq!(origin.connections(), 0);
}

#[test]
fn a_regular_expression_allows_whole_hosts_only() {
    let origin = Provider::plain();
    let there = origin.address();
    let egret = with_egress(r"default: deny, allow: [{ host: 'regex:127\.0\.0\.\d' }]").start();
    ask(&egret, there).assert_forwarded(200);
    for host in ["127.0.0.11", "127.0.0.1.example", "127.0.1.1"] {
        assert_denied(&egret, format!("{host}:{}", there.port()), "not-allowed");
    }
}

#[test]
fn ports_are_denied() {
    let (denied, allowed) = (Provider::plain(), Provider::plain());
    let egret = with_egress(&format!("deny: [{{ ports: [{}] }}]", denied.address().port())).start();
    assert_denied(&egret, denied.address(), "rule");
    ask(&egret, allowed.address()).assert_forwarded(200);
    assert_eq!(denied.connections(), 0);
}

#[test]
fn with_default_deny_only_what_is_named_or_configured_is_reached() {
    let (named, configured, other) = (Provider::plain(), Provider::plain(), Provider::plain());
    let rules = format!("default: deny, allow: [{{ net: 127.0.0.1, ports: [{}] }}]", named.address().port());
    let egret = with_egress(&rules).provider("origin", configured.url()).start();
    assert_denied(&egret, other.address(), "not-allowed");
    ask(&egret, named.address()).assert_forwarded(200);
    egret.get("/").assert_forwarded(200);
    assert_eq!(other.connections(), 0);
}

#[test]
fn metadata_and_link_local_addresses_are_denied_even_on_loopback() {
    let egret = Config::default().start();
    for host in ["169.254.169.254", "[::ffff:169.254.169.254]", "[fd00:ec2::254]", "metadata.google.internal"]
    {
        assert_denied(&egret, format!("{host}:80"), "metadata");
    }
    for host in ["169.254.7.7", "[fe80::1]"] {
        assert_denied(&egret, format!("{host}:80"), "link-local");
    }
    egret.assert_well();
}

#[test]
fn the_gateways_own_ports_are_denied_under_every_address_of_the_machine() {
    let egret = Config::default().start();
    for host in ["127.0.0.1", "localhost", "127.0.0.2", "0.0.0.0", "[::ffff:127.0.0.1]"] {
        let control = ask(&egret, format!("{host}:{}", egret.control().port()));
        assert_eq!(
            control.field("x-egret-generated"),
            Some("true"),
            "{host}: {control:?} {}",
            control.text()
        );
        let tunnelled = tunnel(&egret, format!("{host}:{}", egret.control().port()));
        assert_ne!(tunnelled.status, 200, "a tunnel to the control port by {host}");
    }
    assert_denied(&egret, egret.control(), "own-port");
    let own = tunnel(&egret, egret.address());
    assert_eq!((own.status, own.field("x-egret-error")), (403, Some("egress-denied")));
}

#[test]
fn an_allow_rule_that_names_what_is_built_in_lifts_it() {
    let egret = Config::default().start();
    let control = egret.control();
    let config = format!("allow: [{{ net: 127.0.0.1, ports: [{}] }}]", control.port());
    let other = with_egress(&config).start();
    // The control port of another process has no special protection. To allow its own, the port would have to
    // be known before.
    ask(&other, control).assert_forwarded(200);
}

#[test]
fn modes_that_let_through_count_or_do_not() {
    let origin = Provider::plain();
    for (mode, denials) in [("report", 1), ("off", 0)] {
        let egret = with_egress(&format!("mode: {mode}, deny: [{{ net: 127.0.0.0/8 }}]")).start();
        ask(&egret, origin.address()).assert_forwarded(200);
        assert_eq!(egret.denials("rule"), denials, "{mode}");
    }
}

/// Starts a gateway that the network can reach. Returns its loopback address.
fn exposed(config: Config) -> (Egret, SocketAddr) {
    let egret = config.listen(["\"0.0.0.0:0\""]).start();
    let address = SocketAddr::from(([127, 0, 0, 1], egret.address().port()));
    (egret, address)
}

fn ask_at(gateway: SocketAddr, authority: impl std::fmt::Display) -> Response {
    let mut client = egret_tests::http::Client::connect(gateway);
    client.send(format!("GET http://{authority}/ HTTP/1.1\r\nHost: a\r\n\r\n")).response()
}

#[test]
fn a_gateway_that_the_network_can_reach_is_no_open_proxy() {
    let (egret, address) = exposed(Config::default());
    ask_at(address, "some.example.com:80").assert_generated(403, "egress-denied");
    assert_eq!((egret.denials("closed-proxy"), egret.stat("/dns/lookups")), (1, 0));
}

#[test]
fn allowed_addresses_are_served_to_the_network() {
    let (named, configured) = (Provider::plain(), Provider::plain());
    let allow = "egress: { allow: [{ net: 127.0.0.0/8 }] }";
    let (_egret, address) = exposed(Config::with_origin(configured.url()).gateway(allow));
    ask_at(address, named.address()).assert_forwarded(200);
    let mut client = egret_tests::http::Client::connect(address);
    client.get(address, "/origin/").response().assert_forwarded(200);
}

#[test]
fn an_open_proxy_still_denies_private_addresses() {
    let origin = Provider::plain();
    let (egret, address) = exposed(Config::default().gateway("open_proxy: true"));
    for host in [
        "10.1.2.3:80",
        "172.16.0.1:80",
        "192.168.1.1:80",
        "100.64.0.1:80",
        "[fd12::1]:80",
        "[64:ff9b::a00:1]:80",
    ] {
        ask_at(address, host).assert_generated(403, "egress-denied");
    }
    ask_at(address, origin.address()).assert_generated(403, "egress-denied");
    assert_eq!(egret.denials("private"), 7);
    assert_eq!(origin.connections(), 0);
}

#[test]
fn a_denied_name_is_not_looked_up() {
    let egret = with_egress("deny: [{ host: secret.example.com }]").start();
    assert_denied(&egret, "secret.example.com:80", "rule");
    assert_eq!(egret.stat("/dns/lookups"), 0);
}

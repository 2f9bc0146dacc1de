//! Tests of all ways in which clients name a provider.

use std::net::SocketAddr;

use crate::fixture::Fixture;
use egret_match::OtherProduct;
use egret_plan::config::{GatewayConfig, ListenConfig, Providers, Scheme};

const OWN: &str = "127.0.0.1:8000";
const REVERSE: &str = "127.0.0.1:8002";
/// A listener whose default scheme is `https`.
const SECURE: &str = "127.0.0.1:8003";
/// A listener that forwards the client's `Host`, and sends `https` requests to a different provider.
const KEPT: &str = "127.0.0.1:8004";

/// Returns the request as it would be forwarded, and its destination, or the error's slug.
fn forwarded(listener: &str, request: &str) -> Result<(String, String), &'static str> {
    forward(&mut fixture(listener), request)
}

fn forward(fixture: &mut Fixture, request: &str) -> Result<(String, String), &'static str> {
    let mut sent = Vec::new();
    let to = fixture.forward(request.as_bytes(), |slice| sent.extend_from_slice(slice))?;
    Ok((String::from_utf8(sent).unwrap(), to.to_string()))
}

fn fixture(listener: &str) -> Fixture {
    fixture_with(listener, None)
}

fn fixture_with(listener: &str, compat: Option<Vec<OtherProduct>>) -> Fixture {
    let plain = |address: &str| ListenConfig::from(address.parse::<SocketAddr>().unwrap());
    let provider = Some("maps".to_owned());
    let secure = ListenConfig { scheme: Scheme::Https, ..plain(SECURE) };
    let kept = ListenConfig {
        provider: provider.clone(),
        https_provider: Some("stripe".to_owned()),
        keep_host: true,
        ..plain(KEPT)
    };
    let config = GatewayConfig {
        listen: vec![plain(OWN), ListenConfig { provider, ..plain(REVERSE) }, secure, kept],
        names: vec!["egret.internal".to_owned()],
        scheme_fields: vec!["x-upstream-protocol".to_owned(), "X-Forwarded-Proto".to_owned()],
        private_fields: vec!["Service-Token".to_owned()],
        compat,
        ..GatewayConfig::default()
    };
    let providers: Providers = serde_json::from_value(serde_json::json!({
        "maps": { "url": "http://maps.example:8080/v2/" },
        "stripe": { "url": "https://api.stripe.example" },
    }))
    .unwrap();
    Fixture::new(&config, &providers, listener.parse().unwrap())
}

fn check(listener: &str, request: &str, sent: &str, to: &str) {
    let (found, origin) = forwarded(listener, request).unwrap_or_else(|slug| panic!("{slug} for {request}"));
    let sent = sent.replace('\n', "\r\n") + "Via: 1.1 egret-0\r\n\r\n";
    assert_eq!((found, origin), (sent, to.to_owned()), "{request}");
}

#[test]
fn an_absolute_target_decides_and_host_is_made_from_it() {
    check(
        OWN,
        "GET http://API.other.example:81/a?b HTTP/1.1\r\nHost: evil.example\r\nX-A: 1\r\n\r\n",
        "GET /a?b HTTP/1.1\nHost: api.other.example:81\nX-A: 1\n",
        "http://api.other.example:81",
    );
    check(
        OWN,
        "GET https://api.stripe.example?x HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /?x HTTP/1.1\nHost: api.stripe.example\n",
        "https://api.stripe.example:443",
    );
    assert_eq!(forwarded(OWN, "GET ftp://h/ HTTP/1.1\r\nHost: h\r\n\r\n"), Err("bad-request"));
}

#[test]
fn connect_opens_a_tunnel_but_not_on_a_reverse_listener() {
    let request = "CONNECT api.stripe.example:443 HTTP/1.1\r\nHost: h\r\n\r\n";
    assert_eq!(forwarded(OWN, request), Ok((String::new(), "tunnel to api.stripe.example:443".to_owned())));
    assert_eq!(forwarded(REVERSE, request), Err("connect-not-allowed"));
}

#[test]
fn a_base_url_names_the_provider_in_its_first_segment() {
    check(
        OWN,
        "GET /stripe/v1/charges?limit=3 HTTP/1.1\r\nHost: localhost:8000\r\n\r\n",
        "GET /v1/charges?limit=3 HTTP/1.1\nHost: api.stripe.example\n",
        "https://api.stripe.example:443",
    );
    check(
        OWN,
        "GET /maps HTTP/1.1\r\nHost: EGRET.internal:8000\r\n\r\n",
        "GET /v2/ HTTP/1.1\nHost: maps.example:8080\n",
        "http://maps.example:8080",
    );
    check(
        OWN,
        "GET http://127.0.0.1:8000/maps?q HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n\r\n",
        "GET /v2/?q HTTP/1.1\nHost: maps.example:8080\n",
        "http://maps.example:8080",
    );
    for target in ["/", "/Stripe/x", "/stripes/x", "//stripe/x"] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {OWN}\r\n\r\n");
        assert_eq!(forwarded(OWN, &request), Err("unknown-provider"), "{target}");
    }
}

#[test]
fn header_fields_name_the_host_and_are_not_forwarded() {
    for (host, scheme) in [
        ("x-egret-host", "x-egret-scheme"),
        ("X-Lunar-Host", "X-Lunar-Scheme"),
        ("Mashape-Host-Override", "Mashape-Upstream-Protocol"),
    ] {
        let request = format!(
            "GET /a HTTP/1.1\r\nHost: {OWN}\r\n{host}: b.example\r\n{scheme}: HTTPS\r\nX-A: 1\r\n\r\n"
        );
        check(OWN, &request, "GET /a HTTP/1.1\nHost: b.example\nX-A: 1\n", "https://b.example:443");
    }
    check(
        OWN,
        "GET /stripe/a HTTP/1.1\r\nHost: localhost:8000\r\nMashape-Host-Override: c.example\r\nx-egret-host: b.example\r\n\r\n",
        "GET /stripe/a HTTP/1.1\nHost: b.example\n",
        "http://b.example:80",
    );
}

#[test]
fn fields_of_unlisted_products_name_nothing_and_stay_behind() {
    let fields = "X-Lunar-Host: b.example\r\nx-lunar-scheme: https\r\nX-A: 1\r\nx-lunar-consumer-tag: c\r\n\
                  Mashape-Host-Override: d.example\r\nmashape-upstream-protocol: https\r\n";
    for (listed, scheme, host, port) in [
        (vec![], "http", "a.example", 80),
        (vec![OtherProduct::Lunar], "https", "b.example", 443),
        (vec![OtherProduct::Harchiver], "https", "d.example", 443),
    ] {
        let request = format!("GET /a HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n");
        let found = forward(&mut fixture_with(OWN, Some(listed)), &request).unwrap();
        let sent = format!("GET /a HTTP/1.1\r\nHost: {host}\r\nX-A: 1\r\nVia: 1.1 egret-0\r\n\r\n");
        assert_eq!(found, (sent, format!("{scheme}://{host}:{port}")));
    }
}

#[test]
fn the_path_of_a_chosen_host_stays_unprefixed() {
    let to = "http://maps.example:8080";
    for (request, host) in [
        ("GET http://maps.example:8080/v2/a HTTP/1.1\r\nHost: h\r\n\r\n", "maps.example:8080"),
        ("GET /v2/a HTTP/1.1\r\nHost: h\r\nx-egret-host: maps.example:8080\r\n\r\n", "maps.example:8080"),
        ("GET /v2/a HTTP/1.1\r\nHost: MAPS.example:8080\r\n\r\n", "maps.example:8080"),
    ] {
        check(OWN, request, &format!("GET /v2/a HTTP/1.1\nHost: {host}\n"), to);
    }
}

#[test]
fn without_a_scheme_the_configured_provider_of_that_host_decides() {
    check(
        OWN,
        "GET /a HTTP/1.1\r\nHost: h\r\nx-egret-host: api.stripe.example\r\n\r\n",
        "GET /a HTTP/1.1\nHost: api.stripe.example\n",
        "https://api.stripe.example:443",
    );
}

#[test]
fn fields_that_the_config_names_say_the_scheme_and_stay_behind() {
    for (fields, scheme) in [
        ("X-Forwarded-Proto: https\r\n", "https"),
        ("X-Forwarded-Proto: HTTPS , http\r\n", "https"),
        ("X-Forwarded-Proto: \r\n", "http"),
        ("X-Forwarded-Proto: https\r\nX-Upstream-Protocol: HTTP\r\n", "http"),
        ("X-Upstream-Protocol: HTTP\r\nx-egret-scheme: https\r\n", "https"),
        ("Mashape-Upstream-Protocol: HTTPS\r\nX-Upstream-Protocol: HTTP\r\n", "https"),
    ] {
        let request =
            format!("GET /a HTTP/1.1\r\nHost: b.example\r\n{fields}service-token: s\r\nX-A: 1\r\n\r\n");
        let port = if scheme == "https" { 443 } else { 80 };
        let to = format!("{scheme}://b.example:{port}");
        check(OWN, &request, "GET /a HTTP/1.1\nHost: b.example\nX-A: 1\n", &to);
    }
    let request = "GET /a HTTP/1.1\r\nHost: b.example\r\nX-Forwarded-Proto: wss\r\n\r\n";
    assert_eq!(forwarded(OWN, request), Err("bad-request"));
}

#[test]
fn a_listener_has_a_scheme_for_requests_that_name_none() {
    let sent = "GET /a HTTP/1.1\nHost: b.example\n";
    for (field, to) in [("", "https://b.example:443"), ("x-egret-scheme: http\r\n", "http://b.example:80")] {
        check(SECURE, &format!("GET /a HTTP/1.1\r\nHost: b.example\r\n{field}\r\n"), sent, to);
    }
    let request = "GET /a HTTP/1.1\r\nHost: maps.example:8080\r\n\r\n";
    let sent = "GET /a HTTP/1.1\nHost: maps.example:8080\n";
    check(SECURE, request, sent, "http://maps.example:8080");
}

#[test]
fn a_listener_may_have_a_provider_for_each_scheme() {
    for (request, sent, to) in [
        (
            "GET /a HTTP/1.1\r\nHost: Mine.example\r\n\r\n",
            "GET /v2/a HTTP/1.1\nHost: Mine.example\n",
            "http://maps.example:8080",
        ),
        (
            "GET /a HTTP/1.1\r\nHost: mine.example\r\nX-Upstream-Protocol: https\r\n\r\n",
            "GET /a HTTP/1.1\nHost: mine.example\n",
            "https://api.stripe.example:443",
        ),
        (
            "GET /a HTTP/1.1\r\nHost: mine.example\r\nMashape-Host-Override: other.example:81\r\n\r\n",
            "GET /v2/a HTTP/1.1\nHost: other.example:81\n",
            "http://maps.example:8080",
        ),
        (
            "GET http://mine.example/a HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET /v2/a HTTP/1.1\nHost: mine.example\n",
            "http://maps.example:8080",
        ),
    ] {
        check(KEPT, request, sent, to);
    }
    let (sent, _) = forwarded(KEPT, "GET /a HTTP/1.0\r\n\r\n").unwrap();
    assert!(sent.contains("Host: maps.example:8080\r\n"), "{sent}");
    let request = "GET /a HTTP/1.1\r\nHost: h\r\nx-egret-host: a b\r\n\r\n";
    assert_eq!(forwarded(KEPT, request), Err("bad-request"));
}

#[test]
fn any_other_host_is_where_the_request_goes() {
    check(
        OWN,
        "GET /a HTTP/1.1\r\nHost: B.example\r\n\r\n",
        "GET /a HTTP/1.1\nHost: b.example\n",
        "http://b.example:80",
    );
    assert_eq!(forwarded(OWN, "GET /a HTTP/1.0\r\n\r\n"), Err("bad-request"));
}

#[test]
fn a_reverse_listener_has_one_provider_whatever_the_request_says() {
    for (target, host) in [("/a", OWN), ("/a", "b.example"), ("http://b.example/a", "b.example")] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nx-egret-host: c.example\r\n\r\n");
        check(REVERSE, &request, "GET /v2/a HTTP/1.1\nHost: maps.example:8080\n", "http://maps.example:8080");
    }
    check(
        REVERSE,
        "OPTIONS * HTTP/1.1\r\nHost: b.example\r\n\r\n",
        "OPTIONS * HTTP/1.1\nHost: maps.example:8080\n",
        "http://maps.example:8080",
    );
}

/// Returns what `forwarded` returns, for a request inside a tunnel to the provider `stripe`.
fn forwarded_inside(tls: bool, request: &str) -> Result<(String, String), &'static str> {
    let mut fixture = fixture(OWN);
    fixture.tunnel(OWN.parse().unwrap(), "API.stripe.example:443", tls);
    forward(&mut fixture, request)
}

#[test]
fn inside_a_tunnel_its_authority_decides() {
    let sent = |target: &str, host: &str| {
        format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nVia: 1.1 egret-0\r\n\r\n")
    };
    let own = "api.stripe.example";
    for (request, target) in [
        ("GET /a?b HTTP/1.1\r\nHost: api.stripe.example\r\n\r\n", "/a?b"),
        ("GET /a HTTP/1.1\r\nHost: API.Stripe.example.:443\r\n\r\n", "/a"),
        ("GET https://api.stripe.example/a HTTP/1.1\r\nHost: h\r\n\r\n", "/a"),
        ("GET HTTPS://api.stripe.example:443?b HTTP/1.1\r\nHost: h\r\n\r\n", "/?b"),
        // What names another destination elsewhere is removed.
        (
            "GET /maps/a HTTP/1.1\r\nHost: api.stripe.example\r\nx-egret-host: b.example\r\nx-egret-scheme: http\r\n\r\n",
            "/maps/a",
        ),
    ] {
        let found = forwarded_inside(true, request);
        assert_eq!(found, Ok((sent(target, own), format!("https://{own}:443"))), "{request}");
    }
    let asked = "OPTIONS * HTTP/1.1\r\nHost: api.stripe.example\r\n\r\n";
    assert!(forwarded_inside(true, asked).unwrap().0.starts_with("OPTIONS * HTTP/1.1\r\n"));
}

#[test]
fn inside_a_tunnel_nothing_leads_elsewhere() {
    for (request, slug) in [
        ("GET /a HTTP/1.1\r\nHost: other.example\r\n\r\n", "misdirected"),
        ("GET /a HTTP/1.1\r\nHost: api.stripe.example:444\r\n\r\n", "misdirected"),
        ("GET /a HTTP/1.1\r\nHost: a b\r\n\r\n", "bad-request"),
        ("GET https://other.example/a HTTP/1.1\r\nHost: api.stripe.example\r\n\r\n", "bad-request"),
        ("GET http://api.stripe.example/a HTTP/1.1\r\nHost: api.stripe.example\r\n\r\n", "bad-request"),
        ("CONNECT api.stripe.example:443 HTTP/1.1\r\nHost: h\r\n\r\n", "connect-not-allowed"),
    ] {
        assert_eq!(forwarded_inside(true, request), Err(slug), "{request}");
    }
}

#[test]
fn inside_a_tunnel_without_tls_the_scheme_is_http() {
    let request = "GET /a HTTP/1.1\r\nHost: api.stripe.example:443\r\n\r\n";
    let (_, to) = forwarded_inside(false, request).unwrap();
    assert_eq!(to, "http://api.stripe.example:443");
    let request = "GET /a HTTP/1.0\r\n\r\n";
    let (sent, to) = forwarded_inside(true, request).unwrap();
    assert!(sent.contains("\r\nHost: api.stripe.example\r\n"), "{sent}");
    assert_eq!(to, "https://api.stripe.example:443");
}

#[test]
fn hop_by_hop_fields_stay_behind_and_everything_else_keeps_its_order() {
    check(
        REVERSE,
        "POST /a HTTP/1.1\r\nB: 1\r\nConnection: keep-alive, X-Hop, Authorization\r\nKeep-Alive: timeout=5\r\n\
         X-Hop: 1\r\nHost: h\r\nAuthorization: kept\r\nProxy-Authorization: secret\r\nb: 2\r\nTE: trailers\r\n\
         Transfer-Encoding: chunked\r\n\r\n",
        "POST /v2/a HTTP/1.1\nB: 1\nHost: maps.example:8080\nAuthorization: kept\nb: 2\nTransfer-Encoding: chunked\n\
         TE: trailers\nConnection: TE\n",
        "http://maps.example:8080",
    );
}

#[test]
fn an_http_1_0_request_becomes_an_http_1_1_request() {
    let (sent, _) = forwarded(REVERSE, "GET /a HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").unwrap();
    assert_eq!(sent, "GET /v2/a HTTP/1.1\r\nHost: maps.example:8080\r\nVia: 1.0 egret-0\r\n\r\n");
}

#[test]
fn a_request_that_has_been_here_before_is_refused() {
    let request = |via: &str| format!("GET /a HTTP/1.1\r\nHost: h\r\nVia: {via}\r\n\r\n");
    assert_eq!(forwarded(REVERSE, &request("1.1 proxy, 1.1 egret-0")), Err("loop-detected"));
    assert!(forwarded(REVERSE, &request("1.1 egret-1")).is_ok());
}

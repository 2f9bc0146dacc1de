//! The five ways to address a provider, all on one port.

use std::net::{IpAddr, Ipv6Addr};

use egret_tests::egret::{Config, Egret};
use egret_tests::provider::{Provider, ok};

/// Starts a gateway in front of `origin`, which is also its configured provider of that name.
fn before(origin: &Provider) -> Egret {
    Config::with_origin(origin.url()).start()
}

#[test]
fn an_absolute_target_overrides_the_host_field() {
    let (origin, decoy) = (Provider::plain(), Provider::plain());
    let egret = Config::default().start();
    let request =
        format!("GET http://{}/a/b?c=d HTTP/1.1\r\nHost: {}\r\n\r\n", origin.address(), decoy.address());
    egret.client().send(request).response().assert_forwarded(200);
    let request = origin.only_request();
    assert_eq!(request.line, "GET /a/b?c=d HTTP/1.1");
    assert_eq!(request.values("host"), [origin.address().to_string()]);
    assert_eq!(decoy.connections(), 0);
}

#[test]
fn an_absolute_form_target_without_a_path_asks_for_the_root() {
    let origin = Provider::plain();
    let egret = Config::default().start();
    let address = origin.address();
    egret.client().send(format!("GET http://{address} HTTP/1.1\r\nHost: {address}\r\n\r\n")).response();
    egret.client().send(format!("GET http://{address}?a=b HTTP/1.1\r\nHost: {address}\r\n\r\n")).response();
    let lines: Vec<String> = origin.requests().into_iter().map(|request| request.line).collect();
    assert_eq!(lines, ["GET / HTTP/1.1", "GET /?a=b HTTP/1.1"]);
}

#[test]
fn connect_opens_a_blind_tunnel() {
    let origin = Provider::scripted(|peer| {
        if peer.take(5).is_some_and(|greeting| greeting == b"\0\xff\r\nx") {
            peer.send(b"\x16\x03\x01binary\n");
        }
    });
    let egret = Config::default().start();
    let address = origin.address();
    let mut client = egret.client();
    client.send(format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n"));
    let opened = client.response_to("HEAD");
    assert_eq!(opened.status, 200);
    assert_eq!((opened.field("content-length"), opened.field("transfer-encoding")), (None, None));
    assert_eq!(client.send(b"\0\xff\r\nx").rest(), b"\x16\x03\x01binary\n");
}

#[test]
fn bytes_sent_right_behind_a_connect_reach_the_tunnel() {
    let origin = Provider::scripted(|peer| {
        let greeting = peer.take(5).unwrap_or_default();
        peer.send(greeting);
    });
    let egret = Config::default().start();
    let address = origin.address();
    let mut client = egret.client();
    client.send(format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\nearly"));
    assert_eq!(client.response_to("HEAD").status, 200);
    assert_eq!(client.bytes(5), b"early");
}

#[test]
fn a_base_url_names_a_configured_provider() {
    let origin = Provider::plain();
    let egret = before(&origin);
    for host in [egret.address().to_string(), format!("localhost:{}", egret.address().port())] {
        egret.client().get(host, "/origin/v1/charges?limit=3").response().assert_forwarded(200);
    }
    for request in origin.requests() {
        assert_eq!(request.line, "GET /v1/charges?limit=3 HTTP/1.1");
        assert_eq!(request.values("host"), [origin.address().to_string()]);
    }
    assert_eq!(origin.requests().len(), 2);
}

#[test]
fn a_base_url_is_extended_by_the_requests_path() {
    let origin = Provider::plain();
    let config = Config::with_origin(origin.url()).provider("v2", format!("{}/api/v2/", origin.url()));
    let egret = config.start();
    for target in ["/origin", "/origin/", "/origin?a=b", "/v2", "/v2/", "/v2/x?y=z", "/origin//x/../y%2f"] {
        egret.client().get(egret.address(), target).response().assert_forwarded(200);
    }
    let targets: Vec<String> = origin.requests().iter().map(|request| request.target().to_owned()).collect();
    assert_eq!(targets[..3], ["/", "/", "/?a=b"]);
    // The prefix may be requested with or without a trailing slash; nothing outside of it is requested.
    assert_eq!(targets[3].trim_end_matches('/'), "/api/v2");
    assert_eq!(targets[4..], ["/api/v2/", "/api/v2/x?y=z", "//x/../y%2f"]);
}

#[test]
fn header_fields_name_the_host_and_are_not_forwarded() {
    let origin = Provider::plain();
    let egret = Config::default().start();
    let ways = [
        ("x-egret-host", "x-egret-scheme"),
        ("X-Lunar-Host", "X-Lunar-Scheme"),
        ("Mashape-Host-Override", "Mashape-Upstream-Protocol"),
    ];
    for (host, scheme) in ways {
        let (own, target) = (egret.address(), origin.address());
        let request = format!(
            "GET /a HTTP/1.1\r\nHost: {own}\r\n{host}: {target}\r\n{scheme}: http\r\nX-Kept: 1\r\n\r\n"
        );
        egret.client().send(request).response().assert_forwarded(200);
    }
    for request in origin.requests() {
        assert_eq!(request.line, "GET /a HTTP/1.1");
        assert_eq!(request.values("host"), [origin.address().to_string()]);
        assert_eq!(request.values("x-kept"), ["1"]);
        let routing =
            |name: &str| ["x-egret-", "x-lunar-", "mashape-"].iter().any(|prefix| name.starts_with(prefix));
        assert!(request.fields.iter().all(|(name, _)| !routing(&name.to_ascii_lowercase())), "{request:?}");
    }
    assert_eq!(origin.requests().len(), 3);
}

#[test]
fn private_fields_and_their_patterns_are_not_forwarded() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).gateway("private_fields: [x-team, x-lunar-*]").start();
    let request = format!(
        "GET /origin/a HTTP/1.1\r\nHost: {}\r\nX-Team: a\r\nX-Lunar-Sequence-Id: 1\r\nx-lunar-interceptor: py\r\n\
         X-Team-Name: b\r\nX-Luna: c\r\n\r\n",
        egret.address()
    );
    egret.client().send(request).response().assert_forwarded(200);
    let request = origin.only_request();
    for name in ["x-team", "x-lunar-sequence-id", "x-lunar-interceptor"] {
        assert_eq!(request.values(name), [""; 0], "{name}");
    }
    assert_eq!((request.values("x-team-name"), request.values("x-luna")), (vec!["b"], vec!["c"]));
}

#[test]
fn a_foreign_host_field_names_the_host() {
    let origin = Provider::plain();
    let egret = Config::default().start();
    egret.client().get(origin.address(), "/origin/a").response().assert_forwarded(200);
    assert_eq!(origin.only_request().line, "GET /origin/a HTTP/1.1");
    assert_eq!(origin.only_request().values("host"), [origin.address().to_string()]);
}

#[test]
fn a_reverse_listener_sends_everything_to_its_provider() {
    let (origin, decoy) = (Provider::plain(), Provider::plain());
    let config = Config::with_origin(origin.url());
    let egret = config.listen(["\"127.0.0.1:0\"", "{ address: \"127.0.0.1:0\", provider: origin }"]).start();
    let foreign = decoy.address();
    for request in [
        format!("GET /origin/a HTTP/1.1\r\nHost: {foreign}\r\n\r\n"),
        format!("GET /origin/a HTTP/1.1\r\nHost: {foreign}\r\nx-egret-host: {foreign}\r\n\r\n"),
        format!("GET http://{foreign}/origin/a HTTP/1.1\r\nHost: {foreign}\r\n\r\n"),
    ] {
        egret_tests::http::Client::connect(egret.listener(1)).send(request).response().assert_forwarded(200);
    }
    for request in origin.requests() {
        assert_eq!(request.line, "GET /origin/a HTTP/1.1");
        assert_eq!(request.values("host"), [origin.address().to_string()]);
    }
    assert_eq!((origin.requests().len(), decoy.connections()), (3, 0));
}

#[test]
fn only_http_and_https_are_forwarded_on_whichever_route() {
    let origin = Provider::plain();
    let config = Config::with_origin(origin.url());
    let egret = config.listen(["\"127.0.0.1:0\"", "{ address: \"127.0.0.1:0\", provider: origin }"]).start();
    for (listener, authority) in [(0, egret.address()), (0, origin.address()), (1, origin.address())] {
        let mut client = egret_tests::http::Client::connect(egret.listener(listener));
        client.send(format!("GET ftp://{authority}/origin/ HTTP/1.1\r\nHost: {authority}\r\n\r\n"));
        client.response().assert_generated(400, "bad-request");
    }
    assert_eq!(origin.connections(), 0);
}

#[test]
fn a_reverse_listener_opens_no_tunnels() {
    let origin = Provider::plain();
    let config = Config::with_origin(origin.url()).listen(["{ address: \"127.0.0.1:0\", provider: origin }"]);
    let request = format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.address());
    config.start().client().send(request).response().assert_generated(405, "connect-not-allowed");
    assert_eq!(origin.connections(), 0);
}

#[test]
fn ipv6_works_on_both_sides_in_every_way() {
    let origin = Provider::scripted_at(IpAddr::V6(Ipv6Addr::LOCALHOST), |peer| {
        while peer.request().is_some() {
            peer.send(ok("six"));
        }
    });
    let config = Config::with_origin(origin.url());
    let egret = config.listen(["\"[::1]:0\"", "{ address: \"[::1]:0\", provider: origin }"]).start();
    let (own, target) = (egret.address(), origin.address());
    assert!(own.is_ipv6() && target.is_ipv6());
    for request in [
        format!("GET http://{target}/a HTTP/1.1\r\nHost: {target}\r\n\r\n"),
        format!("GET /origin/a HTTP/1.1\r\nHost: {own}\r\n\r\n"),
        format!("GET /a HTTP/1.1\r\nHost: {target}\r\n\r\n"),
        format!("GET /a HTTP/1.1\r\nHost: {own}\r\nx-egret-host: {target}\r\n\r\n"),
    ] {
        assert_eq!(egret.client().send(request).response().assert_forwarded(200).text(), "six");
    }
    egret_tests::http::Client::connect(egret.listener(1)).get(own, "/a").response().assert_forwarded(200);
    let mut tunnel = egret.client();
    tunnel.send(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"));
    assert_eq!(tunnel.response_to("HEAD").status, 200);
    assert_eq!(tunnel.get(target, "/a").response().text(), "six");
    assert!(origin.requests().iter().all(|request| request.line == "GET /a HTTP/1.1"));
    assert_eq!(origin.requests().len(), 6);
}

#[test]
fn localhost_is_looked_up_and_reached() {
    let origin = Provider::plain();
    let egret = Config::with_origin(format!("http://localhost:{}", origin.address().port())).start();
    egret.get("/a").assert_forwarded(200);
    assert_eq!(origin.only_request().values("host"), [format!("localhost:{}", origin.address().port())]);
}

#[test]
fn an_unknown_provider_is_a_404_that_names_those_that_are_known() {
    let origin = Provider::plain();
    let egret = before(&origin);
    let response = egret.client().get(egret.address(), "/orgin/a").response();
    response.assert_generated(404, "unknown-provider");
    assert!(response.text().contains("origin"), "{}", response.text());
    assert_eq!(origin.connections(), 0);
}

#[test]
fn a_name_that_does_not_resolve_is_a_502() {
    let egret = Config::default().gateway("dns: { resolver: system, timeout: 1m }").start();
    let response = egret.client().get("no-such-host.invalid", "/").response();
    response.assert_generated(502, "dns-failed");
}

#[test]
fn fields_pass_both_ways_with_order_case_and_duplicates_kept() {
    let origin = Provider::responding(
        b"HTTP/1.1 200 Fine\r\nX-b: 1\r\nset-COOKIE: a\r\nX-A: \xa7\r\nset-COOKIE: b\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
          Content-Length: 0\r\n\r\n",
    );
    let egret = before(&origin);
    let own = egret.address();
    let request = format!(
        "GET /origin/ HTTP/1.1\r\nx-Z: 1\r\nHost: {own}\r\nCookie: a\r\nACCEPT: x\r\nCookie: b\r\nEmpty:\r\n\r\n"
    );
    let response = egret.client().send(request).response();
    let received = origin.only_request();
    let sent: Vec<&str> =
        received.fields.iter().map(|field| field.0.as_str()).filter(|name| *name != "Via").collect();
    assert_eq!(sent, ["x-Z", "Host", "Cookie", "ACCEPT", "Cookie", "Empty"]);
    assert_eq!(received.values("cookie"), ["a", "b"]);
    assert_eq!(response.status_line, "HTTP/1.1 200 Fine");
    let names: Vec<&str> =
        response.fields.iter().map(|field| field.0.as_str()).filter(|name| *name != "Via").collect();
    let added = ["x-egret-request-id"];
    assert_eq!(
        names,
        [&["X-b", "set-COOKIE", "X-A", "set-COOKIE", "date", "Content-Length"], &added[..]].concat()
    );
    assert_eq!(response.values("set-cookie"), ["a", "b"]);
    assert_eq!(response.field("x-a"), Some("\u{a7}"));
}

#[test]
fn hop_by_hop_fields_are_removed_in_both_directions() {
    let origin = Provider::responding(
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: x-secret, keep-alive\r\nX-Secret: 1\r\nKeep-Alive: timeout=9\r\n\
         X-End: 1\r\n\r\n",
    );
    let egret = before(&origin);
    let request = format!(
        "GET /origin/ HTTP/1.1\r\nHost: {}\r\nConnection: x-hop\r\nConnection: Authorization, host, keep-alive\r\nX-Hop: 1\r\n\
         Authorization: Bearer t\r\nKeep-Alive: 5\r\nProxy-Authorization: Basic x\r\nProxy-Connection: keep-alive\r\nTE: gzip\r\n\
         X-End: 1\r\n\r\n",
        egret.address()
    );
    let response = egret.client().send(request).response();
    let received = origin.only_request();
    for gone in ["x-hop", "keep-alive", "proxy-authorization", "proxy-connection", "te"] {
        assert!(received.values(gone).is_empty(), "{gone} is forwarded: {received:?}");
    }
    assert_eq!(received.values("authorization"), ["Bearer t"]);
    assert_eq!(received.values("host"), [origin.address().to_string()]);
    assert_eq!(received.values("x-end"), ["1"]);
    assert_eq!((response.field("x-secret"), response.field("x-end")), (None, Some("1")));
    assert_eq!(response.field("keep-alive"), None);
}

#[test]
fn max_forwards_is_counted_and_ends_at_0() {
    let origin = Provider::plain();
    let egret = before(&origin);
    let mut client = egret.client();
    let options = |forwards: &str| {
        format!("OPTIONS /origin/a HTTP/1.1\r\nHost: {}\r\nMax-Forwards: {forwards}\r\n\r\n", egret.address())
    };
    client.send(options("0")).response().assert_generated(405, "no-forwards-left");
    assert_eq!(origin.connections(), 0);
    client.send(options("3")).response().assert_forwarded(200);
    assert_eq!(origin.only_request().values("max-forwards"), ["2"]);
}

#[test]
fn options_for_a_whole_server_stays_so() {
    let origin = Provider::plain();
    let egret = Config::default().start();
    let address = origin.address();
    for (target, sent) in [("", "*"), ("/", "/"), ("/a", "/a")] {
        let request = format!("OPTIONS http://{address}{target} HTTP/1.1\r\nHost: {address}\r\n\r\n");
        egret.client().send(request).response().assert_forwarded(200);
        assert_eq!(origin.requests().last().unwrap().line, format!("OPTIONS {sent} HTTP/1.1"));
    }
}

#[test]
fn a_response_without_a_date_gets_one() {
    const DATED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    let origin = Provider::with_responses(|request| match request.target() {
        "/dated" => format!("HTTP/1.1 200 OK\r\nDate: {DATED}\r\nContent-Length: 0\r\n\r\n").into_bytes(),
        _ => ok("undated"),
    });
    let egret = before(&origin);
    assert_eq!(egret.get("/dated").field("date"), Some(DATED));
    let response = egret.get("/");
    let date = response.field("date").unwrap();
    assert!(date.len() == DATED.len() && date.ends_with(" GMT") && date != DATED, "{date}");
}

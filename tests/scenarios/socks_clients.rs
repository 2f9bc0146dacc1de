//! Listeners with `socks5: true`: their clients open tunnels, which are those of CONNECT.

use std::net::Ipv4Addr;

use egret_tests::closed_port::{ClosedPort, FullPort};
use egret_tests::dns::{Answer, NameServer};
use egret_tests::egret::{Config, Egret, egret};
use egret_tests::intercepted::{Intercepting, SecureProvider, config, tunnel};
use egret_tests::peers::curl;
use egret_tests::pki::Authority;
use egret_tests::process::{Directory, run, run_checked};
use egret_tests::provider::{Provider, ok};
use egret_tests::socks::{code, handshake, with_password};
use egret_tests::wait;

const LISTEN: &str = "{ address: \"127.0.0.1:0\", socks5: true }";
const TOKEN: &str = "checkout-token-3f9a1c7e5b2d8064";

/// The flow that shows the provider who calls.
const SEEN: &str = "interception: {}\n\
    flows:\n\
    \x20 - name: seen\n\
    \x20   remedies: [{ transform: { request: { headers: { set: { x-seen: '${request.consumer}' } } } } }]\n";

fn names() -> NameServer {
    NameServer::start(|name| match name {
        "api.test" => Answer::Addresses(vec![Ipv4Addr::LOCALHOST], 60),
        _ => Answer::NoSuchName,
    })
}

/// Returns curl with the gateway as its proxy, which is named in this way.
fn through(egret: &Egret, option: &str) -> std::process::Command {
    let mut curl = curl();
    curl.args(["--fail", option, &egret.address().to_string()]);
    curl
}

#[test]
fn curl_reaches_a_provider_by_name_and_by_address() {
    let (names, origin) = (names(), Provider::plain());
    let egret = Config::with_origin(origin.url()).listen([LISTEN]).gateway(names.config()).start();
    let by_name = format!("http://api.test:{}/a", origin.address().port());
    for _ in 0..2 {
        assert_eq!(run_checked(through(&egret, "--socks5-hostname").arg(&by_name)), "hello");
    }
    // The client has looked the name up itself.
    assert_eq!(run_checked(through(&egret, "--socks5").arg(origin.url())), "hello");
    let mut by_variable = curl();
    by_variable.env("ALL_PROXY", format!("socks5h://nobody:asked@{}", egret.address())).arg(&by_name);
    assert_eq!(run_checked(&mut by_variable), "hello");
    assert_eq!((names.queries("api.test"), origin.connections()), (1, 4));
    assert_eq!(egret.stat("/interception/provider_tunnels"), 1, "one tunnel has the provider's own address");
    assert!(origin.requests().iter().all(|request| request.values("via").is_empty()));
}

#[test]
fn https_shows_the_certificate_of_the_provider() {
    let origin = Provider::plain();
    let secure = SecureProvider::before(&origin.url());
    let egret = Config::default().listen([LISTEN]).start();
    let ca = egret.directory().write("ca.pem", secure.authority().certificate()).display().to_string();
    let mut call = through(&egret, "--socks5-hostname");
    assert_eq!(run_checked(call.args(["--cacert", &ca]).arg(secure.url())), "hello");
    let other = egret.directory().write("other.pem", Authority::default().certificate());
    let mut call = through(&egret, "--socks5-hostname");
    assert!(!run(call.arg("--cacert").arg(other).arg(secure.url())).status.success());
}

#[test]
fn an_intercepted_host_gets_its_remedies() {
    let origin = Provider::with_responses(|request| ok(&request.values("x-seen").concat()));
    let provider = SecureProvider::before(&origin.url());
    let flows = SEEN.replace("${request.consumer}", "by-a-remedy");
    let intercepting = Intercepting::start(&config(&provider, &flows).listen([LISTEN]), &provider);
    let egret = &intercepting.egret;
    let ca = intercepting.ca().display().to_string();
    for version in ["--http1.1", "--http2"] {
        let mut call = through(egret, "--socks5-hostname");
        let printed = run_checked(call.args(["--cacert", &ca, version]).arg(provider.url() + "/[1-3]"));
        assert_eq!(printed, "by-a-remedy".repeat(3), "{version}");
    }
    let connections = egret.stat("/interception/connections");
    assert_eq!((connections, egret.stat("/interception/exchanges")), (2, 6));
}

#[test]
fn a_token_is_the_password_of_the_client() {
    let (directory, origin) =
        (Directory::default(), Provider::with_responses(|request| ok(&request.values("x-seen").concat())));
    let file = directory.write_secret("checkout", TOKEN);
    let asks = format!("clients: {{ tokens: {{ checkout: '${{file:{}}}' }} }}", file.display());
    let listen = format!("{{ address: \"127.0.0.1:0\", socks5: true, {asks} }}");
    let config = Config::with_origin(origin.url()).listen([&listen]).flows(SEEN);
    let intercepting = Intercepting::with_authority(&config, |_| {});
    let egret = &intercepting.egret;
    let url = origin.url();
    let call = |user: &[&str]| run(through(egret, "--socks5-hostname").args(user).arg(&url));
    let proven = call(&["--proxy-user", &format!("checkout:{TOKEN}")]);
    assert_eq!(String::from_utf8(proven.stdout).unwrap(), "checkout");
    let of_another = format!("other:{TOKEN}");
    let users: [&[&str]; 3] =
        [&[], &["--proxy-user", "checkout:wrong-token-3f9a1c7e"], &["--proxy-user", &of_another]];
    for user in users {
        assert!(!call(user).status.success(), "{user:?}");
    }
    let (host, port) = ("127.0.0.1", origin.address().port());
    for (username, password, expected) in [("", TOKEN, 0), ("checkout", "short", 2), ("", "", 2)] {
        let found = code(&mut egret.client(), with_password(username, password, host, port));
        assert_eq!(found, expected, "{username}:{password}");
    }
    // Without a user name and a password to offer, and with a user name that HTTP could not carry.
    assert_eq!(egret.client().send(handshake(host, port)).rest(), [5, 0xff]);
    assert_eq!(egret.client().send(with_password("a:b", TOKEN, host, port)).rest(), [5, 2, 1, 1]);
    assert_eq!((egret.generated("client-unproven"), egret.generated("bad-request")), (6, 1));
    let metrics = egret.control_get("/metrics");
    let missing = "egret_client_unproven_total{reason=\"missing\"} 2\n";
    assert!(metrics.text().contains(missing), "{}", metrics.text());
    assert_eq!(origin.requests().len(), 1);
    assert!(!egret.log().contains(TOKEN));
}

#[test]
fn a_client_that_does_not_wait_for_replies_loses_nothing() {
    const BYTES: usize = 256 << 10;
    let echo = Provider::scripted(|peer| {
        let bytes = peer.take(BYTES);
        peer.send(bytes.unwrap_or_default());
    });
    let egret = Config::default().listen([LISTEN]).start();
    let sent: Vec<u8> = (0..BYTES).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let mut client = egret.client();
    client.send([handshake("127.0.0.1", echo.address().port()), sent.clone()].concat());
    assert_eq!(client.bytes(12), [5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    assert!(client.rest() == sent);
    // Requests for a host that is intercepted arrive early as well.
    let origin = Provider::plain();
    let config = Config::with_origin(origin.url()).listen([LISTEN]).flows("interception: {}\n");
    let intercepting = Intercepting::with_authority(&config, |_| {});
    let mut client = intercepting.egret.client();
    let request = format!("GET /early HTTP/1.1\r\nHost: {}\r\n\r\n", origin.address());
    let port = origin.address().port();
    assert_eq!(code(&mut client, [handshake("127.0.0.1", port), request.into_bytes()].concat()), 0);
    client.response().assert_forwarded(200);
    client.get(origin.address(), "/late").response().assert_forwarded(200);
    assert_eq!(intercepting.egret.stat("/interception/exchanges"), 2);
}

#[test]
fn a_host_that_cannot_be_reached_has_its_code() {
    let (names, closed, full) = (names(), ClosedPort::take(), FullPort::take());
    for (name, port, patience, expected, slug) in [
        ("127.0.0.1", closed.address().port(), "1h", 5, "connect-failed"),
        ("127.0.0.1", full.address().port(), "300ms", 4, "connect-timeout"),
        ("missing.test", 443, "1h", 4, "dns-failed"),
    ] {
        let config = Config::default().listen([LISTEN]).gateway(names.config());
        let egret = config.gateway(format!("timeouts: {{ connect: {patience} }}")).start();
        let mut client = egret.client();
        assert_eq!(code(&mut client, handshake(name, port)), expected, "{slug}");
        client.assert_closed();
        assert_eq!(egret.generated(slug), 1, "{slug}");
    }
}

#[test]
fn a_tunnel_has_the_log_line_of_a_connect() {
    let origin = Provider::plain();
    let config = Config::with_origin(origin.url()).listen([LISTEN, "\"127.0.0.1:0\""]);
    let egret = config.gateway("access_log: { output: access.log }").start();
    let authority = origin.address().to_string();
    let mut client = egret.client();
    assert_eq!(code(&mut client, handshake("127.0.0.1", origin.address().port())), 0);
    client.get(&authority, "/").response().assert_forwarded(200);
    drop(client);
    let mut client = egret_tests::http::Client::connect(egret.listener(1));
    client.send(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"));
    assert_eq!(client.response_to("HEAD").status, 200);
    client.get(&authority, "/").response().assert_forwarded(200);
    drop(client);
    let log = || std::fs::read_to_string(egret.directory().join("access.log")).unwrap_or_default();
    let log = wait::until_value("both tunnels are logged", log, |log| log.lines().count() == 2);
    // Times, ports of clients and ids of requests differ.
    let kept = ["provider=", "host=", "method=", "path=", "status=", "sent_bytes=", "upstream_"];
    let is_kept = |part: &&str| kept.iter().any(|kept| part.starts_with(*kept));
    let lines: Vec<Vec<&str>> = log.lines().map(|line| line.split(' ').filter(is_kept).collect()).collect();
    assert!(lines[0] == lines[1] && lines[0].contains(&"method=CONNECT"), "{log}");
}

#[test]
fn keys_that_do_not_go_with_socks_are_refused() {
    let directory = Directory::default();
    let long = format!(
        "{{ tokens: {{ a: '${{file:{}}}' }} }}",
        directory.write_secret("long", "x".repeat(256)).display()
    );
    for (key, value, place, message) in [
        ("provider", "one", "provider", "not allowed with `socks5`"),
        ("scheme", "https", "scheme", "not allowed with `socks5`"),
        ("route_by_query", "true", "route_by_query", "not allowed with `socks5`"),
        ("redirect", "true", "redirect", "not allowed with `socks5`"),
        ("clients", &long, "clients.tokens.a", "too long for `socks5`"),
    ] {
        let yaml = format!(
            "gateway: {{ listen: [{{ address: '127.0.0.1:0', socks5: true, {key}: {value} }}] }}\n\
             providers: {{ one: 'http://one.test' }}\n"
        );
        let file = directory.write("egret.yaml", yaml);
        let output = run(egret(["check", &file.display().to_string()]).env("NO_COLOR", "1"));
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let expected = format!("gateway.listen[0].{place}: {message}");
        assert!(output.status.code() == Some(2) && said.contains(&expected), "{said}");
    }
}

#[test]
fn an_http_listener_beside_it_stays_as_it_is() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).listen(["\"127.0.0.1:0\"", LISTEN]).start();
    egret.get("/a").assert_forwarded(200);
    let mut client = tunnel(&egret, &origin.address().to_string());
    client.get(origin.address(), "/b").response().assert_forwarded(200);
    let info = egret.control_get("/api/v1/gateway").json();
    assert_eq!(
        (&info["listeners"][0]["socks5"], &info["listeners"][1]["socks5"]),
        (&false.into(), &true.into())
    );
}

//! A thousand forgeries against all ways of routing: none is accepted, and none reaches the account, the
//! cache or the quota of another client.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use egret_tests::cached::ok_response;
use egret_tests::egret::{Config, Egret, egret};
use egret_tests::http::{Client, Response};
use egret_tests::pki::{Authority, Leaf, anonymous};
use egret_tests::process::run_checked;
use egret_tests::provider::Provider;
use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};

/// The token of the client that is attacked.
const TOKEN: &str = "Checkout-3f9a1c7e5b2d8064";
/// The token of the attacker, a client with few rights.
const OWN: &str = "Mallory-77c0d1e2f3a4b5c6";

const CALLED: &str = "for checkout";

/// The ways in which a client names its destination.
const WAYS: [Way; 8] = [
    Way::BaseUrl,
    Way::Absolute,
    Way::Host,
    Way::Header,
    Way::Query,
    Way::Reverse,
    Way::Connect,
    Way::Inside,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    BaseUrl,
    Absolute,
    Host,
    Header,
    Query,
    Reverse,
    /// A tunnel.
    Connect,
    /// A request in a tunnel, which the attacker has opened with its own token.
    Inside,
}

/// A gateway with accounts, a cache and a quota for each client, before a provider.
struct Target {
    egret: Egret,
    origin: Provider,
    servers: Authority,
    clients: Authority,
}

impl Target {
    fn start() -> Self {
        let origin = Provider::with_responses(|request| {
            let account = request.values("authorization").concat();
            let name = account.strip_prefix("Bearer account-of-").unwrap_or("nobody");
            ok_response("Cache-Control: public, max-age=600", &format!("for {name}"))
        });
        let (servers, clients) = (Authority::default(), Authority::default());
        let leaf = servers.leaf(&["localhost"]);
        let asks = "clients: { tokens: { checkout: '${env:CHECKOUT}', mallory: '${env:MALLORY}' } }";
        let own = "address: '127.0.0.1:0'";
        let tls = "tls: { certificate: server.pem, key: '${file:server.key}' }";
        let config = Config::with_origin(origin.url())
            .listen([
                &format!("{{ {own}, {asks} }}"),
                &format!("{{ {own}, route_by_query: true, {asks} }}"),
                &format!("{{ {own}, provider: origin, {asks} }}"),
                &format!("{{ {own}, {tls}, clients: {{ ca: clients.pem }} }}"),
            ])
            .flows(
                "interception: {}\n\
                 quotas: { each: { limit: 100000, window: 1h, group_by: consumer } }\n\
                 accounts:\n\
                 \x20 checkout: { provider: origin, bearer: { token: '${env:CHECKOUT_ACCOUNT}' } }\n\
                 \x20 mallory: { provider: origin, bearer: { token: '${env:MALLORY_ACCOUNT}' } }\n\
                 flows:\n\
                 \x20 - { name: checkout, match: { consumer: checkout }, remedies: [{ accounts: { use: [checkout] } }] }\n\
                 \x20 - { name: mallory, match: { consumer: mallory }, remedies: [{ accounts: { use: [mallory] } }] }\n\
                 \x20 - name: all\n\
                 \x20   match: { provider: origin }\n\
                 \x20   remedies: [{ cache: { key: { consumer: true } } }, { limit: { quota: each } }]\n",
            );
        let egret = Egret::start_with(&config, |command| {
            command.envs([
                ("CHECKOUT", TOKEN),
                ("MALLORY", OWN),
                ("CHECKOUT_ACCOUNT", "account-of-checkout"),
                ("MALLORY_ACCOUNT", "account-of-mallory"),
            ]);
            let directory = command.get_current_dir().unwrap().to_path_buf();
            std::fs::write(directory.join("server.pem"), &leaf.certificate).unwrap();
            std::fs::write(directory.join("clients.pem"), clients.certificate()).unwrap();
            write_private(&directory.join("server.key"), &leaf.key);
            let mut init = egret(["ca", "init"]);
            run_checked(init.current_dir(directory));
        });
        Self { egret, origin, servers, clients }
    }

    fn address(&self, way: Way) -> std::net::SocketAddr {
        self.egret.listener(match way {
            Way::Query => 1,
            Way::Reverse => 2,
            _ => 0,
        })
    }

    /// The request line and the fields that name the destination.
    fn request(&self, way: Way, method: &str) -> String {
        let (own, origin) = (self.address(way), self.origin.address());
        match way {
            Way::BaseUrl => format!("{method} /origin/a HTTP/1.1\r\nHost: {own}\r\n"),
            Way::Absolute => format!("{method} http://{origin}/a HTTP/1.1\r\nHost: {origin}\r\n"),
            Way::Host | Way::Inside => format!("{method} /a HTTP/1.1\r\nHost: {origin}\r\n"),
            Way::Header => format!("{method} /a HTTP/1.1\r\nHost: {own}\r\nx-egret-host: {origin}\r\n"),
            Way::Query => {
                format!("{method} /a?egret_host={origin}&egret_consumer=checkout HTTP/1.1\r\nHost: {own}\r\n")
            }
            Way::Reverse => format!("{method} /a HTTP/1.1\r\nHost: h.example\r\n"),
            Way::Connect => format!("CONNECT {origin} HTTP/1.1\r\nHost: {origin}\r\n"),
        }
    }

    /// Sends a request with these field lines, and perhaps more behind its head.
    fn send(&self, way: Way, fields: &str, body: &str) -> Response {
        let mut client = Client::connect(self.address(way));
        if way == Way::Inside {
            client.send(format!("{}{}\r\n", self.request(Way::Connect, ""), token(OWN)));
            assert_eq!(client.response_to("HEAD").status, 200);
        }
        client.offer(format!("{}{fields}\r\n{body}", self.request(way, "GET")));
        if way == Way::Connect {
            let response = client.head();
            return if response.status == 200 {
                client.get(self.origin.address(), "/a").response()
            } else {
                response
            };
        }
        client.any_response_to("GET")
    }

    fn used(&self) -> BTreeMap<String, u64> {
        let quotas = self.egret.control_get("/api/v1/quotas").json();
        let groups = quotas["quotas"][0]["groups"].as_array().unwrap().clone();
        let named = groups
            .iter()
            .map(|group| (group["name"].as_str().unwrap().to_owned(), group["used"].as_u64().unwrap()));
        named.collect()
    }

    fn calls_of(&self, client: &str) -> usize {
        let own = format!("Bearer account-of-{client}");
        self.origin
            .requests()
            .iter()
            .filter(|request| request.values("authorization") == [own.as_str()])
            .count()
    }
}

fn write_private(file: &std::path::Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(file, text).unwrap();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
}

fn token(token: &str) -> String {
    format!("x-egret-token: {token}\r\n")
}

fn bearer(token: &str) -> String {
    format!("Proxy-Authorization: Bearer {token}\r\n")
}

fn basic(text: &str) -> String {
    format!("Proxy-Authorization: Basic {}\r\n", base64(text.as_bytes()))
}

/// Base64 by shell tools would start a thousand processes.
fn base64(bytes: &[u8]) -> String {
    let digits: Vec<char> = ('A'..='Z').chain('a'..='z').chain('0'..='9').chain(['+', '/']).collect();
    let mut text = String::new();
    for piece in bytes.chunks(3) {
        let group = piece.iter().fold(0_usize, |group, byte| group << 8 | usize::from(*byte))
            << (8 * (3 - piece.len()));
        for digit in 0..4 {
            text.push(if digit > piece.len() { '=' } else { digits[group >> (18 - 6 * digit) & 63] });
        }
    }
    text
}

/// Tokens that are nearly the one of the attacked client.
fn near_misses() -> Vec<String> {
    let mut tokens = vec![
        TOKEN.to_uppercase(),
        TOKEN.to_lowercase(),
        TOKEN.chars().rev().collect(),
        format!("{TOKEN}{TOKEN}"),
        format!("{TOKEN}0"),
        format!("0{TOKEN}"),
        format!("\"{TOKEN}\""),
        format!("{TOKEN},{OWN}"),
        format!("checkout:{TOKEN}"),
        "${env:CHECKOUT}".to_owned(),
        "0".repeat(24),
        "*".repeat(24),
        "x".repeat(8 << 10),
    ];
    tokens.extend((1..TOKEN.len()).step_by(2).map(|len| TOKEN[..len].to_owned()));
    for at in 0..TOKEN.len() {
        let mut changed = TOKEN.as_bytes().to_vec();
        changed[at] ^= 1;
        tokens.push(String::from_utf8(changed).unwrap());
    }
    tokens
}

/// Field lines that prove nothing, though some of them hold the token itself.
fn forged_proofs() -> Vec<String> {
    let mut forged = vec![
        String::new(),
        "x-egret-consumer: checkout\r\n".to_owned(),
        "x-lunar-consumer-tag: checkout\r\n".to_owned(),
        format!("Authorization: Bearer {TOKEN}\r\n"),
        format!("Proxy-Authenticate: Bearer {TOKEN}\r\n"),
        format!("Cookie: x-egret-token={TOKEN}\r\n"),
        format!("X_Egret_Token: {TOKEN}\r\n"),
        format!("x-egret-tokens: {TOKEN}\r\n"),
        format!("Proxy-Authorization2: Bearer {TOKEN}\r\n"),
        format!("x-egret-token: {TOKEN} {TOKEN}\r\n"),
        format!("x-egret-token: {TOKEN}\t;\r\n"),
        // Twice: two readers could choose a different one each.
        token(TOKEN).repeat(2),
        token(OWN) + &token(TOKEN),
        token(TOKEN) + &token(OWN),
        bearer(TOKEN) + &bearer(OWN),
        basic(&format!("checkout:{TOKEN}")) + &bearer(TOKEN),
        // Two fields that do not agree.
        token(OWN) + &bearer(TOKEN),
        token(TOKEN) + &bearer(OWN),
        token(TOKEN) + &basic(&format!("mallory:{OWN}")),
        token(TOKEN) + &bearer("x"),
        token("x") + &bearer(TOKEN),
        // A name that does not belong to the token.
        basic(&format!("mallory:{TOKEN}")),
        basic(&format!("checkout:{OWN}")),
        basic(&format!("Checkout:{TOKEN}")),
        basic(&format!("checkout :{TOKEN}")),
        basic(&format!("checkout\0:{TOKEN}")),
        basic(&format!("checkout:{TOKEN}:")),
        basic(&format!("checkout:{TOKEN}\r\n")),
        basic(&format!("{TOKEN}:checkout")),
        basic(&format!("{TOKEN}:")),
        basic("checkout:"),
        basic(":"),
        basic(""),
        basic(TOKEN),
        // No Base64, or not in its only form.
        "Proxy-Authorization: Basic ====\r\n".to_owned(),
        "Proxy-Authorization: Basic \u{e9}\u{e9}\u{e9}\u{e9}\r\n".to_owned(),
        format!("Proxy-Authorization: Basic {}\r\n", "A".repeat(16 << 10)),
        format!("Proxy-Authorization: Basic checkout:{TOKEN}\r\n"),
        basic(&format!("checkout:{TOKEN}")).replace('=', ""),
        basic(&format!("checkout:{TOKEN}")).replace("\r\n", "=\r\n"),
        basic(&format!("checkout:{TOKEN}")).replace("Basic ", "Basic  A"),
        basic(&format!("checkout:{TOKEN}")).replace("Basic", "Basic,"),
        // Other schemes.
        "Proxy-Authorization: Bearer\r\n".to_owned(),
        "Proxy-Authorization: \r\n".to_owned(),
        format!("Proxy-Authorization: {TOKEN}\r\n"),
        format!("Proxy-Authorization: Token {TOKEN}\r\n"),
        format!("Proxy-Authorization: Digest username=\"checkout\", response=\"{TOKEN}\"\r\n"),
        format!("Proxy-Authorization: Negotiate {TOKEN}\r\n"),
        format!("Proxy-Authorization: Bearer\t{TOKEN}\r\n"),
        // Heads that two readers could understand differently.
        format!("x-egret-token : {TOKEN}\r\n"),
        format!(" x-egret-token: {TOKEN}\r\n"),
        format!("x-a: 1\r\n x-egret-token: {TOKEN}\r\n"),
        format!("x-egret-token:\r\n {TOKEN}\r\n"),
        format!("x-a: 1\nx-egret-token: {TOKEN}\r\n"),
        format!("x-a: 1\rx-egret-token: {TOKEN}\r\n"),
        format!("x-egret-token: {TOKEN}\0\r\n"),
        format!("x-egret-token\0: {TOKEN}\r\n"),
        format!("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n{}", bearer("x")),
    ];
    for missed in near_misses() {
        forged.extend([token(&missed), bearer(&missed), basic(&format!("checkout:{missed}"))]);
    }
    forged
}

/// Field lines with which the attacker, who is served under its own name, claims another one.
fn claims() -> Vec<String> {
    let mut claims = vec![
        "x-egret-consumer: checkout\r\nx-egret-consumer: checkout\r\n".to_owned(),
        "x-egret-consumer: checkout\r\nx-lunar-consumer-tag: checkout\r\n".to_owned(),
        "Connection: x-egret-consumer\r\n".to_owned(),
        "Connection: x-egret-consumer\r\nx-egret-consumer: checkout\r\n".to_owned(),
        "Connection: keep-alive, X-Egret-Consumer, x-lunar-consumer-tag\r\nx-egret-consumer: checkout\r\n"
            .to_owned(),
        "Connection: x-egret-token, proxy-authorization\r\nx-egret-consumer: checkout\r\n".to_owned(),
        format!("x-api-key: {TOKEN}\r\nAuthorization: Bearer {TOKEN}\r\n"),
        "Authorization: Bearer account-of-checkout\r\nx-egret-consumer: checkout\r\n".to_owned(),
    ];
    for name in [
        "x-egret-consumer",
        "X-EGRET-CONSUMER",
        "x-lunar-consumer-tag",
        "X-Lunar-Consumer-Tag",
        "x_egret_consumer",
    ] {
        for value in ["checkout", " checkout ", "checkout, mallory", "Checkout", "mallory,checkout"] {
            claims.push(format!("{name}: {value}\r\n"));
        }
    }
    claims
}

/// Certificates that must prove nothing, each with the reason.
fn foreign_certificates(target: &Target) -> Vec<(&'static str, Leaf)> {
    let Target { clients, servers, .. } = target;
    let other = Authority::default();
    let names = &["checkout"][..];
    let mut chained = other.leaf(names);
    chained.certificate += &clients.certificate();
    let date = rcgen::date_time_ymd;
    let server_only = |params: &mut rcgen::CertificateParams| {
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    };
    vec![
        ("another authority of the same name", other.leaf(names)),
        ("the authority of the listener's own certificate", servers.leaf(names)),
        ("signed by itself", Authority::self_signed(names, false).own()),
        ("an authority signed by itself", Authority::self_signed(names, true).own()),
        ("expired", clients.leaf_with(names, |params| params.not_after = date(2020, 1, 1))),
        ("not valid yet", clients.leaf_with(names, |params| params.not_before = date(3000, 1, 1))),
        ("for servers only", clients.leaf_with(names, server_only)),
        (
            "for signing code",
            clients.leaf_with(names, |params| {
                params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::CodeSigning];
            }),
        ),
        ("the authority itself", clients.own()),
        ("without a name", clients.leaf(&[])),
        ("with an address alone", clients.leaf(&["127.0.0.1"])),
        ("for a pattern of names", clients.leaf(&["*.checkout"])),
        ("with an authority behind it that has not signed it", chained),
    ]
}

const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

/// Sends a request on a connection whose client has this TLS. Returns what comes back.
fn over_tls(target: &Target, tls: rustls::ClientConnection, fields: &str) -> Vec<u8> {
    let mut client = Client::connect(target.egret.listener(3));
    if client.shake_hands(tls).is_err() {
        return Vec::new();
    }
    let own = target.egret.listener(3);
    client.offer(format!("GET /origin/a HTTP/1.1\r\nHost: {own}\r\nConnection: close\r\n{fields}\r\n"));
    client.rest()
}

#[test]
fn of_a_thousand_forgeries_none_is_accepted() {
    let target = Target::start();
    let genuine = target.send(Way::BaseUrl, &token(TOKEN), "");
    assert_eq!(genuine.text(), CALLED, "the client itself is served, and its answer stored");
    let (mut tried, mut accepted, mut report) = (0, 0, String::new());
    let mut judge = |what: &dyn std::fmt::Debug, is_accepted: bool| {
        tried += 1;
        if is_accepted {
            accepted += 1;
            writeln!(report, "accepted: {what:?}").unwrap();
        }
    };
    for fields in forged_proofs() {
        for way in WAYS.into_iter().filter(|way| *way != Way::Inside) {
            let response = target.send(way, &fields, "");
            let is_refused = match response.status {
                407 => {
                    response.assert_generated(407, "client-unproven");
                    response.values("proxy-authenticate").len() == 2
                }
                // The head is malformed or too large.
                status => matches!(status, 400 | 414 | 431),
            };
            judge(&(way, &fields, response.status), !is_refused);
        }
        // Inside of the attacker's tunnel nothing but its CONNECT counts.
        let inside = target.send(Way::Inside, &fields, "");
        judge(&("inside", &fields), inside.text().contains(CALLED));
    }
    for claim in claims() {
        for way in WAYS {
            let own = if way == Way::Inside { token(TOKEN) } else { token(OWN) };
            for fields in [format!("{own}{claim}"), format!("{claim}{own}")] {
                let response = target.send(way, &fields, "");
                judge(
                    &(way, &fields),
                    response.text().contains(CALLED) || !matches!(response.status, 200 | 400),
                );
            }
        }
    }
    for way in [Way::BaseUrl, Way::Absolute, Way::Host, Way::Header, Way::Reverse] {
        // A request within the body of another, and behind one that is refused.
        let hidden = format!("{}x-egret-consumer: checkout\r\n\r\n", target.request(way, "GET"));
        let length = format!("{}Content-Length: {}\r\n", token(OWN), hidden.len());
        judge(&("in a body", way), target.send(way, &length, &hidden).text().contains(CALLED));
        let chunked = format!("{}Transfer-Encoding: chunked\r\n", token(OWN));
        let trailers = format!("1\r\nx\r\n0\r\nx-egret-consumer: checkout\r\n{}\r\n", token(TOKEN));
        judge(&("in trailers", way), target.send(way, &chunked, &trailers).text().contains(CALLED));
        let mut client = Client::connect(target.address(way));
        client.send(format!("{}{}\r\n{hidden}", target.request(way, "GET"), token(OWN)));
        let (first, second) = (client.response(), client.response());
        judge(&("behind a proven request", way), first.text().contains(CALLED) || second.status != 407);
    }
    for version in VERSIONS {
        for (what, leaf) in foreign_certificates(&target) {
            for fields in [String::new(), token(TOKEN), "x-egret-consumer: checkout\r\n".to_owned()] {
                let received = over_tls(&target, leaf.client(&target.servers, version), &fields);
                judge(&(what, &fields), !received.is_empty());
            }
        }
        let received = over_tls(&target, anonymous(&target.servers, version), &token(TOKEN));
        judge(&"no certificate", !received.is_empty());
        let mallory = target.clients.leaf(&["mallory", "checkout"]);
        for fields in claims().into_iter().chain(forged_proofs().into_iter().take(48)) {
            let received = over_tls(&target, mallory.client(&target.servers, version), &fields);
            let received = String::from_utf8_lossy(&received).into_owned();
            judge(&("a client's certificate", &fields), received.contains(CALLED));
        }
    }
    println!("{tried} forgeries, {accepted} accepted\n{report}");
    assert!(tried >= 1_000, "only {tried} were tried");
    assert_eq!(accepted, 0, "{report}");
    assert_eq!(target.calls_of("checkout"), 1, "nobody else has used its account");
    assert_eq!(target.used().get("checkout"), Some(&1), "nobody else has drawn from its quota");
    assert_eq!(
        target.calls_of("mallory") as u64,
        target.used()["mallory"],
        "the attacker has drawn from its own"
    );
    assert_eq!(target.origin.requests().len(), 1 + target.calls_of("mallory"), "nothing came from nobody");
    // In other fields it is the attacker's own text.
    let received = String::from_utf8_lossy(&target.origin.received()).to_lowercase();
    for field in ["x-egret-token:", "proxy-authorization:"] {
        assert!(!received.lines().any(|line| line.starts_with(field)), "{field} reached the provider");
    }
    assert_eq!(target.send(Way::Host, &bearer(TOKEN), "").text(), CALLED);
    let certificate = target.clients.leaf(&["checkout"]);
    for version in VERSIONS {
        let received = over_tls(&target, certificate.client(&target.servers, version), "");
        assert!(String::from_utf8_lossy(&received).ends_with(CALLED), "{received:?}");
    }
    assert_eq!(target.calls_of("checkout"), 1, "its answer was still stored");
}

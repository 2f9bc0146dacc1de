//! Egret on a machine whose only way out is a company's proxy: every way of sending traffic, and everything
//! that Egret itself sends, goes through it.

use egret_tests::egret::Config;
use egret_tests::wait::{until_true, until_value};

use super::company::{Company, Gate, OUTSIDE, PASSWORD};

/// A config with one of each that calls a server.
fn config(company: &Company) -> Config {
    let ca = company.file("provider-ca.pem");
    Config::default()
        .provider("origin", "http://api.test:9000")
        .provider_with("secure", "https://api.test:9443", &format!("tls: {{ ca: {ca:?}, server_name: localhost }}"))
        .provider("unverified", format!("https://{OUTSIDE}:9443"))
        .gateway(company.upstream_proxy())
        .flows(
            "interception: { hosts: [api.test] }\n\
             accounts:\n  main:\n    provider: origin\n    oauth2: { token_url: 'http://api.test:9001/token', client_id: egret, client_secret: '${env:SECRET}' }\n\
             exporters:\n  otel: { type: otlp, endpoint: 'http://api.test:9001', flush_after: 100ms }\n  \
               store: { type: s3, endpoint: 'http://api.test:9001', bucket: bucket, rotate_after: 1s }\n  \
               pager: { type: webhook, url: 'http://api.test:9001/alert' }\n\
             alerts: { export: pager }\n\
             quotas: { daily: { kind: calendar, period: day, limit: 100, alerts: [1%] } }\n\
             flows:\n  - name: all\n    match: { provider: origin }\n    \
               remedies: [limit: { quota: daily }, accounts: { use: [main] }]\n    \
               diagnoses: [traces: { export: otel }, har: { export: store }]\n",
        )
}

fn everything_goes_through(kind: Gate) {
    let company = Company::start(kind);
    let origin = format!("http://{OUTSIDE}:9000/get");
    assert_eq!(company.curl(&[&origin]).0, 0, "there is another way out");

    let egret = company.egret(&config(&company), PASSWORD);
    let gateway = egret.url();
    for _ in 0..3 {
        let (status, body) = company.curl(&[&format!("{gateway}/origin/get")]);
        assert_eq!(status, 200, "{body}\n{}", company.proxy_log());
        assert!(body.contains("token-of-the-test"), "{body}");
    }
    let through = |more: &[&str]| company.curl(&[&["-x", &gateway], more].concat()).0;
    assert_eq!(through(&["http://api.test:9000/get"]), 200);
    // The certificate in a tunnel is the provider's own, and the one that Egret verifies too.
    let ca = company.file("provider-ca.pem");
    let secure = format!("https://{OUTSIDE}:9443/get");
    assert_eq!(through(&["--cacert", ca.to_str().unwrap(), &secure]), 200);
    assert_eq!(through(&[&secure]), 200, "the tunnel is open, and curl refuses the certificate");
    assert_eq!(company.curl(&[&format!("{gateway}/secure/get")]).0, 200);
    let (status, body) = company.curl(&[&format!("{gateway}/unverified/get")]);
    assert!(status == 502 && body.contains("tls-failed"), "{body}");
    // The inside of this tunnel is Egret's.
    assert_eq!(company.curl(&["-k", "-x", &gateway, "https://api.test:9443/get"]).0, 200);

    for asked in ["POST /token", "POST /v1/traces", "POST /alert", "PUT /bucket/"] {
        until_value(asked, || company.asked(), |all| all.iter().any(|line| line.starts_with(asked)));
    }
    assert!(!egret.log().contains(PASSWORD) && !egret.log().contains("token-of-the-test"));
}

#[test]
fn everything_goes_through_squid_with_credentials() {
    everything_goes_through(Gate::Squid);
}

#[test]
fn everything_goes_through_squid_over_tls() {
    everything_goes_through(Gate::SquidOverTls);
}

#[test]
fn everything_goes_through_a_server_of_socks() {
    everything_goes_through(Gate::Socks);
}

#[test]
fn a_proxy_that_refuses_or_is_gone_is_named_and_egret_recovers() {
    let mut company = Company::start(Gate::Squid);
    let config =
        Config::default().provider("origin", "http://api.test:9000").gateway(company.upstream_proxy());
    let wrong = company.egret(&config, "wrong");
    let (status, body) = company.curl(&[&format!("{}/origin/get", wrong.url())]);
    assert!(status == 502 && body.contains("proxy-credentials"), "{body}");

    let egret = company.egret(&config, PASSWORD);
    let url = format!("{}/origin/get", egret.url());
    assert_eq!(company.curl(&[&url]).0, 200);
    company.stop_proxy();
    let (status, body) = company.curl(&[&url]);
    assert!(status == 502 && body.contains("proxy-unreachable"), "{body}");
    company.start_proxy();
    until_true("Egret calls through the proxy again", || company.curl(&[&url]).0 == 200);
}

/// Spellings of a name: with other letters in upper case, and with a dot at the end.
fn spellings(name: &str) -> Vec<String> {
    let letters: Vec<usize> =
        name.bytes().enumerate().filter(|(_, b)| b.is_ascii_alphabetic()).map(|(at, _)| at).collect();
    let spelled = (0..10_u32).map(|number| {
        let mut text: Vec<u8> = name.bytes().collect();
        for (bit, at) in letters.iter().enumerate() {
            if (number * 37) >> (bit % 8) & 1 == 1 {
                text[*at] = text[*at].to_ascii_uppercase();
            }
        }
        String::from_utf8(text).unwrap()
    });
    spelled.flat_map(|text| [format!("{text}."), text]).collect()
}

/// Asks for these hosts in five ways, and returns the number of refusals.
fn refusals(company: &Company, gateway: &str, hosts: &[String]) -> usize {
    let mut count = 0;
    for host in hosts {
        let at = format!("{host}:9000");
        let (named, other) = (format!("host: {at}"), format!("x-egret-host: {at}"));
        let url = format!("http://{at}/get");
        let ways: [&[&str]; 5] = [
            &["-x", gateway, "--path-as-is", "--request-target", &url, "http://api.test/"],
            &["-H", &named, gateway],
            &["-H", &other, gateway],
            &["-H", &other, "-H", "x-egret-scheme: https", gateway],
            &["-X", "CONNECT", "--request-target", &at, "-H", &named, gateway],
        ];
        for way in ways {
            let (status, body) = company.curl(way);
            assert!(matches!(status, 400 | 403), "{way:?}: {status} {body}");
            count += 1;
        }
    }
    count
}

#[test]
fn a_denied_host_stays_denied_in_every_spelling() {
    let company = Company::start(Gate::Squid);
    let start = |rules: &str| {
        let config = Config::default().gateway(company.upstream_proxy());
        company.egret(&config.gateway(format!("egress: {{ deny: [{rules}] }}")), PASSWORD)
    };
    let names: Vec<String> = ["denied.test", "a.denied.test"].into_iter().flat_map(spellings).collect();
    let egret = start("{ host: denied.test }, { host: '*.denied.test' }");
    assert!(refusals(&company, &egret.url(), &names) >= 200);
    let allowed = ["-x", &egret.url(), "http://api.test:9000/get"];
    assert_eq!(company.curl(&allowed).0, 200, "other hosts are called");

    let addresses = [
        OUTSIDE,
        "10.88.2.02",
        "10.88.514",
        "0x0a.0x58.2.2",
        "012.0130.2.2",
        "173539842",
        "[::ffff:10.88.2.2]",
        "[::ffff:a58:202]",
    ];
    let egret = start("{ net: 10.88.2.0/24 }");
    refusals(&company, &egret.url(), &addresses.map(str::to_owned));
    let log = company.proxy_log();
    assert!(!log.lines().any(|line| line.contains(":9000") && !line.contains("api.test:9000")), "{log}");
}

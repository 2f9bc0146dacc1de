//! Accounts: the provider gets the gateway's credential, whatever the client sends, and no other provider
//! gets it.

use egret_tests::egret::{Config, Egret};
use egret_tests::peers::{Httpbin, Nginx};
use egret_tests::pki::Authority;
use egret_tests::process::Directory;
use egret_tests::provider::{Provider, Request, ok};
use egret_tests::wait;

const SECRET: &str = "s3cr3t-0123456789-abcdefgh";

/// Writes a secret file and returns its reference for the config.
fn secret(directory: &Directory, name: &str, value: &str) -> String {
    format!("\"${{file:{}}}\"", directory.write_secret(name, value).display())
}

/// Starts Egret in front of `url`. All calls use the account that `kind` describes.
fn with_account(url: &str, kind: &str) -> Egret {
    Config::with_origin(url)
        .flows(format!(
            "accounts:\n  main: {{ provider: origin, {kind} }}\n\
             flows: [{{ name: f, match: {{ provider: origin }}, remedies: [{{ authenticate: {{ account: main }} }}] }}]\n"
        ))
        .start()
}

#[test]
fn a_provider_that_asks_for_a_password_or_a_token_is_satisfied() {
    let httpbin = Httpbin::start();
    let directory = Directory::default();
    let secret = secret(&directory, "secret", SECRET);
    let basic = with_account(&httpbin.url(), &format!("basic: {{ user: me, password: {secret} }}"));
    let target = format!("/origin/basic-auth/me/{SECRET}");
    assert_eq!(basic.get_with(&target, "").assert_forwarded(200).json()["user"], "me");
    basic.get_with(&target, "Authorization: Basic d3Jvbmc6d3Jvbmc=\r\n").assert_forwarded(200);
    let bearer = with_account(&httpbin.url(), &format!("bearer: {{ token: {secret} }}"));
    assert_eq!(bearer.get_with("/origin/bearer", "").assert_forwarded(200).json()["token"], SECRET);
    let none = Config::with_origin(httpbin.url()).start();
    none.get_with(&target, "").assert_forwarded(401);
    none.get_with("/origin/bearer", "").assert_forwarded(401);
}

#[test]
fn a_clients_own_credential_is_removed() {
    let origin = Provider::plain();
    let directory = Directory::default();
    let secret = secret(&directory, "secret", SECRET);
    let header = with_account(&origin.url(), &format!("api_key: {{ header: X-Api-Key, value: {secret} }}"));
    header
        .get_with("/origin/a?b=1", "x-api-key: mine\r\nX-API-KEY: mine too\r\nX-Other: 1\r\n")
        .assert_forwarded(200);
    let request = origin.only_request();
    assert_eq!((request.values("x-api-key"), request.values("x-other")), (vec![SECRET], vec!["1"]));
    assert_eq!(request.target(), "/a?b=1");
    // Nominating it in `Connection` does not remove it either.
    header.get_with("/origin/a", "X-Api-Key: mine\r\nConnection: x-api-key\r\n").assert_forwarded(200);
    assert_eq!(origin.requests()[1].values("x-api-key"), [SECRET]);

    let origin = Provider::plain();
    let query = with_account(&origin.url(), &format!("api_key: {{ query: api key, value: {secret} }}"));
    for (sent, received) in [
        ("/origin/a", "/a?api%20key=SECRET"),
        ("/origin/a?", "/a?api%20key=SECRET"),
        ("/origin/a?b=1&c", "/a?b=1&c&api%20key=SECRET"),
        ("/origin/a?api+key=mine&b=1&%61pi%20key&api%20keys=2", "/a?b=1&api%20keys=2&api%20key=SECRET"),
    ] {
        query.get_with(sent, "").assert_forwarded(200);
        assert_eq!(origin.requests().last().unwrap().target(), received.replace("SECRET", SECRET));
    }
}

#[test]
fn a_credential_goes_to_its_own_provider_alone() {
    let origin = Provider::with_responses(|_| b"HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n".to_vec());
    let other = Provider::plain();
    let directory = Directory::default();
    let secret = secret(&directory, "secret", SECRET);
    let egret = Config::with_origin(origin.url())
        .provider("other", other.url())
        .flows(format!(
            "accounts:\n  main: {{ provider: origin, bearer: {{ token: {secret} }} }}\n\
             flows:\n  - name: f\n    remedies:\n      - authenticate: {{ account: main }}\n      - fallback: {{ provider: other }}\n"
        ))
        .start();
    // Another provider, called by its name, by its host, and as the fallback of the first one.
    egret.get_with("/other/a", "").assert_forwarded(200);
    egret.get_with("/b", &format!("x-egret-host: {}\r\n", other.address())).assert_forwarded(200);
    egret.get_with("/origin/c", "").assert_forwarded(200);
    assert_eq!(origin.only_request().values("authorization"), [format!("Bearer {SECRET}")]);
    let seen = other.requests();
    assert_eq!(seen.iter().map(Request::target).collect::<Vec<_>>(), ["/a", "/b", "/c"]);
    assert!(!String::from_utf8_lossy(&other.received()).contains(SECRET), "{seen:?}");
}

#[test]
fn each_attempt_is_made_with_the_credential() {
    let failed = std::sync::atomic::AtomicU32::new(0);
    let origin = Provider::with_responses(move |_| {
        if failed.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 2 {
            b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_vec()
        } else {
            ok("at last")
        }
    });
    let directory = Directory::default();
    let secret = secret(&directory, "secret", SECRET);
    let egret = Config::with_origin(origin.url())
        .flows(format!(
            "accounts:\n  main: {{ provider: origin, bearer: {{ token: {secret} }} }}\n\
             flows:\n  - name: f\n    remedies:\n      - retry: {{ attempts: 3, backoff: {{ base: 1ms }} }}\n      - authenticate: {{ account: main }}\n"
        ))
        .start();
    assert_eq!(
        egret.get_with("/origin/a", "Authorization: mine\r\n").assert_forwarded(200).text(),
        "at last"
    );
    let seen = origin.requests();
    assert_eq!(seen.len(), 3);
    assert!(
        seen.iter().all(|request| request.values("authorization") == [format!("Bearer {SECRET}")]),
        "{seen:?}"
    );
}

#[test]
fn an_account_with_a_certificate_has_connections_of_its_own() {
    let authority = Authority::default();
    let own = authority.certificate();
    let locations = "location / { return 200 '$ssl_client_s_dn $connection'; }";
    let nginx = Nginx::start_with(&authority, locations, |directory| {
        let ca = directory.write("client-ca.pem", own);
        format!("ssl_verify_client optional; ssl_client_certificate {};", ca.display())
    });
    let directory = Directory::default();
    let ca = directory.write("ca.pem", authority.certificate()).display().to_string();
    let account = |name: &str| {
        let leaf = authority.leaf(&[&format!("{name}.test")]);
        let certificate = directory.write(&format!("{name}.pem"), &leaf.certificate).display().to_string();
        let key = secret(&directory, &format!("{name}.key"), &leaf.key);
        format!(
            "  {name}: {{ provider: origin, certificate: {{ certificate: {certificate}, key: {key} }} }}\n"
        )
    };
    let flow = |name: &str| {
        format!(
            "  - {{ name: {name}, match: {{ header: {{ x-tenant: {name} }} }}, remedies: [{{ authenticate: {{ account: {name} }} }}] }}\n"
        )
    };
    let accounts = ["one", "two"].map(account).concat();
    let flows = ["one", "two"].map(flow).concat();
    let egret = Config::default()
        .provider_with("origin", nginx.tls_url(), &format!("tls: {{ ca: \"{ca}\" }}"))
        .gateway("workers: 1")
        .flows(format!("accounts:\n{accounts}flows:\n{flows}"))
        .start();
    let shown = |fields: &str| egret.get_with("/origin/", fields).assert_forwarded(200).text().to_owned();
    let (one, two, nobody) = (shown("x-tenant: one\r\n"), shown("x-tenant: two\r\n"), shown(""));
    assert_ne!(one, two);
    assert!(nobody.starts_with(' '), "no certificate is presented without an account: {nobody}");
    // Connections are kept, and never lent to another account.
    assert_eq!((shown("x-tenant: one\r\n"), shown("x-tenant: two\r\n"), shown("")), (one, two, nobody));
}

#[test]
fn a_cache_keeps_the_responses_of_accounts_apart() {
    let origin = Provider::with_responses(|request| {
        let token = request.values("authorization").concat();
        format!(
            "HTTP/1.1 200 OK\r\nCache-Control: public, max-age=600\r\nContent-Length: {}\r\n\r\n{token}",
            token.len()
        )
        .into_bytes()
    });
    let directory = Directory::default();
    let (one, two) = (secret(&directory, "one", "token-one"), secret(&directory, "two", "token-two"));
    let egret = Config::with_origin(origin.url())
        .flows(format!(
            "accounts:\n  one: {{ provider: origin, bearer: {{ token: {one} }} }}\n  two: {{ provider: origin, bearer: {{ token: {two} }} }}\n\
             flows:\n  - {{ name: one, match: {{ header: {{ x-tenant: one }} }}, remedies: [{{ authenticate: {{ account: one }} }}] }}\n  \
             - {{ name: two, match: {{ header: {{ x-tenant: two }} }}, remedies: [{{ authenticate: {{ account: two }} }}] }}\n  \
             - {{ name: all, remedies: [{{ cache: {{}} }}] }}\n"
        ))
        .start();
    for _ in 0..3 {
        for tenant in ["one", "two"] {
            let response = egret.get_with("/origin/a", &format!("x-tenant: {tenant}\r\n"));
            assert_eq!(response.assert_forwarded(200).text(), format!("Bearer token-{tenant}"));
        }
    }
    assert_eq!(origin.requests().len(), 2, "the rest came from the cache");
}

#[test]
fn background_revalidation_uses_the_account() {
    // Stale on arrival, and served while it is revalidated.
    let origin = Provider::responding(
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=1, stale-while-revalidate=600\r\nAge: 9\r\nETag: \"a\"\r\nContent-Length: 2\r\n\r\nhi",
    );
    let directory = Directory::default();
    let secret = secret(&directory, "secret", SECRET);
    let egret = Config::with_origin(origin.url())
        .flows(format!(
            "accounts:\n  main: {{ provider: origin, bearer: {{ token: {secret} }} }}\n\
             flows: [{{ name: f, remedies: [{{ transform: {{ request: {{ query: {{ set: {{ of: egret }} }} }} }} }}, \
             {{ authenticate: {{ account: main }} }}, {{ cache: {{}} }}] }}]\n"
        ))
        .start();
    for _ in 0..2 {
        assert_eq!(egret.get_with("/origin/a", "").assert_forwarded(200).text(), "hi");
    }
    origin.until_requested(2);
    for request in origin.requests() {
        assert_eq!(request.target(), "/a?of=egret");
        assert_eq!(request.values("authorization"), [format!("Bearer {SECRET}")], "{request:?}");
    }
    // The validator is that of the stored response.
    assert_eq!(origin.requests()[1].values("if-none-match"), ["\"a\""]);
}

#[test]
fn no_secret_shows_in_logs_figures_config_or_recordings() {
    let origin = Provider::plain();
    let directory = Directory::default();
    let secret = secret(&directory, "secret", SECRET);
    let har = directory.join("har");
    let egret = Config::with_origin(origin.url())
        .gateway("access_log: { output: stdout, format: json }")
        .flows(format!(
            "accounts:\n  main: {{ provider: origin, api_key: {{ query: key, value: {secret} }} }}\n\
             exporters: {{ archive: {{ type: har, directory: \"{}\" }} }}\n\
             flows:\n  - name: f\n    remedies: [{{ authenticate: {{ account: main }} }}]\n    \
             diagnoses: [{{ har: {{ export: archive, obfuscate: false, bodies: 64KiB }} }}]\n",
            har.display()
        ))
        .start();
    egret.get_with("/origin/a?b=1", "x-egret-trace: 1\r\n").assert_forwarded(200);
    assert!(origin.only_request().target().contains(SECRET));
    let recorded = wait::until("the exchange is recorded", || {
        let files = std::fs::read_dir(&har).ok()?.filter_map(Result::ok);
        let texts: String = files.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect();
        texts.contains("/a?b=1").then_some(texts)
    });
    assert!(recorded.contains("\"_account\":\"main\""), "{recorded}");
    let mut shown = vec![recorded, egret.log()];
    for path in ["/api/v1/config", "/api/v1/flows", "/api/v1/stats", "/metrics"] {
        shown.push(egret.control_get(path).text().to_owned());
    }
    assert!(shown.iter().all(|text| !text.contains(SECRET)));
}

//! A call is recognized as the same however a client names and spells it: in the cache, in the rules of flows
//! and for credentials.

use egret_tests::cached::ok_response;
use egret_tests::egret::{Config, Egret};
use egret_tests::http::Response;
use egret_tests::process::Directory;
use egret_tests::provider::Provider;

/// Starts a provider that responds with the request target, storably.
fn storable() -> Provider {
    Provider::with_responses(|request| {
        let host = request.values("host").first().copied().unwrap_or_default().to_owned();
        ok_response("Cache-Control: max-age=60", &format!("{host} {}", request.target()))
    })
}

const CACHE: &str = "flows: [ { name: all, remedies: [ { cache: {} } ] } ]\n";

/// Spellings of `/v2/charges/1` that some provider treats as equivalent.
const SPELLINGS: [&str; 14] = [
    "/v2/charges/1",
    "/v2//charges/1",
    "/v2/./charges/1",
    "/v2/%63harges/1",
    "/v2/x/../charges/1",
    "/v2/../v2/charges/1",
    "//v2/charges/1",
    "/./v2/charges/1",
    "/%762/charges/1",
    "/v2;a/charges/1",
    "/v2%2fcharges/1",
    "/v2%5Ccharges/1",
    "/q/../v2/charges/1",
    "/q/..;/v2/charges/1",
];

fn send(egret: &Egret, target: &str, fields: &str) -> Response {
    let request = format!("GET {target} HTTP/1.1\r\n{fields}\r\n");
    egret.client().send(request).response()
}

/// Sends a request to the host in `Host`.
fn by_host(egret: &Egret, origin: &Provider, target: &str) -> Response {
    send(egret, target, &format!("Host: {}\r\n", origin.address()))
}

/// Sends a request to the base URL of the provider with that name.
fn by_name(egret: &Egret, provider: &str, path: &str) -> Response {
    send(egret, &format!("/{provider}{path}"), &format!("Host: {}\r\n", egret.address()))
}

#[test]
fn responses_from_outside_a_base_path_are_not_shared() {
    let origin = storable();
    let egret = Config::with_origin(format!("{}/v2", origin.url())).flows(CACHE).start();
    by_host(&egret, &origin, "/cache/admin").assert_forwarded(200);
    let inside = by_name(&egret, "origin", "/cache/admin");
    assert!(inside.text().ends_with(" /v2/cache/admin"), "{inside:?}");
}

#[test]
fn a_client_chosen_host_does_not_poison_the_cache() {
    let origin = storable();
    let egret = Config::with_origin(origin.url())
        .listen(["{ address: \"127.0.0.1:0\", provider: origin, keep_host: true }"])
        .flows(CACHE)
        .start();
    send(&egret, "/a", "Host: evil.example\r\n").assert_forwarded(200);
    let good = send(&egret, "/a", "Host: good.example\r\n");
    assert_eq!(good.text(), "good.example /a");
}

#[test]
fn a_host_is_told_to_the_provider_in_one_spelling() {
    let origin = storable();
    let egret = Config::with_origin(origin.url()).start();
    let port = origin.address().port();
    let spelled = send(&egret, "/a", &format!("Host: 127.0.0.1.:{port}\r\n"));
    assert_eq!(spelled.text(), format!("127.0.0.1:{port} /a"));
}

#[test]
fn no_spelling_of_a_path_gets_around_a_block() {
    let origin = Provider::plain();
    let egret = Config::with_origin(format!("{}/v2", origin.url()))
        .flows(
            "flows: [{ name: blocked, match: { provider: origin, path: /charges/* }, \
             remedies: [{ fixed-response: { status: 403 } }] }]\n",
        )
        .start();
    for spelling in SPELLINGS {
        let response = by_host(&egret, &origin, spelling);
        assert!(matches!(response.status, 400 | 403), "{spelling}: {response:?}");
    }
    for rest in
        ["/charges/1", "//charges/1", "/../v2/charges/1", "/x/../charges/1", "/%63harges/1", "/charges%2f1"]
    {
        let response = by_name(&egret, "origin", rest);
        assert!(matches!(response.status, 400 | 403), "{rest}: {response:?}");
    }
    assert!(origin.requests().is_empty());
}

#[test]
fn no_spelling_of_a_path_gets_past_a_quota() {
    let origin = Provider::plain();
    let egret = Config::with_origin(format!("{}/v2", origin.url()))
        .flows(
            "quotas: { few: { limit: 2, window: 1h } }\n\
             flows: [{ name: limited, match: { provider: origin, path: \"/charges/{id}\" }, \
             remedies: [{ limit: { quota: few } }] }]\n",
        )
        .start();
    for spelling in SPELLINGS {
        by_host(&egret, &origin, spelling);
    }
    assert_eq!(origin.requests().len(), 2);
}

#[test]
fn spellings_of_a_path_share_one_quota_group() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url())
        .flows(
            "quotas: { few: { limit: 1, window: 1h, group_by: \"cel:request.path\" } }\n\
             flows: [{ name: limited, match: { provider: origin }, remedies: [{ limit: { quota: few } }] }]\n",
        )
        .start();
    for path in ["/a/~b", "/%61/~b", "/a/%7eb", "/a/%7Eb", "/./a/~b", "/x/../a/~b", "/x/%2e%2E/a/~b"] {
        by_name(&egret, "origin", path);
    }
    assert_eq!(origin.requests().len(), 1);
}

/// Starts a gateway in front of two tenants of one origin, each with its own account, and the secrets of
/// both.
fn tenants(origin: &Provider, directory: &Directory) -> Egret {
    let secret =
        |name: &str| directory.write_secret(name, format!("secret-of-{name}-0123")).display().to_string();
    let (a, b) = (secret("tenant-a"), secret("tenant-b"));
    Config::default()
        .provider("tenant-a", format!("{}/api/a", origin.url()))
        .provider("tenant-b", format!("{}/api/b", origin.url()))
        .flows(format!(
            "accounts:\n  \
             a: {{ provider: tenant-a, bearer: {{ token: \"${{file:{a}}}\" }} }}\n  \
             b: {{ provider: tenant-b, bearer: {{ token: \"${{file:{b}}}\" }} }}\n\
             flows:\n  \
             - {{ name: a, match: {{ provider: tenant-a }}, remedies: [{{ authenticate: {{ account: a }} }}] }}\n  \
             - {{ name: b, match: {{ provider: tenant-b }}, remedies: [{{ authenticate: {{ account: b }} }}] }}\n"
        ))
        .start()
}

#[test]
fn providers_at_one_origin_get_their_own_credentials() {
    let (origin, directory) = (Provider::plain(), Directory::default());
    let egret = tenants(&origin, &directory);
    by_host(&egret, &origin, "/api/b/x").assert_forwarded(200);
    assert_eq!(origin.only_request().values("authorization"), ["Bearer secret-of-tenant-b-0123"]);
}

#[test]
fn a_path_outside_of_every_providers_url_gets_no_credential() {
    let (origin, directory) = (Provider::plain(), Directory::default());
    let egret = tenants(&origin, &directory);
    by_host(&egret, &origin, "/admin/keys").assert_forwarded(200);
    assert_eq!(origin.only_request().values("authorization"), [""; 0]);
}

#[test]
fn steps_up_do_not_lead_a_credential_to_another_path() {
    let (origin, directory) = (Provider::plain(), Directory::default());
    let egret = tenants(&origin, &directory);
    for rest in ["/../b/x", "/%2e%2e/b/x", "/..;/b/x", "/y/../../b/x", "/..%2Fb/x"] {
        by_name(&egret, "tenant-a", rest).assert_generated(400, "bad-request");
    }
    assert!(origin.requests().is_empty());
}

#[test]
fn a_credential_is_not_sent_to_a_chosen_host() {
    let (origin, directory) = (Provider::plain(), Directory::default());
    let secret = directory.write_secret("secret", "s3cr3t-0123456789").display().to_string();
    let egret = Config::with_origin(origin.url())
        .listen(["{ address: \"127.0.0.1:0\", provider: origin, keep_host: true }"])
        .flows(format!(
            "accounts: {{ main: {{ provider: origin, bearer: {{ token: \"${{file:{secret}}}\" }} }} }}\n\
             flows: [{{ name: f, remedies: [{{ authenticate: {{ account: main }} }}] }}]\n"
        ))
        .start();
    send(&egret, "/a", "Host: evil.example\r\n").assert_forwarded(200);
    send(&egret, "/a", &format!("Host: {}\r\nx-egret-host: evil.example\r\n", egret.address()))
        .assert_forwarded(200);
    send(&egret, "http://evil.example/a", "Host: h\r\n").assert_forwarded(200);
    for request in origin.requests() {
        assert_eq!((request.values("host"), request.values("authorization")), (vec!["evil.example"], vec![]));
    }
}

#[test]
fn a_path_moved_to_another_provider_sends_no_credentials() {
    let (origin, directory) = (Provider::plain(), Directory::default());
    let secret =
        |name: &str| directory.write_secret(name, format!("secret-of-{name}-0123")).display().to_string();
    let (root, team) = (secret("root"), secret("team"));
    let egret = Config::default()
        .provider("root", origin.url())
        .provider("team", format!("{}/teams/b", origin.url()))
        .flows(format!(
            "accounts:\n  \
             root: {{ provider: root, bearer: {{ token: \"${{file:{root}}}\" }} }}\n  \
             team: {{ provider: team, bearer: {{ token: \"${{file:{team}}}\" }} }}\n\
             flows:\n  - name: moved\n    match: {{ provider: root }}\n    remedies:\n      \
             - authenticate: {{ account: root }}\n      - transform: {{ request: {{ path: /teams/b/x }} }}\n"
        ))
        .start();
    send(&egret, "/root/a", &format!("Host: {}\r\nX-Api-Key: mine\r\nX-Other: 1\r\n", egret.address()))
        .assert_forwarded(200);
    let request = origin.only_request();
    assert_eq!(request.target(), "/teams/b/x");
    assert_eq!((request.values("authorization"), request.values("x-api-key")), (vec![], vec![]));
    assert_eq!(request.values("x-other"), ["1"]);
}

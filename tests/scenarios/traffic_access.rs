//! Access to live traffic: only the owner of the token, also on loopback, and no page of another site.

use egret_tests::config_api::ConfigApi;
use egret_tests::egret::{Config, Egret};
use egret_tests::provider::Provider;
use egret_tests::traffic::LiveTraffic;

const PATHS: [&str; 3] = ["/api/v1/traffic", "/api/v1/traffic/1", "/api/v1/traffic/stream"];

fn start() -> Egret {
    Config::default().start()
}

/// Returns the status of a request with these field lines after the target.
fn status(egret: &Egret, path: &str, fields: &str) -> u16 {
    egret.control_get_with(path, fields).status
}

#[test]
fn without_the_token_there_is_nothing_even_on_loopback() {
    let egret = start();
    let host = egret.control();
    for path in PATHS {
        assert_eq!(status(&egret, path, &format!("Host: {host}\r\n")), 401, "{path}");
        let wrong = format!("Host: {host}\r\nAuthorization: Bearer 0123456789abcdef\r\n");
        assert_eq!(status(&egret, path, &wrong), 401, "{path}");
    }
    let file = egret.directory().path().join("egret-data/control-token");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(file).unwrap().permissions());
    assert_eq!(mode & 0o077, 0, "another user could read the token");
}

#[test]
fn a_page_of_another_site_sees_nothing_with_the_token() {
    let egret = start();
    let (host, token) = (egret.control(), ConfigApi::of(&egret).token().to_owned());
    let bearer = format!("Authorization: Bearer {token}\r\n");
    for path in PATHS {
        for origin in
            ["Origin: https://evil.example\r\n", "Origin: null\r\n", "Sec-Fetch-Site: cross-site\r\n"]
        {
            assert_eq!(
                status(&egret, path, &format!("Host: {host}\r\n{bearer}{origin}")),
                403,
                "{path} {origin}"
            );
        }
        // A name that was rebound to this address.
        let rebound = format!("Host: evil.example:{}\r\n{bearer}", host.port());
        assert_eq!(status(&egret, path, &rebound), 421, "{path}");
        let posted = egret_tests::http::Client::connect(host)
            .send(format!("POST {path} HTTP/1.1\r\nHost: {host}\r\n{bearer}Content-Length: 0\r\n\r\n"))
            .response()
            .status;
        assert_eq!(posted, 405, "{path}");
    }
}

#[test]
fn requests_without_access_record_nothing() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    for path in PATHS {
        assert_eq!(egret.control_get(path).status, 401);
    }
    egret.get("/one").assert_forwarded(200);
    let traffic = LiveTraffic::open(&egret);
    assert_eq!(traffic.exchanges("provider=origin").len(), 0);
}

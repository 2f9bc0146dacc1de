//! A client's credentials must not follow its call to a fallback provider.

use egret_tests::egret::Config;
use egret_tests::http::find;
use egret_tests::provider::{Provider, ok};

#[test]
fn a_fallback_gets_no_credentials_of_the_client() {
    let down = Provider::responding("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
    let other = Provider::responding(ok("from the other"));
    let egret = Config::with_origin(down.url())
        .provider("other", other.url())
        .flows("flows: [{ name: f, match: { provider: origin }, remedies: [{ fallback: { provider: other } }] }]\n")
        .start();
    let request = format!(
        "GET /origin/a?page=2&api_key=s3cr3t&b HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer s3cr3t\r\nCookie: sid=s3cr3t\r\nX-Api-Key: s3cr3t\r\nAccept: text/plain\r\n\r\n",
        egret.address()
    );
    let response = egret.client().send(request).response();
    assert_eq!(response.assert_forwarded(200).text(), "from the other");
    let seen = other.only_request();
    assert_eq!(find(&other.received(), b"s3cr3t"), None, "{seen:?}");
    assert_eq!((seen.target(), seen.values("accept")), ("/a?page=2&b", vec!["text/plain"]));
    // The credentials were for this provider.
    let seen = down.only_request();
    assert_eq!((seen.target(), seen.values("x-api-key")), ("/a?page=2&api_key=s3cr3t&b", vec!["s3cr3t"]));
}

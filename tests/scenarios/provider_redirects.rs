//! The built-in provider redirects like go-httpbin.

use egret_tests::built_in::BuiltIn;
use egret_tests::peers::Httpbin;
use egret_tests::provider_pair::{ProviderPair, request};

#[test]
fn chains_of_redirects_lead_the_same_way() {
    let pair = ProviderPair::default();
    pair.assert_all_alike(&[
        "/redirect/1",
        "/redirect/3",
        "/redirect/3?absolute=true",
        "/relative-redirect/2",
        "/absolute-redirect/2",
        "/absolute-redirect/1",
        "/redirect/0",
        "/redirect/-1",
        "/redirect/x",
        "/links/5",
        "/links/5?a=1",
        "/links/257",
        "/links/x",
    ]);
    let first = pair.built_in().get("/redirect/2");
    let second = pair.built_in().get(first.field("location").unwrap());
    assert_eq!(second.field("location"), Some("/get"));
}

#[test]
fn a_redirect_leads_where_it_may() {
    let pair = ProviderPair::default();
    pair.assert_all_alike(&[
        "/redirect-to?url=http%3A%2F%2Fexample.com%2Fa%3Fb",
        "/redirect-to?url=/get&status_code=307",
        "/redirect-to?url=//example.com/",
        "/redirect-to?url=relative",
        "/redirect-to",
        "/redirect-to?url=%25zz",
        "/redirect-to?url=/get&status_code=200",
        "/redirect-to?url=/get&status_code=400",
        "/redirect-to?url=/get&status_code=x",
    ]);
    pair.assert_alike(&request("POST", "/redirect-to?url=/get"));
}

#[test]
fn only_hosts_that_are_allowed_are_redirected_to() {
    let provider = BuiltIn::start(&["--allowed-redirect-domains", "a.test,b.test"]);
    let httpbin = Httpbin::start_with(&["-allowed-redirect-domains", "a.test,b.test"]);
    for (target, status) in [("http://a.test:8/x", 302), ("http://c.test/x", 403), ("/x", 302)] {
        let request = request("GET", &format!("/redirect-to?url={target}"));
        let (ours, theirs) = (request.send_to(provider.address()), request.send_to(httpbin.address()));
        assert_eq!((ours.status, theirs.status), (status, status), "{target}");
        assert_eq!(ours.field("content-type"), theirs.field("content-type"), "{target}");
    }
}

#[test]
fn behind_a_prefix_everything_is_below_it() {
    let provider = BuiltIn::start(&["--prefix", "/v1"]);
    let httpbin = Httpbin::start_with(&["-prefix", "/v1"]);
    for target in [
        "/v1/redirect/2",
        "/v1/cookies/set?a=1",
        "/v1/links/2",
        "/v1/status/302",
        "/v1/redirect-to?url=/x",
        "/get",
    ] {
        let request = request("GET", target);
        let (ours, theirs) = (request.send_to(provider.address()), request.send_to(httpbin.address()));
        assert_eq!(ours.status, theirs.status, "{target}");
        assert_eq!(ours.field("location"), theirs.field("location"), "{target}");
    }
    assert_eq!(request("GET", "/v1").send_to(provider.address()).field("location"), Some("/v1/"));
}

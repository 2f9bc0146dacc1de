//! The built-in provider responds with the requested status code like go-httpbin.

use egret_tests::built_in::BuiltIn;
use egret_tests::provider_pair::{ProviderPair, request};

#[test]
fn every_status_has_the_fields_that_go_httpbin_gives_it() {
    let pair = ProviderPair::default();
    let codes = (200..=208).chain(300..=308).chain(400..=431).chain(500..=511).chain([226, 299, 451, 599]);
    for code in codes {
        let (ours, theirs) = pair.assert_alike(&request("GET", &format!("/status/{code}")));
        assert_eq!(ours.body.is_empty(), theirs.body.is_empty(), "{code}");
    }
    pair.assert_alike(&request("POST", "/status/404").content("x"));
}

#[test]
fn an_invalid_status_is_refused_by_both_providers() {
    let pair = ProviderPair::default();
    pair.assert_all_alike(&[
        "/status/99",
        "/status/600",
        "/status/-1",
        "/status/x",
        "/status/200,x",
        "/status/200:x,300",
    ]);
    assert_eq!(
        pair.built_in().get("/status/200:0,300:0").status,
        400,
        "go-httpbin drops the connection here"
    );
}

#[test]
fn an_informational_status_comes_ahead_of_a_good_one() {
    let pair = ProviderPair::default();
    for code in [100, 102, 103] {
        let target = format!("/status/{code}");
        let mut client = pair.built_in().client();
        let ahead = client.get("a", &target).response();
        assert_eq!((ahead.status, ahead.field("content-length")), (code, None));
        assert_eq!(client.response().status, 200);
        assert_eq!(client.get("a", "/get").response().status, 200, "the connection lives on");
        pair.assert_alike(&request("GET", &target));
    }
}

#[test]
fn one_of_several_statuses_is_drawn_by_weight_and_seed() {
    let provider = BuiltIn::start(&["--seed", "7"]);
    let mut client = provider.client();
    let drawn: Vec<u16> =
        (0..400).map(|_| client.get("a", "/status/200:3,503:1").response().status).collect();
    let bad = drawn.iter().filter(|status| **status == 503).count();
    assert!((60..140).contains(&bad), "{bad} of 400");
    let again = BuiltIn::start(&["--seed", "7"]);
    let mut client = again.client();
    let repeated: Vec<u16> =
        (0..400).map(|_| client.get("a", "/status/200:3,503:1").response().status).collect();
    assert_eq!(drawn, repeated);
}

#[test]
fn the_unstable_fail_at_their_rate() {
    let pair = ProviderPair::default();
    pair.assert_all_alike(&[
        "/unstable?failure_rate=0",
        "/unstable?failure_rate=1",
        "/unstable?failure_rate=2",
        "/unstable?failure_rate=x",
        "/unstable?seed=x",
    ]);
    let statuses: Vec<u16> = (0..2).map(|_| pair.built_in().get("/unstable?seed=5").status).collect();
    assert_eq!(statuses[0], statuses[1], "the same for the same seed");
}

//! The built-in provider validates and splits content like go-httpbin.

use egret_tests::provider_pair::{ProviderPair, request};

#[test]
fn caches_are_told_the_same() {
    let pair = ProviderPair::default();
    for sent in [
        request("GET", "/cache"),
        request("GET", "/cache").field("If-None-Match", "x"),
        request("GET", "/cache").field("If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 GMT"),
        request("GET", "/cache/60"),
        request("GET", "/cache/-1"),
        request("GET", "/cache/x"),
    ] {
        pair.assert_alike(&sent);
    }
}

#[test]
fn conditions_on_an_entity_tag_are_obeyed_alike() {
    let pair = ProviderPair::default();
    for (name, value) in [
        ("If-None-Match", "\"abc\""),
        ("If-None-Match", "W/\"abc\""),
        ("If-None-Match", "\"x\", \"abc\""),
        ("If-None-Match", "*"),
        ("If-None-Match", "\"x\""),
        ("If-None-Match", "abc"),
        ("If-Match", "\"abc\""),
        ("If-Match", "\"x\""),
        ("If-Match", "W/\"abc\""),
        ("If-Match", "*"),
        ("Range", "bytes=0-3"),
    ] {
        for method in ["GET", "POST", "HEAD"] {
            let sent = request(method, "/etag/abc").field(name, value);
            let (ours, theirs) = pair.assert_alike(&sent);
            assert_eq!(ours.field("etag"), theirs.field("etag"), "{name}: {value}");
        }
    }
    let conditional = request("GET", "/etag/abc").field("Range", "bytes=0-3");
    for tag in ["\"abc\"", "\"x\""] {
        pair.assert_alike(&conditional.clone().field("If-Range", tag));
    }
}

#[test]
fn ranges_are_cut_alike() {
    let pair = ProviderPair::default();
    pair.assert_alike(&request("GET", "/range/30"));
    for range in [
        "bytes=0-3",
        "bytes=5-",
        "bytes=-4",
        "bytes=-40",
        "bytes=28-99",
        "bytes=30-",
        "bytes=99-100",
        "bytes=3-1",
        "bytes=x",
        "chars=0-1",
        "bytes=",
        "bytes=0-29,0-29",
        "bytes=-",
    ] {
        let (ours, theirs) = pair.assert_alike(&request("GET", "/range/30").field("Range", range));
        assert_eq!(ours.field("etag"), theirs.field("etag"), "{range}");
        if ours.status != 416 {
            assert_eq!(ours.body, theirs.body, "{range}");
            assert_eq!(ours.field("content-length"), theirs.field("content-length"), "{range}");
        }
    }
    let (ours, theirs) = pair.assert_alike(&request("GET", "/range/30").field("Range", "bytes=0-1, 3-4"));
    let parts =
        |text: &str| text.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n");
    assert_eq!(parts(ours.text()), parts(theirs.text()));
    pair.assert_all_alike(&[
        "/range/0",
        "/range/-1",
        "/range/1048577",
        "/range/x",
        "/range/10?duration=11",
        "/range/10?duration=20ms",
    ]);
}

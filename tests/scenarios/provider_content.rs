//! The built-in provider generates content like go-httpbin.

use egret_tests::provider_pair::{ProviderPair, request};

#[test]
fn bytes_come_in_the_number_asked_for() {
    let pair = ProviderPair::default();
    for n in [0, 1, 1_000, 1 << 20] {
        let (ours, theirs) = pair.assert_alike(&request("GET", &format!("/bytes/{n}")));
        assert_eq!((ours.body.len(), theirs.body.len()), (n, n));
        assert_eq!(ours.field("content-length"), theirs.field("content-length"));
        let (ours, _) =
            pair.assert_alike(&request("GET", &format!("/stream-bytes/{n}?chunk_size=300&seed=4")));
        assert_eq!(ours.body.len(), n);
    }
    let seeded = |target| pair.built_in().get(target).body;
    assert_eq!(seeded("/bytes/50?seed=1"), seeded("/stream-bytes/50?seed=1&chunk_size=0"));
    assert_ne!(seeded("/bytes/50"), seeded("/bytes/50"));
    pair.assert_all_alike(&[
        "/bytes/-1",
        "/bytes/1048577",
        "/bytes/x",
        "/bytes/10?seed=x",
        "/stream-bytes/-1",
        "/stream-bytes/1048577",
        "/stream-bytes/10?chunk_size=x",
        "/stream-bytes/10?chunk_size=-5",
    ]);
}

#[test]
fn streamed_bytes_come_in_chunks() {
    let pair = ProviderPair::default();
    let mut client = pair.built_in().client();
    let head = client.get("a", "/stream-bytes/250?chunk_size=100").head();
    assert_eq!(head.field("transfer-encoding"), Some("chunked"));
    assert_eq!(client.bytes(4), b"64\r\n");
}

#[test]
fn base64_is_read_in_either_alphabet_and_written_for_urls() {
    let pair = ProviderPair::default();
    for target in [
        "/base64/ZWdyZXQ=",
        "/base64/decode/_-8=",
        "/base64/encode/egret%3F%3E",
        "/base64/decode/PGI-?content-type=text/html",
        "/base64/decode/eyJhIjoiPGI-In0=?content-type=application/json",
        "/base64/encode/x?content-type=image/svg%2Bxml",
    ] {
        let (ours, theirs) = pair.assert_alike(&request("GET", target));
        assert_eq!(ours.body, theirs.body, "{target}");
    }
    pair.assert_all_alike(&["/base64/!", "/base64/decode/abc", "/base64/turn/abc", "/base64/decode/"]);
}

#[test]
fn compressed_content_is_what_its_coding_says() {
    let pair = ProviderPair::default();
    let curl = |target: &str| {
        let mut command = egret_tests::peers::curl();
        egret_tests::process::run_checked(
            command.arg("--compressed").arg(format!("http://{}{target}", pair.built_in().address())),
        )
    };
    for (target, flag) in [("/gzip?a=1", "gzipped"), ("/deflate", "deflated")] {
        let (ours, _) = pair.assert_alike(&request("GET", target));
        assert!(ours.field("content-length").is_some());
        let echo: serde_json::Value = serde_json::from_str(&curl(target)).unwrap();
        assert_eq!((&echo[flag], &echo["method"]), (&true.into(), &"GET".into()), "{echo}");
    }
    pair.assert_all_alike(&["/brotli"]);
}

#[test]
fn response_fields_and_trailers_are_those_asked_for() {
    let pair = ProviderPair::default();
    for target in [
        "/response-headers",
        "/response-headers?X-A=1&X-A=2&Server=x",
        "/response-headers?Content-Type=text/html&a=%3Cb%3E",
        "/response-headers?Content-Type=text/plain&a=%3Cb%3E",
    ] {
        let (ours, theirs) = pair.assert_alike(&request("GET", target));
        assert_eq!(ours.json(), theirs.json(), "{target}");
    }
    for target in ["/trailers", "/trailers?X-A=1&b=2"] {
        let (ours, theirs) =
            pair.assert_alike(&request("POST", target).content("x").field("Content-Type", "text/plain"));
        assert_eq!(ours.json(), theirs.json(), "{target}");
    }
    pair.assert_all_alike(&["/trailers?Host=1", "/trailers?content-length=1", "/trailers?te=1"]);
    let response = pair.built_in().get("/trailers?X-Checksum=abc");
    assert_eq!(response.trailers, [("x-checksum".to_owned(), "abc".to_owned())]);
}

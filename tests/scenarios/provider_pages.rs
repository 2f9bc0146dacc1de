//! The built-in provider has the pages, documents and images of go-httpbin.

use egret_tests::built_in::BuiltIn;
use egret_tests::provider_pair::{ProviderPair, request};

#[test]
fn pages_documents_and_images_are_of_the_same_types() {
    let pair = ProviderPair::default();
    pair.assert_all_alike(&[
        "/",
        "/html",
        "/json",
        "/xml",
        "/robots.txt",
        "/deny",
        "/encoding/utf8",
        "/forms/post",
        "/links/5/2",
        "/links/0/0",
        "/links/5/x",
        "/links/x/0",
        "/image/png",
        "/image/jpeg",
        "/image/webp",
        "/image/svg",
        "/image/gif",
    ]);
    for accept in [
        "image/*",
        "image/png",
        "image/webp",
        "image/svg+xml",
        "image/jpeg",
        "text/html",
        "image/webp, image/png",
    ] {
        pair.assert_alike(&request("GET", "/image").field("Accept", accept));
    }
    pair.assert_alike(&request("GET", "/image"));
}

#[test]
fn images_are_what_their_type_says() {
    let provider = BuiltIn::start(&[]);
    for (kind, start) in
        [("png", &b"\x89PNG\r\n"[..]), ("jpeg", b"\xff\xd8\xff"), ("webp", b"RIFF"), ("svg", b"<svg")]
    {
        let image = provider.get(&format!("/image/{kind}"));
        assert!(image.body.starts_with(start), "{kind}");
    }
}

#[test]
fn the_page_leads_to_every_example() {
    let provider = BuiltIn::start(&["--prefix", "/v1", "--max-duration", "1s"]);
    let page = provider.get("/v1/");
    let examples: Vec<&str> =
        page.text().split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(examples.len() > 60, "{examples:?}");
    for example in examples {
        assert!(example.starts_with("/v1/"), "{example}");
        let target = example.replace("&amp;", "&");
        // Faults send no valid response, and one endpoint hides behind 404.
        if !target.contains("/fault/") && !target.contains("/hidden-basic-auth/") {
            let status = provider.get(&target).status;
            assert_ne!(status, 404, "{target}");
        }
    }
}

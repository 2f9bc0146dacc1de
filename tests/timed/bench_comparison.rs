//! `egret bench --vs` compares two URLs in short rounds, each of which needs a response.

use egret_tests::bench::bench;
use egret_tests::provider::{Provider, ok};

#[test]
fn two_urls_are_compared_and_the_slower_one_is_named() {
    let provider = Provider::scripted(|peer| {
        let (_never, wait) = std::sync::mpsc::channel::<()>();
        while let Some(request) = peer.request() {
            let millis = if request.target() == "/slow" { 20 } else { 5 };
            let _ = wait.recv_timeout(std::time::Duration::from_millis(millis));
            peer.send(ok("hello"));
        }
    });
    let (fast, slow) = (format!("{}/fast", provider.url()), format!("{}/slow", provider.url()));
    let ran = bench(&["-q", "-k", "-c", "2", "-t", "4S", "--vs", &slow, &fast]).well();
    assert!(ran.printed.contains("p50: B is") && ran.printed.contains("% slower than A"), "{}", ran.printed);
    assert!(ran.printed.contains("% lower than A"), "{}", ran.printed);
}

#[test]
fn a_comparison_warns_of_each_side_that_responds_with_errors() {
    let missing = Provider::responding("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    let there = Provider::plain();
    let [a, b] = [&there, &missing].map(|provider| format!("{}/", provider.url()));
    let ran = bench(&["-q", "-k", "-t", "2S", "--vs", &b, &a]).well();
    assert!(ran.stderr.contains("WARNING: B: ") && !ran.stderr.contains("WARNING: A: "), "{}", ran.stderr);
    assert!(ran.printed.contains("requests to B, "), "{}", ran.printed);
}

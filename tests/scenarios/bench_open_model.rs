//! The open model: what is counted, and what is not.

use egret_tests::bench::{bench, count, summary};
use egret_tests::provider::Provider;

#[test]
fn requests_due_but_never_sent_are_reported() {
    // One connection and a provider that never responds: the other requests cannot be sent.
    let provider = Provider::scripted(|peer| {
        let _ = peer.request();
        peer.stall();
    });
    let ran = bench(&["-q", "-k", "-c", "1", "--rate", "100", "-t", "1", "-s", "500ms", &provider.url()]);
    assert!(ran.printed.contains("were due but never sent"), "{}\n{}", ran.printed, ran.stderr);
    assert!(ran.printed.contains("timeout x"), "{}", ran.printed);
    assert_eq!(ran.code, 1, "every request failed");
}

#[test]
fn warming_up_is_not_counted() {
    let provider = Provider::plain();
    let result = summary(&["-k", "-c", "2", "--warmup", "1S", "-n", "50", &provider.url()]);
    assert_eq!(count(&result, "/requests"), 50);
    assert!(provider.requests().len() > 50, "the warm-up has sent some too");
}

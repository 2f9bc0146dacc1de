//! The built-in provider's delays end on time.

use std::time::{Duration, Instant};

use egret_tests::built_in::BuiltIn;

/// A timer with a resolution of milliseconds would be one to two of them late.
#[test]
fn a_delay_ends_on_time() {
    let provider = BuiltIn::start(&["--threads", "1"]);
    let mut client = provider.client();
    let mut took = |target: &str| {
        let started = Instant::now();
        client.get("a", target).response();
        started.elapsed()
    };
    let (mut delayed, mut direct): (Vec<_>, Vec<_>) =
        (0..60).map(|_| (took("/delay/0.01"), took("/get"))).unzip();
    delayed.sort_unstable();
    direct.sort_unstable();
    assert!(delayed[0] >= Duration::from_millis(10), "{delayed:?}");
    // The fastest of each: a busy machine delays the others.
    let late = delayed[0].saturating_sub(direct[0]).saturating_sub(Duration::from_millis(10));
    assert!(late < Duration::from_micros(800), "{late:?}: {delayed:?} {direct:?}");
}

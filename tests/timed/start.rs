//! The time from the start of the process to the first byte that it serves.

use std::time::{Duration, Instant};

use egret_tests::egret::Config;
use egret_tests::provider::Provider;

/// The goal is 50 ms for a release build. The rest is for a debug build.
const START_MAX: Duration = Duration::from_secs(2);

#[test]
fn the_first_byte_is_served_soon_after_the_start() {
    let origin = Provider::plain();
    let config = Config::with_origin(origin.url());
    let start = Instant::now();
    let egret = config.start();
    let listening = start.elapsed();
    egret.get("/").assert_forwarded(200);
    let served = start.elapsed();
    println!("start to listening: {listening:?}, to the first byte served: {served:?}");
    assert!(served < START_MAX, "{served:?}");
}

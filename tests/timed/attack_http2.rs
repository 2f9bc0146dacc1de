//! Hostile clients of HTTP/2 that do not leave when they are told to.

use std::time::Duration;

use egret_tests::egret::Config;
use egret_tests::http2::ENHANCE_YOUR_CALM;
use egret_tests::http2_attacks::ATTACKS;
use egret_tests::provider::{Provider, ok};

/// Maximum time from the `GOAWAY` of a flood to the end of its connection.
const LINGERS_MAX: Duration = Duration::from_secs(2);

#[test]
fn a_flood_is_gone_two_seconds_after_its_limit() {
    let large = ok(&"x".repeat(4 << 20));
    let origin = Provider::responding(large);
    for attack in ATTACKS.iter().filter(|attack| attack.flood.is_some()) {
        let egret = Config::with_origin(origin.url()).gateway("workers: 1").start();
        let end = attack.run(egret.address()).unwrap_or_else(|| panic!("no GOAWAY for {}", attack.name));
        println!("{}: gone after {:?}", attack.name, end.lingered);
        assert_eq!(end.error, ENHANCE_YOUR_CALM, "{}", attack.name);
        assert!(end.lingered <= LINGERS_MAX, "{}: {:?}", attack.name, end.lingered);
    }
}

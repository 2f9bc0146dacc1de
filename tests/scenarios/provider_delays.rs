//! The built-in provider draws delays from distributions, for one response or for all.

use std::time::{Duration, Instant};

use egret_tests::built_in::BuiltIn;
use egret_tests::http::Response;

/// Returns the delay that a response reports, in milliseconds.
fn told_millis(response: &Response) -> f64 {
    let timing = response.field("server-timing").unwrap();
    timing.split("dur=").nth(1).unwrap().split(';').next().unwrap().parse().unwrap()
}

#[test]
fn a_path_names_a_distribution() {
    let provider = BuiltIn::start(&["--seed", "3"]);
    let mut client = provider.client();
    let mut drawn = |target: &str| told_millis(&client.get("a", target).response());
    assert_eq!(drawn("/delay/constant:5ms").to_bits(), 5.0_f64.to_bits());
    let normal: Vec<f64> = (0..30).map(|_| drawn("/delay/normal:5ms,1ms")).collect();
    let mean = normal.iter().sum::<f64>() / 30.0;
    assert!((4.0..6.0).contains(&mean) && normal[0].to_bits() != normal[1].to_bits(), "{normal:?}");
    assert!((0..30).all(|_| (1.0..=3.0).contains(&drawn("/delay/percentiles:0=1ms,100=3ms"))));
    let twice = [drawn("/delay/lognormal:2ms,0.5?seed=9"), drawn("/delay/lognormal:2ms,0.5?seed=9")];
    assert_eq!(twice[0].to_bits(), twice[1].to_bits(), "the same for the same seed");
    for target in
        ["/delay/normal:5ms", "/delay/gamma:1s", "/delay/percentiles:50=2s,90=1s", "/delay/lognormal:1s,9"]
    {
        let refused = provider.get(target);
        assert!(refused.status == 400 && refused.text().contains("invalid duration: "), "{refused:?}");
    }
}

#[test]
fn a_delay_is_limited_to_the_maximum() {
    let provider = BuiltIn::start(&["--max-duration", "20ms"]);
    assert_eq!(told_millis(&provider.get("/delay/constant:9s")).to_bits(), 20.0_f64.to_bits());
    assert_eq!(provider.get("/delay/21ms").status, 400);
}

#[test]
fn every_response_is_delayed_and_counters_are_not() {
    let provider = BuiltIn::start(&["--delay", "constant:60ms"]);
    let took = |target: &str| {
        let started = Instant::now();
        provider.get(target);
        started.elapsed()
    };
    for target in ["/get", "/status/404", "/no/such"] {
        assert!(took(target) >= Duration::from_millis(60), "{target}");
    }
    let endless = BuiltIn::start(&["--max-duration", "1h", "--delay", "constant:1h"]);
    assert_eq!(endless.get("/counters").status, 200);
}

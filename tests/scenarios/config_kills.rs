//! Killed while the config is replaced over the control port: the file is the old one or the new one, whole.

use std::fs;
use std::time::Duration;

use egret_tests::config_api::ConfigApi;
use egret_tests::egret::Config;

/// Number of kills, each one later in a change than the one before.
const KILLS: u64 = 24;

/// The step by which a kill is later.
const STEP: Duration = Duration::from_micros(700);

#[test]
fn the_file_is_whole_after_every_kill() {
    // Large texts make a torn one likely.
    let filler = format!("# {}\n", "x".repeat(1_000)).repeat(200);
    let config = |limit: u64| {
        Config::default().flows(format!("quotas: {{ live: {{ limit: {limit}, window: 1h }} }}\n{filler}"))
    };
    for kill in 1..=KILLS {
        let mut egret = config(1).start();
        let api = ConfigApi::of(&egret);
        assert_eq!(api.put(&config(2).yaml()).status, 200);
        let fields = format!("If-Match: {}\r\n", api.etag());
        let put = api.offer("PUT /api/v1/config/files/egret.yaml", &fields, &config(3).yaml());
        std::thread::park_timeout(STEP * u32::try_from(kill).unwrap());
        egret.process().signal("KILL");
        egret.until_ended();
        drop(put);
        let text = fs::read_to_string(egret.directory().join("egret.yaml")).unwrap();
        assert!(
            text == config(2).yaml() || text == config(3).yaml(),
            "torn after kill {kill}: {} bytes",
            text.len()
        );
    }
}

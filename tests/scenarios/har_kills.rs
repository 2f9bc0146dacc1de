//! Killed while it writes archives under load: all entries counted as written are there, every file is valid
//! JSON, and nothing needs repair.

use egret_tests::egret::Config;
use egret_tests::load::Load;
use egret_tests::permits;
use egret_tests::process::Directory;
use egret_tests::provider::Provider;
use egret_tests::recorded::{assert_verified, entries, exporter, files, until_exporter};
use serde_json::Value;

/// Number of kills, each one later than the previous.
const KILLS: u64 = 6;

#[test]
fn archives_are_whole_after_every_kill() {
    let _permit = permits::busy();
    let (origin, directory) = (Provider::plain(), Directory::default());
    let exporters = format!(
        "exporters: {{ archive: {{ type: har, directory: '{}', rotate: 64KiB }} }}\n\
         flows: [{{ name: all, diagnoses: [har: {{ export: archive }}] }}]\n",
        directory.path().display()
    );
    let config = Config::with_origin(origin.url()).flows(exporters);
    let (mut counted, mut seen) = (0, 0);
    for kill in 1..=KILLS {
        let mut egret = config.start();
        let load = Load::start(egret.address(), "/origin/", 4, true);
        let written = |archive: &Value| archive["written"].as_u64().unwrap();
        until_exporter(&egret, "archive", "some are written", |archive| written(archive) >= kill * 60);
        counted += written(&exporter(&egret, "archive"));
        egret.process().signal("KILL");
        egret.until_ended();
        load.finish();
        let all = entries(&files(directory.path())).len() as u64;
        assert!(all >= counted, "after kill {kill}: {all} are there, {counted} were counted");
        assert!(all > seen);
        seen = all;
    }
    let egret = config.start();
    until_exporter(&egret, "archive", "it is up", |archive| archive["up"] == true);
    assert_eq!(exporter(&egret, "archive")["repaired"], 0);
    let archives = files(directory.path());
    assert!(archives.len() as u64 > KILLS, "some were rotated: {archives:?}");
    assert_verified(&archives);
}

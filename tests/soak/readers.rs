//! People and programs that watch the gateway meanwhile, and change its config.

use std::io::Read as _;
use std::time::{Duration, Instant};

use egret_tests::config_api::ConfigApi;
use egret_tests::wait;

use super::gateway::World;
use super::load::Load;

/// Time between two looks, and between two changes of the config.
const LOOK: Duration = Duration::from_secs(1);
const CHANGE: Duration = Duration::from_secs(7);
/// Time for which a reader follows live traffic before it leaves.
const FOLLOWED: Duration = Duration::from_secs(1);

/// Paths that the page, Prometheus and people at a terminal read.
const PATHS: [&str; 15] = [
    "/metrics",
    "/api/v1/stats",
    "/api/v1/flows",
    "/api/v1/findings",
    "/api/v1/failures",
    "/api/v1/history",
    "/api/v1/traffic",
    "/api/v1/quotas",
    "/api/v1/spend",
    "/api/v1/accounts",
    "/api/v1/exporters",
    "/api/v1/discovery",
    "/api/v1/discovery/flows",
    "/api/v1/config",
    "/api/v1/config/versions",
];

/// Reads one path after the other, and now and then live traffic.
pub(crate) fn look(world: &World, load: &Load) {
    let api = ConfigApi::of(world.egret());
    let mut paths = PATHS.iter().cycle();
    load.each(
        || LOOK,
        || {
            load.tried("the control port", || {
                let path = paths.next().unwrap();
                let response = api.call(&format!("GET {path}"), "", "");
                assert_eq!(response.status, 200, "{path}: {response:?}");
                if *path == "/api/v1/traffic" {
                    follow(&api);
                }
            });
        },
    );
}

/// Reads some live traffic, and leaves.
fn follow(api: &ConfigApi<'_>) {
    let (begun, mut stream) = (Instant::now(), api.offer("GET /api/v1/traffic/stream", "", ""));
    assert_eq!(stream.head().status, 200);
    stream.stream().set_read_timeout(Some(FOLLOWED)).unwrap();
    let mut piece = [0; 4_096];
    // It ends when nothing comes for a while, as in a pause.
    while begun.elapsed() < FOLLOWED && stream.stream().read(&mut piece).is_ok_and(|count| count > 0) {}
}

/// Changes the config again and again, and clears a cache.
pub(crate) fn change(world: &World, load: &Load) {
    let (api, mut number) = (ConfigApi::of(world.egret()), 0);
    load.each(
        || CHANGE,
        || {
            load.tried("a change of the config", || {
                number += 1;
                let before = world.egret().stat("/reloads");
                world.egret().rewrite(world.changed(number));
                wait::until_true("the config is in force", || world.egret().stat("/reloads") > before);
                let purged = api.call("POST /api/v1/cache/purge?tag=soak", "", "");
                assert_eq!(purged.status, 200, "{purged:?}");
            });
        },
    );
}

//! A service manager is told when Egret is ready, reloads and stops, and that its workers respond.

use std::time::Instant;

use egret_tests::egret::{Config, Egret};
use egret_tests::provider::Provider;
use egret_tests::supervised::{Notifications, value};

/// Skips messages of the watchdog.
fn next(manager: &Notifications) -> Vec<String> {
    loop {
        let message = manager.next();
        if message != ["WATCHDOG=1"] {
            return message;
        }
    }
}

fn start(manager: &Notifications, config: &Config) -> Egret {
    Egret::start_with(config, |command| manager.expect_from(command))
}

#[test]
fn ready_is_said_once_egret_listens() {
    let manager = Notifications::default();
    let origin = Provider::plain();
    let egret = start(&manager, &Config::with_origin(origin.url()));
    assert!(manager.next().contains(&"READY=1".to_owned()));
    egret.get("/").assert_forwarded(200);
    assert_eq!(manager.unread(), 0);
}

#[test]
fn a_reload_is_announced_and_its_end_too() {
    let manager = Notifications::default();
    let origin = Provider::plain();
    let config = Config::with_origin(origin.url());
    let egret = start(&manager, &config);
    next(&manager);
    let mut before = 0;
    for _ in 0..2 {
        egret.hang_up();
        let begun = next(&manager);
        assert_eq!(value(&begun, "RELOADING"), "1");
        // The service manager ignores an announcement from before its own request, by this clock.
        let at: u64 = value(&begun, "MONOTONIC_USEC").parse().unwrap();
        assert!(at > before, "{at} is not after {before}");
        before = at;
        let ended = next(&manager);
        assert_eq!((value(&ended, "READY"), value(&ended, "STATUS")), ("1".to_owned(), "Serving".to_owned()));
    }
    egret.rewrite("gateway: { no_such_key: 1 }");
    egret.hang_up();
    assert_eq!(value(&next(&manager), "RELOADING"), "1");
    let ended = next(&manager);
    assert_eq!(value(&ended, "READY"), "1");
    assert!(value(&ended, "STATUS").contains("refused"), "{ended:?}");
    egret.get("/").assert_forwarded(200);
}

#[test]
fn a_stop_asks_for_the_time_that_a_drain_may_take() {
    let manager = Notifications::default();
    let mut egret = start(&manager, &Config::default().gateway("timeouts: { drain: 90s }"));
    next(&manager);
    egret.terminate();
    let message = next(&manager);
    assert_eq!(value(&message, "STOPPING"), "1");
    assert_eq!(value(&message, "EXTEND_TIMEOUT_USEC"), "100000000");
    assert_eq!(egret.until_ended().code(), Some(0));
}

#[test]
fn the_watchdog_is_fed_at_least_twice_in_its_period() {
    let manager = Notifications::default();
    // Before the message that Egret is ready, which may be read late.
    let start = Instant::now();
    let egret = Egret::start_with(&Config::default(), |command| {
        manager.expect_from(command);
        command.env("WATCHDOG_USEC", "3000000");
    });
    // The watchdog is fed from before that message on.
    assert!(next(&manager).contains(&"READY=1".to_owned()));
    for _ in 0..3 {
        assert_eq!(manager.next(), ["WATCHDOG=1"]);
    }
    // 3 s on an idle machine; a busy one may be late, never early.
    assert!(start.elapsed().as_millis() > 2_500, "fed too often: {:?}", start.elapsed());
    egret.assert_well();
}

#[test]
fn another_process_watchdog_is_left_alone() {
    let manager = Notifications::default();
    let mut egret = Egret::start_with(&Config::default(), |command| {
        manager.expect_from(command);
        command.env("WATCHDOG_USEC", "1000").env("WATCHDOG_PID", "1");
    });
    assert!(manager.next().contains(&"READY=1".to_owned()));
    egret.hang_up();
    egret.until_logged("config reloaded");
    egret.terminate();
    egret.until_ended();
    // A reload's begin and end, and the stop.
    assert_eq!(manager.unread(), 3);
}

#[test]
fn a_service_manager_that_does_not_listen_changes_nothing() {
    let origin = Provider::plain();
    let mut egret = Egret::start_with(&Config::with_origin(origin.url()), |command| {
        command.env("NOTIFY_SOCKET", "/no/such/socket");
    });
    egret.get("/").assert_forwarded(200);
    egret.terminate();
    assert_eq!(egret.until_ended().code(), Some(0));
}

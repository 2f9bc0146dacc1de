//! The state that a new process takes over: counts of quotas in memory and in a file, circuits, cool-downs,
//! pauses, the control port and its token.

use egret_tests::egret::{Config, Egret};
use egret_tests::process::Directory;
use egret_tests::provider::{Provider, ok};
use egret_tests::supervised::{Notifications, value};
use egret_tests::wait::{self, far_from_now};

fn start(origin: &Provider, yaml: &str) -> Egret {
    // The next process may take long to start.
    let patient = "timeouts: { head: 5m, drain: 5m }";
    Config::with_origin(origin.url()).gateway(patient).flows(yaml).start()
}

/// Starts a gateway with a limit for an hour.
fn limited(origin: &Provider, limit: usize) -> Egret {
    let yaml = "flows: [{ name: all, remedies: [limit: { quota: q }] }]\n";
    start(origin, &format!("quotas: {{ q: {{ limit: {limit}, window: 1h }} }}\n{yaml}"))
}

/// Number of `count` calls that are forwarded; the quota rejects the others.
fn calls(egret: &Egret, count: usize) -> usize {
    (0..count).filter(|_| egret.get("/").status == 200).count()
}

#[test]
fn a_quota_in_memory_goes_on_as_if_there_were_one_process() {
    let origin = Provider::plain();
    let mut egret = limited(&origin, 10);
    let control = egret.control();
    assert_eq!(calls(&egret, 4), 4);
    let mut old = egret.take_over();
    assert!(old.until_ended().success(), "{}", old.stderr());
    assert_eq!(calls(&egret, 20), 6);
    assert_eq!(egret.control_get("/readyz").status, 200, "the control port is still {control}");
    assert_eq!(origin.requests().len(), 10);
}

#[test]
fn a_draining_process_counts_its_requests() {
    let origin = Provider::plain();
    let mut egret = limited(&origin, 4);
    let mut kept = egret.client();
    kept.get(egret.address(), "/origin/").response().assert_forwarded(200);
    // A connection without a request would be closed a second after the hand-over.
    kept.send("GET /origin/ HTTP/1.1\r\n");
    let mut old = egret.take_over();
    // The old process has this connection. It answers once more, and closes it.
    let last = kept.send(format!("Host: {}\r\n\r\n", egret.address())).response();
    last.assert_forwarded(200);
    assert!(last.values("connection").contains(&"close"), "{last:?}");
    assert!(old.until_ended().success(), "{}", old.stderr());
    assert_eq!(calls(&egret, 10), 2);
    assert_eq!(origin.requests().len(), 4);
}

#[test]
fn a_waiting_request_gets_units_from_the_new_process() {
    let origin = Provider::plain();
    let mut egret = start(
        &origin,
        "quotas: { q: { limit: 1, window: 2s } }\n\
         flows: [{ name: all, remedies: [queue: { quota: q, max_wait: 20s }] }]\n",
    );
    egret.get("/").assert_forwarded(200);
    let mut waiting = egret.client();
    waiting.get(egret.address(), "/origin/");
    // On a busy machine, it may have waited before that is seen.
    wait::until_true("the request waits", || {
        egret.control_get("/api/v1/flows").text().contains("\"waiting\":1") || origin.requests().len() == 2
    });
    let mut old = egret.take_over();
    waiting.response().assert_forwarded(200);
    assert!(old.until_ended().success(), "{}", old.stderr());
}

#[test]
fn a_quota_in_a_file_goes_on() {
    let origin = Provider::plain();
    let time = far_from_now();
    let mut egret = start(
        &origin,
        &format!(
            "quotas: {{ q: {{ kind: calendar, period: day, limit: 20, store: file, renews: {{ time: '{time}' }} }} }}\n\
             flows: [{{ name: all, remedies: [limit: {{ quota: q }}] }}]\n"
        ),
    );
    assert_eq!(calls(&egret, 7), 7);
    for _ in 0..2 {
        let mut old = egret.take_over();
        assert!(old.until_ended().success(), "{}", old.stderr());
        assert_eq!(calls(&egret, 3), 3);
    }
    assert_eq!(calls(&egret, 20), 7);
    assert_eq!(origin.requests().len(), 20);
}

#[test]
fn open_circuits_and_pauses_stay() {
    let broken = Provider::responding("HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n");
    let yaml =
        "flows: [{ name: all, remedies: [circuit-breaker: { consecutive: 2, open: 1h, open_max: 1h }] }]\n";
    let mut egret = start(&broken, yaml);
    for _ in 0..2 {
        egret.get("/").assert_forwarded(500);
    }
    drop(egret.take_over());
    egret.get("/").assert_generated(503, "circuit-open");
    assert_eq!(broken.requests().len(), 2);

    let busy = Provider::responding("HTTP/1.1 429 Busy\r\nRetry-After: 3000\r\nContent-Length: 0\r\n\r\n");
    let mut egret = start(&busy, "flows: [{ name: all, remedies: [provider-throttle: {}] }]\n");
    egret.get("/").assert_forwarded(429);
    drop(egret.take_over());
    egret.get("/").assert_generated(429, "provider-throttled");
    assert_eq!(busy.requests().len(), 1);
}

#[test]
fn an_account_goes_on_cooling_down() {
    let origin = Provider::with_responses(|request| {
        if request.values("x-api-key") == ["k3y-0f-one-0123456789"] {
            b"HTTP/1.1 429 Busy\r\nRetry-After: 3000\r\nContent-Length: 0\r\n\r\n".to_vec()
        } else {
            ok("done")
        }
    });
    let secrets = Directory::default();
    let account = |name: &str| {
        let file = secrets.write_secret(name, format!("k3y-0f-{name}-0123456789"));
        format!(
            "  {name}: {{ provider: origin, api_key: {{ header: x-api-key, value: \"${{file:{}}}\" }} }}\n",
            file.display()
        )
    };
    let (one, two) = (account("one"), account("two"));
    let yaml = format!(
        "accounts:\n{one}{two}flows: [{{ name: all, remedies: [accounts: {{ use: [one, two] }}] }}]\n"
    );
    let mut egret = start(&origin, &yaml);
    let refused = || {
        let requests = origin.requests();
        requests.iter().filter(|request| request.values("x-api-key") == ["k3y-0f-one-0123456789"]).count()
    };
    for _ in 0..2 {
        egret.get("/").assert_forwarded(200);
    }
    assert_eq!(refused(), 1);
    drop(egret.take_over());
    for _ in 0..4 {
        egret.get("/").assert_forwarded(200);
    }
    assert_eq!(refused(), 1);
}

#[test]
fn the_service_manager_follows_the_new_process_which_sigusr2_starts() {
    let manager = Notifications::default();
    let origin = Provider::plain();
    let config = Config::with_origin(origin.url());
    let mut egret = Egret::start_with(&config, |command| manager.expect_from(command));
    assert!(manager.next().contains(&"READY=1".to_owned()));
    let old = egret.process().id();
    egret.process().signal("USR2");
    let new: u32 = loop {
        let message = manager.next();
        if message.iter().any(|line| line.starts_with("MAINPID=")) {
            break value(&message, "MAINPID").parse().unwrap();
        }
    };
    assert_ne!(new, old);
    // Both processes write there.
    egret.until_logged("the old process has drained");
    egret.get("/").assert_forwarded(200);
    let stopped = std::process::Command::new("kill").args(["-TERM", &new.to_string()]).status().unwrap();
    assert!(stopped.success());
    assert!(egret.until_ended().success(), "{}", egret.log());
}

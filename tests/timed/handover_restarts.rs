//! Restarts by hand-over under load: no client sees an error, and the provider never counts above the limit.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use egret_tests::counted::{Counted, most_in_any};
use egret_tests::egret::{Config, Egret, binary};
use egret_tests::peers::{ab, wrk};
use egret_tests::process::{self, Process};

const RESTARTS: usize = 5;
/// Time of the load in seconds. It outlasts the restarts.
const LOAD_S: usize = 16;
/// Maximum time for which clients wait at a hand-over.
const WAIT_MAX_MS: u64 = 100;

/// The quota per second, and the number of requests per second that must get through. A debug build is
/// slower, so the load exceeds its quota by more.
fn rates() -> (usize, usize) {
    if is_release() { (4_000, 2_000) } else { (1_000, 400) }
}

/// Returns `true` for a release build, which is tested alone: see `make handover`.
fn is_release() -> bool {
    binary().components().any(|part| part.as_os_str() == "release")
}

fn start(provider: &Counted, limit: usize) -> Egret {
    Config::with_origin(provider.url())
        .flows(format!(
            "quotas: {{ q: {{ limit: {limit}, window: 1s }} }}\n\
             flows: [{{ name: all, remedies: [queue: {{ quota: q, max_wait: 20s }}] }}]\n"
        ))
        .start()
}

/// A load client that runs.
struct Running(&'static str, Child);

impl Running {
    fn start(name: &'static str, command: &mut Command) -> Self {
        Self(name, command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Returns its report, after it has ended without an error.
    fn report(self) -> String {
        let output = process::output(self.1);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {errors}\n{text}", self.0);
        assert!(!text.contains("Non-2xx"), "{}: {text}", self.0);
        text
    }
}

/// Returns the number behind a label in a report.
fn figure(report: &str, label: &str) -> usize {
    let line = report.lines().find_map(|line| line.trim().strip_prefix(label));
    let line = line.unwrap_or_else(|| panic!("no {label:?} in {report}"));
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// ab without `-r` ends at the first error of a connection.
fn apache(url: &str, kept: bool) -> Running {
    let mut command = ab();
    command.args(["-q", "-c", "8", "-s", "30", "-t", &LOAD_S.to_string(), "-n", "5000000"]);
    if kept {
        command.arg("-k");
    }
    Running::start("ab", command.arg(url))
}

fn wrk_client(url: &str, kept: bool) -> Running {
    let mut command = wrk();
    command.args(["-t", "1", "-c", "8", "--timeout", "30s", "-d", &format!("{LOAD_S}s")]);
    if !kept {
        command.args(["-H", "Connection: close"]);
    }
    Running::start("wrk", command.arg(url))
}

/// Returns the time for which clients waited.
fn waited_ms(process: &Process) -> u64 {
    let log = process.stderr();
    let line = log.lines().find(|line| line.contains("took over from the running Egret")).unwrap();
    let record: serde_json::Value = serde_json::from_str(line).unwrap();
    record.get("fields").unwrap_or(&record)["waited_ms"].as_u64().unwrap()
}

#[test]
fn five_restarts_under_load_lose_no_request_and_keep_the_quota() {
    let (limit, least) = rates();
    let provider = Counted::start();
    let mut egret = start(&provider, limit);
    let url = format!("{}/origin/q", egret.url());
    let clients = [apache(&url, true), apache(&url, false), wrk_client(&url, true), wrk_client(&url, false)];
    let begun = provider.now();
    let mut waits = Vec::new();
    for _ in 0..RESTARTS {
        // The load goes on before each restart.
        let seen = provider.count("q");
        egret_tests::wait::until_true("the load goes on", || provider.count("q") > seen + limit);
        let mut old = egret.take_over();
        assert!(old.until_ended().success(), "{}", old.stderr());
        waits.push(waited_ms(egret.process()));
    }
    let restarted_s = usize::try_from((provider.now() - begun) / 1_000_000_000).unwrap();
    assert!(restarted_s < LOAD_S, "the load must outlast the restarts, which took {restarted_s} s");
    let reports = clients.map(Running::report);
    for report in &reports[..2] {
        assert_eq!(figure(report, "Failed requests:"), 0, "{report}");
    }
    for report in &reports[2..] {
        assert!(!report.contains("Socket errors"), "{report}");
    }
    let calls = provider.calls("q");
    let max = most_in_any(&calls, Duration::from_secs(1));
    println!(
        "{} calls in {LOAD_S} s, at most {max} of {limit} in any second; waits {waits:?} ms",
        calls.len()
    );
    assert!(max <= limit, "{max} of {limit}");
    assert!(calls.len() >= least * LOAD_S, "{} calls in {LOAD_S} s", calls.len());
    // Beside other tests, a process may not get the processor for longer than that now and then.
    waits.sort_unstable();
    let judged = if is_release() { waits[RESTARTS - 1] } else { waits[RESTARTS / 2] };
    assert!(judged <= WAIT_MAX_MS, "{waits:?}");
}

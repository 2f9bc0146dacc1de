//! The findings of a gateway, in all places that show it.
//!
//! `make findings` also judges how long a finding takes to begin and to end. A busy machine may take
//! longer, so `make test` does not.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::egret::{Egret, egret};
use crate::process::run;
use crate::wait;

/// Set by `make findings`.
const IS_TIMED: &str = "EGRET_FINDINGS_TIMED";
/// Maximum time from the first failed call until the finding is shown everywhere.
const BEGIN_MAX: Duration = Duration::from_secs(10);
/// Maximum time from the end of the trouble until the finding is gone.
const END_MAX: Duration = Duration::from_secs(30);

/// Prints the time that a finding took to begin or to end, and judges it under `make findings`.
fn note_time(name: &str, what: &str, since: Instant, max: Duration) {
    let elapsed = since.elapsed();
    eprintln!("`{name}` {what} after {:.1} s", elapsed.as_secs_f64());
    let is_timed = std::env::var_os(IS_TIMED).is_some();
    assert!(!is_timed || elapsed <= max, "`{name}` {what} after {elapsed:?}, and not within {max:?}");
}

/// Returns the findings of the API, the worst first.
pub fn findings(egret: &Egret) -> Vec<Value> {
    let list = egret.control_get("/api/v1/findings").json();
    list["findings"].as_array().unwrap().clone()
}

/// Returns the findings as `kind: subject`.
pub fn names(egret: &Egret) -> Vec<String> {
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap().to_owned();
    findings(egret).iter().map(|finding| text(finding, "kind") + ": " + &text(finding, "subject")).collect()
}

/// Calls `act` until the gateway has the finding `kind: subject`, and the metric and the commands have it
/// too: each of them may be asked long after the one before. Returns the finding.
pub fn until_found(egret: &Egret, name: &str, mut act: impl FnMut()) -> Value {
    let (kind, subject) = name.split_once(": ").unwrap();
    let (mut missing, since) = ("the API", Instant::now());
    let found = wait::until_value(
        &format!("`{name}` is found everywhere"),
        || {
            act();
            let is_meant = |found: &Value| found["kind"] == kind && found["subject"] == subject;
            let found = findings(egret).into_iter().find(is_meant).ok_or(missing)?;
            let severity = found["severity"].as_str().unwrap();
            let sample =
                format!("egret_finding{{kind=\"{kind}\",severity=\"{severity}\",subject=\"{subject}\"}} 1\n");
            missing = "the metric";
            egret.control_get("/metrics").text().contains(&sample).then_some(()).ok_or(missing)?;
            for command in ["doctor", "status"] {
                missing = command;
                is_told(egret, command, &found).then_some(()).ok_or(missing)?;
            }
            Ok::<Value, &str>(found)
        },
        Result::is_ok,
    );
    note_time(name, "began", since, BEGIN_MAX);
    found.unwrap()
}

/// Returns `true` if a command tells the finding. It then fails, as it must if something is wrong.
fn is_told(gateway: &Egret, command: &str, found: &Value) -> bool {
    let mut command = egret([command, "--control", &gateway.control().to_string()]);
    let output = run(command.current_dir(gateway.directory().path()));
    let text = String::from_utf8(output.stdout).unwrap();
    let is_told = text.contains(&format!(": {}\n    since 2", found["summary"].as_str().unwrap()));
    assert!(!is_told || output.status.code() == Some(1), "{text}");
    is_told
}

/// Calls `act` until the gateway no longer has the finding.
pub fn until_over(egret: &Egret, name: &str, mut act: impl FnMut()) {
    let since = Instant::now();
    wait::until_value(
        &format!("`{name}` is over"),
        || {
            act();
            names(egret)
        },
        |names| !names.iter().any(|found| found == name),
    );
    note_time(name, "ended", since, END_MAX);
}

//! The findings of a gateway, in all places that show it.

use serde_json::Value;

use crate::egret::{Egret, egret};
use crate::process::run;
use crate::wait;

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

/// Calls `act` until the gateway has the finding `kind: subject`. Returns it, after it was checked that the
/// metric and `egret doctor` have it too.
pub fn until_found(egret: &Egret, name: &str, mut act: impl FnMut()) -> Value {
    let found = wait::until_value(
        &format!("`{name}` is found"),
        || {
            act();
            let number = names(egret).iter().position(|found| found == name);
            number.and_then(|number| findings(egret).get(number).cloned())
        },
        Option::is_some,
    );
    let found = found.unwrap();
    let metrics = egret.control_get("/metrics").text().to_owned();
    let (kind, subject) = name.split_once(": ").unwrap();
    let severity = found["severity"].as_str().unwrap();
    let sample =
        format!("egret_finding{{kind=\"{kind}\",severity=\"{severity}\",subject=\"{subject}\"}} 1\n");
    assert!(metrics.contains(&sample), "{sample} in {metrics}");
    assert_told(egret, "doctor", &found);
    assert_told(egret, "status", &found);
    found
}

/// Asserts that a command tells the finding, and fails.
fn assert_told(gateway: &Egret, command: &str, found: &Value) {
    let mut command = egret([command, "--control", &gateway.control().to_string()]);
    let output = run(command.current_dir(gateway.directory().path()));
    let text = String::from_utf8(output.stdout).unwrap();
    let summary = found["summary"].as_str().unwrap();
    assert!(text.contains(&format!(": {summary}\n    since 2")), "{summary} in {text}");
    assert_eq!(output.status.code(), Some(1), "{text}");
}

/// Calls `act` until the gateway no longer has the finding.
pub fn until_over(egret: &Egret, name: &str, mut act: impl FnMut()) {
    wait::until_value(
        &format!("`{name}` is over"),
        || {
            act();
            names(egret)
        },
        |names| !names.iter().any(|found| found == name),
    );
}

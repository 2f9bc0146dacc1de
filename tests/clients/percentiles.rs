//! The lab's load client reports the same percentiles as ab, wrk and oha for a provider with an exact delay.

use std::path::{Path, PathBuf};

use egret_tests::egret::egret;
use egret_tests::peers::path_with_peers;
use egret_tests::process::{Directory, run};
use serde_json::Value;

/// Maximum number of runs until a shared machine is idle during one.
const TRIES: usize = 3;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns `true` if clients report different values of a figure. On a shared machine only the median is as
/// exact as its bounds. A percentile above it disagrees if its whole interval lies outside of them. Only a
/// handful of requests exceed the p99.
fn disagrees(held: &Value) -> bool {
    let number = |at: &str| held.pointer(at).unwrap().as_f64().unwrap();
    let (least, max) = (number("/least"), number("/most"));
    match held["figure"].as_str().unwrap() {
        "p50" => !(least..=max).contains(&number("/value/value")),
        "p99" => false,
        _ => number("/value/high") < least || number("/value/low") > max,
    }
}

#[test]
fn percentiles_agree_with_those_of_ab_wrk_and_oha() {
    let mut received = String::new();
    for attempt in 0..TRIES {
        let directory = Directory::default();
        let out = directory.join(&format!("agreement-{attempt}"));
        let mut command = egret(["lab", "run"]);
        command.env("PATH", path_with_peers());
        command.arg(repository().join("experiments/agreement.yaml")).arg("--quick").arg("--out").arg(&out);
        let ran = run(&mut command);
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let summary = std::fs::read(out.join("summary.json")).unwrap();
        let summary: Value = serde_json::from_slice(&summary).unwrap();
        let held = summary["held"].as_array().unwrap();
        assert_eq!(held.len(), 12, "four percentiles beside three clients: {held:?}");
        if !held.iter().any(disagrees) {
            return;
        }
        received = String::from_utf8_lossy(&ran.stdout).into_owned();
    }
    panic!("in none of {TRIES} runs:\n{received}");
}

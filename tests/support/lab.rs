//! Runs of the lab whose figures are held to limits.

use std::path::Path;

use serde_json::Value;

use crate::egret::egret;
use crate::process::{Directory, run};

/// Runs an experiment with `--hold`. Returns exit code, output, and the summary in the results folder.
pub fn held(file: &Path, words: &[&str]) -> (i32, String, Value) {
    let directory = Directory::default();
    let out = directory.join("out");
    let mut command = egret(["lab", "run", "--hold"]);
    let output = run(command.arg(file).args(words).arg("--out").arg(&out));
    let stderr = [output.stdout, output.stderr].concat();
    let stderr = String::from_utf8(stderr).unwrap();
    let summary =
        std::fs::read_to_string(out.join("summary.json")).unwrap_or_else(|error| panic!("{error}: {stderr}"));
    (output.status.code().unwrap(), stderr, serde_json::from_str(&summary).unwrap())
}

/// Returns a scenario of the first case of a summary.
pub fn scenario<'a>(summary: &'a Value, name: &str) -> &'a Value {
    let scenarios = summary["cases"][0]["scenarios"].as_array().unwrap();
    scenarios.iter().find(|scenario| scenario["scenario"] == name).unwrap()
}

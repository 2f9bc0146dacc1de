//! Runs `egret bench` and Apache's ab, and reads their reports.

use std::process::{Command, Output};

use serde_json::Value;

use crate::egret::egret;
use crate::process::{Directory, run};

/// The result of a load client.
#[derive(Debug)]
pub struct Ran {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub printed: String,
    /// Standard error.
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code = output.status.code().unwrap_or(-1);
        Self { code, printed: text(&output.stdout), stderr: text(&output.stderr) }
    }
}

impl Ran {
    /// Returns the value after a label of the report, trimmed.
    pub fn value(&self, label: &str) -> &str {
        let line = self.printed.lines().find_map(|line| line.strip_prefix(label));
        line.unwrap_or_else(|| panic!("no {label:?} in\n{}\n{}", self.printed, self.stderr)).trim()
    }

    /// Asserts that it succeeded.
    #[expect(clippy::return_self_not_must_use, reason = "often only the check is wanted")]
    pub fn well(self) -> Self {
        assert_eq!(self.code, 0, "{}\n{}", self.printed, self.stderr);
        self
    }
}

/// Runs `egret bench` with these arguments.
pub fn bench(arguments: &[&str]) -> Ran {
    run(command().args(arguments)).into()
}

/// Returns the command `egret bench`, without arguments.
pub fn command() -> Command {
    egret(["bench"])
}

/// Runs `egret bench` with these arguments, which must succeed, and reads its JSON result.
pub fn summary(arguments: &[&str]) -> Value {
    let directory = Directory::default();
    let file = directory.join("result.json");
    run_to(&file, arguments).well();
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

fn run_to(file: &std::path::Path, arguments: &[&str]) -> Ran {
    run(command().arg("-q").arg("--json").arg(file).args(arguments)).into()
}

/// Returns a count of a result, by JSON pointer.
pub fn count(result: &Value, pointer: &str) -> u64 {
    let value = result.pointer(pointer).and_then(Value::as_u64);
    value.unwrap_or_else(|| panic!("no {pointer} in {result:#}"))
}

/// Returns a number of a result, by JSON pointer.
pub fn number(result: &Value, pointer: &str) -> f64 {
    let value = result.pointer(pointer).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("no {pointer} in {result:#}"))
}

/// Returns the lines of ab's report from its heading to its last percentile. Numbers become `#`, and runs of
/// spaces in values become one space.
///
/// The columns of labels are kept, because parsers cut there.
pub fn shape(report: &str) -> Vec<String> {
    let start = report.find("Server Software").or_else(|| report.find("<table")).unwrap_or(report.len());
    let end = ["(longest request)\n", "</table>\n", "Precise times", "Status codes:"];
    let end = end.iter().filter_map(|text| report[start..].find(text)).min();
    let body = &report[start..end.map_or(report.len(), |end| start + end)];
    body.trim_end().lines().map(line_shape).collect()
}

fn line_shape(line: &str) -> String {
    let (label, value) =
        line.split_at_checked(24).filter(|(label, _)| label.contains(": ")).unwrap_or(("", line));
    // Rows of times are columns of numbers, whose width depends on the values.
    let (label, value) =
        if label.starts_with("Connect:") || label.contains("ing: ") || label.starts_with("Total: ") {
            line.split_at(12)
        } else {
            (label, value)
        };
    let mut shape = String::new();
    for letter in value.chars() {
        let letter = if letter.is_ascii_digit() || letter == '.' { '#' } else { letter };
        if !((letter == '#' && shape.ends_with('#')) || (letter == ' ' && shape.ends_with(' '))) {
            shape.push(letter);
        }
    }
    format!("{label}{}", shape.trim_start())
}

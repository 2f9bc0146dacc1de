//! The alerts of `packaging/observability`, which Prometheus's own `promtool` judges by figures that a
//! gateway has shown.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::egret::Egret;
use crate::process::{Directory, run};

/// Alerts, and the labels of the fault that raises them, while the process runs. After the last fault, it
/// accepts few connections.
pub const OF_FAULTS: [(&str, &str); 13] = [
    ("EgretConfigRefused", "result='refused'"),
    ("EgretFinding", "kind='provider-failing',subject='failing'"),
    ("EgretErrorsBurn", "provider='failing'"),
    ("EgretRemedyFails", "flow='broken'"),
    ("EgretAccountRefused", "account='main'"),
    ("EgretQuotaNearlyUsed", "quota='used'"),
    ("EgretQuotaStoreFailed", "quota='shared'"),
    ("EgretClusterDown", ""),
    ("EgretExporterDown", "exporter='away'"),
    ("EgretRecordsLost", ""),
    ("EgretFootprintHigh", ""),
    ("EgretClientsRefused", ""),
    ("EgretDescriptorsShort", ""),
];
/// The alert of a process that drains, and that of one that has ended.
pub const OF_ENDS: [&str; 2] = ["EgretNotReady", "EgretDown"];

/// Minutes before the fault, and minutes in which counters grow from the figures at its begin to the later
/// ones. Some alerts look at an hour, others last for ten minutes before they are told.
const MINUTES_BEFORE: u32 = 10;
const MINUTES_AFTER: u32 = 25;

/// Returns a path of the repository.
pub fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(path)
}

/// Returns the names of all alerts.
pub fn names() -> BTreeSet<String> {
    let rules = std::fs::read_to_string(in_repository("packaging/observability/alerts.yaml")).unwrap();
    rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).map(str::to_owned).collect()
}

/// The series of `/metrics` at a moment, as Prometheus stores them.
#[derive(Debug, Clone)]
pub struct Figures(BTreeMap<String, f64>);

impl Figures {
    /// Reads those of a gateway, which may not respond.
    pub fn of(egret: &Egret) -> Self {
        let text = scrape(egret).unwrap_or_default();
        let up = if text.is_empty() { 0.0 } else { 1.0 };
        let mut series: BTreeMap<String, f64> = text.lines().filter_map(series).collect();
        series.insert("up{job=\"egret\"}".to_owned(), up);
        Self(series)
    }
}

fn scrape(egret: &Egret) -> std::io::Result<String> {
    let (mut stream, mut response) = (TcpStream::connect(egret.control())?, String::new());
    write!(stream, "GET /metrics HTTP/1.0\r\nHost: {}\r\n\r\n", egret.control())?;
    stream.read_to_string(&mut response)?;
    Ok(response.split_once("\r\n\r\n").unwrap_or_default().1.to_owned())
}

fn series(line: &str) -> Option<(String, f64)> {
    let (name, value) = line.rsplit_once(' ').filter(|_| !line.starts_with('#'))?;
    Some((name.to_owned(), value.parse().ok()?))
}

/// Returns those of the alerts that Prometheus does not raise for these figures: before a fault, at its
/// begin, and later. An alert is its name and the labels that it must have, as `exporter='archive'`. None may
/// be raised before the fault.
pub fn not_raised<'a>(figures: [&Figures; 3], alerts: &[(&'a str, &str)]) -> Vec<&'a str> {
    let cases = alerts.iter().map(|(name, labels)| {
        let selector = [&format!("alertname='{name}',alertstate='firing'"), *labels].join(",");
        let minutes = MINUTES_AFTER;
        json!({
            "expr": format!("max_over_time(group(ALERTS{{{selector}}})[{minutes}m:1m])"),
            "eval_time": format!("{}m", MINUTES_BEFORE + MINUTES_AFTER - 1),
            "exp_samples": [{ "labels": "{}", "value": 1 }],
        })
    });
    let before = json!({
        "expr": "ALERTS{alertstate='firing'}",
        "eval_time": format!("{}m", MINUTES_BEFORE - 1),
        "exp_samples": [],
    });
    let cases: Vec<Value> = cases.chain([before]).collect();
    let said = judge(&inputs(figures), &cases);
    let missing: Vec<&str> = alerts
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| said.contains(&format!("alertname='{name}'")))
        .collect();
    let is_silent_before = !said.contains("ALERTS{alertstate='firing'}");
    assert!(is_silent_before && (said.is_empty() || !missing.is_empty()), "{said}");
    missing
}

/// Returns the complaints of `promtool` about the cases, or an empty text if all are as expected.
fn judge(inputs: &[Value], cases: &[Value]) -> String {
    let test = json!({
        "rule_files": [in_repository("packaging/observability/alerts.yaml")],
        "evaluation_interval": "1m",
        "tests": [{ "interval": "1m", "input_series": inputs, "promql_expr_test": cases }],
    });
    let directory = Directory::default();
    let output = run(Command::new("promtool")
        .args(["test", "rules"])
        .arg(directory.write("test.yaml", test.to_string())));
    if output.status.success() {
        String::new()
    } else {
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }
}

/// Returns the series as `promtool` reads them: one value for each minute.
fn inputs([before, begin, later]: [&Figures; 3]) -> Vec<Value> {
    let names: BTreeSet<&String> =
        [before, begin, later].iter().flat_map(|figures| figures.0.keys()).collect();
    let values = |name: &String| {
        let [before, begin, later] = [before, begin, later].map(|figures| figures.0.get(name).copied());
        let constant = |value: Option<f64>, more: u32| match value {
            Some(value) => format!("{value}x{more}"),
            None => format!("_x{more}"),
        };
        let after = match (begin, later) {
            (Some(begin), Some(later)) if is_counter(name) => {
                let step = (later - begin) / f64::from(MINUTES_AFTER - 1);
                assert!(step >= 0.0, "{name} falls from {begin} to {later}");
                format!("{begin}+{step}x{}", MINUTES_AFTER - 1)
            }
            _ => constant(later, MINUTES_AFTER - 1),
        };
        format!("{} {after}", constant(before, MINUTES_BEFORE - 1))
    };
    names.into_iter().map(|name| json!({ "series": name, "values": values(name) })).collect()
}

fn is_counter(series: &str) -> bool {
    let name = series.split('{').next().unwrap();
    ["_total", "_bucket", "_sum", "_count"].iter().any(|end| name.ends_with(end))
}

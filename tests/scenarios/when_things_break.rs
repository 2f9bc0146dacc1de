//! The page *When things break*: it has each alert, and its log lines are written. A process that drains or
//! has ended raises its alert; `tests/timed` has the others.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use egret_tests::alerts::{self, Figures, OF_ENDS, OF_FAULTS, in_repository};
use egret_tests::egret::Config;
use egret_tests::provider::Provider;
use egret_tests::wait;

#[test]
fn a_process_that_drains_or_has_ended_raises_its_alert() {
    let origin = Provider::scripted(|peer| {
        peer.request();
        peer.stall();
    });
    let mut egret = Config::with_origin(origin.url()).gateway("timeouts: { drain: 1h }").start();
    let before = Figures::of(&egret);
    let mut client = egret.client();
    client.get(egret.address(), "/origin/");
    origin.until_requested(1);
    egret.terminate();
    egret.until_logged("draining");
    let told = || {
        let draining = Figures::of(&egret);
        alerts::not_raised([&before, &draining, &draining], &[(OF_ENDS[0], "")])
    };
    wait::until_value("the drain is told", told, Vec::is_empty);
    egret.process().signal("KILL");
    egret.until_ended();
    let ended = Figures::of(&egret);
    assert_eq!(alerts::not_raised([&before, &ended, &ended], &[(OF_ENDS[1], "")]), [""; 0]);
}

/// A row of a table of the page: the texts in backticks of its columns.
struct Row {
    log: Vec<String>,
    metrics: Vec<String>,
    names: Vec<String>,
}

fn page() -> String {
    fs::read_to_string(in_repository("docs/how-to/when-things-break.md")).unwrap()
}

fn rows() -> Vec<Row> {
    let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let row = |line: &str| {
        let [_, log, metrics, names, _] =
            line.strip_prefix("| ")?.split(" | ").map(quoted).collect::<Vec<_>>().try_into().ok()?;
        Some(Row { log, metrics, names })
    };
    page().lines().filter_map(row).collect()
}

/// Returns the sources of Egret in one text, in which no string literal goes on in the next line.
fn sources(directory: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("node_modules") {
            text += &sources(&path);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(path).unwrap();
            let mut parts = source.split("\\\n");
            text += parts.next().unwrap();
            parts.for_each(|part| text += part.trim_start());
        }
    }
    text
}

#[test]
fn the_page_names_only_lines_metrics_findings_and_alerts_that_exist() {
    let read = |path: &str| fs::read_to_string(in_repository(path)).unwrap();
    let (metrics, findings) = (read("docs/reference/metrics.md"), read("docs/reference/findings.md"));
    let (sources, alerts) = (sources(&in_repository("crates")), alerts::names());
    let rows = rows();
    assert!(rows.len() > 30, "{} rows", rows.len());
    for row in &rows {
        for text in &row.log {
            assert!(sources.contains(&format!("\"{text}")), "no line of the log begins with {text:?}");
        }
        for metric in row.metrics.iter().filter(|metric| metric.starts_with("egret_")) {
            assert!(metrics.contains(&format!("`{metric}`")), "{metric}");
        }
        for name in &row.names {
            assert!(alerts.contains(name) || findings.contains(&format!("| `{name}` |")), "{name}");
        }
    }
}

#[test]
fn each_alert_is_on_the_page_and_has_a_fault() {
    let here: BTreeSet<String> =
        OF_FAULTS.iter().map(|(name, _)| *name).chain(OF_ENDS).map(str::to_owned).collect();
    assert_eq!(alerts::names(), here);
    let page = page();
    for name in &here {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}

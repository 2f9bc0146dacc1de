//! The cases of h2spec (RFC 9113 and RFC 7541) against a listener, by prior knowledge.

use std::collections::BTreeSet;
use std::process::Command;

use egret_tests::egret::Config;
use egret_tests::process::{Directory, run};
use egret_tests::provider::Provider;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../.peers/tools/h2spec/h2spec");
const EXPECTED_FAILURES: &str = include_str!("../peers/h2spec/expected-failures.txt");

/// The number of cases of the pinned version.
const CASES: usize = 145;

/// Splits `text` at the first `end`, after the first `start`.
fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    Some(text.split_once(start)?.1.split_once(end)?.0)
}

/// The number of cases in a report in the format of `JUnit`, and those that failed, as `http2/3.5: Sends
/// invalid connection preface`.
fn cases(report: &str) -> (usize, BTreeSet<String>) {
    let cases: Vec<&str> = report.split("<testcase ").skip(1).collect();
    let failed = cases.iter().filter(|case| case.contains("<error>") || case.contains("<failure>"));
    let named = failed.map(|case| {
        let [group, name] = ["package", "classname"]
            .map(|attribute| between(case, &format!("{attribute}=\""), "\"").unwrap_or_default());
        format!("{group}: {name}").replace("&#34;", "\"")
    });
    (cases.len(), named.collect())
}

#[test]
fn h2spec_fails_in_no_case_without_a_reason() {
    let origin = Provider::plain();
    let directory = Directory::default();
    let egret =
        Config::with_origin(origin.url()).listen(["{ address: '127.0.0.1:0', provider: origin }"]).start();
    let report = directory.join("report.xml");
    let mut command = Command::new(PROGRAM);
    let port = egret.address().port().to_string();
    command.args(["--host", "127.0.0.1", "--port", &port, "--timeout", "20", "--junit-report"]).arg(&report);
    let output = run(&mut command);
    let (count, failed) = cases(&std::fs::read_to_string(&report).unwrap());
    let listed = EXPECTED_FAILURES.lines().filter(|line| !line.starts_with('#'));
    let expected = listed.filter_map(|line| line.split_once(" | ")).map(|(case, _)| case.to_owned());
    assert_eq!(failed, expected.collect(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(count, CASES);
}

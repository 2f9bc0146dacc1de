//! `egret lab run` counts at the provider, and holds figures to a limit.

use std::path::Path;

use egret_tests::egret::egret;
use egret_tests::process::{Directory, run};
use serde_json::Value;

/// Runs an experiment with `--hold`. Returns exit code, output, and the summary in the results folder.
fn held(file: &Path, words: &[&str]) -> (i32, String, Value) {
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

fn scenario<'a>(summary: &'a Value, name: &str) -> &'a Value {
    let scenarios = summary["cases"][0]["scenarios"].as_array().unwrap();
    scenarios.iter().find(|scenario| scenario["scenario"] == name).unwrap()
}

#[test]
fn the_warm_up_is_not_counted() {
    let directory = Directory::default();
    let file = directory.write(
        "small.yaml",
        "title: A small run\nprovider: { arguments: [--rate-limit, 20/1h], path: /get }\n\
         client: { kind: ab, requests: 60, concurrency: 5, warm_up_requests: 10 }\nrounds: 2\nfailures_expected: true\n\
         scenarios: [{ name: direct }]\n\
         hold:\n  - { scenario: direct, figures: [provider_calls], at_least: 60 }\n\
         \x20 - { scenario: direct, figures: [provider_calls, provider_admitted], at_most: 60 }\n\
         \x20 - { scenario: direct, figures: [provider_refused], at_most: 39 }\n",
    );
    let (code, stderr, summary) = held(&file, &[]);
    assert_eq!(code, 1, "{stderr}");
    let counted = &scenario(&summary, "direct")["counted"];
    let of = |figure: &str| counted[figure]["value"].as_f64().unwrap();
    assert_eq!((of("calls"), of("admitted"), of("refused")), (60.0, 20.0, 40.0), "{stderr}");
    let broken: Vec<&str> = stderr.lines().filter(|line| line.starts_with("NOT HELD")).collect();
    assert!(broken.len() == 1 && broken[0].contains("refused by provider"), "{stderr}");
    assert!(stderr.contains("Not held: 1 of 4 figures"), "{stderr}");
}

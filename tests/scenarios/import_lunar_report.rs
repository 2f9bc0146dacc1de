//! `egret import lunar`: its report, its exit codes, and its answer to bad input.

use egret_tests::egret::egret;
use egret_tests::imported::{fixture, import, with_secrets};
use egret_tests::process::{Directory, run};

const FIXTURES: [&str; 11] = [
    "accounts",
    "caching",
    "everything",
    "filters",
    "limits",
    "queueing",
    "queues",
    "records",
    "responses",
    "shapes",
    "throttling",
];

#[test]
fn every_translation_passes_check_and_is_always_the_same() {
    for name in FIXTURES {
        let (config, report) = import(name);
        assert!(!report.contains("to do before"), "{name}: {report}");
        assert_eq!(import(name), (config.clone(), report), "{name}");
        let directory = Directory::default();
        let file = directory.write("egret.yaml", config);
        let output = run(with_secrets(egret(["check"]).arg(file)));
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn no_secret_of_the_files_is_repeated() {
    for name in FIXTURES {
        let (config, report) = import(name);
        for secret in ["plain-token-of-the-first", "plain-and-forgotten", "not-to-be-repeated"] {
            assert!(!config.contains(secret) && !report.contains(secret), "{name}");
        }
    }
}

#[test]
fn the_report_says_what_was_lost_and_what_to_do_instead() {
    let (_, report) = import("everything");
    for line in [
        "processor `Later` (AsyncQueue): a call cannot be answered with 202",
        "processor `Estimate` (CountLLMTokens): Egret has no tokeniser",
        "processor `Own` (CompanyRedactor): plugins cannot be loaded",
        "gateway_config.yaml:8: key `unheard_of`: the key is unknown",
    ] {
        assert!(report.contains(line), "{line} is not in\n{report}");
    }
}

#[test]
fn strict_fails_if_something_was_lost() {
    let code = |name: &str| {
        run(with_secrets(egret(["import", "lunar", "--strict"]).arg(fixture(name)))).status.code()
    };
    assert_eq!((code("everything"), code("caching")), (Some(1), Some(0)));
}

#[test]
fn the_report_can_go_to_a_file() {
    let directory = Directory::default();
    let file = directory.join("report.txt");
    let output = run(egret(["import", "lunar", "--report"]).arg(&file).arg(fixture("caching")));
    assert!(output.status.success() && output.stderr.is_empty());
    assert!(
        std::fs::read_to_string(file).unwrap().starts_with("0 translated, 4 translated with a difference")
    );
}

#[test]
fn bad_input_is_refused_with_its_place() {
    let directory = Directory::default();
    for (text, expected) in [
        ("endpoints:\n  - url: a.example/x\n    method: [\n", "policies.yaml:"),
        ("endpoints:\n  - url: a.example/x\n", "policies.yaml:2:5: the key `method` is missing"),
        (
            "endpoints:\n  - url: a.example\n    method: GET\n    remedies:\n      - name: r\n        enabled: true\n        config:\n          \
             concurrency_based_throttling: { max_concurrent_requests: many }\n",
            "policies.yaml:8:68: `max_concurrent_requests`: expected a whole number from 0, found another text",
        ),
        ("a: &a [x, x]\nb: &b [*a, *a]\n", ""),
    ] {
        directory.write("policies.yaml", text);
        let output = run(egret(["import", "lunar"]).arg(directory.path()));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains(expected), "{expected:?} is not in\n{stderr}");
        assert_eq!(output.status.code(), Some(if expected.is_empty() { 0 } else { 2 }), "{stderr}");
    }
    let empty = Directory::default();
    let output = run(egret(["import", "lunar"]).arg(empty.path()));
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("nothing to import"));
}

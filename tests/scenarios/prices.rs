//! Prices of language models are imported from the table of `litellm`, and a call's cost is shown.

use std::process::Command;

use egret_tests::egret::binary;
use egret_tests::process::{Directory, run, run_checked};

const SOURCE: &str = r#"{
    "sample_spec": { "input_cost_per_token": 0.0 },
    "maker/model-1": {
        "litellm_provider": "maker", "max_output_tokens": 128000,
        "input_cost_per_token": 5e-06, "output_cost_per_token": 3e-05, "cache_read_input_token_cost": 5e-07,
        "input_cost_per_token_above_272k_tokens": 1e-05, "output_cost_per_token_above_272k_tokens": 4.5e-05,
        "input_cost_per_token_flex": 2.5000000000000003e-06, "output_cost_per_token_flex": 1.5e-05
    }
}"#;

/// Runs `egret prices` in the directory.
fn prices(directory: &Directory, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.arg("prices").args(arguments).current_dir(directory.path());
    command
}

#[test]
fn imported_prices_are_shown_with_an_example() {
    let directory = Directory::default();
    std::fs::write(directory.join("source.json"), SOURCE).unwrap();
    let imported = run(&mut prices(&directory, &["import", "source.json", "--source", "of a test"]));
    let report = String::from_utf8_lossy(&imported.stderr).into_owned();
    assert!(imported.status.success() && imported.stdout.is_empty(), "{report}");
    for part in ["1 models with 7 prices", "1 prices were no whole pico-dollar", "SHA-256"] {
        assert!(report.contains(part), "{report}");
    }
    let show =
        |more: &[&str]| run_checked(&mut prices(&directory, &[&["show", "maker/model-1"], more].concat()));
    let shown = show(&[]);
    for part in ["of a test", "input                      $5.00", "costs   $0.08 (80000000 nano-dollars)"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let cached = show(&["--input", "1000", "--cached", "400", "--output", "10"]);
    assert!(cached.contains("costs   $0.0035 (3500000 nano-dollars)"), "{cached}");
    let flex = show(&["--input", "1", "--output", "0", "--tier", "flex"]);
    assert!(flex.contains("(2501 nano-dollars)"), "rounded up: {flex}");
    let long = show(&["--input", "272001", "--output", "0"]);
    assert!(long.contains("costs   $2.72001 "), "{long}");
}

#[test]
fn unknown_models_and_bad_files_are_explained() {
    let directory = Directory::default();
    std::fs::write(directory.join("source.json"), SOURCE).unwrap();
    run_checked(&mut prices(&directory, &["import", "source.json"]));
    std::fs::write(directory.join("list.json"), "[]").unwrap();
    for (arguments, code, message) in [
        (
            &["show", "MODEL"][..],
            1,
            "no prices for the model \"MODEL\" in prices.json; similar: maker/model-1",
        ),
        (&["show", "maker/model-1", "--tier", "fast"], 2, "the tier of service has no prices"),
        (&["show", "maker/model-1", "--cached", "10001"], 2, "--cached and --written are parts of --input"),
        (
            &["show", "m", "--prices", "none.json"],
            2,
            "none.json: no such file; `egret prices import FILE` writes it",
        ),
        (
            &["show", "m", "--prices", "list.json"],
            2,
            "list.json: not a file that `egret prices import` has written",
        ),
        (&["import", "list.json"], 2, "list.json: not an object with a member for each model"),
    ] {
        let failed = run(&mut prices(&directory, arguments));
        let error = String::from_utf8_lossy(&failed.stderr).into_owned();
        assert_eq!(failed.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(message), "{arguments:?}: {error}");
    }
}

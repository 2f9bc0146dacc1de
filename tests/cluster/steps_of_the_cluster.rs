//! A newcomer sees gateways share a limit, in steps.

use std::path::Path;
use std::process::Command;

use egret_tests::egret::binary;
use egret_tests::steps::{Steps, judge};

/// Seconds of load, after those in which the gateways learn that the store is empty.
const SECONDS: &str = "5";

#[test]
fn a_shared_limit_takes_no_more_steps_than_documented() {
    judge(
        "make test-cluster ONLY=steps_of_the_cluster",
        &[("See three gateways share a limit", see_a_shared_limit)],
    );
}

/// The command is that of `make cluster-demo`, which builds the program first.
fn see_a_shared_limit(steps: &mut Steps) {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/cluster-demo");
    let told = steps.runs(Command::new(demo).arg(binary().canonicalize().unwrap()).arg(SECONDS));
    let figures = told.lines().filter_map(|line| line.split_once(" s | ")?.1.split(" | ").next());
    let refused: Vec<&str> = figures.filter_map(|figures| figures.split_whitespace().last()).collect();
    assert!(refused.len() >= 3 && refused.iter().all(|count| *count == "0"), "{told}");
}

//! A bench report describes only what was measured, however the run ended.

use std::fs::File;

use egret_tests::bench;
use egret_tests::process::{Directory, Process};
use egret_tests::provider::Provider;

#[test]
fn an_interrupted_run_counts_only_requests_due_before() {
    let (provider, directory) = (Provider::plain(), Directory::default());
    let url = format!("{}/", provider.url());
    let printed = directory.join("report");
    let mut command = bench::command();
    command.args(["-k", "-c", "8", "--rate", "100", "-t", "240", &url]);
    command.stdout(File::create(&printed).unwrap());
    let mut running = Process::start(&mut command);
    provider.until_requested(20);
    running.signal("INT");
    assert_eq!(running.until_ended().code(), Some(1));
    let report = std::fs::read_to_string(printed).unwrap();
    let never_sent = report.lines().find_map(|line| line.split_once(" requests were due but never sent"));
    let never_sent: u64 = never_sent.map_or(0, |(count, _)| count.trim().parse().unwrap());
    // The four minutes would be 24,000. A busy machine may miss some of the first moments.
    assert!(never_sent < 1_000, "{never_sent} requests were due after the run had ended\n{report}");
}

//! On a terminal, a command run by `egret exec` is a job like any other.

use std::process::Command;

use egret_tests::egret::binary;
use egret_tests::exec::{FREE_PORTS, Place};
use egret_tests::process::run_checked;

/// The script, which says what each of its steps shows.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/job_control.py");

#[test]
fn keys_jobs_and_the_terminal_work_as_without_egret() {
    let place = Place::with(&format!(
        "{FREE_PORTS}providers: {{ origin: {{ url: 'http://origin.test' }} }}\nflows:\n  - name: all\n    \
         match: {{ provider: origin }}\n    remedies: [{{ fixed-response: {{ body: from a remedy }} }}]\n"
    ));
    let mut driver = Command::new("python3");
    driver.arg(SCRIPT).arg(binary()).arg("egret.yaml");
    place.prepare(&mut driver);
    let steps = run_checked(&mut driver);
    assert_eq!(steps.lines().count(), 6, "{steps}");
    place.until_gateways_gone();
}

#[test]
fn a_closed_input_and_a_pipe_are_the_commands() {
    let place = Place::new();
    let binary = binary().display().to_string();
    // In place of a closed input, Egret and thus its command have an empty one, as Rust's programs do.
    for (input, expected) in [("echo text |", "text\n"), ("true |", ""), ("exec <&-;", "")] {
        let line =
            format!("{input} {binary} exec --config egret.yaml -- sh -c 'cat 2>/dev/null || echo closed'");
        let mut shell = Command::new("sh");
        shell.args(["-c", &line]);
        place.prepare(&mut shell);
        assert_eq!(run_checked(&mut shell), expected, "{line}");
    }
    place.until_gateways_gone();
}

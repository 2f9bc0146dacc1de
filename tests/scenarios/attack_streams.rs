//! Readers of a command's output that close it early, like `head`.

use std::process::{Command, Stdio};

use egret_tests::egret::egret;
use egret_tests::process::{Directory, output, run_to};
use egret_tests::provider::Provider;

/// Returns a pipe whose reading end is closed.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// Returns the exit code of a command whose standard error is closed.
fn code_unheard(command: &mut Command) -> Option<i32> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(closed()).spawn().unwrap();
    output(child).status.code()
}

#[test]
fn a_bad_config_is_refused_though_nobody_reads_why() {
    let directory = Directory::default();
    let file = directory.write("bad.yaml", "gatway: {}\nproviders: { a: 1 }\n");
    let file = file.to_str().unwrap();
    assert_eq!(code_unheard(&mut egret(["check", file])), Some(2));
    assert_eq!(code_unheard(&mut egret(["run", "--config", file])), Some(2));
    assert_eq!(code_unheard(&mut egret(["har", "verify", "/no/such.har"])), Some(1));
}

#[test]
fn a_run_of_the_load_client_ends_though_nobody_reads_its_warnings() {
    let provider = Provider::plain();
    let url = format!("{}/", provider.url());
    // Progress is printed from 150 requests on.
    assert_eq!(code_unheard(&mut egret(["bench", "-k", "-n", "300", &url])), Some(0));
    assert_eq!(code_unheard(&mut egret(["bench", "-n", "2", "--fail-if", "p50>1us", &url])), Some(1));
}

#[test]
fn a_load_run_ends_though_its_output_is_unread() {
    let provider = Provider::plain();
    let url = format!("{}/", provider.url());
    let mut command = egret(["bench", "-v", "4", "-n", "20", &url]);
    assert_eq!(run_to(&mut command, closed()).status.code(), Some(0));
}

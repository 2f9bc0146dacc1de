//! `egret tail`: its lines, its filters, and how it ends.

use std::process::{Child, Command, Stdio};

use egret_tests::egret::{Config, Egret, egret as egret_command};
use egret_tests::process::{self, Process, output, run};
use egret_tests::provider::Provider;
use egret_tests::traffic::LiveTraffic;
use egret_tests::wait;
use serde_json::Value;

/// Returns the command in the gateway's directory, where it finds the token.
fn tail<const N: usize>(egret: &Egret, arguments: [&str; N]) -> Command {
    let mut command = egret_command(["tail"]);
    command.args(arguments).arg("--control").arg(egret.control().to_string());
    command.current_dir(egret.directory().path()).stdin(Stdio::null());
    command
}

/// Waits until a command reads the stream.
fn until_reads(traffic: &LiveTraffic<'_>) {
    wait::until_true("the command reads", || traffic.list("limit=0")["status"]["readers"] == 1);
}

/// Starts it, and waits until it reads the stream.
fn start<const N: usize>(egret: &Egret, traffic: &LiveTraffic<'_>, arguments: [&str; N]) -> Child {
    let child = tail(egret, arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until_reads(traffic);
    child
}

/// Does the same, and records what it prints.
fn start_recorded<const N: usize>(egret: &Egret, traffic: &LiveTraffic<'_>, arguments: [&str; N]) -> Process {
    let process = Process::printing(&mut tail(egret, arguments));
    until_reads(traffic);
    process
}

fn first_line(process: &Process) -> String {
    process.until_printed("the first line", |lines| lines.first().cloned())
}

#[test]
fn a_call_is_one_line_with_the_filters_that_were_asked_for() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    let traffic = LiveTraffic::open(&egret);
    let filters = ["--provider", "origin", "--status", "2xx", "--path", "/two/*"];
    let process = start_recorded(&egret, &traffic, filters);
    egret.get("/one");
    egret.get("/two/x");
    let text = first_line(&process);
    let words: Vec<&str> = text.split_whitespace().collect();
    assert_eq!((words[1], words[4], words[5]), ("200", "GET", &*format!("{}/two/x", origin.url())), "{text}");
    assert!(!text.contains('\u{1b}'), "no colors in a pipe");
}

#[test]
fn json_equals_the_apis_and_may_have_details() {
    let origin = Provider::plain();
    let flows = "flows: [{ name: f, remedies: [retry: {}] }]\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    let traffic = LiveTraffic::open(&egret);
    let process = start_recorded(&egret, &traffic, ["--json", "-v", "--provider", "origin"]);
    egret.get("/one");
    let value: Value = serde_json::from_str(&first_line(&process)).unwrap();
    assert_eq!((&value["status"], &value["har"]["response"]["content"]["size"]), (&200.into(), &5.into()));
    assert_eq!(value["decisions"][0]["remedy"], "retry");
}

#[test]
fn a_closed_pipe_ends_it_quietly() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    let traffic = LiveTraffic::open(&egret);
    let mut child = start(&egret, &traffic, []);
    // Nobody calls, so only a look at the pipe tells.
    drop(child.stdout.take());
    let output = output(child);
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stderr)), (Some(0), ""));
}

#[test]
fn a_gateway_that_stops_or_is_not_there_is_named() {
    let mut egret = Config::default().start();
    let traffic = LiveTraffic::open(&egret);
    let child = start(&egret, &traffic, []);
    egret.terminate();
    let output = output(child);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(message.contains(&format!("the gateway at {} has stopped", egret.control())), "{message}");
    egret.until_ended();
    let output = run(&mut tail(&egret, []));
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(message.contains("is `egret run` running?"), "{message}");
}

#[test]
fn a_missing_token_and_a_wrong_filter_are_explained() {
    let egret = Config::default().start();
    let elsewhere = process::Directory::default();
    let output = run(tail(&egret, []).current_dir(elsewhere.path()));
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(message.contains("control.key") && message.contains("--config"), "{message}");
    // The config names the address and the data directory, seen from its own.
    let output = run(&mut tail(&egret, ["--status", "many"]));
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("`status`"), "{message}");
}

/// Runs a shell command in a terminal of this width, and returns what the terminal got.
fn in_terminal(egret: &Egret, columns: u32, environment: &str) -> String {
    let command = format!(
        "stty cols {columns}; {environment} {} tail --control {} --provider origin & \
         read line; kill %1; wait",
        egret_tests::egret::binary().display(),
        egret.control()
    );
    let mut command = process::in_terminal(&format!("bash -mc '{command}'"));
    let process = Process::printing(command.current_dir(egret.directory().path()));
    let traffic = LiveTraffic::open(egret);
    until_reads(&traffic);
    egret.get(&format!("/{}", "x".repeat(150)));
    // The number of a port, which the command names first, may contain the status.
    let is_call = |line: &&String| line.contains("200") && line.contains(" GET ");
    let line = process.until_printed("the call", |lines| lines.iter().find(is_call).cloned());
    drop(process);
    wait::until_true("the command has ended", || traffic.list("limit=0")["status"]["readers"] == 0);
    line.trim_end().to_owned()
}

#[test]
fn a_terminal_gets_colors_and_lines_that_fit() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    let line = in_terminal(&egret, 100, "TERM=xterm");
    assert!(line.contains("\u{1b}[32m200\u{1b}[0m"), "{line:?}");
    let line = in_terminal(&egret, 60, "NO_COLOR=1");
    assert!(!line.contains('\u{1b}'), "{line:?}");
    assert!(line.chars().count() < 60 && line.contains('…'), "{line:?}");
}

#[test]
fn names_that_the_gateway_does_not_know_are_refused() {
    let origin = Provider::plain();
    let flows = "flows: [{ name: charges, diagnoses: [metrics] }]\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    for (filter, expected) in [
        (["--provider", "origins"], "--provider: no provider is called `origins`; did you mean `origin`?"),
        (["--flow", "x"], "--flow: no flow is called `x`; there is `charges`"),
        (["--error", "dns-faild"], "--error: no error is called `dns-faild`; did you mean `dns-failed`?"),
        (["--method", "get"], "--method: methods are case-sensitive; did you mean `GET`?"),
    ] {
        let output = run(&mut tail(&egret, filter));
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && message.contains(expected), "{message}");
    }
}

//! `egret exec` ends as its command does: the same exit codes, the same signals. Its own failures have the
//! codes of env(1).

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use egret_tests::egret::Config;
use egret_tests::exec::{FREE_PORTS, Place, refused};
use egret_tests::process::{Process, run};

/// Signals that stop a process, which would then have to be continued: `SIGSTOP`, `SIGTSTP`, `SIGTTIN` and
/// `SIGTTOU`. `exec_job_control` has them.
const STOPPING: std::ops::RangeInclusive<i32> = 19..=22;

#[test]
fn every_exit_code_is_the_commands() {
    let egret = Config::default().start();
    let place = Place::of(&egret);
    for code in 0..=255 {
        let output = run(&mut place.exec([], ["sh", "-c", &format!("exit {code}")]));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), stderr.as_str()), (Some(code), ""));
    }
    // A command starts a gateway of its own if the running one does not respond within a second, as on a busy
    // machine. If all commands did, there would be ten logs.
    assert!(place.logs().len() < 5, "gateways were started");
}

#[test]
fn every_signal_does_what_it_does_without_egret() {
    let egret = Config::default().start();
    let place = Place::of(&egret);
    for signal in (1..=64).filter(|signal| !STOPPING.contains(signal)) {
        // Some signals do nothing by default; then the command ends by itself.
        let script = format!("ulimit -c 0; kill -{signal} $$; exit 7");
        let direct = run(Command::new("sh").args(["-c", &script])).status;
        let through = run(&mut place.exec([], ["sh", "-c", &script])).status;
        assert_eq!((through.signal(), through.code()), (direct.signal(), direct.code()), "signal {signal}");
    }
}

#[test]
fn a_signal_to_egret_reaches_the_command_alone() {
    let place = Place::new();
    let script = "echo ready >&2; exec sleep 1000";
    for (signal, number) in [("TERM", 15), ("KILL", 9), ("USR1", 10)] {
        let mut process = Process::start(&mut place.exec([], ["sh", "-c", script]));
        process
            .until_prints("the command runs", |lines| lines.iter().any(|line| line == "ready").then_some(()));
        assert_eq!(place.gateways().len(), 1);
        process.signal(signal);
        assert_eq!(process.until_ended().signal(), Some(number));
        place.until_gateways_gone();
    }
}

#[test]
fn signals_are_handled_and_blocked_as_before() {
    let place = Place::new();
    let script = "grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status";
    let direct = run(Command::new("sh").args(["-c", script])).stdout;
    assert_eq!(place.sh([], script), String::from_utf8(direct).unwrap());
}

#[test]
fn failures_of_egret_itself_are_those_of_env() {
    let place = Place::new();
    let message = refused(&mut place.exec([], ["no-such-program"]), 127);
    assert!(message.contains("no-such-program"), "{message}");
    let file = place.directory.write("file", "text");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    for unfit in [file.to_str().unwrap(), "/"] {
        assert!(refused(&mut place.exec([], [unfit]), 126).contains(unfit));
    }
    refused(&mut place.options([]), 125);
    refused(&mut place.options(["--no-such-option"]), 125);
    refused(&mut place.exec(["--print-env"], ["true"]), 125);
    let message = refused(&mut place.exec(["--intercept"], ["true"]), 125);
    assert!(message.contains("--intercept=api.example.com"), "{message}");
    let message = refused(&mut place.exec(["--intercept=https://a.example"], ["true"]), 125);
    assert!(message.contains("https://a.example"), "{message}");
    place.directory.write("egret.yaml", "gatway: {}\n");
    assert!(refused(&mut place.exec([], ["true"]), 125).contains("gatway"));
    std::fs::remove_file(place.directory.join("egret.yaml")).unwrap();
    refused(&mut place.exec([], ["true"]), 125);
}

#[test]
fn a_gateway_that_cannot_start_is_explained() {
    let quotas = "data_dir: /dev/null/x\nquotas: { q: { limit: 1, window: 1h, kind: fixed, starts: clock, store: file } }\n";
    let place = Place::with(&format!("{FREE_PORTS}{quotas}"));
    let message = refused(&mut place.exec([], ["true"]), 125);
    assert!(message.contains("the gateway did not start") && message.contains("/dev/null/x"), "{message}");
    place.until_gateways_gone();
}

//! A gateway that `egret exec` has started is nobody's child and holds nothing of the command's.

use std::process::Command;

use egret_tests::exec::{Place, control_of, listens};
use egret_tests::process::{Process, run_checked};
use egret_tests::wait;

#[test]
fn the_command_has_no_child_that_it_did_not_start() {
    let place = Place::new();
    let script = "import os\n\
        try:\n    print('a stranger', os.waitpid(-1, os.WNOHANG))\n\
        except ChildProcessError:\n    print('none')\n";
    assert_eq!(run_checked(&mut place.exec([], ["python3", "-c", script])), "none\n");
    // Bash knows its jobs only, so it is asked with one of them.
    let script = "true & wait -n; echo $?; wait -n; echo $?";
    assert_eq!(run_checked(&mut place.exec([], ["bash", "-c", script])), "0\n127\n");
    assert_eq!(place.logs().len(), 2, "each command had a gateway of its own");
}

#[test]
fn the_command_is_the_process_that_was_started() {
    let place = Place::new();
    let script = "echo $$ $PPID >&2; exec sleep 1000";
    let mut process = Process::start(&mut place.exec([], ["sh", "-c", script]));
    let ids = process.until_prints("its ids", |lines| lines.first().cloned());
    assert_eq!(ids, format!("{} {}", process.id(), std::process::id()));
    let gateways = place.gateways();
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateways[0])).unwrap();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().to_owned();
    assert!(parent != process.id().to_string(), "the gateway is a child of the command");
    process.signal("KILL");
    process.until_ended();
    place.until_gateways_gone();
}

#[test]
fn descriptors_are_those_of_the_caller_on_both_sides() {
    let place = Place::new();
    let script = "exec 7<egret.yaml; ls -l /proc/self/fd | sed 's/.* \\([0-9]* ->.*\\)/\\1/' | grep -v /proc";
    let direct = run_checked(Command::new("sh").args(["-c", script]).current_dir(place.directory.path()));
    let listed = "ls -l /proc/self/fd | sed 's/.* \\([0-9]* ->.*\\)/\\1/' | grep -v /proc";
    let binary = egret_tests::egret::binary().display().to_string();
    let mut shell = Command::new("sh");
    let line = format!("exec 7<egret.yaml; {binary} exec --config egret.yaml -- sh -c \"$1\"");
    shell.args(["-c", &line, "sh", listed]);
    place.prepare(&mut shell);
    let through = run_checked(&mut shell);
    let numbers = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(numbers(&through), numbers(&direct), "{through}\n{direct}");
    assert!(through.contains("7 -> ") && through.contains("egret.yaml"), "{through}");
}

#[test]
fn a_gateway_that_lingers_holds_neither_pipes_nor_locks() {
    let place = Place::new();
    let binary = egret_tests::egret::binary().display().to_string();
    // The output is read to its end, so a gateway with a copy of the pipe would keep this from returning.
    let line = format!(
        "exec 9>lock; flock 9; {binary} exec --config egret.yaml --linger 1h -- sh -c 'echo $EGRET_EXEC'"
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &line]);
    place.prepare(&mut shell);
    let control = control_of(&run_checked(&mut shell));
    assert!(listens(control), "the gateway lingers");
    let mut lock = Command::new("flock");
    run_checked(lock.args(["--nonblock", "lock", "true"]).current_dir(place.directory.path()));
    let [gateway] = place.gateways()[..] else { panic!("there is one gateway") };
    run_checked(Command::new("sh").args(["-c", &format!("kill -TERM {gateway}")]));
    wait::until_true("the gateway ends when it is told to", || !listens(control));
}

#[test]
fn the_gateway_ends_with_its_command_whatever_ends_it() {
    let place = Place::new();
    for script in ["exit 3", "kill -KILL $$", "exec true"] {
        let mut process =
            Process::start(&mut place.exec([], ["sh", "-c", &format!("echo $EGRET_EXEC >&2; {script}")]));
        let mark = process.until_prints("the mark", |lines| lines.first().cloned());
        process.until_ended();
        place.until_gateways_gone();
        assert!(!listens(control_of(&mark)), "{script}");
    }
}

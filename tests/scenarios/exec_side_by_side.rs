//! Commands run by `egret exec` at the same time do not meet, unless they share a gateway.

use std::fs::OpenOptions;
use std::process::Command;

use egret_tests::exec::{FREE_PORTS, Place, control_of, listens};
use egret_tests::peers::curl;
use egret_tests::process::{Process, run_checked};
use egret_tests::provider::Provider;
use egret_tests::wait;

/// Starts a command that waits for a line from a pipe.
fn waiting(place: &Place, pipe: &str) -> Process {
    let fifo = place.directory.join(pipe);
    run_checked(Command::new("mkfifo").arg(&fifo));
    let script = format!(
        "echo $EGRET_EXEC >&2; read line <{pipe}; curl --silent --show-error http://origin.test/; exit 4"
    );
    Process::start(&mut place.exec([], ["sh", "-c", &script]))
}

#[test]
fn two_commands_have_a_gateway_each() {
    let place = Place::with(&format!(
        "{FREE_PORTS}providers: {{ origin: {{ url: 'http://origin.test' }} }}\n\
         flows:\n  - {{ name: all, match: {{ provider: origin }}, remedies: [{{ fixed-response: {{ status: 200 }} }}] }}\n"
    ));
    let mut commands = ["first", "second"].map(|pipe| waiting(&place, pipe));
    let controls = [0, 1].map(|at| {
        control_of(&commands[at].until_prints("the mark", |lines: &[String]| lines.first().cloned()))
    });
    assert_ne!(controls[0], controls[1]);
    assert_eq!((place.gateways().len(), place.logs().len()), (2, 2));
    // Each log is its own, and no other user can read it.
    for log in place.logs() {
        wait::until_true("the gateway listens", || {
            std::fs::read_to_string(&log).unwrap().matches("gateway listening").count() == 1
        });
    }
    release(&place, "first");
    assert_eq!(commands[0].until_ended().code(), Some(4));
    wait::until_true("the first gateway ends", || !listens(controls[0]));
    assert!(listens(controls[1]), "the second one goes on");
    release(&place, "second");
    assert_eq!(commands[1].until_ended().code(), Some(4));
    place.until_gateways_gone();
}

/// Sends the line that a command waits for.
fn release(place: &Place, pipe: &str) {
    use std::io::Write;
    let mut fifo = OpenOptions::new().write(true).open(place.directory.join(pipe)).unwrap();
    fifo.write_all(b"go\n").unwrap();
}

#[test]
fn many_at_once_all_reach_the_provider() {
    let origin = Provider::plain();
    let place = Place::with(&format!("{FREE_PORTS}providers: {{ origin: {{ url: '{}' }} }}\n", origin.url()));
    let url = format!("{}/", origin.url());
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| assert_eq!(place.sh([], &format!("curl --silent --fail {url}")), "hello"));
        }
    });
    assert_eq!(origin.requests().len(), 6);
    assert!(origin.requests().iter().all(|request| !request.values("via").is_empty()), "through a gateway");
    place.until_gateways_gone();
    run_checked(curl().arg(&url));
}

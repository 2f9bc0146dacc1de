//! A gateway that `egret exec` has started is gone within a second after its command, whatever the command
//! has left behind.

use std::time::{Duration, SystemTime};

use egret_tests::exec::{FREE_PORTS, Place};
use egret_tests::process::Process;
use egret_tests::provider::{Peer, Provider};

/// The time from the command's end to the gateway's end.
const GONE_WITHIN: Duration = Duration::from_secs(1);

/// Number of commands whose gateways must end in time, and the number that are tried for that. A gateway
/// needs milliseconds, or half a second with an exchange in flight; a busy machine can stop it for longer,
/// but hardly almost all of them.
const IN_TIME: usize = 3;
const COMMANDS_MAX: usize = 20;

/// Runs a script under `egret exec` that ends with `ending`, and returns the time for which its gateway was
/// there afterwards. The script's own clock is read before it ends, so the time is rather too long.
fn stays_after(place: &Place, script: &str, ending: &str) -> Duration {
    let script = format!("{script}\ndate +%s%N >ending && mv ending ended\n{ending}");
    let mut command = Process::start(&mut place.exec([], ["bash", "-c", &script]));
    command.until_ended();
    place.until_gateways_gone();
    let gone = SystemTime::now();
    let ended = std::fs::read_to_string(place.directory.join("ended")).unwrap();
    std::fs::remove_file(place.directory.join("ended")).unwrap();
    let ended = SystemTime::UNIX_EPOCH + Duration::from_nanos(ended.trim().parse().unwrap());
    gone.duration_since(ended).unwrap()
}

/// Asserts that enough commands have a gateway that ends in time.
fn assert_gone(place: &Place, script: &str, ending: &str) {
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..COMMANDS_MAX {
        times.push(stays_after(place, script, ending));
        let in_time = times.iter().filter(|time| **time <= GONE_WITHIN).count();
        if in_time == IN_TIME {
            return;
        }
    }
    panic!("after `{script}` and `{ending}`, the gateway stayed for {times:?}");
}

#[test]
fn after_a_command_that_left_nothing() {
    let place = Place::new();
    for ending in ["exit 3", "kill -KILL $$", "exec true"] {
        assert_gone(&place, "", ending);
    }
}

/// Returns a script that sends bytes to the proxy, waits for the first line of a response if there is to be
/// one, and leaves a program behind that holds the connection until the proxy closes it.
fn left_behind(sent: &str, wait: &str) -> String {
    format!(
        "exec 3<>/dev/tcp/127.0.0.1/${{http_proxy##*:}}\nprintf '{sent}' >&3\n{wait}\ncat <&3 >/dev/null 2>&1 &"
    )
}

/// Reads a line of the response.
const FIRST_LINE: &str = "read -r line <&3";

#[test]
fn after_a_command_that_left_an_idle_connection() {
    assert_gone(&Place::new(), &left_behind("", ""), "exit 0");
}

#[test]
fn after_a_command_that_left_half_a_response() {
    let slow = Provider::scripted(|peer| {
        if peer.request().is_some() {
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
            peer.stall();
        }
    });
    let place = Place::with(&format!("{FREE_PORTS}providers: {{ origin: {{ url: '{}' }} }}\n", slow.url()));
    let call = format!("GET {}/ HTTP/1.1\\r\\nHost: {}\\r\\n\\r\\n", slow.url(), slow.address());
    assert_gone(&place, &left_behind(&call, FIRST_LINE), "exit 0");
    assert!(slow.requests().len() >= IN_TIME, "the calls have arrived");
}

#[test]
fn after_a_command_that_left_a_tunnel() {
    let silent = Provider::scripted(Peer::stall);
    let place = Place::with(&format!("{FREE_PORTS}providers: {{ origin: {{ url: '{}' }} }}\n", silent.url()));
    let authority = silent.address();
    let call = format!("CONNECT {authority} HTTP/1.1\\r\\nHost: {authority}\\r\\n\\r\\n");
    assert_gone(&place, &left_behind(&call, FIRST_LINE), "exit 0");
    assert!(silent.connections() >= IN_TIME, "the tunnels have arrived");
}

//! Connections that a packet filter redirects, as in a container: the original destination counts, and a
//! filter that redirects the gateway's own connections as well makes no endless loop.

use std::process::Command;

use egret_tests::egret::binary;
use egret_tests::exec::Place;
use egret_tests::process::{run, run_checked};

/// A network with one other address in it, and the filter. In a namespace, so all ports are free.
const NETWORK: &str = "set -e
PATH=$PATH:/usr/sbin:/sbin
ip link set lo up
ip link add v0 type veth peer name v1
ip address add 10.0.0.1/24 dev v0
ip link set v0 up
ip link set v1 up
ip route add default via 10.0.0.2
iptables --table nat --append OUTPUT --protocol tcp --match multiport --dports 80,443 --jump REDIRECT --to-ports 15001
";

const CONFIG: &str = "gateway:
  listen: [{ address: 127.0.0.1:15001, redirect: true }]
  egress: { deny: [{ net: 192.0.2.9/32 }] }
control: { listen: 127.0.0.1:8001 }
flows:
  - { name: plain, match: { host: plain.test }, remedies: [{ fixed-response: { body: from a remedy } }] }
";

/// Calls of a client that knows no gateway. Each line begins with curl's exit code.
const CALLS: &str = "set +e
\"$EGRET\" run --config egret.yaml 2>log &
until curl --silent --fail http://127.0.0.1:8001/readyz >/dev/null; do sleep 0.05; done
call() { text=$(curl --silent --insecure --max-time 20 \"$@\"); echo \"$? $text\"; }
call --resolve plain.test:80:192.0.2.7 http://plain.test/x
call --output /dev/null --write-out '%{http_code}' http://192.0.2.9/x
call https://192.0.2.9/x
call --output /dev/null --write-out '%{http_code}' http://192.0.2.8/x
call https://192.0.2.8/x
kill %1 2>/dev/null || kill $!
wait
";

fn in_network(place: &Place, script: &str) -> Command {
    let mut shell = Command::new("unshare");
    shell.args(["--user", "--map-root-user", "--net", "sh", "-c", &format!("{NETWORK}{script}")]);
    place.prepare(&mut shell);
    shell.env("EGRET", binary());
    shell
}

#[test]
fn the_original_destination_counts_and_a_loop_ends() {
    let place = Place::with(CONFIG);
    let tried = run(&mut in_network(&place, ""));
    if !tried.status.success() {
        eprintln!("skipped: this system has no packet filter for namespaces: {tried:?}");
        return;
    }
    let printed = run_checked(&mut in_network(&place, CALLS));
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[..2], ["0 from a remedy", "0 403"], "{printed}");
    // 35: the TLS handshake failed, here by an alert, and 508: the request came back.
    assert_eq!(lines[2..4], ["35 ", "0 508"], "{printed}");
    assert!(lines[4].starts_with("35 "), "{printed}");
    let log = std::fs::read_to_string(place.directory.join("log")).unwrap();
    assert!(log.contains("target=192.0.2.9:443") && log.contains("target=192.0.2.9:80"), "{log}");
    assert_eq!(log.matches("redirects the gateway's own connections").count(), 1, "{log}");
    assert!(!log.contains("Too many open files"), "{log}");
}

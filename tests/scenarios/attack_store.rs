//! A hostile store: whatever it sends, the gateway takes no memory for it, no call waits for it, and
//! `on_store_error` happens.

use std::fmt::Display;
use std::thread;
use std::time::Duration;

use egret_tests::egret::{Config, Egret};
use egret_tests::hostile_store::{HostileStore, StoreAttack};
use egret_tests::permits;
use egret_tests::pki::Authority;
use egret_tests::process::Directory;
use egret_tests::provider::Provider;
use egret_tests::wait;

const MIB: u64 = 1 << 20;
const GROWTH_MAX: u64 = 8 * MIB;
/// Number of gateways among which attacks are divided.
const GATEWAYS: usize = 5;

/// Starts a gateway with a quota for each policy.
fn gateway(redis: impl Display, origin: &Provider) -> Egret {
    let quota = |policy| {
        format!("  {policy}: {{ limit: 1000, window: 1s, store: redis, on_store_error: {policy} }}\n")
    };
    let flow = |policy| {
        format!(
            "  - {{ name: {policy}, match: {{ path: '/{policy}' }}, remedies: [limit: {{ quota: {policy} }}] }}\n"
        )
    };
    let policies = ["open", "share", "closed"];
    let (quotas, flows) = (policies.map(quota).concat(), policies.map(flow).concat());
    let text = format!("cluster: {{ name: tests, redis: {redis} }}\nquotas:\n{quotas}flows:\n{flows}");
    Config::with_origin(origin.url()).flows(text).start()
}

/// Makes a call for each policy.
fn call(egret: &Egret, attack: &str) {
    for (policy, is_forwarded) in [("open", true), ("share", true), ("closed", false)] {
        // A call that waits for the store longer than its timeout has no response before the deadline.
        let status = egret.get(&format!("/{policy}")).status;
        assert_eq!(status == 200, is_forwarded, "{attack}: {policy} was answered with {status}");
    }
}

/// Runs attacks one after the other, each as the answer to `command`, and bounds what they take together.
fn bear(egret: &Egret, store: &HostileStore, command: &'static str, attacks: &[StoreAttack]) {
    wait::until_true("the store has answered", || store.seen().answered > 4);
    call(egret, "none");
    let _permit = permits::busy();
    let before = egret.process().resident_bytes();
    let growth = || egret.process().resident_bytes_max().saturating_sub(before);
    for attack in attacks {
        let seen = store.seen();
        store.attack(command, attack);
        wait::until_true(&format!("{} was met", attack.name), || {
            let now = store.seen();
            now.ended >= seen.ended + 2 || now.bytes > seen.bytes + 16 * MIB || growth() > GROWTH_MAX
        });
        assert!(growth() <= GROWTH_MAX, "{}: {} KiB more resident", attack.name, growth() >> 10);
        call(egret, attack.name);
    }
    let names: Vec<_> = attacks.iter().map(|attack| attack.name).collect();
    println!("{command}: {} KiB more resident at most after: {}", growth() >> 10, names.join(", "));
    egret.assert_well();
}

fn letters(_: u64) -> Vec<u8> {
    vec![b'a'; 1 << 16]
}

fn digits(_: u64) -> Vec<u8> {
    vec![b'1'; 1 << 16]
}

fn numbers(_: u64) -> Vec<u8> {
    b":1\r\n".repeat(1 << 14)
}

fn nothing(_: u64) -> Vec<u8> {
    Vec::new()
}

fn message(channel: &str, length: usize) -> Vec<u8> {
    let head = format!(">3\r\n$7\r\nmessage\r\n${}\r\n{channel}\r\n${length}\r\n", channel.len());
    [head.into_bytes(), vec![b'a'; length], b"\r\n".to_vec()].concat()
}

fn endless() -> Vec<StoreAttack> {
    let slow = StoreAttack::new("a byte every 20 ms", "$100\r\n", |_| b"a".to_vec());
    vec![
        StoreAttack::new("a text of 2 GB", "$2000000000\r\n", letters),
        StoreAttack::new("a line without end", "+", letters),
        StoreAttack::new("an error without end", "-ERR ", letters),
        StoreAttack::new("a number without end", ":", digits),
        StoreAttack::new("a length without end", "$", digits),
        StoreAttack::new("a list of a billion", "*1000000000\r\n", numbers),
        StoreAttack::new("a map of a billion", "%1000000000\r\n", numbers),
        StoreAttack::new("a set of a billion", "~1000000000\r\n", numbers),
        StoreAttack::new("a list of negative length", "*-1000000000\r\n", numbers),
        StoreAttack::new("lists 10,000 deep", "*1\r\n".repeat(10_000), |_| b"*1\r\n".repeat(4_096)),
        StoreAttack::new("wide lists inside of each other", "", |_| b"*100000\r\n".repeat(4_096)),
        StoreAttack::new("lists of lists", "*1000\r\n", |_| b"*1000\r\n*0\r\n".repeat(1_000)),
        StoreAttack::new("attributes", "|1000000\r\n", numbers),
        StoreAttack::new("a verbatim text of 2 GB", "=2000000000\r\ntxt:", letters),
        StoreAttack::new("an error of 2 GB", "!2000000000\r\n", letters),
        StoreAttack::new("a text in chunks", "$?\r\n", |_| {
            [b";65536\r\n".as_slice(), &letters(0), b"\r\n"].concat()
        }),
        StoreAttack::new("a message of 2 GB", ">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2000000000\r\n", letters),
        StoreAttack::new("no protocol at all", "HTTP/1.1 200 OK\r\n\r\n", letters),
        StoreAttack::new("bytes of all values", "", |number| {
            (0..1 << 16).map(|at: u64| ((at * 167 + number) >> 3).to_le_bytes()[0]).collect()
        }),
        StoreAttack::new("values of another type", "*3\r\n:1\r\n$1\r\na\r\n_\r\n", nothing),
        StoreAttack::new("a status", "+OK\r\n", nothing),
        StoreAttack::new("a text in which a reply has numbers", "$19\r\n18446744073709551615\r\n", nothing),
        StoreAttack::new("silence", "", nothing),
        StoreAttack { pause: Duration::from_millis(20), ..slow },
    ]
}

#[test]
fn a_reply_without_end_takes_no_memory() {
    let origin = Provider::plain();
    let attacks = endless();
    thread::scope(|scope| {
        for (number, attacks) in attacks.chunks(attacks.len().div_ceil(GATEWAYS)).enumerate() {
            let origin = &origin;
            scope.spawn(move || {
                let store = HostileStore::start();
                let egret = gateway(format!("{{ url: 'redis://{}' }}", store.address()), origin);
                bear(&egret, &store, if number == 0 { "HELLO" } else { "EVALSHA" }, attacks);
            });
        }
    });
}

#[test]
fn messages_and_replies_that_nobody_asked_for_take_no_memory() {
    let attacks = [
        StoreAttack::new("large messages", "", |_| message("egret:{tests:0}:p", 400_000)),
        StoreAttack::new("many messages", "", |_| message("egret:{tests:0}:g", 20).repeat(1_000)),
        StoreAttack::new("confirmed subscriptions", "", |number| {
            let confirmed =
                |at: u64| format!(">3\r\n$9\r\nsubscribe\r\n$20\r\n{:020}\r\n:1\r\n", number * 1_000 + at);
            (0..1_000).map(confirmed).collect::<String>().into_bytes()
        }),
        StoreAttack::new("replies that nobody asked for", "", |_| b"+OK\r\n".repeat(1 << 14)),
        StoreAttack::new("replies and messages", "", |_| {
            b"$5\r\nstale\r\n>2\r\n+message\r\n+a\r\n".repeat(1 << 12)
        }),
    ];
    let origin = Provider::plain();
    let store = HostileStore::start();
    let egret = gateway(format!("{{ url: 'redis://{}' }}", store.address()), &origin);
    bear(&egret, &store, "EVALSHA", &attacks);
}

#[test]
fn a_hostile_sentinel_node_or_tls_server_takes_no_memory() {
    let attacks = &endless()[..2];
    let origin = &Provider::plain();
    let (authority, directory) = (Authority::default(), Directory::default());
    let ca = directory.write("ca.pem", authority.certificate()).display().to_string();
    let sentinel = HostileStore::start();
    let node = HostileStore::start();
    let tls = HostileStore::start_with_tls(&authority.leaf(&["127.0.0.1"]));
    let (at_sentinel, at_node, at_tls) = (sentinel.address(), node.address(), tls.address());
    thread::scope(|scope| {
        scope.spawn(move || {
            let egret = gateway(format!("{{ sentinel: {{ master: m, nodes: ['{at_sentinel}'] }} }}"), origin);
            bear(&egret, &sentinel, "SENTINEL", attacks);
        });
        scope.spawn(move || {
            let egret = gateway(format!("{{ cluster: ['{at_node}'] }}"), origin);
            bear(&egret, &node, "EXISTS", attacks);
        });
        scope.spawn(move || {
            let egret = gateway(format!("{{ url: 'rediss://{at_tls}', tls: {{ ca: '{ca}' }} }}"), origin);
            bear(&egret, &tls, "EVALSHA", attacks);
        });
    });
}

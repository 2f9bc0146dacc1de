//! Hostile clients of HTTP/2 that do not leave when they are told to.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use egret_tests::bench::{number, summary};
use egret_tests::egret::{Config, Egret};
use egret_tests::http2::ENHANCE_YOUR_CALM;
use egret_tests::http2_attacks::{ATTACKS, Attack};
use egret_tests::peers::Nginx;
use egret_tests::pki::Authority;
use egret_tests::provider::{Provider, ok};

/// Maximum time from the `GOAWAY` of a flood to the end of its connection.
const LINGERS_MAX: Duration = Duration::from_secs(2);

#[test]
fn a_flood_is_gone_two_seconds_after_its_limit() {
    let large = ok(&"x".repeat(4 << 20));
    let origin = Provider::responding(large);
    for attack in ATTACKS.iter().filter(|attack| attack.flood.is_some()) {
        let egret = Config::with_origin(origin.url()).gateway("workers: 1").start();
        let end = attack.run(egret.address()).unwrap_or_else(|| panic!("no GOAWAY for {}", attack.name));
        println!("{}: gone after {:?}", attack.name, end.lingered);
        assert_eq!(end.error, ENHANCE_YOUR_CALM, "{}", attack.name);
        assert!(end.lingered <= LINGERS_MAX, "{}: {:?}", attack.name, end.lingered);
    }
}

/// Duration of each attack, unless `EGRET_ATTACK_SECONDS` asks for another.
const ATTACK_SECONDS: u64 = 3;

/// Requests per second of the honest client.
const HONEST_RATE: u64 = 500;

/// Share of its throughput that an honest client keeps at least.
const THROUGHPUT_MIN: f64 = 0.8;

/// Returns the throughput of an honest client, in requests per second.
fn honest_throughput(egret: &Egret, seconds: u64) -> f64 {
    let (rate, time) = (HONEST_RATE.to_string(), seconds.to_string());
    let url = format!("{}/origin/small", egret.url());
    let result = summary(&["--http2", "-m", "10", "-c", "2", "--rate", &rate, "-t", &time, &url]);
    assert_eq!(number(&result, "/failed"), 0.0, "{result:#}");
    number(&result, "/requests_per_second")
}

/// Does the same beside an attack, which begins again whenever the gateway has ended its connection. Also
/// returns how often it began.
fn attacked_throughput(egret: &Egret, attack: &Attack, seconds: u64) -> (f64, u64) {
    let (is_over, begun) = (AtomicBool::new(false), AtomicU64::new(0));
    let throughput = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                begun.fetch_add(1, SeqCst);
                attack.run(egret.address());
            }
        });
        let throughput = honest_throughput(egret, seconds);
        is_over.store(true, SeqCst);
        throughput
    });
    (throughput, begun.into_inner())
}

#[test]
fn an_honest_client_keeps_its_throughput_beside_each_attack() {
    let seconds = std::env::var("EGRET_ATTACK_SECONDS").map_or(ATTACK_SECONDS, |text| text.parse().unwrap());
    let origin = Nginx::start(&Authority::default(), "");
    let file = |name: &str, bytes: usize| {
        std::fs::write(origin.directory().join("www").join(name), vec![b'x'; bytes]).unwrap();
    };
    file("large", 4 << 20);
    file("small", 5);
    for attack in &ATTACKS {
        let egret = Config::with_origin(origin.url()).start();
        let alone = honest_throughput(&egret, seconds);
        let (attacked, begun) = attacked_throughput(&egret, attack, seconds);
        let share = attacked / alone;
        println!("{}: {share:.2} of {alone:.0} requests/s, attacked {begun} times", attack.name);
        assert!(share >= THROUGHPUT_MIN, "{}: {share:.2}", attack.name);
        egret.assert_well();
    }
}

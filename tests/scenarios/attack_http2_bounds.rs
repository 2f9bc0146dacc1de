//! The cost of hostile clients of HTTP/2, attack by attack: no more memory than the bound for each, and
//! nothing that an honest client beside them would miss. `tests/timed` shows how soon they are gone.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use egret_tests::egret::{Config, Egret};
use egret_tests::http2::{DATA, END_STREAM, ENHANCE_YOUR_CALM, HEADERS, Http2Client};
use egret_tests::http2_attacks::{ATTACKS, Attack};
use egret_tests::permits::busy;
use egret_tests::provider::{Provider, ok};
use egret_tests::wait;

/// Number of connections that attack at once.
const HOSTILE: u64 = 4;

/// Maximum memory for each of them.
const BYTES_MAX: u64 = 8 << 20;

/// Makes calls one after the other on a connection of its own until it `is_over`, and one after that. Returns
/// their number. Each must have its response.
fn calls_honestly(egret: &Egret, is_over: &AtomicBool) -> u32 {
    let mut client = Http2Client::connect(egret.address());
    for number in 0.. {
        let (was_over, stream) = (is_over.load(SeqCst), 2 * number + 1);
        assert!(client.get(stream, egret.address(), "/origin/small"));
        assert_eq!(client.until_on(stream, HEADERS).status(), Some(200));
        while client.until_on(stream, DATA).flags & END_STREAM == 0 {}
        if was_over {
            return number + 1;
        }
    }
    0
}

/// Sends the attack on some connections at once, beside an honest client.
fn assert_bounded(attack: &Attack, egret: &Egret) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let honest = scope.spawn(|| calls_honestly(egret, &is_over));
        wait::until_true("the honest client is served", || {
            egret.provider_stat("origin", "answered_calls") > 0
        });
        let before = egret.process().resident_bytes();
        egret.process().forget_resident_bytes_max();
        let hostile: Vec<_> = (0..HOSTILE).map(|_| scope.spawn(|| attack.run(egret.address()))).collect();
        let ends: Vec<_> = hostile.into_iter().map(|hostile| hostile.join().unwrap()).collect();
        let taken = egret.process().resident_bytes_max().saturating_sub(before);
        wait::until_true("only the honest client is left", || egret.stat("/clients/open") == 1);
        is_over.store(true, SeqCst);
        let calls = honest.join().unwrap();
        println!("{}: {} KiB, {calls} honest calls", attack.name, taken >> 10);
        assert!(taken <= HOSTILE * BYTES_MAX, "{}: {taken} bytes", attack.name);
        if let Some(flood) = attack.flood {
            assert!(ends.iter().flatten().all(|end| end.error == ENHANCE_YOUR_CALM), "{}", attack.name);
            assert_eq!(egret.floods(flood), HOSTILE, "{}", attack.name);
        }
    });
    egret.assert_well();
}

#[test]
fn each_attack_has_a_bound_of_memory_and_harms_nobody() {
    let _permit = busy();
    let large = ok(&"x".repeat(4 << 20));
    let origin = Provider::with_responses(move |request| match request.target() {
        "/large" => large.clone(),
        _ => ok("small"),
    });
    for attack in &ATTACKS {
        assert_bounded(attack, &Config::with_origin(origin.url()).gateway("workers: 1").start());
    }
}

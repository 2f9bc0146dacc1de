//! `hedge`: a second call in parallel to a slow one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use egret_tests::egret::{Config, Egret};
use egret_tests::provider::{Provider, ok};
use egret_tests::wait::until_true;

/// Starts a provider that leaves the first request without a response until its connection closes, and serves
/// all others.
fn slow_once() -> (Provider, Arc<AtomicUsize>) {
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    let provider = Provider::scripted(move |peer| {
        while peer.request().is_some() {
            if count.fetch_add(1, Relaxed) == 0 {
                return peer.stall();
            }
            peer.send(ok("second"));
        }
    });
    (provider, seen)
}

fn hedging(origin: &Provider) -> Egret {
    let flows = "flows:\n  - name: twice\n    remedies:\n      - hedge: { after: 20ms }\n";
    Config::with_origin(origin.url()).flows(flows).start()
}

#[test]
fn the_faster_of_two_calls_responds_and_the_other_is_given_up() {
    let (origin, seen) = slow_once();
    let egret = hedging(&origin);
    let response = egret.get("/origin/x");
    assert_eq!(response.assert_forwarded(200).text(), "second");
    // The slow call's connection is closed, not kept.
    origin.until_ended(1);
    assert_eq!(seen.load(Relaxed), 2);
    assert_eq!(egret.provider_stat("origin", "repeats"), 1);
    // The connection of the faster call is kept.
    until_true("it is kept", || egret.provider_stat("origin", "connections_idle") == 1);
    assert_eq!(origin.connections(), 2);
}

/// A gateway with a quota of that limit before or behind the hedge.
fn hedging_within(origin: &Provider, limit: u32, is_inside: bool) -> Egret {
    let (hedge, quota) = ("hedge: { after: 20ms }", "limit: calls");
    let remedies = if is_inside { [hedge, quota] } else { [quota, hedge] }.join(", ");
    let flows = format!(
        "quotas: {{ calls: {{ limit: {limit}, window: 24h }} }}\nflows: [{{ name: f, remedies: [{remedies}] }}]\n"
    );
    Config::with_origin(origin.url()).flows(flows).start()
}

#[test]
fn a_quota_inside_a_hedge_counts_both_calls() {
    for (is_inside, most) in [(true, 2), (false, 3)] {
        let (origin, seen) = slow_once();
        let egret = hedging_within(&origin, 3, is_inside);
        for _ in 0..most {
            egret.get("/origin/x").assert_forwarded(200);
        }
        egret.get("/origin/x").assert_generated(429, "quota-exceeded");
        let seen = seen.load(Relaxed);
        if is_inside {
            assert_eq!(seen, 3, "each call takes a unit");
        } else {
            // On a busy machine, more calls than the first one are slow.
            assert!((4..=6).contains(&seen), "{seen} calls of three exchanges");
        }
    }
}

#[test]
fn no_second_call_is_made_if_a_quota_has_nothing_left() {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let origin = Provider::scripted(move |peer| {
        while peer.request().is_some() {
            while !over.load(Relaxed) && !peer.stopped() {
                std::thread::yield_now();
            }
            peer.send(ok("first"));
        }
    });
    let egret = hedging_within(&origin, 1, true);
    let mut client = egret.client();
    client.get(egret.address(), "/origin/x");
    egret.until_logged("a quota has nothing left for a second call");
    is_over.store(true, Relaxed);
    assert_eq!(client.response().assert_forwarded(200).text(), "first");
    assert_eq!((origin.requests().len(), egret.provider_stat("origin", "repeats")), (1, 0));
}

#[test]
fn a_first_call_that_fails_waits_for_the_second() {
    let calls = AtomicUsize::new(0);
    let origin = Provider::scripted(move |peer| {
        while peer.request().is_some() {
            match calls.fetch_add(1, Relaxed) {
                // Waits until the second call has arrived.
                0 => {
                    while calls.load(Relaxed) < 2 {
                        std::thread::yield_now();
                    }
                    return peer.reset();
                }
                _ => peer.send(ok("second")),
            };
        }
    });
    let egret = hedging(&origin);
    assert_eq!(egret.get("/origin/x").assert_forwarded(200).text(), "second");
}

#[test]
fn the_second_call_has_its_own_time_until_the_first_byte() {
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let both = std::sync::Mutex::new((Some(end), Some(ended)));
    let origin = Provider::scripted(move |peer| {
        while peer.request().is_some() {
            let first = both.lock().unwrap().0.take();
            if first.is_some() {
                // The end of its connection drops the sender.
                return peer.stall();
            }
            let second = both.lock().unwrap().1.take();
            assert!(second.unwrap().recv().is_err());
            peer.send(ok("second"));
        }
    });
    let flows = "flows:\n  - name: twice\n    remedies:\n      - hedge: { after: 1s }\n";
    let egret =
        Config::with_origin(origin.url()).flows(flows).gateway("timeouts: { first_byte: 2s }").start();
    assert_eq!(egret.get("/origin/x").assert_forwarded(200).text(), "second");
}

#[test]
fn a_call_that_is_not_safe_is_made_once() {
    // The POST waits until a later GET was sent twice.
    let gets = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&gets);
    let origin = Provider::scripted(move |peer| {
        while let Some(request) = peer.request() {
            if request.line.starts_with("GET") && count.fetch_add(1, Relaxed) == 0 {
                return peer.stall();
            }
            while count.load(Relaxed) < 2 && !peer.stopped() {
                std::thread::yield_now();
            }
            peer.send(ok("done"));
        }
    });
    let egret = hedging(&origin);
    let mut client = egret.client();
    client.send(format!("POST /origin/x HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\n\r\n", egret.address()));
    origin.until_requested(1);
    egret.get("/origin/x").assert_forwarded(200);
    client.response().assert_forwarded(200);
    let posts = origin.requests().iter().filter(|request| request.line.starts_with("POST")).count();
    assert_eq!((posts, gets.load(Relaxed)), (1, 2));
}

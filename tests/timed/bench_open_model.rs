//! The open model shows a stall in every request that was scheduled during it, as wrk2 defines it; the closed
//! model hides it.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use egret_tests::bench::{bench, count, number, summary};
use egret_tests::built_in::BuiltIn;
use egret_tests::provider::{Provider, ok};

/// Duration of the provider's stall.
const STALL: Duration = Duration::from_secs(1);

/// Requests per second, and the duration in seconds.
const RATE: f64 = 200.0;
const SECONDS: f64 = 3.0;

/// Starts a provider that responds at once, except to one request, where it stalls first. Returns the actual
/// duration of the stall.
fn stalling(stalled_request: usize) -> (Provider, Arc<Mutex<Duration>>) {
    let stalled = Arc::new(Mutex::new(Duration::ZERO));
    let received = Arc::clone(&stalled);
    let provider = Provider::scripted(move |peer| {
        let (_never, wait) = channel::<()>();
        let mut number = 0;
        while peer.request().is_some() {
            number += 1;
            if number == stalled_request {
                let started = Instant::now();
                let _ = wait.recv_timeout(STALL);
                *received.lock().unwrap() = started.elapsed();
            }
            peer.send(ok("hello"));
        }
    });
    (provider, stalled)
}

#[test]
fn times_count_from_when_a_request_was_due() {
    let (provider, stalled) = stalling(100);
    let result = summary(&["-k", "-c", "1", "--rate", "200", "-t", "3", &provider.url()]);
    assert!((number(&result, "/requests") - RATE * SECONDS).abs() <= 1.0, "{result:#}");
    let stall = stalled.lock().unwrap().as_secs_f64();
    // Requests scheduled during the stall wait for its end: a share s of all, the longest waits, takes at
    // least stall - s*N/R.
    for (percentile, share) in [("p75", 0.25), ("p90", 0.10), ("p95", 0.05), ("p99", 0.01)] {
        let expected = stall - share * SECONDS;
        let seen = number(&result, &format!("/latency_us/{percentile}")) / 1e6;
        assert!(
            (seen - expected).abs() < 0.1,
            "{percentile}: {seen} s, by wrk2's definition {expected} s\n{result:#}"
        );
    }
    assert!(number(&result, "/latency_us/max") / 1e6 >= stall);
}

#[test]
fn the_closed_model_hides_the_same_stall() {
    let (provider, _) = stalling(100);
    let result = summary(&["-k", "-c", "1", "-n", "600", &provider.url()]);
    assert!(number(&result, "/latency_us/p99") < 200_000.0, "{result:#}");
    assert!(number(&result, "/latency_us/max") >= 1e6, "{result:#}");
}

#[test]
fn a_rate_that_changes_sends_the_area_under_it() {
    let provider = Provider::plain();
    let result = summary(&["-k", "-c", "8", "--rate", "100..500", "-t", "2", &provider.url()]);
    assert!((number(&result, "/requests") - 600.0).abs() <= 2.0, "{result:#}");
}

#[test]
fn threads_share_a_rate_and_a_number_of_requests() {
    let provider = Provider::plain();
    let url = provider.url();
    let rated = summary(&["-k", "-c", "8", "--threads", "3", "--rate", "300", "-t", "1", &url]);
    assert!((number(&rated, "/requests") - 300.0).abs() <= 3.0, "{rated:#}");
    let counted = summary(&["-k", "-c", "8", "--threads", "3", "-n", "1000", &url]);
    assert_eq!((count(&counted, "/requests"), count(&counted, "/threads")), (1000, 3));
}

#[test]
fn the_knee_is_found_where_it_is_by_construction() {
    // Eight concurrent calls of 40 ms are 200 calls per second.
    let provider = BuiltIn::start(&["--parallel", "8", "--delay", "40ms"]);
    let url = format!("http://{}/get", provider.address());
    let ran = bench(&["-q", "-k", "-c", "60", "-t", "800ms", "--find-knee", &url]).well();
    let verdict =
        ran.printed.lines().find(|line| line.starts_with("Knee: ")).unwrap_or_else(|| panic!("{ran:?}"));
    let rates: Vec<f64> = verdict
        .split(|letter: char| !letter.is_ascii_digit())
        .filter_map(|number| number.parse().ok())
        .filter(|rate| (100.0..1_000.0).contains(rate))
        .collect();
    let (kept, lost) = (rates[0], *rates.last().unwrap());
    assert!((130.0..=206.0).contains(&kept) && (kept..=240.0).contains(&lost), "{}", ran.printed);
}

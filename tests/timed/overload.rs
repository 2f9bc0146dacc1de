//! More load than a provider, or the machine, can carry: what is admitted stays quick, the rest is refused
//! with a reason, and the control port responds.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use egret_tests::bench::{count, number, summary};
use egret_tests::built_in::BuiltIn;
use egret_tests::egret::{Config, Egret};
use egret_tests::process::raise_open_files;
use serde_json::Value;

/// Longest time in which the control port must respond.
const CONTROL_MAX: Duration = Duration::from_millis(100);
/// Interval between two requests to the control port.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Runs `egret bench`. Returns its result, and the longest time that the control port took meanwhile.
fn watched(egret: &Egret, arguments: &[&str], target: &str) -> (Value, Duration) {
    let is_over = AtomicBool::new(false);
    let url = format!("{}{target}", egret.url());
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut slowest = Duration::ZERO;
            while !is_over.load(Relaxed) {
                for path in ["/healthz", "/api/v1/stats"] {
                    let begin = Instant::now();
                    assert_eq!(egret.control_get(path).status, 200);
                    slowest = slowest.max(begin.elapsed());
                }
                thread::park_timeout(ASK_EVERY);
            }
            slowest
        });
        let result = summary(&[&["-k", "-l"], arguments, &[&url]].concat());
        is_over.store(true, Relaxed);
        (result, watch.join().unwrap())
    })
}

/// Successful responses per second.
fn goodput(result: &Value) -> f64 {
    number(result, "/statuses/200") / number(result, "/duration_s")
}

#[test]
fn goodput_holds_at_ten_times_the_providers_capacity() {
    // It carries 1,000 calls per second.
    let provider = BuiltIn::start(&["--parallel", "20", "--delay", "20ms"]);
    let flows = "flows: [{ name: all, remedies: [concurrency: { max: 1000, adaptive: 1 }] }]\n";
    let egret = Config::with_origin(format!("http://{}", provider.address())).flows(flows).start();
    let offer = |rate| {
        let arguments = ["-c", "500", "--rate", rate, "-t", "4", "--warmup", "2S"];
        watched(&egret, &arguments, "/origin/get")
    };
    let (once, _) = offer("1000");
    for rate in ["2000", "10000"] {
        let (result, control) = offer(rate);
        assert!(goodput(&result) >= 0.9 * goodput(&once), "{rate}: {result:#}\nonce: {once:#}");
        assert!(number(&result, "/latency_2xx_us/p99") <= 60_000.0, "{rate}: {result:#}");
        assert!(control <= CONTROL_MAX, "{rate}: {control:?}");
        assert!(count(&result, "/statuses/429") > 0, "{rate}: {result:#}");
    }
    assert!(egret.generated("too-many-in-flight") > 0);
}

#[test]
fn goodput_holds_with_ten_times_the_connections_that_saturate() {
    raise_open_files();
    let provider = BuiltIn::start(&[]);
    let egret = Config::with_origin(format!("http://{}", provider.address())).start();
    let offer = |connections| {
        let arguments = ["-c", connections, "-t", "4", "--warmup", "1S"];
        watched(&egret, &arguments, "/origin/bytes/100?seed=1")
    };
    let (once, _) = offer("64");
    for connections in ["128", "640"] {
        let (result, control) = offer(connections);
        assert!(goodput(&result) >= 0.9 * goodput(&once), "{connections}: {result:#}\nonce: {once:#}");
        assert!(control <= CONTROL_MAX, "{connections}: {control:?}");
    }
}

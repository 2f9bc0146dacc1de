//! The times of an exchange add up, and all places show the same times. `make test-timed` compares them with
//! the clocks of client and provider.

use std::collections::BTreeMap;

use egret_tests::browser::browse;
use egret_tests::config_api::ConfigApi;
use egret_tests::egret::{Config, Egret, egret as egret_command};
use egret_tests::process::{run, run_checked};
use egret_tests::provider::Provider;
use egret_tests::time_spent::{PAUSE, SpentTime, TimeSpent, WAYS, micros_of_ms};
use egret_tests::wait;
use serde_json::Value;

/// Number of calls: some of each way for each client.
const CALLS: usize = 420;
const CLIENTS: usize = 3;
/// Maximum difference of sums whose parts are rounded down to whole microseconds.
const ROUNDED_US: u64 = 8;
/// The timings of HAR that are no time of Egret's own. `ssl` is a part of `connect`.
const OTHERS_TIME: [&str; 4] = ["blocked", "dns", "connect", "wait"];
const QUANTILES: [(&str, usize); 3] = [("p50", 50), ("p90", 90), ("p99", 99)];

/// Asserts that the parts of an exchange add up to its whole time.
fn assert_sums(exchange: &SpentTime) {
    let duration_us = exchange.line_us("duration_us");
    let others_us: u64 = OTHERS_TIME.iter().map(|name| exchange.timing_us(name)).sum();
    let own_us = exchange.timing_us("send") + exchange.timing_us("receive");
    let time_us = micros_of_ms(exchange.entry["time"].as_f64().unwrap());
    assert_eq!(time_us, others_us + own_us, "HAR: {exchange:?}");
    assert_eq!(others_us + own_us, duration_us, "HAR and log: {exchange:?}");
    assert_eq!(exchange.timing_us("blocked"), exchange.line_us("blocked_us"), "{exchange:?}");
    assert_eq!(exchange.timing_us("wait"), exchange.line_us("provider_us"), "{exchange:?}");
    // The gateway has the request before the provider, and the response after it.
    assert!(duration_us + ROUNDED_US >= exchange.provider_us, "{exchange:?}");
    if exchange.way == "queued" || exchange.way == "plain" || exchange.way == "cold" {
        assert_eq!(exchange.line["attempts"], 1, "{exchange:?}");
    }
}

/// Asserts that the footprint is the rest of it. On a busy machine, a message may come or go in pieces, which
/// the whole time alone includes.
fn assert_rest(exchanges: &[SpentTime]) {
    let rest_us = |exchange: &SpentTime| exchange.timing_us("send") + exchange.timing_us("receive");
    let is_over = |exchange: &&SpentTime| exchange.line_us("footprint_us") > rest_us(exchange) + ROUNDED_US;
    assert!(!exchanges.iter().any(|exchange| is_over(&exchange)), "a footprint is more than the rest");
    let is_rest = |exchange: &&SpentTime| exchange.line_us("footprint_us") + ROUNDED_US >= rest_us(exchange);
    let rests = exchanges.iter().filter(is_rest).count();
    assert!(2 * rests > exchanges.len(), "{rests} of {}", exchanges.len());
}

/// Asserts that calls that ended without a response are no time of Egret's own. On a busy machine, it may
/// note late that it has sent one of them.
fn assert_provider_time(exchanges: &[SpentTime]) {
    for way in ["retried", "dead", "dead-in-flow"] {
        let of_way: Vec<&SpentTime> = exchanges.iter().filter(|exchange| exchange.way == way).collect();
        let is_known =
            |exchange: &&&SpentTime| u128::from(exchange.line_us("blocked_us")) >= PAUSE.as_micros() / 2;
        let known = of_way.iter().filter(is_known).count();
        assert!(2 * known > of_way.len(), "{known} of {} calls {way}", of_way.len());
    }
}

fn provider<'a>(stats: &'a Value, name: &str) -> &'a Value {
    stats["providers"].as_array().unwrap().iter().find(|provider| provider["name"] == name).unwrap()
}

/// Asserts that the counters of a provider are the sums of its exchanges, and its quantiles theirs.
fn assert_counted(way: &str, exchanges: &[SpentTime], stats: &Value, metrics: &str) {
    for (kind, field) in [("latency", "duration_us"), ("footprint", "footprint_us")] {
        let of_way = exchanges.iter().filter(|exchange| exchange.way == way);
        let mut times: Vec<u64> = of_way.map(|exchange| exchange.line_us(field)).collect();
        times.sort_unstable();
        let sum_us: u64 = times.iter().sum();
        let counted_us = provider(stats, way)[kind]["sum_us"].as_u64().unwrap();
        assert!(if kind == "latency" { counted_us <= sum_us } else { counted_us == sum_us }, "{way} {kind}");
        let sample = |part: &str| {
            let name = format!("egret_exchange_{kind}_seconds_{part}{{provider=\"{way}\"}} ");
            metrics.lines().find_map(|line| line.strip_prefix(&name)).unwrap()
        };
        assert_eq!(sample("count"), times.len().to_string());
        assert_eq!(micros_of_ms(sample("sum").parse::<f64>().unwrap() * 1e3), counted_us, "{way} {kind}");
        for (quantile, percent) in QUANTILES.into_iter().filter(|_| kind == "footprint") {
            let exact_us = times[(times.len() * percent).div_ceil(100) - 1];
            let shown_us = stats["quantiles_us"][way][kind][quantile].as_u64().unwrap();
            assert!(50 * shown_us.abs_diff(exact_us) <= exact_us, "{way} {kind} {quantile}: {shown_us}");
        }
    }
}

/// Reads a time as the page writes it.
fn shown_us(text: &str) -> u64 {
    let (number, unit) = text.split_once(' ').unwrap_or_else(|| panic!("no time: {text}"));
    let ms = [("µs", 1e-3), ("ms", 1.0), ("s", 1e3)].into_iter().find(|(name, _)| *name == unit).unwrap().1;
    micros_of_ms(number.replace(',', "").parse::<f64>().unwrap() * ms)
}

/// Asserts that page and `doctor` have the quantiles of the API.
fn assert_shown(egret: &Egret, stats: &Value) {
    let mut doctor = egret_command(["doctor", "--json", "--control", &egret.control().to_string()]);
    let report = run(doctor.current_dir(egret.directory().path())).stdout;
    let report: Value = serde_json::from_slice(&report).unwrap();
    assert_eq!(report["stats"]["quantiles_us"], stats["quantiles_us"]);
    let rows = browse(
        egret,
        r#"
        await open("overview", "dead-in-flow");
        const rows = `[...document.querySelectorAll("table[aria-label=Providers] tbody tr")]`;
        return page.until(`${rows}.length > 6 && ${rows}.map((row) => [row.querySelector("th").innerText,
          ...[...row.querySelectorAll(".times")].map((times) => [...times.children].map((time) => time.innerText))])`);
        "#,
    );
    let rows: BTreeMap<&str, &Value> =
        rows.as_array().unwrap().iter().map(|row| (row[0].as_str().unwrap(), row)).collect();
    for way in WAYS {
        for (kind, cell) in [("latency", 1), ("footprint", 2)] {
            for (index, (quantile, _)) in QUANTILES.into_iter().enumerate() {
                let shown_us = shown_us(rows[way][cell][index].as_str().unwrap());
                let counted_us = stats["quantiles_us"][way][kind][quantile].as_u64().unwrap();
                // The page writes three digits.
                assert!(100 * shown_us.abs_diff(counted_us) <= counted_us, "{way} {kind}: {}", rows[way]);
            }
        }
    }
}

#[test]
fn all_places_show_the_same_times_and_they_add_up() {
    let spent = TimeSpent::by(CLIENTS, CALLS);
    let egret = &spent.egret;
    let count = |way: &str| {
        let kinds = provider(&egret.stats(), way)["exchanges"].as_array().unwrap().clone();
        kinds.iter().map(|kind| kind["count"].as_u64().unwrap()).sum::<u64>()
    };
    wait::until_true("all exchanges are counted", || WAYS.map(count).iter().sum::<u64>() == CALLS as u64);
    let (stats, metrics) = (egret.stats(), egret.control_get("/metrics"));
    assert_shown(egret, &stats);
    let exchanges = spent.exchanges();
    assert_eq!(exchanges.len(), CALLS);
    exchanges.iter().for_each(assert_sums);
    assert_rest(&exchanges);
    assert_provider_time(&exchanges);
    for way in WAYS {
        assert_counted(way, &exchanges, &stats, metrics.text());
    }
}

#[test]
fn a_failed_call_has_the_same_times_in_tail_api_and_har() {
    let failing = Provider::responding("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n");
    let egret = Config::with_origin(failing.url()).start();
    egret.get("/a").assert_forwarded(500);
    let list = || ConfigApi::of(&egret).call("GET /api/v1/failures", "", "").json()["exchanges"].clone();
    let listed = wait::until("the failure is kept", || list().get(0).cloned());
    let path = format!("GET /api/v1/failures/{}", listed["id"]);
    let details = ConfigApi::of(&egret).call(&path, "", "").json();
    let mut tail = egret_command(["tail", "--failed", "--json", "--control", &egret.control().to_string()]);
    let printed = run_checked(tail.current_dir(egret.directory().path()));
    let printed: Value = serde_json::from_str(&printed).unwrap();
    for time in ["duration_us", "footprint_us", "attempts"] {
        assert_eq!((&printed[time], &details[time]), (&listed[time], &listed[time]), "{time}");
    }
    let duration_us = listed["duration_us"].as_u64().unwrap();
    assert_eq!(provider(&egret.stats(), "origin")["latency"]["sum_us"], duration_us);
    assert_eq!(provider(&egret.stats(), "origin")["footprint"]["sum_us"], listed["footprint_us"]);
    let phases = details["phases"].as_object().unwrap().values().filter_map(Value::as_u64);
    assert_eq!(phases.sum::<u64>(), duration_us);
    assert_eq!(micros_of_ms(details["har"]["time"].as_f64().unwrap()), duration_us, "{details}");
}

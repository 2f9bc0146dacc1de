//! Client's time − provider's time − named waits = footprint, by three clocks, over ten thousand exchanges.
//!
//! One time is in no clock: from the arrival of a message at Egret's socket until the system runs Egret. As
//! many messages wake the threads of the client and of the provider, in the same run, and these times are
//! measured. They stand for Egret's: percentiles are compared, not exchanges.

use egret_tests::time_spent::{SpentTime, TimeSpent, WAYS};

const CALLS: usize = 10_000;
/// Maximum difference at each percentile.
const DIFFERENCE_MAX_US: u64 = 100;

/// Time that neither the provider nor a wait with a name explains.
fn unexplained_us(exchange: &SpentTime) -> u64 {
    let blocked_us = exchange.timing_us("blocked");
    let waits_us = match exchange.way {
        "queued" => blocked_us,
        // The back-off, and what follows the reset until it has arrived, which the provider does not see.
        "retried" | "dead" | "dead-in-flow" => blocked_us.saturating_sub(exchange.first_us),
        _ => 0,
    };
    let dial_us: u64 = ["dns", "connect"].iter().map(|name| exchange.timing_us(name)).sum();
    exchange.client_us.saturating_sub(exchange.provider_us + waits_us + dial_us)
}

fn sorted(times: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut times: Vec<u64> = times.collect();
    times.sort_unstable();
    times
}

#[test]
fn the_footprint_is_the_time_that_nobody_else_took() {
    let exchanges = TimeSpent::by(1, CALLS).exchanges();
    assert_eq!(exchanges.len(), CALLS);
    let mut beyond = Vec::new();
    for way in WAYS.into_iter().chain(["all"]) {
        let of_way = || exchanges.iter().filter(move |exchange| way == "all" || exchange.way == way);
        let unexplained = sorted(of_way().map(unexplained_us));
        let footprint = sorted(of_way().map(|exchange| exchange.line_us("footprint_us")));
        let with_wakes =
            sorted(of_way().map(|exchange| exchange.line_us("footprint_us") + exchange.wakes_us));
        let at = |times: &[u64], percent: usize| times[(times.len() * percent).div_ceil(100) - 1];
        println!("{way:>14}: unexplained, footprint, and footprint with wake-ups, µs");
        for percent in [1, 50, 90, 99] {
            let times = [&unexplained, &footprint, &with_wakes].map(|times| at(times, percent));
            println!("{percent:>14} %: {:>6} {:>6} {:>6}", times[0], times[1], times[2]);
        }
        let difference = |percent: &usize| at(&unexplained, *percent).abs_diff(at(&with_wakes, *percent));
        let worst = (1..=99).max_by_key(difference).unwrap();
        println!("{:>16} at {worst} %: {} µs", "most", difference(&worst));
        if difference(&worst) > DIFFERENCE_MAX_US {
            beyond.push(way);
        }
    }
    assert!(beyond.is_empty(), "more than {DIFFERENCE_MAX_US} µs apart: {beyond:?}");
}

//! Client's time − provider's time − named waits = footprint, by three clocks, over ten thousand exchanges.
//!
//! One time is in no clock of Egret's: that for which its workers are ready to run, and others use the
//! processors. The system counts it. It may fall into an exchange, or between two. So what is unexplained
//! must be the footprint at least, and the footprint with this time at most. Nobody counts how long a
//! processor that sleeps takes to wake up, so none does meanwhile. A virtual machine also loses its
//! processors now and then, which is why the slowest tenth is printed, and not judged.

use std::ops::RangeInclusive;
use std::process::Command;
use std::thread::available_parallelism;

use egret_tests::process::Process;
use egret_tests::time_spent::{SpentTime, TimeSpent, WAYS};

const CALLS: usize = 10_000;
/// The percentiles that are judged, and the maximum time at each that nothing explains.
const JUDGED: RangeInclusive<usize> = 1..=90;
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

/// Keeps all processors from sleeping. Whatever else wants to run goes before.
fn awake_processors() -> Vec<Process> {
    let spin =
        |_| Process::start(Command::new("chrt").args(["--idle", "0", "sh", "-c", "while :; do :; done"]));
    (0..available_parallelism().unwrap().get()).map(spin).collect()
}

#[test]
fn the_footprint_is_the_time_that_nobody_else_took() {
    let awake = awake_processors();
    let exchanges = TimeSpent::by(1, CALLS).exchanges();
    drop(awake);
    assert_eq!(exchanges.len(), CALLS);
    let mut beyond = Vec::new();
    for way in WAYS.into_iter().chain(["all"]) {
        let of_way = || exchanges.iter().filter(move |exchange| way == "all" || exchange.way == way);
        let unexplained = sorted(of_way().map(unexplained_us));
        let footprint = sorted(of_way().map(|exchange| exchange.line_us("footprint_us")));
        let with_queues =
            sorted(of_way().map(|exchange| exchange.line_us("footprint_us") + exchange.queued_us));
        let at = |times: &[u64], percent: usize| times[(times.len() * percent).div_ceil(100) - 1];
        println!("{way:>14}: unexplained, footprint, and footprint with queues, µs");
        for percent in [1, 25, 50, 75, 90, 99] {
            let times = [&unexplained, &footprint, &with_queues].map(|times| at(times, percent));
            println!("{percent:>14} %: {:>6} {:>6} {:>6}", times[0], times[1], times[2]);
        }
        let difference = |percent: &usize| {
            let time = at(&unexplained, *percent);
            let below = at(&footprint, *percent).saturating_sub(time);
            below.max(time.saturating_sub(at(&with_queues, *percent)))
        };
        let alone = |percent: &usize| at(&unexplained, *percent).abs_diff(at(&footprint, *percent));
        let up_to = |is_explained: &dyn Fn(&usize) -> bool| (1..=99).take_while(is_explained).count();
        println!(
            "{:>16} explain it up to {} %, and the footprint alone up to {} %",
            "both",
            up_to(&|percent| difference(percent) <= DIFFERENCE_MAX_US),
            up_to(&|percent| alone(percent) <= DIFFERENCE_MAX_US)
        );
        let worst = JUDGED.max_by_key(difference).unwrap();
        if difference(&worst) > DIFFERENCE_MAX_US {
            beyond.push(way);
        }
    }
    assert!(beyond.is_empty(), "more than {DIFFERENCE_MAX_US} µs are not explained: {beyond:?}");
}

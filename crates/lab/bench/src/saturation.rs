//! Finds the saturation point (`--find-knee`): the highest rate that a target sustains, by offering
//! increasing rates.

use std::fmt::Write as _;
use std::io::Write;
use std::time::Duration;

use crate::console::Console;
use crate::engine::RunOutcome;
use crate::error::Error;
use crate::options::Options;
use crate::progress::ProgressDisplay;

/// Default time of a step: long enough for a few hundred exchanges at low rates.
const STEP: Duration = Duration::from_secs(2);

/// Offered rates, in percent of the target's rate in the closed model.
const LADDER: [u32; 9] = [10, 25, 40, 55, 70, 80, 90, 100, 110];

/// A target keeps up while it completes this share of the offered exchanges, ...
const KEEPS_UP: f64 = 0.97;

/// ... and while its p99 is at most this many times the p99 of the lowest rate, or exceeds it by no more than
/// this time.
const SLOWER_MAX: f64 = 5.0;
const SLOWER_MIN_US: u64 = 2_000;

/// One offered rate and its results.
#[derive(Debug, Clone, Copy, PartialEq)]
struct RateStep {
    offered: f64,
    achieved: f64,
    p50: u64,
    p99: u64,
    failed: u64,
}

/// Searches for the saturation point and prints each step.
pub(crate) fn find<W: Write>(options: &Options, console: &mut Console<'_, W>) -> Result<bool, Error> {
    if options.rate.is_some() || options.requests.is_some() {
        return Err(Error::Usage(
            "--find-knee chooses rates and request counts itself: remove --rate and -n; -t sets the time of a step"
                .to_owned(),
        ));
    }
    options.reject_files_and_conditions("--find-knee makes several runs")?;
    let time = Some(options.time.unwrap_or(STEP));
    let closed = Options { time, ..options.clone() };
    let limit = measured(&closed, console)?.requests_per_second();
    console.print(&format!(
        "Searching for the knee with {} connections: without a rate the target handles {limit:.0} requests per second\n\n{:>12}{:>12}{:>12}{:>12}{:>10}\n",
        options.concurrency, "offered/s", "achieved/s", "p50 us", "p99 us", "failed"
    ))?;
    let mut steps = Vec::new();
    for percent in LADDER {
        let offered = limit * f64::from(percent) / 100.0;
        let open = Options { rate: Some((offered, offered)), ..closed.clone() };
        let outcome = measured(&open, console)?;
        let total = outcome.tally.total();
        let step = RateStep {
            offered,
            achieved: achieved(&outcome),
            p50: total.percentile(50.0),
            p99: total.percentile(99.0),
            failed: outcome.tally.failed + outcome.tally.non_2xx(),
        };
        console.print(&format!(
            "{:>12.0}{:>12.0}{:>12}{:>12}{:>10}\n",
            step.offered, step.achieved, step.p50, step.p99, step.failed
        ))?;
        steps.push(step);
        if !keeps_up(&step, &steps[0]) {
            break;
        }
    }
    console.print(&verdict(&steps))?;
    Ok(true)
}

fn measured<W: Write>(options: &Options, console: &Console<'_, W>) -> Result<RunOutcome, Error> {
    let run = options.compile()?;
    let outcome = console.execute(&run, &mut ProgressDisplay::None)?;
    if let Some(reason) = &outcome.fatal {
        return Err(Error::Aborted(reason.clone()));
    }
    if outcome.interrupted {
        return Err(Error::Aborted("Interrupted: the knee was not found".to_owned()));
    }
    if outcome.tally.done == outcome.tally.failed {
        return Err(Error::Aborted(format!("{}: no request succeeded", run.url)));
    }
    Ok(outcome)
}

/// Exchanges per second during the time in which they were due. The duration of the last exchange is
/// excluded: with a slow target and a short step it would look like falling behind.
#[expect(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
fn achieved(outcome: &RunOutcome) -> f64 {
    let alone = Duration::from_micros(outcome.tally.total().min());
    let seconds = outcome.elapsed.saturating_sub(alone).as_secs_f64();
    if seconds > 0.0 { outcome.tally.done as f64 / seconds } else { 0.0 }
}

/// Returns `true` if the target keeps up with a step, compared with the lowest one.
fn keeps_up(step: &RateStep, lowest: &RateStep) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "an hour in microseconds is far below 2^53")]
    let times = step.p99 as f64 / lowest.p99.max(1) as f64;
    let slow = times > SLOWER_MAX && step.p99 > lowest.p99 + SLOWER_MIN_US;
    step.achieved >= KEEPS_UP * step.offered && !slow && step.failed == 0
}

fn verdict(steps: &[RateStep]) -> String {
    let Some(lowest) = steps.first() else { return String::new() };
    let kept = steps.iter().take_while(|step| keeps_up(step, lowest)).last();
    let lost = steps.iter().find(|step| !keeps_up(step, lowest));
    let mut text = "\n".to_owned();
    let _ = match (kept, lost) {
        (Some(kept), Some(lost)) => writeln!(
            text,
            "Knee: the target keeps up with {:.0} requests per second (p99 {} us), but not with {:.0}.",
            kept.offered, kept.p99, lost.offered
        ),
        (Some(kept), None) => {
            writeln!(
                text,
                "No knee: the target keeps up with every rate offered, up to {:.0} requests per second.",
                kept.offered
            )
        }
        (None, _) => writeln!(
            text,
            "The target does not keep up with the lowest rate offered, {:.0} requests per second: check for failures, or raise -c.",
            lowest.offered
        ),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{options, outcome};

    fn step(offered: f64, achieved: f64, p99: u64) -> RateStep {
        RateStep { offered, achieved, p50: 100, p99, failed: 0 }
    }

    #[test]
    fn the_knee_is_the_last_rate_that_keeps_up() {
        let fine = [step(100.0, 100.0, 500), step(200.0, 199.0, 900)];
        let behind = [fine[0], fine[1], step(300.0, 250.0, 950)];
        let slow = [fine[0], fine[1], step(300.0, 300.0, 4_000)];
        assert!(
            verdict(&behind).contains("keeps up with 200") && verdict(&behind).contains("but not with 300")
        );
        assert!(verdict(&slow).contains("but not with 300"));
        assert!(verdict(&fine).contains("No knee"));
        assert!(verdict(&[step(100.0, 10.0, 500)]).contains("does not keep up"));
    }

    #[test]
    fn failures_are_no_keeping_up() {
        let failing = RateStep { failed: 1, ..step(100.0, 100.0, 500) };
        assert!(!keeps_up(&failing, &step(100.0, 100.0, 500)));
    }

    #[test]
    fn a_target_keeps_up_within_the_limits_of_rate_and_time() {
        let lowest = step(100.0, 100.0, 1_000);
        for (step, expected) in [
            (step(1_000.0, 970.0, 1_000), true),
            (step(1_000.0, 969.0, 1_000), false),
            // Five times the lowest p99 is accepted, and so is an increase of 2 ms.
            (step(1_000.0, 1_000.0, 5_000), true),
            (step(1_000.0, 1_000.0, 5_001), false),
        ] {
            assert_eq!(keeps_up(&step, &lowest), expected, "{step:?}");
        }
        let fast = RateStep { p99: 100, ..lowest };
        assert!(
            keeps_up(&RateStep { p99: 2_100, ..fast }, &fast)
                && !keeps_up(&RateStep { p99: 2_101, ..fast }, &fast)
        );
    }

    #[test]
    fn the_last_exchange_does_not_count_as_falling_behind() {
        // Ten exchanges due in a second, the last one ends 200 ms later.
        let mut outcome = outcome([200_000; 10]);
        outcome.elapsed = Duration::from_millis(1_200);
        assert!((achieved(&outcome) - 10.0).abs() < 1e-9);
        outcome.elapsed = Duration::ZERO;
        assert!(achieved(&outcome).abs() < f64::EPSILON);
    }

    #[test]
    fn options_of_a_single_run_are_rejected() {
        let interrupted = std::sync::atomic::AtomicBool::new(false);
        let mut out = Vec::new();
        let mut reject = |change: fn(&mut Options)| {
            let mut console = Console { out: &mut out, interrupted: &interrupted };
            let error = find(&options("http://127.0.0.1:9/", change), &mut console).unwrap_err();
            assert!(error.is_misuse(), "{error}");
            error.to_string()
        };
        assert!(reject(|it| it.requests = Some(1)).contains("remove --rate and -n"));
        assert!(reject(|it| it.rate = Some((1.0, 1.0))).contains("remove --rate and -n"));
        assert!(reject(|it| it.csv = Some("a.csv".into())).contains("remove --fail-if, -e, -g"));
    }
}

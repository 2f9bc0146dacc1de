//! Compares two URLs in short alternating windows and gives a verdict. A machine whose speed drifts affects
//! both alike.

use std::fmt::Write as _;
use std::io::Write;
use std::time::Duration;

use egret_measure::statistics::{Estimate, ratio};
use egret_measure::streams::say;

use crate::compile::Compiled;
use crate::console::{Console, warn_of_non_2xx};
use crate::engine::RunOutcome;
use crate::error::Error;
use crate::options::Options;
use crate::progress::ProgressDisplay;

/// Maximum number of pairs of windows: enough for a firm verdict, few enough to wait for.
const ROUNDS_MAX: u32 = 20;

/// Shortest window. Shorter ones mostly measure pauses of the machine.
const WINDOW_MIN: Duration = Duration::from_millis(200);
/// Number of windows without a single response after which a target is given up.
const EMPTY_WINDOWS_MAX: u32 = 10;

/// Minimum number of pairs of windows.
const ROUNDS_MIN: u32 = 5;

/// Default total time of all windows.
const TIME: Duration = Duration::from_secs(20);

/// A window's warm-up is one in this many parts of it: connections are made and caches filled.
const WARMUP_SHARE: u32 = 10;

/// A figure of a window.
type Metric = fn(&RunOutcome) -> f64;

/// The metrics compared.
const METRICS: [(&str, Metric); 3] = [
    ("requests per second", RunOutcome::requests_per_second),
    ("p50", |outcome| time_us(outcome, 50.0)),
    ("p99", |outcome| time_us(outcome, 99.0)),
];

/// Measures two URLs in turn and reports which is faster, by how much, and with what confidence.
pub(crate) fn compare<W: Write>(
    options: &Options,
    other: &str,
    console: &mut Console<'_, W>,
) -> Result<bool, Error> {
    if options.targets().len() != 1 || options.har.is_some() {
        return Err(Error::Usage(
            "--vs compares two URLs: give one target, and the other URL with --vs".to_owned(),
        ));
    }
    options.reject_files_and_conditions("--vs compares several runs")?;
    let time = options.time.unwrap_or(TIME);
    let rounds = rounds_in(time)?;
    let first = windowed(options, time / (2 * rounds));
    let second = Options { url: Some(other.to_owned()), targets: Vec::new(), ..first.clone() };
    let runs = [first.compile()?, second.compile()?];
    let names = ["A", "B"].into_iter().zip(&runs).map(|(name, run)| format!("{name} = {}\n", run.url));
    let (seconds, names) = (time.as_secs_f64(), names.collect::<String>());
    console.print(&format!("Comparing in {rounds} rounds, {seconds} s in total\n{names}\n"))?;
    let mut outcomes = [Vec::new(), Vec::new()];
    for round in 0..rounds as usize {
        // A B, then B A, so after-effects of the first window in a pair do not always affect the same target.
        for side in [round % 2, 1 - round % 2] {
            outcomes[side].push(measured_window(&runs[side], console)?);
        }
        if !options.quiet {
            say(format_args!("Compared {} of {rounds}", round + 1));
        }
    }
    console.print(&verdict(&outcomes))?;
    for (name, outcomes) in ["A", "B"].into_iter().zip(&outcomes) {
        let sum = |count: fn(&RunOutcome) -> u64| outcomes.iter().map(count).sum();
        let [non_2xx, done] = [sum(|outcome| outcome.tally.non_2xx()), sum(|outcome| outcome.tally.done)];
        warn_of_non_2xx(&format!("{name}: "), non_2xx, done);
    }
    Ok(true)
}

/// Number of pairs of windows that fit into `time`.
fn rounds_in(time: Duration) -> Result<u32, Error> {
    let pairs = time.as_millis() / (2 * WINDOW_MIN).as_millis();
    match u32::try_from(pairs).unwrap_or(u32::MAX).min(ROUNDS_MAX) {
        rounds if rounds < ROUNDS_MIN => {
            let least = (2 * WINDOW_MIN * ROUNDS_MIN).as_secs_f64();
            Err(Error::Usage(format!("--vs alternates between the URLs: set -t to at least {least} seconds")))
        }
        rounds => Ok(rounds),
    }
}

/// The options for one window.
fn windowed(options: &Options, window: Duration) -> Options {
    let warmup = window / WARMUP_SHARE;
    Options { requests: None, time: Some(window.saturating_sub(warmup)), warmup, ..options.clone() }
}

/// Measures a window in which a request ended. A busy machine may leave some without.
fn measured_window<W: Write>(run: &Compiled, console: &Console<'_, W>) -> Result<RunOutcome, Error> {
    for _ in 1..EMPTY_WINDOWS_MAX {
        let outcome = console.execute(run, &mut ProgressDisplay::None)?;
        if outcome.tally.done > 0 || outcome.fatal.is_some() || outcome.interrupted {
            return checked(run, outcome);
        }
    }
    checked(run, console.execute(run, &mut ProgressDisplay::None)?)
}

fn checked(run: &Compiled, outcome: RunOutcome) -> Result<RunOutcome, Error> {
    if let Some(reason) = &outcome.fatal {
        return Err(Error::Aborted(format!("{}: {reason}", run.url)));
    }
    if outcome.interrupted {
        return Err(Error::Aborted("Interrupted: no verdict".to_owned()));
    }
    if outcome.tally.done == outcome.tally.failed {
        return Err(Error::Aborted(format!(
            "{}: no request succeeded within {:.2} s; give it more time with -t",
            run.url,
            outcome.elapsed.as_secs_f64()
        )));
    }
    Ok(outcome)
}

fn time_us(outcome: &RunOutcome, percent: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "an hour in microseconds is far below 2^53")]
    let us = outcome.tally.total().percentile(percent) as f64;
    us.max(1.0)
}

fn verdict([a, b]: &[Vec<RunOutcome>; 2]) -> String {
    let mut text = format!("{:<22}{:>12}{:>12}{:>10}\n", "", "A", "B", "B : A");
    let mut verdicts = String::new();
    for (name, metric) in METRICS {
        let [of_a, of_b] = [a, b].map(|outcomes| outcomes.iter().map(metric).collect::<Vec<f64>>());
        let [middle_a, middle_b] =
            [&of_a, &of_b].map(|values| egret_measure::statistics::median(values).unwrap_or(0.0));
        let Some(ratio) = ratio(&of_b, &of_a) else { continue };
        let unit = if name.starts_with('p') { "us" } else { "" };
        let _ = writeln!(
            text,
            "{:<22}{middle_a:>12.0}{middle_b:>12.0}{:>10.3}  ({:.3} to {:.3})",
            format!("{name} {unit}"),
            ratio.value,
            ratio.low,
            ratio.high
        );
        let _ = writeln!(verdicts, "{}", in_words(name, ratio));
    }
    for (name, outcomes) in [("A", a), ("B", b)] {
        let sum = |count: fn(&RunOutcome) -> u64| outcomes.iter().map(count).sum::<u64>();
        let failed = sum(|outcome| outcome.tally.failed + outcome.tally.non_2xx());
        if failed > 0 {
            let done = sum(|outcome| outcome.tally.done);
            let _ = writeln!(
                verdicts,
                "Caution: of {done} requests to {name}, {failed} failed or returned no 2xx."
            );
        }
    }
    if a.iter().chain(b).filter(|outcome| outcome.saturated).count() > a.len() / 2 {
        verdicts += "Caution: the load client was the bottleneck, which makes different targets look alike: use --threads.\n";
    }
    format!("{text}\n{verdicts}")
}

/// Puts a ratio of B to A into words.
fn in_words(name: &str, ratio: Estimate) -> String {
    let percent = |factor: f64| (factor - 1.0).abs() * 100.0;
    let confidence = ratio.confidence * 100.0;
    if !ratio.excludes(1.0) {
        let margin = percent(ratio.low).max(percent(ratio.high));
        return format!(
            "{name}: no significant difference; any difference is below {margin:.1} % ({confidence:.0} % confidence)"
        );
    }
    // More requests are better, longer times are worse.
    let more_is_better = !name.starts_with('p');
    let (side, word) = match (ratio.value > 1.0, more_is_better) {
        (true, true) => ("B", "higher"),
        (false, true) => ("B", "lower"),
        (true, false) => ("B", "slower"),
        (false, false) => ("B", "faster"),
    };
    let range = [percent(ratio.low), percent(ratio.high)];
    format!(
        "{name}: {side} is {:.1} % {word} than A ({:.1} to {:.1} %, {confidence:.0} % confidence)",
        percent(ratio.value),
        range[0].min(range[1]),
        range[0].max(range[1])
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{options, outcome};

    fn estimate(low: f64, value: f64, high: f64) -> Estimate {
        Estimate { value, low, high, confidence: 0.95 }
    }

    #[test]
    fn there_are_as_many_rounds_as_there_is_time_for() {
        for (seconds, rounds) in [(2, 5), (4, 10), (8, 20), (60, 20)] {
            assert_eq!(rounds_in(Duration::from_secs(seconds)).unwrap(), rounds);
        }
        assert!(rounds_in(Duration::from_secs(1)).unwrap_err().is_misuse());
    }

    #[test]
    fn a_ratio_in_words_says_which_way_and_how_surely() {
        for (name, ratio, words) in [
            (
                "requests per second",
                estimate(1.1, 1.2, 1.3),
                "B is 20.0 % higher than A (10.0 to 30.0 %, 95 % confidence)",
            ),
            ("p50", estimate(0.7, 0.8, 0.9), "B is 20.0 % faster than A (10.0 to 30.0 %, 95 % confidence)"),
            ("p99", estimate(1.5, 2.0, 2.5), "B is 100.0 % slower than A (50.0 to 150.0 %, 95 % confidence)"),
            (
                "p99",
                estimate(0.98, 1.0, 1.03),
                "no significant difference; any difference is below 3.0 % (95 % confidence)",
            ),
        ] {
            assert_eq!(in_words(name, ratio), format!("{name}: {words}"));
        }
    }

    #[test]
    fn the_verdict_pairs_the_windows_and_gives_ratios_with_bounds() {
        // B takes twice as long as A in each of five windows, though the machine slows down.
        let window = |factor: u64, round: u64| outcome(vec![factor * (1_000 + 100 * round); 100]);
        let side = |factor| (0..5).map(|round| window(factor, round)).collect::<Vec<_>>();
        let text = verdict(&[side(1), side(2)]);
        assert!(
            text.contains("p50 us                        1200        2400     2.000  (2.000 to 2.000)\n"),
            "{text}"
        );
        assert!(
            text.contains("p99: B is 100.0 % slower than A (100.0 to 100.0 %, 94 % confidence)\n"),
            "{text}"
        );
        let rates = "requests per second: no significant difference; any difference is below 0.0 % (94 % confidence)\n";
        assert!(text.contains(rates), "{text}");
        assert!(!text.contains("Caution"), "{text}");
    }

    #[test]
    fn failures_and_a_busy_client_qualify_the_verdict() {
        let [mut a, b] = [[outcome([1_000; 10])], [outcome([1_000; 10])]].map(Vec::from);
        a[0].tally.failed = 3;
        a[0].saturated = true;
        let text = verdict(&[a, b]);
        assert!(text.contains("Caution: of 10 requests to A, 3 failed or returned no 2xx.\n"), "{text}");
        assert!(text.contains("Caution: the load client was the bottleneck"), "{text}");
        assert!(!text.contains("requests to B"), "{text}");
    }

    #[test]
    fn a_window_consists_of_warm_up_and_measurement() {
        let run = options("http://127.0.0.1:9/", |it| it.requests = Some(5));
        let windowed = windowed(&run, Duration::from_secs(1));
        assert_eq!(windowed.requests, None);
        assert_eq!(
            (windowed.warmup, windowed.time),
            (Duration::from_millis(100), Some(Duration::from_millis(900)))
        );
    }
}

//! Progress of a run: a bar on a terminal, ab's lines elsewhere.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use egret_measure::live::LiveLine;
use egret_measure::streams::{Stderr, say};

use crate::engine::Progress;
use crate::plan::Plan;
use crate::report::Style;

/// Like ab, a run of at most this many requests reports no progress.
const QUIET_UP_TO: u64 = 150;

/// ab's smallest step between two lines.
const STEP_MIN: u64 = 100;

/// Maximum width of the bar, in columns.
const BAR_COLUMNS_MAX: usize = 40;

/// Reports the progress of a run on standard error.
#[derive(Debug)]
pub(crate) enum ProgressDisplay {
    /// No progress is shown.
    None,
    /// A moving bar.
    Bar(Bar),
    /// A line after every `step` exchanges, as ab prints them.
    Lines {
        /// Number of exchanges between two lines.
        step: u64,
        /// Number of exchanges at which the next line is due.
        next: u64,
    },
}

/// A bar that fills up during a run.
#[derive(Debug)]
pub(crate) struct Bar {
    line: LiveLine,
    /// Duration of the run, if it has a fixed one.
    duration: Option<Duration>,
    /// Number of exchanges of the run, if it has a fixed one.
    count: Option<u64>,
}

impl ProgressDisplay {
    /// Chooses the form of progress for a run.
    pub fn of(plan: &Plan, style: &Style) -> Self {
        let short = plan.duration.is_none() && plan.count.is_some_and(|count| count <= QUIET_UP_TO);
        if style.quiet || short {
            return Self::None;
        }
        if stderr().is_terminal() {
            return Self::Bar(Bar { line: LiveLine::default(), duration: plan.duration, count: plan.count });
        }
        let step = plan.count.map_or(50_000, |count| count / 10).max(STEP_MIN);
        Self::Lines { step, next: step }
    }

    /// Returns `true` if progress is shown.
    pub fn is_shown(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// Shows the progress.
    pub fn show(&mut self, progress: Progress) {
        match self {
            Self::None => {}
            Self::Bar(Bar { line, duration, count }) => {
                line.show(&mut Stderr, |columns| progress_text(progress, *duration, *count, columns));
            }
            Self::Lines { step, next } => {
                while progress.done >= *next {
                    say(format_args!("Completed {next} requests"));
                    *next += *step;
                }
            }
        }
    }

    /// Ends the progress, with the total number of exchanges.
    pub fn finish(&mut self, done: u64) {
        match self {
            Self::None => {}
            Self::Bar(bar) => bar.line.clear(&mut Stderr),
            Self::Lines { .. } => {
                self.show(Progress { done, elapsed: Duration::ZERO });
                say(format_args!("Finished {done} requests"));
            }
        }
    }
}

/// The bar and the text beside it.
#[expect(clippy::cast_precision_loss, reason = "a bar has forty steps")]
fn progress_text(
    progress: Progress,
    duration: Option<Duration>,
    count: Option<u64>,
    columns: usize,
) -> String {
    let Progress { done, elapsed } = progress;
    let (elapsed_s, done_share) = (elapsed.as_secs_f64(), |count: u64| done as f64 / count.max(1) as f64);
    let (share, text) = match (duration.map(|duration| duration.as_secs_f64()), count) {
        (Some(whole_s), _) => {
            (elapsed_s / whole_s, format!("{elapsed_s:.1} of {whole_s} s, {done} requests"))
        }
        (None, Some(count)) if done > 0 => {
            let left_s = elapsed_s / done_share(count) - elapsed_s;
            (done_share(count), format!("{done} of {count} requests, {left_s:.1} s left"))
        }
        (None, count) => {
            (0.0, count.map_or(format!("{done} requests"), |count| format!("{done} of {count} requests")))
        }
    };
    let width = columns.saturating_sub(text.chars().count() + 1).min(BAR_COLUMNS_MAX);
    let full = (0..width).filter(|column| (*column as f64 + 0.5) / width as f64 <= share).count();
    format!("{}{} {text}", "█".repeat(full), "░".repeat(width - full))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_run_for_a_time_tells_the_time_and_one_of_requests_what_is_left() {
        let progress = Progress { done: 100, elapsed: SECOND };
        let timed = progress_text(progress, Some(4 * SECOND), None, 80);
        assert_eq!(timed, format!("{}{} 1.0 of 4 s, 100 requests", "█".repeat(10), "░".repeat(30)));
        let counted = progress_text(progress, None, Some(200), 80);
        assert_eq!(counted, format!("{}{} 100 of 200 requests, 1.0 s left", "█".repeat(20), "░".repeat(20)));
    }

    #[test]
    fn a_bar_is_never_longer_than_its_room_and_never_fuller_than_full() {
        let progress = Progress { done: 300, elapsed: 9 * SECOND };
        for columns in [0, 10, 30, 40, 79, 300] {
            let progress_text = progress_text(progress, Some(4 * SECOND), None, columns);
            let bar = progress_text.chars().filter(|letter| "█░".contains(*letter)).count();
            assert!(
                bar <= BAR_COLUMNS_MAX && (bar == 0 || progress_text.chars().count() <= columns),
                "{progress_text}"
            );
            assert!(!progress_text.contains('░'), "{progress_text}");
        }
        let start = Progress { done: 0, elapsed: Duration::ZERO };
        assert!(progress_text(start, None, Some(200), 60).ends_with("░ 0 of 200 requests"));
    }
}

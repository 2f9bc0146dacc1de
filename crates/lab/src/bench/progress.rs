//! News while a run is on: a bar for people, ab's lines for everything else.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::engine::Progress;
use super::plan::Plan;
use super::report::Style;

/// ab says nothing of runs that are shorter.
const QUIET_UP_TO: u64 = 150;

/// ab's shortest step between two lines.
const STEP_MIN: u64 = 100;

/// Tells how far a run is, on standard error.
#[derive(Debug)]
pub enum News {
    /// Nothing is told.
    None,
    /// A bar that moves.
    Bar {
        /// The bar.
        bar: ProgressBar,
        /// How long the run takes, where that is what ends it.
        duration: Option<Duration>,
    },
    /// A line every so many exchanges, as ab prints them.
    Lines {
        /// So many.
        step: u64,
        /// The next that is told of.
        next: u64,
    },
}

impl News {
    /// For a run.
    pub fn of(plan: &Plan, style: &Style) -> Self {
        let short = plan.duration.is_none() && plan.count.is_some_and(|count| count <= QUIET_UP_TO);
        if style.quiet || short {
            return Self::None;
        }
        if stderr().is_terminal() {
            return Self::bar(plan.count, plan.duration);
        }
        let step = plan.count.map_or(50_000, |count| count / 10).max(STEP_MIN);
        Self::Lines { step, next: step }
    }

    fn bar(count: Option<u64>, duration: Option<Duration>) -> Self {
        let (length, template) = match (count, duration) {
            (_, Some(duration)) => (millis(duration), "{bar:40} {elapsed} of {msg}"),
            (Some(count), None) => (count, "{bar:40} {human_pos} of {human_len}, {eta} left {msg}"),
            (None, None) => (0, "{human_pos} {msg}"),
        };
        let bar = ProgressBar::new(length);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self::Bar { bar, duration }
    }

    /// Whether anything is told.
    pub fn beats(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// Tells how far it is.
    pub fn tell(&mut self, progress: Progress) {
        match self {
            Self::None => {}
            Self::Bar { bar, duration: None } => bar.set_position(progress.done),
            Self::Bar { bar, duration: Some(duration) } => {
                bar.set_position(millis(progress.elapsed));
                bar.set_message(format!("{} s, {} requests", duration.as_secs_f64(), progress.done));
            }
            Self::Lines { step, next } => {
                while progress.done >= *next {
                    eprintln!("Completed {next} requests");
                    *next += *step;
                }
            }
        }
    }

    /// Ends it, with the number of exchanges that were made.
    pub fn finish(&mut self, done: u64) {
        self.tell(Progress { done, elapsed: Duration::ZERO });
        match self {
            Self::None => {}
            Self::Bar { bar, .. } => bar.finish_and_clear(),
            Self::Lines { .. } => eprintln!("Finished {done} requests"),
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

//! Progress of a run: a picture or a bar on a terminal, ab's lines elsewhere.

use std::io::{IsTerminal, stderr, stdout};

use egret_measure::live::LiveLine;
use egret_measure::streams::{Stderr, say};

use crate::engine::Progress;
use crate::live_view::LiveView;
use crate::options::Options;
use crate::plan::Plan;
use crate::progress_text::{Extent, progress_text};

/// Like ab, a run of at most this many requests reports no progress.
const QUIET_UP_TO: u64 = 150;

/// ab's smallest step between two lines.
const STEP_MIN: u64 = 100;

/// Reports the progress of a run, on standard error unless it is a picture.
#[derive(Debug)]
pub(crate) enum ProgressDisplay {
    /// No progress is shown.
    None,
    /// A picture of the run, on standard output.
    View(Box<LiveView>),
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
    extent: Extent,
}

impl ProgressDisplay {
    /// Chooses the form of progress for a run.
    pub fn of(plan: &Plan, options: &Options) -> Self {
        let short = plan.duration.is_none() && plan.count.is_some_and(|count| count <= QUIET_UP_TO);
        if options.quiet || short {
            return Self::None;
        }
        if options.is_for_readers() && plan.verbosity < 2 && stdout().is_terminal() && !is_dumb() {
            return Self::View(Box::new(LiveView::new(plan.into())));
        }
        if stderr().is_terminal() {
            return Self::Bar(Bar { line: LiveLine::default(), extent: plan.into() });
        }
        let step = plan.count.map_or(50_000, |count| count / 10).max(STEP_MIN);
        Self::Lines { step, next: step }
    }

    /// Returns `true` if progress is shown.
    pub fn is_shown(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// Shows the progress.
    pub fn show(&mut self, progress: Progress<'_>) {
        match self {
            Self::None => {}
            Self::View(view) => view.show(progress),
            Self::Bar(Bar { line, extent }) => {
                let text = |columns| progress_text(progress.done, progress.elapsed, *extent, columns);
                line.show(&mut Stderr, text);
            }
            Self::Lines { step, next } => say_completed(*step, next, progress.done),
        }
    }

    /// Ends the progress, with the total number of exchanges.
    pub fn finish(&mut self, done: u64) {
        match self {
            Self::None => {}
            Self::Bar(bar) => bar.line.clear(&mut Stderr),
            Self::View(view) => view.clear(),
            Self::Lines { step, next } => {
                say_completed(*step, next, done);
                say(format_args!("Finished {done} requests"));
            }
        }
    }
}

fn say_completed(step: u64, next: &mut u64, done: u64) {
    while done >= *next {
        say(format_args!("Completed {next} requests"));
        *next += step;
    }
}

/// Returns `true` if the terminal cannot move its cursor.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|name| name.is_empty() || name == "dumb")
}

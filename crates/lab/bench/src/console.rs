//! The outputs of a run: its reports, its progress, and warnings about doubtful results.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use egret_json::printable::printable;
use egret_measure::streams::say;

use crate::compile::Compiled;
use crate::engine::{Directive, RunOutcome, execute};
use crate::error::Error;
use crate::progress::ProgressDisplay;

/// One in this many responses that are not 2xx makes a result suspicious.
const SUSPICIOUS_SHARE: u64 = 10;

/// The outputs and the interrupt flag of a run.
#[derive(Debug)]
pub struct Console<'a, W: Write> {
    /// Destination of reports.
    pub out: &'a mut W,
    /// Set by another thread to end the run early. The report then covers the requests so far.
    pub interrupted: &'a AtomicBool,
}

impl<W: Write> Console<'_, W> {
    pub(crate) fn print(&mut self, text: &str) -> Result<(), Error> {
        let printed = self.out.write_all(printable(text).as_bytes()).and_then(|()| self.out.flush());
        printed.map_err(|error| Error::Write("standard output".into(), error))
    }

    /// Runs a plan and shows its progress.
    pub(crate) fn execute(&self, run: &Compiled, display: &mut ProgressDisplay) -> Result<RunOutcome, Error> {
        let outcome = execute(&run.plan, &mut |progress| {
            display.show(progress);
            if self.interrupted.load(Relaxed) { Directive::Stop } else { Directive::Continue }
        });
        outcome.map_err(Error::System)
    }
}

/// Warns about responses that are not 2xx: error pages are cheap to produce, so their times say little about
/// the target. `of` names the target if there are several.
pub(crate) fn warn_of_non_2xx(of: &str, non_2xx: u64, done: u64) {
    if non_2xx * SUSPICIOUS_SHARE > done {
        say(format_args!(
            "WARNING: {of}{non_2xx} of {done} responses are not 2xx. Check the status codes: error pages are cheap to \
             produce, so their times say little about the target."
        ));
    }
}

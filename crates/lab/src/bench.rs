//! A load client with ab's options and reports, plus features that ab lacks.
//!
//! [`Options`] describe the run and compile to a [`plan`]. The [`engine`] runs the plan on its own threads,
//! and a `report` presents the results. The HTTP client shares no code with other crates except the parser,
//! `egret-http1`; the rest is an event loop.

mod check;
mod connection;
mod cpu;
pub mod engine;
mod error;
mod guard;
mod knee;
mod options;
mod output;
pub mod pace;
pub mod plan;
mod progress;
mod report;
mod request;
pub mod tally;
mod threshold;
mod timer;
mod tls;
mod transport;
mod url;
mod versus;
mod worker;

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::SystemTime;

use engine::{Outcome, Wish, execute};
use output::Output;
use progress::News;

use crate::streams::say;

pub use error::Error;
pub use options::{BodySource, Compiled, Options, Target};
pub use report::summary::{Summary, schema};
pub use report::{Attributes, Report, Style};
pub use threshold::{Threshold, ThresholdError};
pub use tls::TlsOptions;

/// One in this many responses that are not 2xx makes a result suspicious.
const SUSPICIOUS_SHARE: u64 = 10;

/// The outputs and conditions requested for a run.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Presentation of the report.
    pub style: Style,
    /// ab's `-e`.
    pub csv: Option<PathBuf>,
    /// ab's `-g`.
    pub tsv: Option<PathBuf>,
    /// File for the result as JSON.
    pub json: Option<PathBuf>,
    /// File for the histograms.
    pub hdr: Option<PathBuf>,
    /// Conditions under which the run counts as failed.
    pub fail_if: Vec<Threshold>,
    /// The kind of measurement.
    pub mode: Mode,
}

impl Wanted {
    /// Rejects options that describe a single run, for modes that consist of several. Ignoring them silently
    /// would mislead.
    fn refuse_files_and_conditions(&self, why: &str) -> Result<(), Error> {
        let files = [&self.csv, &self.tsv, &self.json, &self.hdr];
        if self.fail_if.is_empty() && files.iter().all(|file| file.is_none()) {
            return Ok(());
        }
        Err(Error::Usage(format!("{why}: remove --fail-if, -e, -g, --json and --hdr")))
    }
}

/// A kind of measurement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Mode {
    /// One run.
    #[default]
    Once,
    /// Search for the highest rate at which the target keeps up.
    Knee,
    /// Comparison of the target with another URL.
    Versus(String),
}

/// The outputs and the interrupt flag of a run.
#[derive(Debug)]
pub struct Console<'a, W: Write> {
    /// Destination of reports.
    pub out: &'a mut W,
    /// Set by another thread to end the run early. The report then covers the requests so far.
    pub interrupted: &'a AtomicBool,
}

/// Measures as requested, and reports. Returns `true` if the result is acceptable.
pub fn run<W: Write>(
    options: &Options,
    wanted: &Wanted,
    console: &mut Console<'_, W>,
) -> Result<bool, Error> {
    match &wanted.mode {
        Mode::Once => once(options, wanted, console),
        Mode::Knee => knee::find(options, wanted, console),
        Mode::Versus(url) => versus::compare(options, url, wanted, console),
    }
}

fn once<W: Write>(options: &Options, wanted: &Wanted, console: &mut Console<'_, W>) -> Result<bool, Error> {
    let run = options.compile()?;
    let files = Files::create(wanted)?;
    let mut news = News::of(&run.plan, &wanted.style);
    console.print(&Report::banner(&wanted.style))?;
    console.print(&Report::opening(&run, &wanted.style, news.beats()))?;
    if run.plan.verbosity >= 2 {
        console.print(&shown_request(&run))?;
    }
    let started = SystemTime::now() + run.plan.warmup;
    let outcome = console.execute(&run, &mut news)?;
    news.finish(outcome.tally.done);
    if !news.beats() {
        console.print("..done\n")?;
    }
    let report = Report { run: &run, outcome: &outcome, style: &wanted.style };
    if outcome.tally.failed < outcome.tally.done || outcome.fatal.is_none() {
        console.print(&report.render())?;
    }
    if let Some(reason) = &outcome.fatal {
        return Err(Error::GivenUp(format!("Test aborted, no files written: {reason}")));
    }
    if outcome.interrupted {
        return Err(Error::GivenUp(
            "Interrupted: the report covers the requests so far; no files written".to_owned(),
        ));
    }
    warn(&outcome);
    files.finish(&report, started)?;
    let broken: Vec<_> =
        wanted.fail_if.iter().filter_map(|threshold| threshold.broken_by(&outcome)).collect();
    for threshold in &broken {
        say(format_args!("Threshold broken: {threshold}"));
    }
    Ok(broken.is_empty() && (outcome.tally.failed < outcome.tally.done || wanted.style.ab_compat))
}

impl<W: Write> Console<'_, W> {
    fn print(&mut self, text: &str) -> Result<(), Error> {
        let printed = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
        printed.map_err(|error| Error::Write("standard output".into(), error))
    }

    /// Runs a plan and shows its progress.
    fn execute(&self, run: &Compiled, news: &mut News) -> Result<Outcome, Error> {
        let outcome = execute(&run.plan, &mut |progress| {
            news.tell(progress);
            if self.interrupted.load(Relaxed) { Wish::Stop } else { Wish::GoOn }
        });
        outcome.map_err(Error::System)
    }
}

/// Warns about everything that makes a result doubtful.
fn warn(outcome: &Outcome) {
    let tally = &outcome.tally;
    warn_of_non_2xx("", tally.non_2xx(), tally.done);
    if outcome.saturated {
        say(format_args!(
            "WARNING: the load client was the bottleneck: its busiest thread computed {:.0} % of the time and had no time \
             to spare. The target may be faster than shown, and the times include waiting for the client. Use \
             --threads, another machine, or a lower --rate.",
            outcome.cpu_share * 100.0
        ));
    }
    if tally.failed == tally.done && tally.done > 0 {
        say("WARNING: every request failed.");
    }
}

/// Warns about responses that are not 2xx: error pages are cheap to produce, so their times say little about
/// the target. `of` names the target if there are several.
fn warn_of_non_2xx(of: &str, non_2xx: u64, done: u64) {
    if non_2xx * SUSPICIOUS_SHARE > done {
        say(format_args!(
            "WARNING: {of}{non_2xx} of {done} responses are not 2xx. Check the status codes: error pages are cheap to \
             produce, so their times say little about the target."
        ));
    }
}

/// The head of the first request, as ab's `-v 2` shows it.
fn shown_request(run: &Compiled) -> String {
    let bytes = run.plan.requests.first().map(|request| request.bytes.as_slice()).unwrap_or_default();
    let end = memchr::memmem::find(bytes, b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
    let head = String::from_utf8_lossy(&bytes[..end]);
    let method = head.split(' ').next().unwrap_or_default();
    format!("INFO: {method} header == \n---\n{head}\n---\n")
}

/// The output files of a run, opened before it starts.
struct Files {
    csv: Option<Output>,
    tsv: Option<Output>,
    json: Option<Output>,
    hdr: Option<Output>,
}

impl Files {
    fn create(wanted: &Wanted) -> Result<Self, Error> {
        let create = |path: &Option<PathBuf>| path.as_deref().map(Output::create).transpose();
        Ok(Self {
            csv: create(&wanted.csv)?,
            tsv: create(&wanted.tsv)?,
            json: create(&wanted.json)?,
            hdr: create(&wanted.hdr)?,
        })
    }

    fn finish(self, report: &Report<'_>, started: SystemTime) -> Result<(), Error> {
        let write = |output: Option<Output>, content: &dyn Fn() -> String| match output {
            Some(output) => output.finish(content().as_bytes()),
            None => Ok(()),
        };
        write(self.csv, &|| report.csv())?;
        write(self.tsv, &|| report.tsv(started))?;
        write(self.json, &|| report.json(started))?;
        write(self.hdr, &|| report.hdr(started))
    }
}

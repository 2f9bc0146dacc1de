//! A measurement that consists of one run.

use std::io::Write;
use std::path::PathBuf;
use std::time::SystemTime;

use egret_measure::streams::say;

use crate::compile::Compiled;
use crate::console::{Console, warn_of_non_2xx};
use crate::engine::RunOutcome;
use crate::error::Error;
use crate::options::Options;
use crate::output::Output;
use crate::progress::ProgressDisplay;
use crate::report::{RunReport, Style};

/// Runs once, and reports. Returns `true` if the result is acceptable.
pub(crate) fn measure<W: Write>(options: &Options, console: &mut Console<'_, W>) -> Result<bool, Error> {
    let run = options.compile()?;
    let (files, style) = (OutputFiles::create(options)?, Style::from(options));
    let mut display = ProgressDisplay::of(&run.plan, options);
    console.print(&RunReport::banner(&style))?;
    console.print(&RunReport::opening(&run, &style, display.is_shown()))?;
    if run.plan.verbosity >= 2 {
        console.print(&shown_request(&run))?;
    }
    let started = SystemTime::now() + run.plan.warmup;
    let outcome = console.execute(&run, &mut display)?;
    display.finish(outcome.tally.done);
    if !display.is_shown() {
        console.print("..done\n")?;
    }
    let report = RunReport { run: &run, outcome: &outcome, style: &style };
    if outcome.tally.failed < outcome.tally.done || outcome.fatal.is_none() {
        console.print(&report.render())?;
    }
    if let Some(reason) = &outcome.fatal {
        return Err(Error::Aborted(format!("Test aborted, no files written: {reason}")));
    }
    if outcome.interrupted {
        return Err(Error::Aborted(
            "Interrupted: the report covers the requests so far; no files written".to_owned(),
        ));
    }
    warn(&outcome);
    files.finish(&report, started)?;
    let broken: Vec<_> =
        options.fail_if.iter().filter_map(|threshold| threshold.broken_by(&outcome)).collect();
    for threshold in &broken {
        say(format_args!("Threshold broken: {threshold}"));
    }
    Ok(broken.is_empty() && (outcome.tally.failed < outcome.tally.done || options.ab_compat))
}

/// Warns about everything that makes a result doubtful.
fn warn(outcome: &RunOutcome) {
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

/// The head of the first request, as ab's `-v 2` shows it.
fn shown_request(run: &Compiled) -> String {
    let bytes = run.plan.requests.first().map(|request| request.bytes.as_slice()).unwrap_or_default();
    let end = memchr::memmem::find(bytes, b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
    let head = String::from_utf8_lossy(&bytes[..end]);
    let method = head.split(' ').next().unwrap_or_default();
    format!("INFO: {method} header == \n---\n{head}\n---\n")
}

/// The output files of a run, opened before it starts.
struct OutputFiles {
    csv: Option<Output>,
    tsv: Option<Output>,
    json: Option<Output>,
    hdr: Option<Output>,
}

impl OutputFiles {
    fn create(options: &Options) -> Result<Self, Error> {
        let create = |path: &Option<PathBuf>| path.as_deref().map(Output::create).transpose();
        Ok(Self {
            csv: create(&options.csv)?,
            tsv: create(&options.tsv)?,
            json: create(&options.json)?,
            hdr: create(&options.hdr)?,
        })
    }

    fn finish(self, report: &RunReport<'_>, started: SystemTime) -> Result<(), Error> {
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

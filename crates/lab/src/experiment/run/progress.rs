//! Progress messages of a run: a line for each turn, and the remaining time.

use std::io::Write;
use std::time::{Duration, Instant};

use super::super::clock::span;
use super::super::results::{Results, Turn};
use super::turn::Setup;
use crate::live::LiveLine;

/// Interval between updates of the live line.
const UPDATE_EVERY: Duration = Duration::from_millis(500);

/// Reports the progress of a run.
pub struct Progress<'a> {
    told: &'a mut dyn Write,
    /// The live line, if the output is a terminal.
    line: Option<LiveLine>,
    started: Instant,
    /// Number of completed turns, including those of an earlier run.
    done: usize,
    taken: usize,
    left: usize,
    total: usize,
    estimate: Option<Duration>,
    under_way: String,
    updated: Instant,
    names: usize,
}

impl<'a> Progress<'a> {
    /// Prints the introduction of a run.
    pub fn start(
        told: &'a mut dyn Write,
        live: bool,
        results: &Results,
        left: usize,
        estimate: Option<Duration>,
    ) -> Self {
        let metadata = &results.metadata;
        let experiment = &metadata.experiment;
        let names = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let rounds = usize::try_from(experiment.rounds).unwrap_or(usize::MAX);
        let about = estimate.map(|time| format!(", about {}", span(time))).unwrap_or_default();
        let _ = writeln!(
            told,
            "{}\n{}, {}, {}: {}{about}. Results: {}",
            experiment.title,
            names(experiment.cases.len(), "case"),
            names(experiment.scenarios.len(), "scenario"),
            names(rounds, "round"),
            names(left, "turn"),
            results.directory.display(),
        );
        for (scenario, why) in &metadata.left_out {
            let _ = writeln!(told, "  left out: {scenario} ({why})");
        }
        if metadata.machine_was_busy() {
            let _ = writeln!(
                told,
                "  The machine is busy (load average {}): the figures will be unreliable.",
                metadata.load_average_before
            );
        }
        if metadata.pinned.is_empty() {
            let _ = writeln!(
                told,
                "  Only one core: proxy, provider and client share it, so the figures say little."
            );
        }
        let scenario = experiment.scenarios.iter().map(|scenario| scenario.name.len()).max().unwrap_or(0);
        let case = experiment.cases.iter().map(|case| case.name.len()).max().unwrap_or(0);
        Self {
            told,
            line: live.then(LiveLine::default),
            started: Instant::now(),
            done: results.turns.len(),
            taken: 0,
            left,
            total: results.turns_planned(),
            estimate,
            under_way: String::new(),
            updated: Instant::now(),
            names: scenario + case + 2,
        }
    }

    /// Reports the start of a turn.
    pub fn starts(&mut self, setup: &Setup<'_>) {
        self.under_way = format!("{}  {}", setup.case.name, setup.scenario.name);
        self.show("starting");
    }

    /// Updates the live line if it is due; `doing` names the current activity.
    pub fn tick(&mut self, doing: &str) {
        if self.updated.elapsed() >= UPDATE_EVERY {
            self.show(doing);
        }
    }

    /// Reports the end of a turn.
    pub fn turn(&mut self, turn: &Turn) {
        self.done += 1;
        self.taken += 1;
        self.left -= 1;
        let names = format!("{}  {}", turn.case, turn.scenario);
        let figures = &turn.figures;
        let times = match (turn.percentile_ms(50), turn.percentile_ms(99), figures.mean_ms) {
            (Some(p50), Some(p99), _) => format!("p50 {p50:9.3} ms  p99 {p99:9.3} ms"),
            (_, _, mean) => format!("mean {:8.3} ms", mean.unwrap_or_default()),
        };
        let cpu = turn.proxy_cpu_us().map_or_else(|| " ".repeat(15), |cpu| format!("  {cpu:6.1} µs CPU"));
        let failed = if figures.failed > 0 { format!("  {} FAILED", figures.failed) } else { String::new() };
        let (done, total, width, rate) = (self.done, self.total, self.names, figures.requests_per_second);
        let left = self.time_left().filter(|_| self.left > 0).map(|time| format!("  {} left", span(time)));
        self.clear();
        let left = left.unwrap_or_default();
        let _ = writeln!(
            self.told,
            "{done:>3}/{total}  {names:<width$}  {times}  {rate:8.0}/s{cpu}{failed}{left}"
        );
        let _ = self.told.flush();
    }

    /// Reports the end of the run.
    pub fn end(&mut self) {
        let _ = writeln!(self.told, "Took {}.", span(self.started.elapsed()));
    }

    fn show(&mut self, doing: &str) {
        self.updated = Instant::now();
        let left = self.time_left().map(|time| format!(", {} left", span(time))).unwrap_or_default();
        let text = format!("{:>3}/{}  {}: {doing}{left}", self.done + 1, self.total, self.under_way);
        if let Some(line) = &mut self.line {
            line.show(self.told, |_| text);
        }
    }

    fn clear(&mut self) {
        if let Some(line) = &mut self.line {
            line.clear(self.told);
        }
    }

    /// Estimates the remaining time from the turns of this run, or from the file before the first turn has
    /// ended.
    fn time_left(&self) -> Option<Duration> {
        let (taken, left) = (u32::try_from(self.taken).ok()?, u32::try_from(self.left).ok()?);
        if taken == 0 {
            return Some(self.estimate?.saturating_sub(self.started.elapsed()));
        }
        (self.started.elapsed() / taken).checked_mul(left)
    }
}

//! Progress messages of a run: a line for each turn, and the remaining time.

use std::io::Write;
use std::time::{Duration, Instant};

use egret_measure::live::LiveLine;

use super::setup::TurnSetup;
use crate::clock::span;
use crate::results::{Results, Turn};

/// Interval between updates of the live line.
const UPDATE_EVERY: Duration = Duration::from_millis(500);

/// Reports the progress of a run.
pub(crate) struct Progress<'a> {
    output: &'a mut dyn Write,
    /// The live line, if the output is a terminal.
    line: Option<LiveLine>,
    started: Instant,
    /// Number of completed turns, including those of an earlier run.
    done: usize,
    completed: usize,
    remaining: usize,
    total: usize,
    estimate: Option<Duration>,
    current: String,
    updated: Instant,
    names: usize,
}

impl<'a> Progress<'a> {
    /// Prints the introduction of a run.
    pub fn start(
        output: &'a mut dyn Write,
        live: bool,
        results: &Results,
        remaining: usize,
        estimate: Option<Duration>,
    ) -> Self {
        let metadata = &results.metadata;
        let experiment = &metadata.experiment;
        let names = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let rounds = usize::try_from(experiment.rounds).unwrap_or(usize::MAX);
        let about = estimate.map(|time| format!(", about {}", span(time))).unwrap_or_default();
        let _ = writeln!(
            output,
            "{}\n{}, {}, {}: {}{about}. Results: {}",
            experiment.title,
            names(experiment.cases.len(), "case"),
            names(experiment.scenarios.len(), "scenario"),
            names(rounds, "round"),
            names(remaining, "turn"),
            results.directory.display(),
        );
        for (scenario, why) in &metadata.left_out {
            let _ = writeln!(output, "  left out: {scenario} ({why})");
        }
        for (part, machine) in &metadata.machines {
            let reached = machine.ssh.as_deref().unwrap_or("this machine");
            let _ = writeln!(output, "  the {part} on {reached} ({})", machine.machine.host);
        }
        if metadata.machine_was_busy() {
            let _ = writeln!(
                output,
                "  The machine is busy (load average {}): the figures will be unreliable.",
                metadata.load_average_highest()
            );
        }
        if metadata.pinned.is_empty() {
            let _ = writeln!(
                output,
                "  Only one core: proxy, provider and client share it, so the figures say little."
            );
        }
        let scenario = experiment.scenarios.iter().map(|scenario| scenario.name.len()).max().unwrap_or(0);
        let case = experiment.cases.iter().map(|case| case.name.len()).max().unwrap_or(0);
        Self {
            output,
            line: live.then(LiveLine::default),
            started: Instant::now(),
            done: results.turns.len(),
            completed: 0,
            remaining,
            total: results.turns_planned(),
            estimate,
            current: String::new(),
            updated: Instant::now(),
            names: scenario + case + 2,
        }
    }

    /// Reports the start of a turn.
    pub fn turn_started(&mut self, setup: &TurnSetup<'_>) {
        self.current = format!("{}  {}", setup.case.name, setup.scenario.name);
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
        self.completed += 1;
        self.remaining -= 1;
        let names = format!("{}  {}", turn.case, turn.scenario);
        let figures = &turn.figures;
        let times = match (turn.percentile_ms(50), turn.percentile_ms(99), figures.mean_ms) {
            (Some(p50), Some(p99), _) => format!("p50 {p50:9.3} ms  p99 {p99:9.3} ms"),
            (_, _, mean) => format!("mean {:8.3} ms", mean.unwrap_or_default()),
        };
        let cpu = turn.proxy_cpu_us().map_or_else(|| " ".repeat(15), |cpu| format!("  {cpu:6.1} µs CPU"));
        let failed = if figures.failed > 0 { format!("  {} FAILED", figures.failed) } else { String::new() };
        let (done, total, width, rate) = (self.done, self.total, self.names, figures.requests_per_second);
        let remaining =
            self.time_left().filter(|_| self.remaining > 0).map(|time| format!("  {} left", span(time)));
        self.clear();
        let remaining = remaining.unwrap_or_default();
        let _ = writeln!(
            self.output,
            "{done:>3}/{total}  {names:<width$}  {times}  {rate:8.0}/s{cpu}{failed}{remaining}"
        );
        let _ = self.output.flush();
    }

    /// Reports the end of the run.
    pub fn end(&mut self) {
        let _ = writeln!(self.output, "Took {}.", span(self.started.elapsed()));
    }

    fn show(&mut self, doing: &str) {
        self.updated = Instant::now();
        let remaining = self.time_left().map(|time| format!(", {} left", span(time))).unwrap_or_default();
        let text = format!("{:>3}/{}  {}: {doing}{remaining}", self.done + 1, self.total, self.current);
        if let Some(line) = &mut self.line {
            line.show(self.output, |_| text);
        }
    }

    fn clear(&mut self) {
        if let Some(line) = &mut self.line {
            line.clear(self.output);
        }
    }

    /// Estimates the remaining time from the turns of this run, or from the file before the first turn has
    /// ended.
    fn time_left(&self) -> Option<Duration> {
        let (completed, remaining) =
            (u32::try_from(self.completed).ok()?, u32::try_from(self.remaining).ok()?);
        if completed == 0 {
            return Some(self.estimate?.saturating_sub(self.started.elapsed()));
        }
        (self.started.elapsed() / completed).checked_mul(remaining)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::results;

    const TEXT: &str =
        "title: A title\nprovider: {}\nscenarios: [{ name: direct }, { name: b, command: [x] }]\nrounds: 2\n";

    #[test]
    fn the_introduction_counts_the_work_and_names_what_is_doubtful() {
        let mut results = results(TEXT, 1.0, |_, _, _, _| 1.0);
        results.turns.clear();
        results.metadata.load_average_before = 1.5;
        results.metadata.left_out.insert("c".into(), "`c` is not installed".into());
        let mut output = Vec::new();
        Progress::start(&mut output, false, &results, 4, Some(Duration::from_secs(95)));
        assert_eq!(
            String::from_utf8(output).unwrap(),
            "A title\n1 case, 2 scenarios, 2 rounds: 4 turns, about 1m35s. Results: \n  left out: c (`c` is not installed)\n  \
             The machine is busy (load average 1.5): the figures will be unreliable.\n"
        );
    }

    #[test]
    fn each_turn_has_a_line_with_its_figures() {
        let results = results(TEXT, 20.0, |_, _, _, percent| if percent == 99 { 9.5 } else { 1.25 });
        let mut output = Vec::new();
        let mut progress = Progress::start(&mut output, false, &results, 2, None);
        let mut failed = results.turns[1].clone();
        failed.figures.failed = 3;
        progress.turn(&failed);
        let mut untimed = results.turns[0].clone();
        (untimed.figures.percentiles_ms, untimed.figures.mean_ms) = (Vec::new(), Some(2.0));
        progress.turn(&untimed);
        let text = String::from_utf8(output).unwrap();
        let lines: Vec<&str> = text.lines().skip(1).collect();
        let expected = "  5/4  default  b       p50     1.250 ms  p99     9.500 ms       500/s    20.0 µs CPU  3 FAILED  0 s left";
        assert_eq!(lines[lines.len() - 2], expected);
        assert_eq!(
            lines[lines.len() - 1],
            "  6/4  default  direct  mean    2.000 ms       500/s               "
        );
    }

    #[test]
    fn the_time_that_is_left_follows_the_turns_so_far() {
        let results = results(TEXT, 1.0, |_, _, _, _| 1.0);
        let mut output = Vec::new();
        let mut progress = Progress::start(&mut output, false, &results, 4, Some(Duration::from_mins(10)));
        // Before the first turn has ended, the file's times are all there is.
        let left = progress.time_left().unwrap();
        assert!(left <= Duration::from_mins(10) && left > Duration::from_mins(9), "{left:?}");
        progress.started -= Duration::from_secs(20);
        (progress.completed, progress.remaining) = (2, 3);
        let left = progress.time_left().unwrap();
        assert!((Duration::from_secs(30)..Duration::from_secs(32)).contains(&left), "{left:?}");
    }
}

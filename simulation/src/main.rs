//! Runs simulated worlds, each from its seed.
//!
//! `egret-simulation SEEDS [FIRST]` runs so many, `egret-simulation planted [SEEDS [DEFECT]]` plants each
//! defect in turn and says at which seed it is found, and `egret-simulation one SEED [log]` runs one again.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use egret_clock::mixed;
use egret_clock::simulated::Defect;
use egret_kernel::Counts;
use egret_kernel::disk::DiskCounts;
use egret_simulation::world::{self, Report};

/// Number of seeds within which a planted defect is to be found.
const PLANTED_SEEDS: u64 = 2_000;
/// Interval of the lines of progress.
const PROGRESS: Duration = Duration::from_secs(5);
/// Number of failing seeds after which a run ends.
const FAILURES_MAX: usize = 10;

fn main() -> ExitCode {
    world::catch_panics();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize| arguments.get(place).and_then(|text| text.parse().ok());
    match arguments.first().map(String::as_str) {
        Some("planted") => {
            planted(number(1).unwrap_or(PLANTED_SEEDS), arguments.get(2).map_or("", String::as_str))
        }
        Some("one") => match number(1) {
            Some(seed) => one(seed, arguments.get(2).is_some_and(|word| word == "log")),
            None => usage(),
        },
        Some(_) => match number(0) {
            Some(seeds) => many(number(1).unwrap_or(1), seeds),
            None => usage(),
        },
        None => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: egret-simulation SEEDS [FIRST] | planted [SEEDS [DEFECT]] | one SEED [log]");
    ExitCode::from(2)
}

/// The sums of many worlds.
#[derive(Default)]
struct Sums {
    worlds: u64,
    steps: u64,
    events: u64,
    passed: Duration,
    outcomes: [u64; 4],
    counts: Counts,
    disk: DiskCounts,
    /// A number of all that has happened in all worlds.
    trace: u64,
}

impl Sums {
    fn add(&mut self, report: &Report) {
        self.worlds += 1;
        self.steps += report.steps;
        self.events += report.events;
        self.passed += report.passed;
        for (sum, count) in self.outcomes.iter_mut().zip(report.outcomes) {
            *sum += count;
        }
        let (sums, counts) = (&mut self.counts, report.counts);
        sums.calls += counts.calls;
        sums.interrupted += counts.interrupted;
        sums.short_sends += counts.short_sends;
        sums.full_sends += counts.full_sends;
        sums.late_events += counts.late_events;
        sums.spurious_events += counts.spurious_events;
        sums.accepts_aborted += counts.accepts_aborted;
        sums.no_files += counts.no_files;
        sums.resets += counts.resets;
        sums.refused += counts.refused;
        let (sums, counts) = (&mut self.disk, report.disk);
        sums.calls += counts.calls;
        sums.short_writes += counts.short_writes;
        sums.full += counts.full;
        sums.failed += counts.failed;
        sums.cuts += counts.cuts;
        self.trace = mixed(self.trace ^ report.trace);
    }

    fn print(&self, elapsed: Duration) {
        let rate = self.worlds as f64 / elapsed.as_secs_f64();
        let [answered, refused, cut, closed] = self.outcomes;
        let counts = self.counts;
        println!(
            "{} worlds in {:.0} s, {rate:.0} seeds/s: {} steps, {} calls of the kernel, {:.0} hours of their time",
            self.worlds,
            elapsed.as_secs_f64(),
            self.steps,
            counts.calls,
            self.passed.as_secs_f64() / 3_600.0
        );
        println!(
            "  requests: {answered} answered, {refused} refused by the gateway, {cut} cut, {closed} lost with their connection"
        );
        println!(
            "  faults: {} interrupted calls, {} short sends, {} full sends, {} late events, {} spurious events",
            counts.interrupted,
            counts.short_sends,
            counts.full_sends,
            counts.late_events,
            counts.spurious_events
        );
        println!(
            "  faults: {} resets, {} refused connections, {} clients gone before accept, {} sockets without a file, {} reloads, drains, clock steps",
            counts.resets, counts.refused, counts.accepts_aborted, counts.no_files, self.events
        );
        let disk = self.disk;
        println!(
            "  disks: {} calls, {} failed, {} short writes, {} without room, {} power failures",
            disk.calls, disk.failed, disk.short_writes, disk.full, disk.cuts
        );
        println!("  trace of all: {:016x}", self.trace);
    }
}

/// The resident memory of this process, as the system tells it.
fn resident() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.map_or("of unknown size".to_owned(), |size| format!("VmRSS {}", size.trim()))
}

fn report_failure(seed: u64, violations: &[String]) {
    println!("seed {seed} breaks a rule; `make simulate SEED={seed}` repeats it:");
    for violation in violations {
        println!("  {violation}");
    }
}

fn many(first: u64, seeds: u64) -> ExitCode {
    let (started, mut told, mut failures) = (Instant::now(), Instant::now(), 0);
    let mut sums = Sums::default();
    for seed in first..first.saturating_add(seeds) {
        match world::run(seed, None, false) {
            Ok(report) => {
                sums.add(&report);
                if !report.violations.is_empty() {
                    failures += 1;
                    report_failure(seed, &report.violations);
                }
            }
            Err(error) => {
                failures += 1;
                println!("seed {seed} has no valid config: {error}");
            }
        }
        if told.elapsed() >= PROGRESS {
            told = Instant::now();
            println!("  seed {seed}: {} worlds, {failures} violations, {}", sums.worlds, resident());
        }
        if failures == FAILURES_MAX {
            println!("stopped after {FAILURES_MAX} violations");
            break;
        }
    }
    sums.print(started.elapsed());
    println!("  memory: {}", resident());
    println!("violations: {failures}");
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn one(seed: u64, keeps_log: bool) -> ExitCode {
    match world::run(seed, None, keeps_log) {
        Ok(report) => {
            for line in &report.log {
                println!("{line}");
            }
            println!("seed {seed}: {} steps, trace {:016x}", report.steps, report.trace);
            if report.violations.is_empty() {
                println!("no violation");
                return ExitCode::SUCCESS;
            }
            report_failure(seed, &report.violations);
        }
        Err(error) => println!("seed {seed} has no valid config: {error}"),
    }
    ExitCode::FAILURE
}

/// Plants each defect whose name contains `name`, and says at which seed it is found.
fn planted(seeds: u64, name: &str) -> ExitCode {
    let (mut missed, mut planted) = (0, 0);
    for defect in Defect::ALL.into_iter().filter(|defect| format!("{defect:?}").contains(name)) {
        planted += 1;
        let found = (1..=seeds).find_map(|seed| {
            let report = world::run(seed, Some(defect), false).ok()?;
            let violation = report.violations.first()?.clone();
            // A world that breaks a rule by itself shows nothing.
            let plain = world::run(seed, None, false).ok()?;
            plain.violations.is_empty().then_some((seed, violation))
        });
        match found {
            Some((seed, violation)) => println!("{defect:?}: found at seed {seed}: {violation}"),
            None => {
                missed += 1;
                println!("{defect:?}: NOT found within {seeds} seeds");
            }
        }
    }
    println!("planted defects: {} of {planted} found within {seeds} seeds", planted - missed);
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

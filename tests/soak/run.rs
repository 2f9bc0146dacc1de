//! The run: a first part in which everything fills, a rest, the part that is judged, and a rest.

use std::path::PathBuf;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use egret_tests::process::raise_open_files;
use egret_tests::timeline::{Timeline, pass};
use egret_tests::wait;
use serde_json::Value;

use super::figures::{Phase, Probes, Sample, csv};
use super::gateway::World;
use super::load::Load;
use super::verdict::{FILLED, Rest, judge};
use super::{chart, readers};

/// Length of the run, in minutes or hours; without them [`SHORT`].
const MINUTES: &str = "EGRET_SOAK_MINUTES";
const HOURS: &str = "EGRET_SOAK_HOURS";
const SHORT: Duration = Duration::from_mins(3);
/// The seed of the visits.
const SEED: &str = "EGRET_SOAK_SEED";
/// The directory of the results.
const OUT: &str = "EGRET_SOAK_OUT";

/// The first part takes this part of the run, and no longer than [`FILLED`].
const FIRST: u32 = 3;
/// Samples of a run, and the times between two.
const SAMPLES: u32 = 1_000;
const SAMPLE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// Time for which the number of descriptors stays the same at rest.
const STEADY: Duration = Duration::from_secs(4);
/// Samples between two lines on the screen.
const SHOWN: usize = 30;

/// Parts of the time that is judged, between which the load rests, and the shortest one.
const PARTS: u32 = 20;
const PART_MIN: Duration = Duration::from_secs(20);

/// Files and samples of a run.
struct Run<'a> {
    world: &'a World,
    load: &'a Load,
    probes: &'a Probes,
    line: &'a Timeline,
    begun: Instant,
    out: PathBuf,
    every: Duration,
    samples: Vec<Sample>,
}

#[test]
fn memory_descriptors_and_threads_stay_flat_under_load() {
    raise_open_files();
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<f64>().ok());
    let length = number(HOURS).map(|hours| hours * 60.0).or_else(|| number(MINUTES));
    let length = length.map_or(SHORT, |minutes| Duration::from_secs_f64(60.0 * minutes));
    let seed = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let out = std::env::var_os(OUT)
        .map_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../results/soak").into(), PathBuf::from);
    std::fs::create_dir_all(&out).unwrap();
    let line = Timeline::new("soak");
    line.say(format!(
        "{:.1} minutes, seed {seed}, results in {}",
        length.as_secs_f64() / 60.0,
        out.display()
    ));
    let (world, load, probes) = (World::start(), Load::default(), Probes::default());
    thread::scope(|scope| {
        let _ends = load.ends();
        let (world, load, probes) = (&world, &load, &probes);
        for thread in 0..Load::threads() {
            scope.spawn(move || load.visit(world, seed, thread));
        }
        scope.spawn(|| readers::look(world, load));
        scope.spawn(|| readers::change(world, load));
        scope.spawn(|| probes.call(world, load));
        let every = (length / SAMPLES).clamp(SAMPLE[0], SAMPLE[1]);
        let mut run =
            Run { world, load, probes, line: &line, begun: Instant::now(), out, every, samples: Vec::new() };
        let first = (length / FIRST).min(FILLED);
        run.sample(Phase::First, first);
        let part = ((length - first) / PARTS).max(PART_MIN);
        let mut rests = vec![run.rest()];
        while run.begun.elapsed() < length {
            run.sample(Phase::Judged, part);
            rests.push(run.rest());
        }
        line.say(load.visits());
        judge(&run.samples, (&rests[..], first), load, world, &line);
    });
    world.egret().terminate();
}

impl Run<'_> {
    /// Reads samples for this time, and writes them down each time: a run that is stopped leaves its figures.
    fn sample(&mut self, phase: Phase, length: Duration) {
        self.load.is_paced.store(phase == Phase::Judged, SeqCst);
        self.load.resume();
        let begun = Instant::now();
        while begun.elapsed() < length {
            pass(self.every);
            self.samples.push(Sample::read(self.world, self.begun, phase, self.probes));
            if self.samples.len() % SHOWN == 0 {
                self.show();
            }
        }
        self.show();
    }

    fn show(&self) {
        let Some(last) = self.samples.last() else { return };
        let Sample { exchanges, memory, descriptors, threads, through, direct, .. } = last;
        let (p50, p99, direct) = (through.p50, through.p99, direct.p50);
        self.line.say(format!(
            "{exchanges} exchanges, {} KiB, {descriptors} descriptors, {threads} threads, \
             p50 {p50} µs ({direct} without Egret), p99 {p99} µs, {} failed",
            memory >> 10,
            self.load.failures().0
        ));
        std::fs::write(self.out.join("samples.csv"), csv(&self.samples)).unwrap();
        let note = format!("{exchanges} exchanges; the gaps are moments of rest");
        std::fs::write(self.out.join("soak.svg"), chart::svg(&self.samples, &note)).unwrap();
    }

    /// Pauses the load, and waits until the gateway has closed what it does not use.
    fn rest(&self) -> Rest {
        self.load.pause();
        let (egret, process) = (self.world.egret(), self.world.egret().process());
        wait::until_true("no client is left", || egret.stat("/clients/open") == 0);
        let read = || connected(&egret.stats());
        wait::until_value("no connection to a provider is left", read, Vec::is_empty);
        wait::until_true("diagnoses have caught up", || {
            queued(&egret.control_get("/api/v1/flows").json()) == 0
        });
        let (mut since, mut steady) = (Instant::now(), process.descriptors());
        wait::until_true("the descriptors are steady", || {
            let now = process.descriptors();
            if now != steady {
                (since, steady) = (Instant::now(), now);
            }
            since.elapsed() >= STEADY
        });
        let rest = Rest::read(self.world, self.begun);
        self.line.say(format!("at rest: {} KiB", rest.memory >> 10));
        rest
    }
}

/// The providers, and hosts without one, to which connections are open, and their number.
fn connected(stats: &Value) -> Vec<(String, u64)> {
    let providers = stats["providers"].as_array().into_iter().flatten();
    let numbers = providers
        .filter_map(|provider| Some((provider["name"].to_string(), provider["connections_open"].as_u64()?)));
    numbers.filter(|(_, open)| *open > 0).collect()
}

/// Exchanges that wait to be recorded.
fn queued(flows: &Value) -> u64 {
    let flows = flows["flows"].as_array().into_iter().flatten();
    let diagnoses = flows.flat_map(|flow| flow["diagnoses"].as_array().into_iter().flatten());
    diagnoses.filter_map(|diagnosis| diagnosis["queued"].as_u64()).sum()
}

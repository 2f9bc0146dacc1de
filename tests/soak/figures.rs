//! Figures of the gateway while it works: its memory, descriptors and threads, and the time of a call beside
//! that of a call without it.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use egret_tests::http::Client;
use egret_tests::timeline::pass;

use super::gateway::World;
use super::load::Load;

/// Time between two probes.
const PROBE: Duration = Duration::from_millis(20);
/// Number of probes over one connection.
const PROBES: usize = 50;
/// The first line of the file of samples.
const COLUMNS: &str =
    "seconds,phase,exchanges,memory_kib,descriptors,threads,cpu_s,p50_us,p99_us,direct_p50_us,direct_p99_us";

/// A part of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Tables, caches and pools fill.
    First,
    /// Growth counts.
    Judged,
}

/// The figures of a moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// Time since the begin, in seconds.
    pub(crate) at: f64,
    pub(crate) phase: Phase,
    /// Exchanges so far.
    pub(crate) exchanges: u64,
    /// Resident memory without pages of files, in bytes.
    pub(crate) memory: u64,
    pub(crate) descriptors: u64,
    pub(crate) threads: u64,
    cpu: Duration,
    /// Times of the calls since the last sample.
    pub(crate) through: Times,
    /// Times of the same calls to the provider itself.
    pub(crate) direct: Times,
}

/// Times of some calls, in microseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Times {
    pub(crate) p50: u64,
    pub(crate) p99: u64,
}

/// The times of calls since the last sample: through the gateway and to the provider itself, in microseconds.
#[derive(Debug, Default)]
pub(crate) struct Probes(Mutex<(Vec<u64>, Vec<u64>)>);

impl Probes {
    /// Calls through the gateway and directly, in turn, each over one connection.
    pub(crate) fn call(&self, world: &World, load: &Load) {
        load.each(
            || PROBE,
            || {
                let ways = [(world.address(), "/origin/get"), (world.plain.address(), "/get")];
                load.tried("a probe", || {
                    let mut clients = ways.map(|(address, _)| Client::connect(address));
                    for _ in 0..PROBES {
                        let [through, direct] = [0, 1].map(|at| {
                            let (address, target) = ways[at];
                            timed(&mut clients[at], address, target)
                        });
                        let mut times = self.0.lock().unwrap();
                        times.0.push(through);
                        times.1.push(direct);
                        drop(times);
                        pass(PROBE);
                    }
                });
            },
        );
    }

    fn take(&self) -> [Times; 2] {
        let (through, direct) = std::mem::take(&mut *self.0.lock().unwrap());
        [through, direct].map(|mut times| {
            times.sort_unstable();
            let at = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or_default();
            Times { p50: at(50), p99: at(99) }
        })
    }
}

fn timed(client: &mut Client, address: SocketAddr, target: &str) -> u64 {
    let begun = Instant::now();
    client.get(address, target).response().assert_forwarded(200);
    u64::try_from(begun.elapsed().as_micros()).unwrap()
}

impl Sample {
    /// Reads the figures.
    pub(crate) fn read(world: &World, begun: Instant, phase: Phase, probes: &Probes) -> Self {
        let process = world.egret().process();
        let stats = world.egret().stats();
        let counts = stats["providers"].as_array().into_iter().flatten();
        let counts = counts.flat_map(|provider| provider["exchanges"].as_array().into_iter().flatten());
        let [through, direct] = probes.take();
        Self {
            at: begun.elapsed().as_secs_f64(),
            phase,
            exchanges: counts.filter_map(|row| row["count"].as_u64()).sum(),
            memory: process.resident_bytes(),
            descriptors: process.descriptors(),
            threads: process.threads(),
            cpu: process.cpu_time(),
            through,
            direct,
        }
    }
}

/// The samples as a file of comma-separated values.
pub(crate) fn csv(samples: &[Sample]) -> String {
    let mut text = format!("{COLUMNS}\n");
    for each in samples {
        let Sample { at, phase, exchanges, memory, descriptors, threads, cpu, through, direct } = each;
        let _ = writeln!(
            text,
            "{at:.1},{phase:?},{exchanges},{},{descriptors},{threads},{:.2},{},{},{},{}",
            memory >> 10,
            cpu.as_secs_f64(),
            through.p50,
            through.p99,
            direct.p50,
            direct.p99
        );
    }
    text
}

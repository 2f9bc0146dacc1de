//! Runs a plan: starts its threads, reports progress, and collects the results.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use std::{io, thread};

use super::plan::Plan;
use super::tally::Tally;
use super::tls::TlsFacts;
use super::worker::{Harvest, Shared, Worker};

/// Interval between progress reports.
const NEWS: Duration = Duration::from_millis(100);

/// The progress of a run.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Exchanges that have ended.
    pub done: u64,
    /// Time since counting began.
    pub elapsed: Duration,
}

/// The decision of the observer of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Continue.
    GoOn,
    /// Stop at once.
    Stop,
}

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// All counters.
    pub tally: Tally,
    /// Time from the first counted exchange to the end of the last one, or to the end of the requested time.
    pub elapsed: Duration,
    /// The reason why the run was aborted, if it was.
    pub fatal: Option<String>,
    /// `true` if the run was asked to stop.
    pub interrupted: bool,
    /// Share of its time that the busiest thread spent computing.
    pub cpu_share: f64,
    /// `true` if a thread had no time to spare, so the result describes the client and not the target.
    pub saturated: bool,
    /// The target's software, from the first response's `Server` field.
    pub server: String,
    /// The negotiated TLS parameters.
    pub tls: Option<TlsFacts>,
}

/// Runs a plan to its end. `watch` receives the progress ten times a second and may stop the run.
pub fn execute(plan: &Plan, watch: &mut dyn FnMut(Progress) -> Wish) -> io::Result<Outcome> {
    let shared = Shared::new(plan);
    // Everything is allocated before the clock starts.
    let workers: Vec<_> =
        (0..plan.threads).map(|index| Worker::new(plan, &shared, index)).collect::<io::Result<_>>()?;
    let start = Instant::now();
    let measured_from = start + plan.warmup;
    let mut interrupted = false;
    let harvests = thread::scope(|scope| {
        let (ended, ends) = channel::<()>();
        let mut threads = Vec::with_capacity(plan.threads);
        for (index, worker) in workers.into_iter().enumerate() {
            let ended = ended.clone();
            let thread =
                thread::Builder::new().name(format!("bench-{index}")).spawn_scoped(scope, move || {
                    // Dropped when the thread ends, even by a panic.
                    let _ended = ended;
                    worker.run(start)
                });
            threads.push(thread.inspect_err(|_| shared.stop.store(true, Relaxed))?);
        }
        drop(ended);
        // Nothing is ever sent: the channel disconnects when all threads have ended.
        while ends.recv_timeout(NEWS) == Err(RecvTimeoutError::Timeout) {
            let elapsed = Instant::now().saturating_duration_since(measured_from);
            if watch(Progress { done: shared.done(), elapsed }) == Wish::Stop {
                interrupted = true;
                shared.stop.store(true, Relaxed);
            }
        }
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("a thread of the load client panicked")))
            })
            .collect::<io::Result<Vec<Harvest>>>()
    })?;
    Ok(gather(plan, &shared, &harvests, measured_from, interrupted))
}

fn gather(
    plan: &Plan,
    shared: &Shared,
    harvests: &[Harvest],
    measured_from: Instant,
    interrupted: bool,
) -> Outcome {
    let mut tally = Tally::new(plan.targets, plan.samples_max);
    for harvest in harvests {
        tally.add(&harvest.tally);
    }
    tally.samples.sort_by_key(|sample| sample.start_us);
    let last = harvests.iter().map(|harvest| harvest.ended).max().unwrap_or(measured_from);
    // A run for a fixed time lasts that long, however early its last response arrived.
    let ended = match plan.duration.map(|duration| measured_from + duration) {
        Some(until)
            if shared.fatal().is_none()
                && !interrupted
                && plan.count.is_none_or(|count| tally.done < count) =>
        {
            until.max(last)
        }
        _ => last,
    };
    Outcome {
        tally,
        elapsed: ended.saturating_duration_since(measured_from),
        fatal: shared.fatal(),
        interrupted,
        cpu_share: harvests.iter().map(|harvest| harvest.effort.cpu_share()).fold(0.0, f64::max),
        saturated: harvests.iter().any(|harvest| harvest.effort.is_saturated()),
        server: harvests.iter().find_map(|harvest| harvest.server.clone()).unwrap_or_default(),
        tls: harvests.iter().find_map(|harvest| harvest.tls.clone()),
    }
}

impl Outcome {
    /// Exchanges per second.
    #[expect(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
    pub fn requests_per_second(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { self.tally.done as f64 / seconds } else { 0.0 }
    }
}

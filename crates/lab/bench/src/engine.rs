//! Runs a plan: starts its threads, reports progress, and collects the results.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use std::{io, thread};

use crate::plan::Plan;
use crate::snapshot::Snapshot;
use crate::tally::Tally;
use crate::tls::TlsParameters;
use crate::worker::{RunState, ThreadResult, Worker};

/// Interval between progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// The progress of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress<'a> {
    /// Exchanges that have ended.
    pub done: u64,
    /// Time since counting began.
    pub elapsed: Duration,
    /// State of the threads.
    state: &'a RunState,
}

impl Progress<'_> {
    /// Asks for new counters, which are there at one of the next reports.
    pub fn want_snapshot(&self) {
        self.state.want_snapshot();
    }

    /// The counters as they were when last asked for.
    pub fn snapshot(&self) -> Snapshot {
        self.state.snapshot()
    }
}

/// The decision of the observer of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Directive {
    /// Continue.
    Continue,
    /// Stop at once.
    Stop,
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct RunOutcome {
    /// All counters.
    pub tally: Tally,
    /// Time from the first counted exchange to the end of the last one, or to the end of the requested time.
    pub elapsed: Duration,
    /// The reason why the run was aborted, if it was.
    pub fatal: Option<String>,
    /// `true` if the run was interrupted.
    pub interrupted: bool,
    /// Share of its time that the busiest thread spent computing.
    pub cpu_share: f64,
    /// `true` if a thread had no time to spare, so the result describes the client and not the target.
    pub saturated: bool,
    /// The target's software, from the first response's `Server` field.
    pub server: String,
    /// The negotiated TLS parameters.
    pub tls: Option<TlsParameters>,
}

/// Runs a plan to its end. `watch` receives the progress ten times a second and may stop the run.
pub(crate) fn execute(
    plan: &Plan,
    watch: &mut dyn FnMut(Progress<'_>) -> Directive,
) -> io::Result<RunOutcome> {
    let state = RunState::new(plan);
    // Everything is allocated before the clock starts.
    let workers: Vec<_> =
        (0..plan.threads).map(|index| Worker::new(plan, &state, index)).collect::<io::Result<_>>()?;
    let start = Instant::now();
    let measured_from = start + plan.warmup;
    let mut interrupted = false;
    let results = thread::scope(|scope| {
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
            threads.push(thread.inspect_err(|_| state.stop.store(true, Relaxed))?);
        }
        drop(ended);
        // Nothing is ever sent: the channel disconnects when all threads have ended.
        while ends.recv_timeout(PROGRESS_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            let elapsed = Instant::now().saturating_duration_since(measured_from);
            if watch(Progress { done: state.done(), elapsed, state: &state }) == Directive::Stop {
                interrupted = true;
                state.stop.store(true, Relaxed);
            }
        }
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("a thread of the load client panicked")))
            })
            .collect::<io::Result<Vec<ThreadResult>>>()
    })?;
    Ok(collect(plan, &state, &results, measured_from, interrupted))
}

fn collect(
    plan: &Plan,
    state: &RunState,
    results: &[ThreadResult],
    measured_from: Instant,
    interrupted: bool,
) -> RunOutcome {
    let mut tally = Tally::new(plan.targets, plan.samples_max);
    for result in results {
        tally.add(&result.tally);
    }
    tally.samples.sort_by_key(|sample| sample.start_us);
    let last = results.iter().map(|result| result.ended).max().unwrap_or(measured_from);
    // A run for a fixed time lasts that long, however early its last response arrived.
    let ended = match plan.duration.map(|duration| measured_from + duration) {
        Some(until)
            if state.fatal().is_none()
                && !interrupted
                && plan.count.is_none_or(|count| tally.done < count) =>
        {
            until.max(last)
        }
        _ => last,
    };
    RunOutcome {
        tally,
        elapsed: ended.saturating_duration_since(measured_from),
        fatal: state.fatal(),
        interrupted,
        cpu_share: results.iter().map(|result| result.cpu_usage.cpu_share()).fold(0.0, f64::max),
        saturated: results.iter().any(|result| result.cpu_usage.is_saturated()),
        server: results.iter().find_map(|result| result.server.clone()).unwrap_or_default(),
        tls: results.iter().find_map(|result| result.tls.clone()),
    }
}

impl RunOutcome {
    /// Exchanges per second.
    #[expect(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
    pub fn requests_per_second(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { self.tally.done as f64 / seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests;

//! The threads that call: each draws a kind of visit, again and again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

use egret_tests::random::Random;
use egret_tests::timeline::pass;
use egret_tests::wait::{self, SetAtEnd};

use super::gateway::World;
use super::{calls, connections};

/// A visit: some calls of one kind. It panics if one is not as it must be.
type Visit = fn(&World, &mut Random);

/// Kinds of visits, and how often each is drawn.
const VISITS: [(&str, usize, Visit); 19] = [
    ("paths", 12, calls::paths),
    ("bodies", 4, calls::bodies),
    ("hosts", 6, calls::hosts),
    ("retried", 3, calls::retried),
    ("refused", 4, calls::refused),
    ("cached", 6, calls::cached),
    ("hedged", 3, calls::hedged),
    ("metered", 3, calls::metered),
    ("http2", 6, connections::http2),
    ("grpc", 3, connections::grpc),
    ("over TLS", 3, connections::over_tls),
    ("tunnels", 3, connections::tunnels),
    ("over SOCKS", 3, connections::over_socks),
    ("streams", 1, connections::streams),
    ("aborting", 4, connections::aborting),
    ("malformed", 2, connections::malformed),
    ("distrusting", 1, connections::distrusting),
    ("slow", 0, connections::slow),
    ("streams beside", 0, connections::streams),
];

/// Kinds that fill tables and caches, and the number of threads that draw from these alone at first.
const FILLING: [&str; 4] = ["paths", "hosts", "cached", "tunnels"];
const FILLERS: usize = 3;
/// Number of threads that draw from all kinds, and of those that wait most of the time.
pub(crate) const THREADS: usize = 5;
const SLOW_THREADS: usize = 4;
/// Time from the begin of one visit of a thread to that of the next, while growth is judged. The pace is the
/// same on a fast machine and on a slow one, because memory depends on it: on the number of connections,
/// above all.
const PACE: Duration = Duration::from_millis(250);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Failures whose texts are kept.
const TEXTS: usize = 10;
const CHARS: usize = 700;

/// The state that the threads share.
#[derive(Debug, Default)]
pub(crate) struct Load {
    is_paused: AtomicBool,
    /// `false` while tables and caches are to be filled as fast as possible.
    pub(crate) is_paced: AtomicBool,
    pub(crate) is_over: AtomicBool,
    busy: AtomicUsize,
    visits: [AtomicU64; VISITS.len()],
    failed: AtomicU64,
    failures: Mutex<Vec<String>>,
}

impl Load {
    /// Visits until the load is over. The threads of this seed draw the same visits in each run.
    pub(crate) fn visit(&self, world: &World, seed: u64, thread: usize) {
        let mut random = Random::of(seed, thread as u64);
        let all: Vec<usize> = VISITS
            .iter()
            .enumerate()
            .flat_map(|(at, (_, times, _))| std::iter::repeat_n(at, *times))
            .collect();
        let slow: Vec<usize> = (VISITS.len() - 2..VISITS.len()).collect();
        let of = if thread < THREADS { &all } else { &slow };
        let fill: Vec<usize> = VISITS
            .iter()
            .enumerate()
            .filter(|(_, (name, ..))| FILLING.contains(name))
            .map(|(at, _)| at)
            .collect();
        self.each(
            || if self.is_paced.load(Relaxed) { PACE } else { Duration::ZERO },
            || {
                let fills = thread < FILLERS && !self.is_paced.load(Relaxed);
                let of = if fills { &fill } else { of };
                let at = of[random.below(of.len())];
                self.tried(VISITS[at].0, || VISITS[at].2(world, &mut random));
                self.visits[at].fetch_add(1, Relaxed);
            },
        );
    }

    /// Does something again and again at this pace, except while the load is paused, until it is over.
    pub(crate) fn each(&self, pace: impl Fn() -> Duration, mut work: impl FnMut()) {
        while !self.is_over.load(SeqCst) {
            let begun = Instant::now();
            // First busy, then the look: a pause waits for all threads that did not see it.
            self.busy.fetch_add(1, SeqCst);
            let is_paused = self.is_paused.load(SeqCst);
            if !is_paused {
                work();
            }
            self.busy.fetch_sub(1, SeqCst);
            let wait = if is_paused { LOOK_AGAIN } else { pace() };
            pass(wait.saturating_sub(begun.elapsed()));
        }
    }

    /// Does something, and keeps the text of its panic.
    pub(crate) fn tried(&self, what: &str, work: impl FnOnce()) {
        let Err(panic) = catch_unwind(AssertUnwindSafe(work)) else { return };
        self.failed.fetch_add(1, Relaxed);
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let mut failures = self.failures.lock().unwrap();
        if failures.len() < TEXTS {
            let text: String = text.unwrap_or_default().chars().take(CHARS).collect();
            failures.push(format!("{what}: {text}"));
        }
    }

    /// Lets the threads end what they do, and do no more.
    pub(crate) fn pause(&self) {
        self.is_paused.store(true, SeqCst);
        wait::until_true("all calls have ended", || self.busy.load(SeqCst) == 0);
    }

    /// Lets the threads go on.
    pub(crate) fn resume(&self) {
        self.is_paused.store(false, SeqCst);
    }

    /// Ends the load when it is dropped.
    pub(crate) fn ends(&self) -> SetAtEnd<'_> {
        SetAtEnd(&self.is_over)
    }

    /// The numbers of visits by kind, as a text.
    pub(crate) fn visits(&self) -> String {
        let each = VISITS
            .iter()
            .zip(&self.visits)
            .map(|((name, ..), count)| format!("{name} {}", count.load(Relaxed)));
        each.collect::<Vec<_>>().join(", ")
    }

    /// Number of visits that failed, and the texts of the first ones.
    pub(crate) fn failures(&self) -> (u64, Vec<String>) {
        (self.failed.load(Relaxed), self.failures.lock().unwrap().clone())
    }

    /// Number of threads that visit.
    pub(crate) fn threads() -> usize {
        THREADS + SLOW_THREADS
    }
}

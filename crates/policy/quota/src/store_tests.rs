//! Tests of the guarantees of quotas in a file, with the process dying at any moment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::{Wake, Waker};

use egret_clock::Timestamp;
use egret_store::{Clerk, FileStore, Ledger, Loan, LoanRequest, Store, StoreError, ledger};
use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000;
const HOUR: u64 = 3_600 * SECOND;

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(497_222 * HOUR + micros)
}

/// Returns an hour by the clock, in a file.
fn hourly(limit: u64) -> QuotaConfig {
    QuotaConfig {
        limit,
        kind: QuotaKind::Fixed,
        window: Some(egret_config::Duration::from_secs(3_600)),
        store: StoreKind::File,
        ..QuotaConfig::default()
    }
}

/// A process with its file.
struct Process {
    quotas: Quotas,
    ledger: Ledger,
    clerk: Clerk,
    store: FileStore,
}

impl Process {
    fn start(path: &Path, config: &QuotaConfig) -> Self {
        let (ledger, clerk) = ledger();
        let configs = [("q".to_owned(), config.clone())].into();
        let mut problems = Vec::new();
        let quotas = Quotas::compile(
            &configs,
            None,
            Stores { ledger: Some(&ledger), ..Stores::default() },
            &[],
            &mut problems,
        );
        assert_eq!(problems, Vec::new());
        Self { quotas, ledger, clerk, store: FileStore::open(path, at(0)).unwrap() }
    }

    fn quota(&self) -> &Arc<Quota> {
        self.quotas.get("q").unwrap()
    }

    fn work_off(&mut self) {
        self.clerk.work_off(&mut self.store);
    }

    /// Takes units, and waits for the store if necessary.
    fn take(&mut self, now: Timestamp, cost: u64) -> Result<Grant, Refusal> {
        for _ in 0..5 {
            match self.quota().clone().take(now, &[], cost) {
                Err(Refusal { why: Why::Fetching, .. }) => self.work_off(),
                done => return done,
            }
        }
        panic!("the store has responded five times without a result");
    }

    /// Takes units one at a time, each with a response, until none is left.
    fn drain(&mut self, now: Timestamp, max: u64) -> u64 {
        (0..max).map_while(|_| self.take(now, 1).map(|mut grant| grant.responded(now)).ok()).count() as u64
    }

    fn stop(mut self) {
        self.quotas.give_back();
        self.work_off();
    }
}

fn file() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("quotas.redb");
    (directory, path)
}

#[test]
fn a_process_that_stops_gives_back_what_it_did_not_use() {
    let (_directory, path) = file();
    for _ in 0..4 {
        let mut process = Process::start(&path, &hourly(1_000));
        assert_eq!(process.drain(at(0), 249), 249);
        process.stop();
    }
    let mut process = Process::start(&path, &hourly(1_000));
    assert_eq!(process.drain(at(0), 10), 4);
    let refusal = process.take(at(0), 1).unwrap_err();
    assert_eq!((refusal.why, refusal.retry_at), (Why::Exhausted, Some(at(HOUR))));
    assert_eq!(process.drain(at(HOUR), 2_000), 1_000);
}

#[test]
fn a_killed_process_has_used_its_lent_units() {
    let (_directory, path) = file();
    let mut granted = 0;
    for _ in 0..10 {
        let mut process = Process::start(&path, &hourly(1_000));
        granted += process.drain(at(0), 90);
        let Process { clerk, store, .. } = process;
        drop((clerk, store));
    }
    let mut process = Process::start(&path, &hourly(1_000));
    granted += process.drain(at(0), 1_000);
    assert!((1_000 - 10 * 2 * 10..=1_000).contains(&granted), "{granted}");
}

#[test]
fn small_limits_lose_nothing_but_the_unit_under_way() {
    let (_directory, path) = file();
    let mut granted = 0;
    for _ in 0..3 {
        let mut process = Process::start(&path, &hourly(20));
        granted += process.drain(at(0), 2);
    }
    granted += Process::start(&path, &hourly(20)).drain(at(0), 100);
    assert!((17..=20).contains(&granted), "{granted}");
}

struct Failing;

impl Store for Failing {
    fn apply(&mut self, _: &[LoanRequest], _: &mut Vec<Loan>) -> Result<(), StoreError> {
        Err(StoreError::Failed("disk full".to_owned()))
    }
}

#[test]
fn a_failed_store_refuses_calls_or_counts_them_later() {
    let (_directory, path) = file();
    let mut process = Process::start(&path, &hourly(10));
    assert_eq!(process.quota().take(at(0), &[], 1).unwrap_err().why, Why::Fetching);
    process.clerk.work_off(&mut Failing);
    let refusal = process.quota().take(at(0), &[], 1).unwrap_err();
    assert_eq!((refusal.why, refusal.retry_at), (Why::StoreDown, Some(at(SECOND))));
    assert!(process.quota().snapshot(at(0), 1).groups[0].has_store_failed);
    assert_eq!(process.drain(at(0), 1), 0, "it is not asked for a while");
    assert_eq!(process.quota().take(at(SECOND), &[], 1).unwrap_err().why, Why::StoreDown);
    process.work_off();
    assert_eq!(process.drain(at(SECOND), 20), 10);

    let (_directory, path) = file();
    let open = QuotaConfig { on_store_error: Some(OnStoreError::Open), ..hourly(10) };
    let mut process = Process::start(&path, &open);
    assert_eq!(process.quota().take(at(0), &[], 1).unwrap_err().why, Why::Fetching);
    process.clerk.work_off(&mut Failing);
    assert_eq!(process.drain(at(0), 7), 7);
    process.quota().take(at(2 * SECOND), &[], 1).unwrap().responded(at(2 * SECOND));
    process.work_off();
    assert_eq!(process.drain(at(2 * SECOND), 10), 2, "units granted meanwhile are counted");
    process.stop();
    assert_eq!(Process::start(&path, &open).drain(at(2 * SECOND), 10), 0);
}

#[test]
fn a_store_that_is_silent_for_long_has_failed() {
    let (_directory, path) = file();
    let process = Process::start(&path, &hourly(10));
    let refusal = process.quota().take(at(0), &[], 1).unwrap_err();
    assert_eq!((refusal.why, refusal.retry_at), (Why::Fetching, Some(at(SECOND))));
    assert_eq!(process.quota().take(at(SECOND), &[], 1).unwrap_err().why, Why::StoreDown);
}

#[test]
fn without_a_ledger_a_file_is_a_store_that_fails() {
    let configs = [("q".to_owned(), hourly(10))].into();
    let quotas = Quotas::compile(&configs, None, Stores::default(), &[], &mut Vec::new());
    let quota = quotas.get("q").unwrap();
    assert_eq!(quota.take(at(0), &[], 1).unwrap_err().why, Why::Fetching);
    assert_eq!(quota.take(at(0), &[], 1).unwrap_err().why, Why::StoreDown);
}

struct Woken(Sender<()>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        // A taker that is done does not listen any more.
        let _ = self.0.send(());
    }
}

#[test]
fn takers_on_threads_are_granted_exactly_the_limit() {
    let (_directory, path) = file();
    let Process { quotas, ledger, clerk, mut store } = Process::start(&path, &hourly(2_000));
    let quota = quotas.get("q").unwrap();
    let take_all = || {
        let (sender, woken) = channel();
        let waker = Waker::from(Arc::new(Woken(sender)));
        let mut granted = 0;
        loop {
            quota.watch(at(0), &[], 1, &waker);
            match quota.take(at(0), &[], 1) {
                Ok(mut grant) => {
                    grant.responded(at(0));
                    granted += 1;
                }
                Err(Refusal { why: Why::Fetching, .. }) => woken.recv().unwrap(),
                Err(refusal) => {
                    assert_eq!(refusal.why, Why::Exhausted);
                    return granted;
                }
            }
        }
    };
    let granted: u64 = std::thread::scope(|scope| {
        scope.spawn(move || clerk.run(&mut store));
        let takers: Vec<_> = (0..8).map(|_| scope.spawn(take_all)).collect();
        let granted = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
        ledger.close();
        granted
    });
    assert_eq!(granted, 2_000);
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Later(u64),
    Take { cost: u64, actual: Option<u64> },
    WorkOff,
    Kill,
    Stop,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        1 => (0..HOUR).prop_map(Step::Later),
        12 => (1_u64..4, prop::option::weighted(0.2, 0_u64..4)).prop_map(|(cost, actual)| Step::Take { cost, actual }),
        4 => Just(Step::WorkOff),
        1 => Just(Step::Kill),
        1 => Just(Step::Stop),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn whenever_a_process_dies_no_window_is_ever_above_the_limit(limit in 5_u64..30, max in 0_u64..4, steps in steps()) {
        let (_directory, path) = file();
        let spillover = (max > 0).then_some(SpilloverConfig { max });
        let config = QuotaConfig { spillover, ..hourly(limit) };
        let mut process = Process::start(&path, &config);
        let mut now = 0;
        let mut used: BTreeMap<u64, u64> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Later(micros) => now += micros,
                Step::WorkOff => process.work_off(),
                Step::Kill => {
                    let Process { clerk, store, .. } = process;
                    drop((clerk, store));
                    process = Process::start(&path, &config);
                }
                Step::Stop => {
                    process.stop();
                    process = Process::start(&path, &config);
                }
                Step::Take { cost, actual } => {
                    let Ok(mut grant) = process.quota().take(at(now), &[], cost) else { continue };
                    let used = used.entry(now / HOUR).or_default();
                    *used += cost;
                    prop_assert!(*used <= limit + max, "{} used of {}", *used, limit);
                    grant.responded(at(now));
                    // The actual cost of a call may exceed the limit; later calls are not granted then.
                    if let Some(actual) = actual.filter(|actual| *actual < cost) {
                        grant.settle(at(now), actual);
                        *used -= cost - actual;
                    }
                }
            }
        }
    }
}

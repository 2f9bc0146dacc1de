//! From the workers to the diagnoses: a bounded ring from each worker to one thread of low priority, and one back, by which the memory of
//! records returns.
//!
//! A worker hands a record over with a few stores and no system call: the thread looks at the rings from time to time, and only one that is
//! half full wakes it. What there is no place for is not recorded, and counted; where the thread is behind for long, diagnoses are given up
//! for a while.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use egret_clock::{Clock, Moment};
use egret_flow::diagnosis::Tick;
use egret_flow::finished::Reader;
use egret_flow::record::Record;
use egret_flow::{Diagnoses, Fate};
use rtrb::{Consumer, Producer, RingBuffer};
use tracing::{info, warn};

/// Records that may wait in a ring: a tenth of a second of what a worker can do.
const RECORDS_MAX: usize = 4096;
/// Bytes that may wait in a ring.
const BYTES_MAX: u64 = 16 << 20;
/// Records of which a worker keeps the memory.
const SPARE_RECORDS: usize = 1024;
/// Bytes of bodies that a worker copies at once, of all its exchanges under way.
const CAPTURE_BYTES_MAX: usize = 16 << 20;

/// Records that the thread takes from one ring before it looks at the next.
const BATCH: usize = 256;
/// How long the thread sleeps when it has found something, and how long at most when it finds nothing.
const NAP_MIN: Duration = Duration::from_millis(10);
const NAP_MAX: Duration = Duration::from_millis(200);
/// How often diagnoses and exporters do what is due.
const TICK_INTERVAL: Duration = Duration::from_millis(250);
/// How long the thread has at the end for what waits, if exchanges have taken all the time there was.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a ring has to be nearly full until diagnoses are given up.
const BEHIND_TIMEOUT: Duration = Duration::from_secs(1);
/// How long they are given up at least.
const SHED_TIME_MIN: Duration = Duration::from_secs(5);

/// All rings, and the thread at their end.
#[derive(Debug)]
pub(crate) struct Records {
    common: Arc<Common>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The thread's ends, until it is started.
    inlets: Vec<Inlet>,
    /// Tells that it has ended.
    ended: Option<Receiver<()>>,
}

/// What the thread shares with the workers and with whoever asks.
#[derive(Debug, Default)]
struct Common {
    lanes: Box<[Lane]>,
    /// Those of the plan now in force.
    latest: Mutex<Arc<Diagnoses>>,
    sheds: AtomicBool,
    times_shed: AtomicU64,
    stops: AtomicBool,
    thread: OnceLock<Thread>,
}

/// What the thread and one worker tell each other beside the ring.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Lane {
    /// Records that the thread is through with, and the bytes that they took. Told now and then.
    seen: AtomicU64,
    seen_bytes: AtomicU64,
    /// Whether the thread has been woken and has not looked since.
    is_urgent: AtomicBool,
    /// Whether there was no place for a record since the thread has looked.
    is_overfull: AtomicBool,
}

/// A worker's end.
pub(crate) struct Outbox {
    common: Arc<Common>,
    lane: usize,
    records: Producer<Box<Record>>,
    returned: Consumer<Box<Record>>,
    #[expect(clippy::vec_box, reason = "a record is large, and goes through the ring in its box")]
    spare: Vec<Box<Record>>,
    handed_over: u64,
    handed_over_bytes: u64,
    /// Places for exchanges that have waited for one and are not over.
    reserved: u64,
    /// Bytes of bodies that may still be copied.
    capture_bytes_left: usize,
}

/// The thread's end.
struct Inlet {
    records: Consumer<Box<Record>>,
    returned: Producer<Box<Record>>,
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("queued", &self.queued()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Inlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inlet").finish_non_exhaustive()
    }
}

impl Records {
    /// Rings for `workers` workers, and the workers' ends. No thread runs yet.
    pub fn new(workers: usize) -> (Self, Vec<Outbox>) {
        let lanes = (0..workers).map(|_| Lane::default()).collect();
        let common = Arc::new(Common { lanes, ..Common::default() });
        let (outboxes, inlets) = (0..workers).map(|lane| ring(&common, lane)).unzip();
        (Self { common, state: Mutex::new(State { inlets, ended: None }) }, outboxes)
    }

    /// Has records seen by `diagnoses` from now on; starts the thread with the first that there are. Before any worker is told of them.
    pub fn obey(&self, diagnoses: &Arc<Diagnoses>) -> io::Result<()> {
        let mut state = self.lock();
        if !diagnoses.has_nothing_to_tick() && state.ended.is_none() {
            let (end, ended) = mpsc::channel();
            let inlets = std::mem::take(&mut state.inlets);
            let common = Arc::clone(&self.common);
            let started = thread::Builder::new()
                .name("egret-diagnoses".to_owned())
                .spawn(move || DiagnosisThread::new(common, inlets, end).run())?;
            // It is started once.
            let _ = self.common.thread.set(started.thread().clone());
            state.ended = Some(ended);
        }
        *self.common.latest() = Arc::clone(diagnoses);
        self.common.wake();
        Ok(())
    }

    /// Whether diagnoses are given up for now, and how often they have been.
    pub fn shedding(&self) -> (bool, u64) {
        (self.common.sheds.load(Relaxed), self.common.times_shed.load(Relaxed))
    }

    /// Waits until all that has been handed over is seen and written, until `deadline` or a little while. Nothing is seen after this.
    pub fn stop(&self, deadline: Option<Instant>) {
        let Some(ended) = self.lock().ended.take() else { return };
        self.common.stops.store(true, Relaxed);
        self.common.wake();
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let told = ended.recv_timeout(left.unwrap_or_default().max(STOP_TIMEOUT));
        if told == Err(RecvTimeoutError::Timeout) {
            warn!("records were still waiting for their diagnoses, and are lost");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ring(common: &Arc<Common>, lane: usize) -> (Outbox, Inlet) {
    let (records, inlet) = RingBuffer::new(RECORDS_MAX);
    let (returned, returns) = RingBuffer::new(SPARE_RECORDS);
    let outbox = Outbox {
        common: Arc::clone(common),
        lane,
        records,
        returned: returns,
        spare: Vec::new(),
        handed_over: 0,
        handed_over_bytes: 0,
        reserved: 0,
        capture_bytes_left: CAPTURE_BYTES_MAX,
    };
    (outbox, Inlet { records: inlet, returned })
}

impl Common {
    fn latest(&self) -> MutexGuard<'_, Arc<Diagnoses>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

impl Outbox {
    /// A record of nothing.
    pub fn blank(&mut self) -> Box<Record> {
        self.spare.pop().or_else(|| self.returned.pop().ok()).unwrap_or_default()
    }

    /// Takes a record back that is not handed over.
    pub fn keep(&mut self, mut record: Box<Record>) {
        if self.spare.len() < SPARE_RECORDS {
            record.clear();
            self.spare.push(record);
        }
    }

    /// Lets go of the memory, and so of the config that it was used under.
    pub fn forget_spare(&mut self) {
        self.spare.clear();
        while self.returned.pop().is_ok() {}
    }

    /// Whether diagnoses that would be dropped are given up for now.
    pub fn sheds(&self) -> bool {
        self.common.sheds.load(Relaxed)
    }

    /// Keeps a place for an exchange, if there is one.
    pub fn try_reserve(&mut self) -> bool {
        let has_place = self.has_place();
        self.reserved += u64::from(has_place);
        has_place
    }

    /// Hands a record over, and counts it; or counts that there is no place for it. `has_place` is whether one was kept for it.
    pub fn hand_over(&mut self, record: Box<Record>, has_place: bool) {
        let is_welcome = has_place || self.has_place();
        self.reserved -= u64::from(has_place);
        let size = record.size() as u64;
        if is_welcome {
            // Before it is seen, so that nothing is seen that was not handed over.
            record.count(self.lane, Fate::HandedOver);
            if self.records.push(record).is_ok() {
                self.handed_over += 1;
                self.handed_over_bytes += size;
            }
        } else {
            self.lane().is_overfull.store(true, Relaxed);
            record.count(self.lane, Fate::Dropped);
            self.keep(record);
        }
        let is_half_full = self.queued() >= RECORDS_MAX as u64 / 2 || self.queued_bytes() >= BYTES_MAX / 2;
        if is_half_full && !self.lane().is_urgent.swap(true, Relaxed) {
            self.common.wake();
        }
    }

    /// Sets bytes aside for copies of bodies: as many as are wanted, or fewer.
    pub fn set_aside(&mut self, wanted: usize) -> usize {
        let granted = wanted.min(self.capture_bytes_left);
        self.capture_bytes_left -= granted;
        granted
    }

    /// Takes back what was set aside.
    pub fn take_back(&mut self, bytes: usize) {
        self.capture_bytes_left += bytes;
    }

    fn has_place(&self) -> bool {
        self.queued() + self.reserved < RECORDS_MAX as u64 && self.queued_bytes() < BYTES_MAX
    }

    /// Records that wait, or a few more.
    fn queued(&self) -> u64 {
        self.handed_over - self.lane().seen.load(Relaxed)
    }

    fn queued_bytes(&self) -> u64 {
        self.handed_over_bytes - self.lane().seen_bytes.load(Relaxed)
    }

    fn lane(&self) -> &Lane {
        &self.common.lanes[self.lane]
    }
}

/// Runs the diagnoses on records, on a thread of its own.
#[derive(Debug)]
struct DiagnosisThread {
    common: Arc<Common>,
    inlets: Vec<Inlet>,
    reader: Reader,
    latest: Arc<Diagnoses>,
    /// Those of plans before, of which exchanges may still be under way.
    before: Vec<Arc<Diagnoses>>,
    pressure: Pressure,
    clock: Clock,
    /// Dropped at the end, by which others see it.
    _end: Sender<()>,
}

impl DiagnosisThread {
    fn new(common: Arc<Common>, inlets: Vec<Inlet>, end: Sender<()>) -> Self {
        let (reader, latest, before, pressure) = Default::default();
        Self { common, inlets, reader, latest, before, pressure, clock: Clock::new(), _end: end }
    }

    fn run(mut self) {
        lower_priority();
        let (mut nap, mut ticked) = (NAP_MIN, Instant::now());
        loop {
            // Before the rings are looked at: what was handed over until then is seen.
            let stops = self.common.stops.load(Relaxed);
            self.follow();
            let found = self.look();
            if stops && found == 0 {
                self.tick(true);
                return;
            }
            let now = Instant::now();
            self.judge(now, found);
            if now.duration_since(ticked) >= TICK_INTERVAL {
                ticked = now;
                self.tick(false);
            }
            nap = match found {
                0 => (2 * nap).min(NAP_MAX),
                found if found >= BATCH => continue,
                _ => NAP_MIN,
            };
            if found == 0 && self.latest.has_nothing_to_tick() && self.before.is_empty() {
                thread::park();
            } else {
                thread::park_timeout(nap);
            }
        }
    }

    /// Obeys the plan now in force.
    fn follow(&mut self) {
        let latest = Arc::clone(&self.common.latest());
        if !Arc::ptr_eq(&latest, &self.latest) {
            self.before.push(std::mem::replace(&mut self.latest, latest));
        }
    }

    /// Has what waits in each ring seen, up to a bound. The most that was found in one.
    fn look(&mut self) -> usize {
        let mut most = 0;
        for (inlet, lane) in self.inlets.iter_mut().zip(&self.common.lanes) {
            lane.is_urgent.store(false, Relaxed);
            self.pressure.is_high |=
                lane.is_overfull.swap(false, Relaxed) || inlet.records.slots() >= RECORDS_MAX / 4 * 3;
            let (mut count, mut bytes) = (0, 0);
            while count < BATCH
                && let Ok(mut record) = inlet.records.pop()
            {
                count += 1;
                bytes += record.size() as u64;
                if let Some(diagnoses) = record.diagnoses() {
                    diagnoses.see(&record, &mut self.reader);
                }
                record.clear();
                record.keep_only(&self.latest);
                // What there is no room for goes back to the system.
                let _ = inlet.returned.push(record);
            }
            // Written by this thread alone.
            lane.seen.store(lane.seen.load(Relaxed) + count as u64, Relaxed);
            lane.seen_bytes.store(lane.seen_bytes.load(Relaxed) + bytes, Relaxed);
            most = most.max(count);
        }
        most
    }

    /// Has diagnoses given up, or taken up again.
    fn judge(&mut self, now: Instant, found: usize) {
        match self.pressure.judge(now, found == 0) {
            Some(true) => {
                self.common.times_shed.fetch_add(1, Relaxed);
                self.common.sheds.store(true, Relaxed);
                warn!(
                    "diagnoses cannot keep up: those with `on_pressure: drop` are given up for {SHED_TIME_MIN:?} or longer, and what they miss is counted"
                );
            }
            Some(false) => {
                self.common.sheds.store(false, Relaxed);
                info!("diagnoses have caught up and see all exchanges again");
            }
            None => {}
        }
    }

    fn tick(&mut self, is_last: bool) {
        let now = self.clock.timestamp(Moment::now());
        self.latest.tick(Tick { now, is_last });
        // Held by nobody else: no plan, exchange or record leads to it any more.
        self.before.retain(|diagnoses| {
            let is_held = Arc::strong_count(diagnoses) > 1;
            diagnoses.tick(Tick { now, is_last: is_last || !is_held });
            is_held
        });
    }
}

/// Whether the thread is behind.
#[derive(Debug, Default)]
struct Pressure {
    /// Whether a ring was nearly full since this was last judged.
    is_high: bool,
    high_since: Option<Instant>,
    shed_since: Option<Instant>,
}

impl Pressure {
    /// Whether diagnoses are to be given up or taken up again from `now` on, if either. `is_idle` is whether nothing waits.
    fn judge(&mut self, now: Instant, is_idle: bool) -> Option<bool> {
        let is_high = std::mem::take(&mut self.is_high);
        self.high_since = if is_high { self.high_since.or(Some(now)) } else { None };
        let lasts =
            |since: Option<Instant>, long| since.is_some_and(|since| now.duration_since(since) >= long);
        match self.shed_since {
            None if lasts(self.high_since, BEHIND_TIMEOUT) => {
                self.shed_since = Some(now);
                Some(true)
            }
            Some(_) if is_idle && lasts(self.shed_since, SHED_TIME_MIN) => {
                self.shed_since = None;
                Some(false)
            }
            _ => None,
        }
    }
}

/// Has everything else go first, where the system lets a thread say so of itself.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, 19) {
        warn!(%error, "the priority of the diagnoses could not be lowered");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_bounded_and_its_memory_comes_back() {
        let (records, mut outboxes) = Records::new(1);
        let outbox = &mut outboxes[0];
        for _ in 0..2 * RECORDS_MAX {
            let record = outbox.blank();
            outbox.hand_over(record, false);
        }
        assert_eq!((outbox.queued(), outbox.spare.len()), (RECORDS_MAX as u64, 1));
        let mut thread = thread(&records);
        let mut seen = 0;
        while thread.look() > 0 {
            seen += 1;
        }
        assert_eq!((seen, outbox.queued(), outbox.queued_bytes()), (RECORDS_MAX / BATCH, 0, 0));
        assert_eq!(outbox.returned.slots(), SPARE_RECORDS);
        outbox.forget_spare();
        assert_eq!((outbox.returned.slots(), outbox.spare.len()), (0, 0));
    }

    #[test]
    fn a_place_that_was_kept_is_there_whatever_comes_between() {
        let (records, mut outboxes) = Records::new(1);
        let outbox = &mut outboxes[0];
        assert!(outbox.try_reserve());
        for _ in 0..RECORDS_MAX {
            let record = outbox.blank();
            outbox.hand_over(record, false);
        }
        assert_eq!(outbox.queued(), RECORDS_MAX as u64 - 1);
        assert!(!outbox.try_reserve());
        let record = outbox.blank();
        outbox.hand_over(record, true);
        assert_eq!((outbox.queued(), outbox.reserved), (RECORDS_MAX as u64, 0));
        assert!(thread(&records).look() > 0);
        assert!(outbox.try_reserve());
    }

    #[test]
    fn a_ring_is_bounded_in_bytes_too() {
        let (_records, mut outboxes) = Records::new(1);
        let outbox = &mut outboxes[0];
        for _ in 0..100 {
            let mut record = outbox.blank();
            record.response_body.bytes.resize(1 << 20, 0);
            outbox.hand_over(record, false);
        }
        assert_eq!(outbox.queued(), BYTES_MAX >> 20);
    }

    #[test]
    fn copies_of_bodies_are_bounded_over_all_exchanges() {
        let (_records, mut outboxes) = Records::new(1);
        let outbox = &mut outboxes[0];
        assert_eq!(outbox.set_aside(CAPTURE_BYTES_MAX - 10), CAPTURE_BYTES_MAX - 10);
        assert_eq!((outbox.set_aside(100), outbox.set_aside(100)), (10, 0));
        outbox.take_back(10);
        assert_eq!(outbox.set_aside(4), 4);
    }

    #[test]
    fn diagnoses_are_given_up_after_long_pressure_and_taken_up_when_nothing_waits() {
        let start = Instant::now();
        let mut pressure = Pressure::default();
        let mut at = |millis, is_high, is_idle| {
            pressure.is_high = is_high;
            pressure.judge(start + Duration::from_millis(millis), is_idle)
        };
        assert_eq!(at(0, true, false), None);
        // A moment without it starts the time anew.
        assert_eq!(at(900, false, false), None);
        assert_eq!(at(1_000, true, false), None);
        assert_eq!(at(1_999, true, false), None);
        assert_eq!(at(2_000, true, false), Some(true));
        assert_eq!(at(4_000, false, true), None);
        assert_eq!(at(7_000, false, false), None);
        assert_eq!(at(7_001, false, true), Some(false));
        assert_eq!(at(8_000, true, true), None);
    }

    #[test]
    fn stopping_without_a_thread_is_no_wait() {
        Records::new(1).0.stop(None);
    }

    fn thread(records: &Records) -> DiagnosisThread {
        let inlets = std::mem::take(&mut records.lock().inlets);
        DiagnosisThread::new(Arc::clone(&records.common), inlets, mpsc::channel().0)
    }
}

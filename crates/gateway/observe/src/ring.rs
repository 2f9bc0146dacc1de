//! Hands records of exchanges from the workers to the diagnoses. Each worker has a bounded ring to a single
//! low-priority thread, and a second ring that returns the memory of the records.
//!
//! Handing over a record takes a few stores and no system call: the thread polls the rings, and a worker
//! wakes it only when its ring is half full. Records that do not fit are dropped and counted. If the thread
//! stays behind for long, diagnoses are suspended for a while.

#[cfg(feature = "simulated")]
mod simulated;
mod state;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use std::{fmt, io};

use egret_clock::{Clock, Moment, planted};
use egret_diagnosis::{Diagnoses, HandOver, Record, RecordReader, Tick, Traffic};
use parking_lot::Mutex;
use rtrb::{Consumer, Producer, RingBuffer};
use tracing::{info, warn};

use state::{RingState, StopFlag};

/// Maximum number of records in a ring: a tenth of a second of a worker's maximum throughput.
const RECORDS_MAX: usize = 4096;
/// Maximum number of bytes in a ring.
const BYTES_MAX: u64 = 16 << 20;
/// Number of spare records that a worker keeps.
const SPARE_RECORDS: usize = 1024;
/// Maximum number of body bytes that a worker's exchanges in progress copy.
const CAPTURE_BYTES_MAX: usize = 16 << 20;

/// Number of records that the thread takes from one ring before it turns to the next.
const BATCH: usize = 256;
/// Sleep of the thread after it found records, and its longest sleep after it found none.
const NAP_MIN: Duration = Duration::from_millis(10);
const NAP_MAX: Duration = Duration::from_millis(200);
/// Its sleep while failed exchanges are the only ones that it may find.
const NAP_IDLE: Duration = Duration::from_secs(1);
/// Interval at which diagnoses and exporters perform their periodic work.
const TICK_INTERVAL: Duration = Duration::from_millis(250);
/// Minimum time for the waiting records at the end, even if exchanges have used up the deadline.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for which a ring must be nearly full before diagnoses are suspended.
const BEHIND_TIMEOUT: Duration = Duration::from_secs(1);
/// Minimum duration of a suspension.
const SHED_TIME_MIN: Duration = Duration::from_secs(5);

/// All rings, and the thread that reads them.
#[derive(Debug)]
pub struct Records {
    common: Arc<Common>,
    state: Mutex<ObserverState>,
}

#[derive(Debug, Default)]
struct ObserverState {
    /// The thread's ends of the rings, until it is started.
    receivers: Vec<RecordReceiver>,
    /// Signals that the thread has ended.
    ended: Option<Receiver<()>>,
    /// In a simulated world, which gives it its turns, what would be the thread.
    #[cfg(feature = "simulated")]
    stepped: Option<Box<DiagnosisThread>>,
}

/// State shared by the thread, the workers and readers of statistics.
#[derive(Debug)]
struct Common {
    rings: Box<[RingState]>,
    /// The list of recent exchanges.
    traffic: Arc<Traffic>,
    /// The list of failed exchanges.
    failures: Arc<Traffic>,
    /// The diagnoses of the plan in force.
    latest: Mutex<Arc<Diagnoses>>,
    sheds: AtomicBool,
    times_shed: AtomicU64,
    stops: StopFlag,
    thread: OnceLock<Thread>,
}

/// A worker's end of its rings.
pub struct RecordSender {
    common: Arc<Common>,
    ring: usize,
    records: Producer<Box<Record>>,
    returned: Consumer<Box<Record>>,
    #[expect(clippy::vec_box, reason = "a record is large and passes through the ring in its box")]
    spare: Vec<Box<Record>>,
    handed_over: u64,
    handed_over_bytes: u64,
    /// Number of places reserved for exchanges in progress.
    reserved: u64,
    /// Number of body bytes that may still be copied.
    capture_bytes_left: usize,
}

/// The thread's end of a worker's rings.
struct RecordReceiver {
    records: Consumer<Box<Record>>,
    returned: Producer<Box<Record>>,
}

impl fmt::Debug for RecordSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordSender").field("queued", &self.queued()).finish_non_exhaustive()
    }
}

impl fmt::Debug for RecordReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordReceiver").finish_non_exhaustive()
    }
}

impl Records {
    /// Creates rings for `workers` workers, and the workers' ends. The thread is not started yet. Records for
    /// `traffic` and `failures` are put on these lists.
    pub fn new(workers: usize, traffic: Arc<Traffic>, failures: Arc<Traffic>) -> (Self, Vec<RecordSender>) {
        let common = Arc::new(Common {
            rings: (0..workers).map(|_| RingState::default()).collect(),
            traffic,
            failures,
            latest: Mutex::default(),
            sheds: AtomicBool::new(false),
            times_shed: AtomicU64::new(0),
            stops: StopFlag::default(),
            thread: OnceLock::new(),
        });
        let (senders, receivers) = (0..workers).map(|number| ring(&common, number)).unzip();
        (Self { common, state: Mutex::new(ObserverState { receivers, ..ObserverState::default() }) }, senders)
    }

    /// Applies `diagnoses` to records from now on. Starts the thread if they are the first. Call it before
    /// any worker gets the plan.
    pub fn apply(&self, diagnoses: &Arc<Diagnoses>) -> io::Result<()> {
        if !diagnoses.has_nothing_to_tick() || self.common.failures.is_open() {
            self.start()?;
        }
        self.common.traffic.apply(diagnoses);
        self.common.failures.apply(diagnoses);
        *self.common.latest.lock() = Arc::clone(diagnoses);
        self.common.wake();
        Ok(())
    }

    /// Starts the thread, unless it runs.
    fn start(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.ended.is_some() {
            return Ok(());
        }
        let (end, ended) = mpsc::channel();
        let receivers = std::mem::take(&mut state.receivers);
        let thread = DiagnosisThread::new(Arc::clone(&self.common), receivers, end);
        #[cfg(feature = "simulated")]
        {
            state.stepped = Some(Box::new(thread));
        }
        #[cfg(not(feature = "simulated"))]
        {
            let started =
                thread::Builder::new().name("egret-diagnoses".to_owned()).spawn(move || thread.run())?;
            // It is set only once.
            let _ = self.common.thread.set(started.thread().clone());
        }
        state.ended = Some(ended);
        Ok(())
    }

    /// Lets the thread look for records of live traffic, which was opened.
    pub fn watch(&self) -> io::Result<()> {
        self.start()?;
        self.common.wake();
        Ok(())
    }

    /// Returns `true` if diagnoses are suspended, and the number of suspensions so far.
    pub fn shedding(&self) -> (bool, u64) {
        (self.common.sheds.load(Relaxed), self.common.times_shed.load(Relaxed))
    }

    /// Waits until all records have been processed and written, at most until `deadline` or for
    /// `STOP_TIMEOUT`, whichever is longer. Records handed over later are not processed.
    pub fn stop(&self, deadline: Option<Instant>) {
        let Some(ended) = self.state.lock().ended.take() else { return };
        self.common.stops.set();
        self.common.wake();
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let told = ended.recv_timeout(left.unwrap_or_default().max(STOP_TIMEOUT));
        if told == Err(RecvTimeoutError::Timeout) {
            warn!("some records had not been processed by their diagnoses and are lost");
        }
    }
}

fn ring(common: &Arc<Common>, number: usize) -> (RecordSender, RecordReceiver) {
    let (records, receiver) = RingBuffer::new(RECORDS_MAX);
    let (returned, returns) = RingBuffer::new(SPARE_RECORDS);
    let sender = RecordSender {
        common: Arc::clone(common),
        ring: number,
        records,
        returned: returns,
        spare: Vec::new(),
        handed_over: 0,
        handed_over_bytes: 0,
        reserved: 0,
        capture_bytes_left: CAPTURE_BYTES_MAX,
    };
    (sender, RecordReceiver { records: receiver, returned })
}

impl Common {
    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

impl RecordSender {
    /// Returns an empty record.
    pub fn blank(&mut self) -> Box<Record> {
        self.spare.pop().or_else(|| self.returned.pop().ok()).unwrap_or_default()
    }

    /// Takes back a record that is not handed over.
    pub fn keep(&mut self, mut record: Box<Record>) {
        if self.spare.len() < SPARE_RECORDS {
            record.clear();
            self.spare.push(record);
        }
    }

    /// Drops the spare records, which still refer to the config that they were used under.
    pub fn forget_spare(&mut self) {
        self.spare.clear();
        while self.returned.pop().is_ok() {}
    }

    /// Returns `true` while diagnoses with `on_pressure: drop` are suspended.
    pub fn sheds(&self) -> bool {
        self.common.sheds.load(Relaxed)
    }

    /// Reserves a place for an exchange. Returns `false` if there is none.
    pub fn try_reserve(&mut self) -> bool {
        let has_place = self.has_place();
        self.reserved += u64::from(has_place);
        has_place
    }

    /// Hands over a record and counts it, or counts it as dropped if there is no place. `has_place` is true
    /// if a place was reserved for it.
    pub fn hand_over(&mut self, record: Box<Record>, has_place: bool) {
        let is_welcome = has_place || self.has_place();
        self.reserved -= u64::from(has_place);
        let size = record.size() as u64;
        if is_welcome {
            // Counted before the push, so the count is never behind the records processed.
            record.count(self.ring, HandOver::HandedOver);
            let is_lost = planted!(RecordLost) && self.queued() > 0;
            if !is_lost && self.records.push(record).is_ok() {
                self.handed_over += 1;
                self.handed_over_bytes += size;
            }
        } else {
            self.ring().note_drop();
            record.count(self.ring, HandOver::Dropped);
            self.keep(record);
        }
        let is_half_full = self.queued() >= RECORDS_MAX as u64 / 2 || self.queued_bytes() >= BYTES_MAX / 2;
        if is_half_full && self.ring().becomes_urgent() {
            self.common.wake();
        }
    }

    /// Reserves bytes for copies of bodies. Returns the number granted, which may be smaller than `wanted`.
    pub fn set_aside(&mut self, wanted: usize) -> usize {
        let granted = wanted.min(self.capture_bytes_left);
        self.capture_bytes_left -= granted;
        granted
    }

    /// Returns reserved bytes.
    pub fn take_back(&mut self, bytes: usize) {
        self.capture_bytes_left += bytes;
    }

    fn has_place(&self) -> bool {
        self.queued() + self.reserved < RECORDS_MAX as u64 && self.queued_bytes() < BYTES_MAX
    }

    /// Returns the number of waiting records, or slightly more.
    fn queued(&self) -> u64 {
        self.handed_over - self.ring().seen()
    }

    fn queued_bytes(&self) -> u64 {
        self.handed_over_bytes - self.ring().seen_bytes()
    }

    fn ring(&self) -> &RingState {
        &self.common.rings[self.ring]
    }
}

/// The next thing that the thread does after a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextTurn {
    /// Records may wait.
    Again,
    /// It sleeps until it is woken, or at most for this time.
    Sleep(Option<Duration>),
    /// It has processed everything before the stop.
    Ended,
}

/// The thread that runs the diagnoses on records.
#[derive(Debug)]
struct DiagnosisThread {
    common: Arc<Common>,
    receivers: Vec<RecordReceiver>,
    reader: RecordReader,
    latest: Arc<Diagnoses>,
    /// The diagnoses of earlier plans, whose exchanges may still be in progress.
    before: Vec<Arc<Diagnoses>>,
    pressure: Pressure,
    /// Its last sleep, and the time of its last periodic work.
    nap: Duration,
    ticked: Moment,
    clock: Clock,
    /// Dropped when the thread ends, which signals the receiver.
    _end: Sender<()>,
}

impl DiagnosisThread {
    fn new(common: Arc<Common>, receivers: Vec<RecordReceiver>, end: Sender<()>) -> Self {
        let (reader, latest, before, pressure) = Default::default();
        let (nap, ticked, clock) = (NAP_MIN, Moment::now(), Clock::new());
        Self { common, receivers, reader, latest, before, pressure, nap, ticked, clock, _end: end }
    }

    #[cfg_attr(feature = "simulated", expect(dead_code, reason = "the world gives the turns"))]
    fn run(mut self) {
        lower_priority();
        loop {
            match self.turn() {
                NextTurn::Again => {}
                NextTurn::Sleep(Some(time)) => thread::park_timeout(time),
                NextTurn::Sleep(None) => thread::park(),
                NextTurn::Ended => return,
            }
        }
    }

    /// Processes what waits, and does the periodic work if it is time.
    fn turn(&mut self) -> NextTurn {
        // Read before the rings, so every record handed over before the stop is processed.
        let stops = self.common.stops.is_set();
        self.follow();
        let found = self.look();
        if stops && found == 0 {
            self.tick(true);
            return NextTurn::Ended;
        }
        let now = Moment::now();
        self.judge(now, found);
        if now.since(self.ticked) >= TICK_INTERVAL {
            self.ticked = now;
            self.tick(false);
        }
        self.nap = match found {
            0 => (2 * self.nap).min(NAP_MAX),
            found if found >= BATCH => return NextTurn::Again,
            _ => NAP_MIN,
        };
        let is_idle = self.latest.has_nothing_to_tick() && self.before.is_empty();
        let is_idle = is_idle && found == 0 && !self.common.traffic.is_open();
        match self.common.failures.is_open() {
            true if is_idle => NextTurn::Sleep(Some(NAP_IDLE)),
            false if is_idle => NextTurn::Sleep(None),
            _ => NextTurn::Sleep(Some(self.nap)),
        }
    }

    /// Switches to the plan in force.
    fn follow(&mut self) {
        let latest = Arc::clone(&self.common.latest.lock());
        if !Arc::ptr_eq(&latest, &self.latest) {
            self.before.push(std::mem::replace(&mut self.latest, latest));
        }
    }

    /// Processes the waiting records of each ring, up to a limit. Returns the largest number found in one
    /// ring.
    fn look(&mut self) -> usize {
        let mut max = 0;
        for (receiver, ring) in self.receivers.iter_mut().zip(&self.common.rings) {
            self.pressure.is_high |= ring.begin_look() || receiver.records.slots() >= RECORDS_MAX / 4 * 3;
            let (mut count, mut bytes) = (0, 0);
            while count < BATCH
                && let Ok(mut record) = receiver.records.pop()
            {
                count += 1;
                bytes += record.size() as u64;
                record.show(&mut self.reader);
                record.clear();
                record.keep_only(&self.latest);
                // Records that do not fit are freed.
                let _ = receiver.returned.push(record);
            }
            ring.saw(count as u64, bytes);
            max = max.max(count);
        }
        max
    }

    /// Suspends the diagnoses, or resumes them.
    fn judge(&mut self, now: Moment, found: usize) {
        match self.pressure.judge(now, found == 0) {
            Some(true) => {
                self.common.times_shed.fetch_add(1, Relaxed);
                self.common.sheds.store(true, Relaxed);
                warn!(
                    "diagnoses cannot keep up: those with `on_pressure: drop` are suspended for {SHED_TIME_MIN:?} or longer; the exchanges that they miss are counted"
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
        self.common.traffic.tick();
        self.latest.tick(Tick { now, is_last });
        // Nothing else refers to them: no plan, exchange or record.
        self.before.retain(|diagnoses| {
            let is_held = Arc::strong_count(diagnoses) > 1;
            diagnoses.tick(Tick { now, is_last: is_last || !is_held });
            is_held
        });
    }
}

/// Decides when the thread is too far behind.
#[derive(Debug, Default)]
struct Pressure {
    /// `true` if a ring was nearly full since the last call of `judge`.
    is_high: bool,
    high_since: Option<Moment>,
    shed_since: Option<Moment>,
}

impl Pressure {
    /// Returns `Some(true)` to suspend the diagnoses from `now` on, `Some(false)` to resume them, and `None`
    /// for no change. `is_idle` is true if no records wait.
    fn judge(&mut self, now: Moment, is_idle: bool) -> Option<bool> {
        let is_high = std::mem::take(&mut self.is_high);
        self.high_since = if is_high { self.high_since.or(Some(now)) } else { None };
        let lasts = |since: Option<Moment>, long| since.is_some_and(|since| now.since(since) >= long);
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

/// Lowers the priority of this thread below all others, if the platform supports that per thread.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, 19) {
        warn!(%error, "cannot lower the priority of the diagnosis thread");
    }
}

#[cfg(test)]
mod tests {
    use egret_diagnosis::TrafficConfig;

    use super::*;

    #[test]
    fn a_ring_is_bounded_and_its_memory_comes_back() {
        let (records, mut senders) = records(1);
        let sender = &mut senders[0];
        for _ in 0..2 * RECORDS_MAX {
            let record = sender.blank();
            sender.hand_over(record, false);
        }
        assert_eq!((sender.queued(), sender.spare.len()), (RECORDS_MAX as u64, 1));
        let mut thread = thread(&records);
        let mut seen = 0;
        while thread.look() > 0 {
            seen += 1;
        }
        assert_eq!((seen, sender.queued(), sender.queued_bytes()), (RECORDS_MAX / BATCH, 0, 0));
        assert_eq!(sender.returned.slots(), SPARE_RECORDS);
        sender.forget_spare();
        assert_eq!((sender.returned.slots(), sender.spare.len()), (0, 0));
    }

    #[test]
    fn a_place_that_was_kept_is_there_whatever_comes_between() {
        let (records, mut senders) = records(1);
        let sender = &mut senders[0];
        assert!(sender.try_reserve());
        for _ in 0..RECORDS_MAX {
            let record = sender.blank();
            sender.hand_over(record, false);
        }
        assert_eq!(sender.queued(), RECORDS_MAX as u64 - 1);
        assert!(!sender.try_reserve());
        let record = sender.blank();
        sender.hand_over(record, true);
        assert_eq!((sender.queued(), sender.reserved), (RECORDS_MAX as u64, 0));
        assert!(thread(&records).look() > 0);
        assert!(sender.try_reserve());
    }

    #[test]
    fn a_ring_is_bounded_in_bytes_too() {
        let (_records, mut senders) = records(1);
        let sender = &mut senders[0];
        for _ in 0..100 {
            let mut record = sender.blank();
            record.response_body.bytes.resize(1 << 20, 0);
            sender.hand_over(record, false);
        }
        assert_eq!(sender.queued(), BYTES_MAX >> 20);
    }

    #[test]
    fn copies_of_bodies_are_bounded_over_all_exchanges() {
        let (_records, mut senders) = records(1);
        let sender = &mut senders[0];
        assert_eq!(sender.set_aside(CAPTURE_BYTES_MAX - 10), CAPTURE_BYTES_MAX - 10);
        assert_eq!((sender.set_aside(100), sender.set_aside(100)), (10, 0));
        sender.take_back(10);
        assert_eq!(sender.set_aside(4), 4);
    }

    #[test]
    fn diagnoses_pause_under_pressure_and_resume_after_it() {
        let start = Moment::now();
        let mut pressure = Pressure::default();
        let mut at = |millis, is_high, is_idle| {
            pressure.is_high = is_high;
            pressure.judge(start + Duration::from_millis(millis), is_idle)
        };
        assert_eq!(at(0, true, false), None);
        // A moment without pressure starts the time again.
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
        let (tell, stopped) = mpsc::channel();
        thread::spawn(move || {
            records(1).0.stop(Some(Instant::now() + Duration::from_hours(1)));
            tell.send(())
        });
        let stopped = stopped.recv_timeout(Duration::from_mins(1));
        assert!(stopped.is_ok(), "it waits for a thread that was never started");
    }

    fn records(workers: usize) -> (Records, Vec<RecordSender>) {
        let list = || Arc::new(Traffic::new(TrafficConfig::default(), workers));
        Records::new(workers, list(), list())
    }

    fn thread(records: &Records) -> DiagnosisThread {
        let receivers = std::mem::take(&mut records.state.lock().receivers);
        DiagnosisThread::new(Arc::clone(&records.common), receivers, mpsc::channel().0)
    }
}

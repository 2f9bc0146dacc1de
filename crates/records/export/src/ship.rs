//! Sends records to a collector: from memory while it takes them, by way of the spool while it does not.
//!
//! Whoever puts a record never waits: it goes into a bounded queue. One thread takes from there. Once an attempt has failed, what
//! waits and what comes goes to the spool, and is sent from there, the oldest first, until nothing is left in it.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::{sleep_until, timeout_at};

use crate::background::{self, Backoff};
use crate::counters::{Counters, DropReason};
use crate::disk::System;
use crate::spool::{Opened, Position, Spool};

/// What may wait in memory.
const QUEUE_BYTES_MAX: usize = 8 << 20;
/// From here on what waits is spooled while a batch is under way.
const QUEUE_BYTES_HIGH: usize = QUEUE_BYTES_MAX / 4;
/// A batch is not longer than this, whatever the number of its records.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// The longest wait between two attempts.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// What became of a batch.
#[derive(Debug)]
pub enum Outcome {
    /// The collector has it, but for those that it does not want.
    Taken {
        /// Records that it does not want.
        rejected: u64,
        /// Bytes that went out.
        bytes: u64,
        /// What it says of those that it does not want.
        complaint: Option<String>,
    },
    /// It is more than the collector takes at once.
    TooLarge,
    /// It has to be sent again.
    Failed {
        /// Why, with no secret in it.
        error: String,
        /// How long the collector asks to be left alone.
        retry_after: Option<Duration>,
    },
}

/// A way to a collector.
pub trait Transport: Send + 'static {
    /// Sends a batch. Takes as long as it may, and no longer.
    fn send(&mut self, batch: &[Vec<u8>]) -> impl Future<Output = Outcome> + Send;
}

/// How records are sent.
#[derive(Debug, Clone)]
pub struct Shipping {
    /// How long a record may wait for company.
    pub flush_after: Duration,
    /// Records in a batch.
    pub batch_max: usize,
    /// Where records wait while the collector is away.
    pub spool: PathBuf,
    /// How many bytes may wait there.
    pub spool_bytes_max: u64,
}

/// What is shared with whoever puts records.
#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    counters: Arc<Counters>,
    /// Something is to be done before it is due.
    wake: Notify,
    batch_max: usize,
}

#[derive(Debug, Default)]
struct Queue {
    records: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Until when what waits may be sent.
    closing: Option<Instant>,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that sends records.
#[derive(Debug)]
pub struct Shipper {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Shipper {
    /// Starts the thread.
    pub fn start(shipping: Shipping, counters: Arc<Counters>, transport: impl Transport) -> io::Result<Self> {
        let batch_max = shipping.batch_max;
        let shared = Arc::new(Shared { queue: Mutex::default(), counters, wake: Notify::new(), batch_max });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let ship = Ship {
            shared: Arc::clone(&shared),
            shipping,
            transport,
            spool: None,
            backoff: Backoff::up_to(BACKOFF_MAX),
            retry_at: None,
            spool_retry_at: None,
            oldest: None,
        };
        let thread = background::spawn("egret-ship", move || {
            runtime.block_on(ship.run());
            // A look-up of a name may still be under way.
            runtime.shutdown_background();
        })?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Takes a record, or drops it and counts that.
    pub fn put(&self, record: Vec<u8>) {
        let counters = &self.shared.counters;
        counters.put.fetch_add(1, Relaxed);
        let mut queue = self.shared.queue();
        let reason = if queue.closing.is_some() {
            DropReason::Closed
        } else if record.len() > BATCH_BYTES_MAX {
            DropReason::TooLarge
        } else if queue.bytes + record.len() > QUEUE_BYTES_MAX {
            DropReason::Full
        } else {
            queue.bytes += record.len();
            queue.records.push_back(record);
            if queue.records.len() >= self.shared.batch_max || queue.bytes > QUEUE_BYTES_HIGH {
                self.shared.wake.notify_one();
            }
            return;
        };
        counters.dropped(reason, 1);
    }

    /// Sends what waits until `deadline`, and spools the rest.
    pub fn close(&self, deadline: Instant) {
        self.shared.queue().closing.get_or_insert(deadline);
        self.shared.wake.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            self.shared.counters.noticed("what waited may be lost".to_owned());
        }
    }
}

/// A batch, and where in the spool each of its records ends if it is from there.
struct Batch {
    records: Vec<Vec<u8>>,
    ends: Vec<Position>,
}

/// What the thread has.
struct Ship<T> {
    shared: Arc<Shared>,
    shipping: Shipping,
    transport: T,
    spool: Option<Spool>,
    backoff: Backoff,
    /// Not before then, after an attempt that failed.
    retry_at: Option<Instant>,
    /// Not before then, after the disk has failed.
    spool_retry_at: Option<Instant>,
    /// When the oldest record in the queue was first seen.
    oldest: Option<Instant>,
}

impl<T: Transport> Ship<T> {
    async fn run(mut self) {
        self.open_spool();
        loop {
            let closing = self.shared.queue().closing;
            if self.has_spooled() || self.retry_at.is_some() {
                self.spill();
            }
            let now = Instant::now();
            let may_try = closing.is_some() || self.retry_at.is_none_or(|at| at <= now);
            let batch = if may_try { self.batch(closing.is_some(), now) } else { None };
            match (batch, closing) {
                (Some(batch), _) => {
                    let went_well = self.deliver(batch, closing).await;
                    if closing.is_some() && !went_well {
                        return self.end();
                    }
                }
                (None, Some(_)) => return self.end(),
                (None, None) => self.rest().await,
            }
        }
    }

    /// Until something is due, or there is much to do.
    async fn rest(&self) {
        let due = Instant::now() + self.shipping.flush_after;
        let due = self.retry_at.map_or(due, |retry| due.min(retry));
        let due = self.oldest.map_or(due, |oldest| due.min(oldest + self.shipping.flush_after));
        tokio::select! {
            () = self.shared.wake.notified() => {}
            () = sleep_until(due.into()) => {}
        }
    }

    fn has_spooled(&self) -> bool {
        self.spool.as_ref().is_some_and(|spool| !spool.is_empty())
    }

    /// What is to be sent next: the oldest, if there is enough of it or it has waited for long enough.
    fn batch(&mut self, closing: bool, now: Instant) -> Option<Batch> {
        if self.has_spooled() {
            return self.spooled();
        }
        let mut queue = self.shared.queue();
        if queue.records.is_empty() {
            self.oldest = None;
            return None;
        }
        let oldest = *self.oldest.get_or_insert(now);
        let is_enough = queue.records.len() >= self.shipping.batch_max || queue.bytes > QUEUE_BYTES_HIGH;
        if !is_enough && !closing && now.saturating_duration_since(oldest) < self.shipping.flush_after {
            return None;
        }
        let (mut records, mut bytes) = (Vec::new(), 0);
        while records.len() < self.shipping.batch_max && bytes < BATCH_BYTES_MAX {
            let Some(record) = queue.records.pop_front() else { break };
            bytes += record.len();
            records.push(record);
        }
        queue.bytes -= bytes;
        self.oldest = None;
        Some(Batch { records, ends: Vec::new() })
    }

    fn spooled(&mut self) -> Option<Batch> {
        let spool = self.spool.as_mut()?;
        match spool.oldest(self.shipping.batch_max, BATCH_BYTES_MAX) {
            Ok(records) if !records.is_empty() => {
                let (records, ends) = records.into_iter().unzip();
                Some(Batch { records, ends })
            }
            read => {
                let why = read.err().map_or_else(|| "damaged".to_owned(), |error| error.to_string());
                let lost = spool.give_up_oldest();
                self.shared.counters.dropped(DropReason::Damaged, lost);
                self.shared.counters.noticed(format!("{lost} entries in the spool cannot be read: {why}"));
                self.count_spool();
                None
            }
        }
    }

    /// Sends a batch; what is not taken stays in the spool or goes there. True where all of it is settled.
    async fn deliver(&mut self, batch: Batch, closing: Option<Instant>) -> bool {
        if self.backoff.is_waiting() {
            self.shared.counters.retries.fetch_add(1, Relaxed);
        }
        let (mut settled, mut size) = (0, batch.records.len());
        while settled < batch.records.len() {
            let part = &batch.records[settled..batch.records.len().min(settled + size)];
            match self.send(part, closing).await {
                Outcome::Taken { rejected, bytes, complaint } => {
                    let rejected = rejected.min(part.len() as u64);
                    self.shared.counters.wrote(part.len() as u64 - rejected, bytes);
                    self.shared.counters.dropped(DropReason::Rejected, rejected);
                    if let Some(complaint) = complaint {
                        self.shared.counters.complained(complaint);
                    }
                    settled += part.len();
                }
                Outcome::TooLarge if part.len() > 1 => size = part.len().div_ceil(2),
                Outcome::TooLarge => {
                    self.shared.counters.dropped(DropReason::TooLarge, 1);
                    settled += 1;
                }
                Outcome::Failed { error, retry_after } => {
                    self.shared.counters.failed(error);
                    let wait = self.backoff.next().max(retry_after.unwrap_or_default());
                    self.retry_at = Some(Instant::now() + wait);
                    self.settle(batch, settled);
                    return false;
                }
            }
        }
        self.settle(batch, settled);
        self.shared.counters.works();
        self.backoff.reset();
        self.retry_at = None;
        true
    }

    /// Meanwhile what comes is spooled once it is much.
    async fn send(&mut self, part: &[Vec<u8>], closing: Option<Instant>) -> Outcome {
        let Self { shared, spool, shipping, spool_retry_at, transport, .. } = self;
        let sending = transport.send(part);
        tokio::pin!(sending);
        loop {
            // A close that begins while a batch is under way has a deadline for it too.
            let deadline = closing.or_else(|| shared.queue().closing).unwrap_or(Instant::now() + FOREVER);
            tokio::select! {
                outcome = timeout_at(deadline.into(), &mut sending) => {
                    return outcome.unwrap_or_else(|_| Outcome::Failed {
                        error: "the exporter is closed before the collector has answered".to_owned(),
                        retry_after: None,
                    });
                }
                () = shared.wake.notified() => {
                    if shared.queue().bytes > QUEUE_BYTES_HIGH {
                        Spilling { shared, spool, shipping, spool_retry_at }.spill();
                    }
                }
            }
        }
    }

    /// The first so many records of a batch are done with. The others, where they are not in the spool, go there.
    fn settle(&mut self, batch: Batch, settled: usize) {
        let Batch { mut records, ends } = batch;
        if ends.is_empty() {
            let mut queue = self.shared.queue();
            for record in records.drain(settled..).rev() {
                queue.bytes += record.len();
                queue.records.push_front(record);
            }
            drop(queue);
            if self.retry_at.is_some() {
                self.spill();
            }
        } else if let (Some(end), Some(spool)) =
            (settled.checked_sub(1).and_then(|last| ends.get(last)), &mut self.spool)
        {
            spool.take(*end);
            self.count_spool();
        }
    }

    fn open_spool(&mut self) {
        let Self { shared, spool, shipping, spool_retry_at, .. } = self;
        Spilling { shared, spool, shipping, spool_retry_at }.open();
    }

    fn spill(&mut self) {
        let Self { shared, spool, shipping, spool_retry_at, .. } = self;
        Spilling { shared, spool, shipping, spool_retry_at }.spill();
    }

    fn count_spool(&self) {
        let bytes = self.spool.as_ref().map_or(0, Spool::bytes);
        self.shared.counters.spooled_bytes.store(bytes, Relaxed);
    }

    /// What is left waits in the spool for the next start.
    fn end(mut self) {
        self.spool_retry_at = None;
        self.spill();
        let left = std::mem::take(&mut self.shared.queue().records).len();
        self.shared.counters.dropped(DropReason::Closed, left as u64);
        if let Some(Err(error)) = self.spool.take().map(Spool::close) {
            self.shared.counters.noticed(format!("some entries in the spool may be sent twice: {error}"));
        }
    }
}

/// Longer than any deadline.
const FOREVER: Duration = Duration::from_hours(24);

/// What it takes to put the queue into the spool.
struct Spilling<'a> {
    shared: &'a Shared,
    spool: &'a mut Option<Spool>,
    shipping: &'a Shipping,
    spool_retry_at: &'a mut Option<Instant>,
}

impl Spilling<'_> {
    /// Moves all that is in the queue. Where the disk fails it stays there.
    fn spill(&mut self) {
        if self.spool_retry_at.is_some_and(|at| Instant::now() < at) || self.shared.queue().records.is_empty()
        {
            return;
        }
        self.open();
        let Some(spool) = self.spool else { return };
        let mut queue = self.shared.queue();
        let records: Vec<Vec<u8>> = std::mem::take(&mut queue.records).into();
        let bytes = std::mem::take(&mut queue.bytes);
        drop(queue);
        match spool.append(records.iter().map(Vec::as_slice)) {
            Ok(dropped) => {
                *self.spool_retry_at = None;
                self.shared.counters.dropped(DropReason::SpoolFull, dropped);
                self.shared.counters.spooled_bytes.store(spool.bytes(), Relaxed);
            }
            Err(error) => {
                let mut queue = self.shared.queue();
                let newer = std::mem::replace(&mut queue.records, records.into());
                queue.records.extend(newer);
                queue.bytes += bytes;
                drop(queue);
                self.failed(&error);
            }
        }
    }

    fn open(&mut self) {
        if self.spool.is_some() {
            return;
        }
        match Spool::open(&self.shipping.spool, self.shipping.spool_bytes_max, Box::new(System)) {
            Ok(Opened { spool, damaged_bytes }) => {
                let counters = &self.shared.counters;
                if damaged_bytes > 0 {
                    counters.repaired.fetch_add(1, Relaxed);
                    counters
                        .noticed(format!("{damaged_bytes} bytes in the spool were torn, and are skipped"));
                }
                counters.spooled_bytes.store(spool.bytes(), Relaxed);
                *self.spool = Some(spool);
            }
            Err(error) => self.failed(&error),
        }
    }

    fn failed(&mut self, error: &io::Error) {
        *self.spool_retry_at = Some(Instant::now() + SPOOL_RETRY);
        let spool = self.shipping.spool.display();
        self.shared
            .counters
            .complained(format!("the spool {spool} takes nothing, entries wait in memory: {error}"));
    }
}

/// Between attempts to use a disk that fails.
const SPOOL_RETRY: Duration = Duration::from_secs(2);

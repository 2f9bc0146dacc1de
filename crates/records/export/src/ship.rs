//! Sends records to a collector: from memory while it accepts them, through the spool while it does not.
//!
//! Producers never wait: a record goes to a bounded queue, which one thread empties. After a failed attempt,
//! waiting and new records go to the spool. They are sent from there, oldest first, until the spool is empty.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{sleep_until, timeout_at};

use crate::background::{self, Backoff};
use crate::counters::{Counters, DropReason};
use crate::disk::System;
use crate::spool::{Opened, Position, Spool};

/// Maximum number of bytes in memory.
const QUEUE_BYTES_MAX: usize = 8 << 20;
/// Number of bytes in memory above which records are spooled while a batch is being sent.
const QUEUE_BYTES_HIGH: usize = QUEUE_BYTES_MAX / 4;
/// Maximum size of a batch, regardless of its number of records.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Maximum wait between two attempts.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Result of sending a batch.
#[derive(Debug)]
pub enum SendOutcome {
    /// The collector has received the batch, and rejected some of its records or none.
    Accepted {
        /// Number of rejected records.
        rejected: u64,
        /// Bytes sent.
        bytes: u64,
        /// The collector's reason for rejecting records.
        warning: Option<String>,
    },
    /// The batch is larger than the collector accepts.
    TooLarge,
    /// The batch has to be sent again.
    Failed {
        /// Reason, without any secret.
        error: String,
        /// Wait that the collector asks for.
        retry_after: Option<Duration>,
    },
}

/// A connection to a collector.
pub trait Transport: Send + 'static {
    /// Sends a batch. The implementation has its own time limit.
    fn send(&mut self, batch: &[Vec<u8>]) -> impl Future<Output = SendOutcome> + Send;
}

/// Settings for sending records.
#[derive(Debug, Clone)]
pub struct Shipping {
    /// Maximum time that a record waits for others.
    pub flush_after: Duration,
    /// Maximum number of records in a batch.
    pub batch_max: usize,
    /// Directory of the spool.
    pub spool: PathBuf,
    /// Maximum size of the spool in bytes.
    pub spool_bytes_max: u64,
}

/// State shared with the producers.
#[derive(Debug)]
struct SharedQueue {
    queue: Mutex<Queue>,
    counters: Arc<Counters>,
    /// Wakes the thread before its timer.
    wake: Notify,
    batch_max: usize,
}

#[derive(Debug, Default)]
struct Queue {
    records: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Deadline for sending waiting records while the exporter is closing.
    closing: Option<Instant>,
}

/// A thread that sends records.
#[derive(Debug)]
pub struct Shipper {
    shared: Arc<SharedQueue>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Shipper {
    /// Starts the thread.
    pub fn start(shipping: Shipping, counters: Arc<Counters>, transport: impl Transport) -> io::Result<Self> {
        let batch_max = shipping.batch_max;
        let shared =
            Arc::new(SharedQueue { queue: Mutex::default(), counters, wake: Notify::new(), batch_max });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let ship = Ship {
            shared: Arc::clone(&shared),
            spool: SpoolWriter::new(Arc::clone(&shared), &shipping),
            shipping,
            transport,
            backoff: Backoff::up_to(BACKOFF_MAX),
            retry_at: None,
            oldest: None,
        };
        let thread = background::spawn("egret-ship", move || {
            runtime.block_on(ship.run());
            // A DNS lookup may still be running.
            runtime.shutdown_background();
        })?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Takes a record, or drops and counts it.
    pub fn put(&self, record: Vec<u8>) {
        let counters = &self.shared.counters;
        counters.put.fetch_add(1, Relaxed);
        let mut queue = self.shared.queue.lock();
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

    /// Sends waiting records until `deadline`, and spools the rest.
    pub fn close(&self, deadline: Instant) {
        self.shared.queue.lock().closing.get_or_insert(deadline);
        self.shared.wake.notify_one();
        let thread = self.thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            self.shared.counters.warn("the sending thread panicked: waiting entries may be lost".to_owned());
        }
    }
}

/// A batch. For records from the spool, `ends` has the position after each of them.
struct Batch {
    records: Vec<Vec<u8>>,
    ends: Vec<Position>,
}

/// State of the thread.
struct Ship<T> {
    shared: Arc<SharedQueue>,
    shipping: Shipping,
    transport: T,
    spool: SpoolWriter,
    backoff: Backoff,
    /// Time of the next attempt after a failed one.
    retry_at: Option<Instant>,
    /// Time at which the oldest record in the queue was first seen.
    oldest: Option<Instant>,
}

impl<T: Transport> Ship<T> {
    async fn run(mut self) {
        loop {
            let closing = self.shared.queue.lock().closing;
            self.spool.open();
            if self.spool.has_records() || self.retry_at.is_some() {
                self.spool.write_queue();
            }
            let now = Instant::now();
            let may_try = closing.is_some() || !self.is_waiting(now);
            let batch = if may_try { self.batch(closing.is_some(), now) } else { None };
            match (batch, closing) {
                (Some(batch), _) => {
                    let was_sent = self.deliver(batch, closing).await;
                    if closing.is_some() && !was_sent {
                        return self.end();
                    }
                }
                (None, Some(_)) => return self.end(),
                (None, None) => self.rest().await,
            }
        }
    }

    /// Returns `true` before the next attempt after a failed one, and while the spool is awaited.
    fn is_waiting(&self, now: Instant) -> bool {
        let has_room = || self.shared.queue.lock().bytes <= QUEUE_BYTES_HIGH;
        self.retry_at.is_some_and(|at| now < at) || (self.spool.is_awaited() && has_room())
    }

    /// Waits until a timer is due or the queue fills up.
    async fn rest(&self) {
        let due = Instant::now() + self.shipping.flush_after;
        let oldest_due = self.oldest.map(|oldest| oldest + self.shipping.flush_after);
        let timers = [self.retry_at, oldest_due, self.spool.next_attempt()];
        let due = timers.into_iter().flatten().fold(due, Instant::min);
        tokio::select! {
            () = self.shared.wake.notified() => {}
            () = sleep_until(due.into()) => {}
        }
    }

    /// Returns the next batch: the oldest records, if there are enough of them or they have waited long
    /// enough.
    fn batch(&mut self, closing: bool, now: Instant) -> Option<Batch> {
        if self.spool.has_records() {
            return self.spooled();
        }
        let mut queue = self.shared.queue.lock();
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
        let spool = self.spool.spool.as_mut()?;
        match spool.oldest(self.shipping.batch_max, BATCH_BYTES_MAX) {
            Ok(records) if !records.is_empty() => {
                let (records, ends) = records.into_iter().unzip();
                Some(Batch { records, ends })
            }
            read => {
                let why = read.err().map_or_else(|| "damaged".to_owned(), |error| error.to_string());
                let lost = spool.drop_oldest();
                self.shared.counters.dropped(DropReason::Damaged, lost);
                self.shared.counters.warn(format!("dropped {lost} unreadable entries from the spool: {why}"));
                self.spool.count();
                None
            }
        }
    }

    /// Sends a batch. Records that fail stay in the spool or go there. Returns `true` if all of the batch was
    /// accepted or rejected.
    async fn deliver(&mut self, batch: Batch, closing: Option<Instant>) -> bool {
        if self.backoff.is_waiting() {
            self.shared.counters.retries.fetch_add(1, Relaxed);
        }
        let (mut finished, mut size) = (0, batch.records.len());
        while finished < batch.records.len() {
            let part = &batch.records[finished..batch.records.len().min(finished + size)];
            match self.send(part, closing).await {
                SendOutcome::Accepted { rejected, bytes, warning } => {
                    let rejected = rejected.min(part.len() as u64);
                    self.shared.counters.wrote(part.len() as u64 - rejected, bytes);
                    self.shared.counters.dropped(DropReason::Rejected, rejected);
                    if let Some(warning) = warning {
                        self.shared.counters.warn_once(warning);
                    }
                    finished += part.len();
                }
                SendOutcome::TooLarge if part.len() > 1 => size = part.len().div_ceil(2),
                SendOutcome::TooLarge => {
                    self.shared.counters.dropped(DropReason::TooLarge, 1);
                    finished += 1;
                }
                SendOutcome::Failed { error, retry_after } => {
                    self.shared.counters.failed(error);
                    let wait = self.backoff.next().max(retry_after.unwrap_or_default());
                    self.retry_at = Some(Instant::now() + wait);
                    self.finish(batch, finished);
                    return false;
                }
            }
        }
        self.finish(batch, finished);
        self.shared.counters.succeeded();
        self.backoff.reset();
        self.retry_at = None;
        true
    }

    /// Sends a part of a batch. Meanwhile new records are spooled if the queue fills up.
    async fn send(&mut self, part: &[Vec<u8>], closing: Option<Instant>) -> SendOutcome {
        let Self { shared, spool, transport, .. } = self;
        let sending = transport.send(part);
        tokio::pin!(sending);
        loop {
            // A close that begins during this batch sets its deadline too.
            let deadline =
                closing.or_else(|| shared.queue.lock().closing).unwrap_or(Instant::now() + FOREVER);
            tokio::select! {
                outcome = timeout_at(deadline.into(), &mut sending) => {
                    return outcome.unwrap_or_else(|_| SendOutcome::Failed {
                        error: "the exporter was closed before the collector responded".to_owned(),
                        retry_after: None,
                    });
                }
                () = shared.wake.notified() => {
                    if shared.queue.lock().bytes > QUEUE_BYTES_HIGH {
                        spool.write_queue();
                    }
                }
            }
        }
    }

    /// Removes the first `settled` records of a batch. The others are spooled unless they are in the spool
    /// already.
    fn finish(&mut self, batch: Batch, finished: usize) {
        let Batch { mut records, ends } = batch;
        if ends.is_empty() {
            let mut queue = self.shared.queue.lock();
            for record in records.drain(finished..).rev() {
                queue.bytes += record.len();
                queue.records.push_front(record);
            }
            drop(queue);
            if self.retry_at.is_some() {
                self.spool.write_queue();
            }
        } else if let (Some(end), Some(spool)) =
            (finished.checked_sub(1).and_then(|last| ends.get(last)), &mut self.spool.spool)
        {
            spool.take(*end);
            self.spool.count();
        }
    }

    /// Spools the remaining records for the next start.
    fn end(mut self) {
        self.spool.retry_at = None;
        self.spool.write_queue();
        let unsent = std::mem::take(&mut self.shared.queue.lock().records).len();
        self.shared.counters.dropped(DropReason::Closed, unsent as u64);
        if let Some(Err(error)) = self.spool.spool.map(Spool::close) {
            self.shared.counters.warn(format!("some entries in the spool may be sent twice: {error}"));
        }
    }
}

/// Longer than any deadline.
const FOREVER: Duration = Duration::from_hours(24);

/// The spool, and what is needed to move the queue to it.
struct SpoolWriter {
    shared: Arc<SharedQueue>,
    directory: PathBuf,
    bytes_max: u64,
    /// `None` until it could be opened.
    spool: Option<Spool>,
    /// Time of the next use of the disk after it has failed.
    retry_at: Option<Instant>,
    /// End of the time in which records wait until the spool is open: those in it are older.
    awaited_until: Option<Instant>,
}

impl SpoolWriter {
    fn new(shared: Arc<SharedQueue>, shipping: &Shipping) -> Self {
        Self {
            shared,
            directory: shipping.spool.clone(),
            bytes_max: shipping.spool_bytes_max,
            spool: None,
            retry_at: None,
            awaited_until: Some(Instant::now() + AWAITED_MAX),
        }
    }

    fn has_records(&self) -> bool {
        self.spool.as_ref().is_some_and(|spool| !spool.is_empty())
    }

    fn is_awaited(&self) -> bool {
        self.awaited_until.is_some()
    }

    /// Time of the next attempt to open it.
    fn next_attempt(&self) -> Option<Instant> {
        self.retry_at.filter(|_| self.spool.is_none())
    }

    fn count(&self) {
        let bytes = self.spool.as_ref().map_or(0, Spool::bytes);
        self.shared.counters.spooled_bytes.store(bytes, Relaxed);
    }

    /// Moves all records of the queue to the spool. They stay in the queue if the disk fails.
    fn write_queue(&mut self) {
        if self.retry_at.is_some_and(|at| Instant::now() < at) || self.shared.queue.lock().records.is_empty()
        {
            return;
        }
        self.open();
        let Some(spool) = &mut self.spool else { return };
        let mut queue = self.shared.queue.lock();
        let records: Vec<Vec<u8>> = std::mem::take(&mut queue.records).into();
        let bytes = std::mem::take(&mut queue.bytes);
        drop(queue);
        match spool.append(records.iter().map(Vec::as_slice)) {
            Ok(dropped) => {
                self.retry_at = None;
                self.shared.counters.dropped(DropReason::SpoolFull, dropped);
                self.count();
            }
            Err(error) => {
                let mut queue = self.shared.queue.lock();
                let newer = std::mem::replace(&mut queue.records, records.into());
                queue.records.extend(newer);
                queue.bytes += bytes;
                drop(queue);
                self.failed(&error);
            }
        }
    }

    /// Opens the spool, unless it is open, or the next attempt is not due.
    fn open(&mut self) {
        let now = Instant::now();
        if self.spool.is_some() || self.retry_at.is_some_and(|at| now < at) {
            return;
        }
        match Spool::open(&self.directory, self.bytes_max, Box::new(System)) {
            Ok(Opened { spool, damaged_bytes }) => {
                if damaged_bytes > 0 {
                    let counters = &self.shared.counters;
                    counters.repaired.fetch_add(1, Relaxed);
                    counters.warn(format!("skipped {damaged_bytes} torn bytes in the spool"));
                }
                self.spool = Some(spool);
                (self.retry_at, self.awaited_until) = (None, None);
                self.count();
            }
            Err(error) if is_in_use(&error) && self.awaited_until.is_some_and(|until| now < until) => {
                self.retry_at = Some(now + AWAITED_LOOK);
            }
            Err(error) => {
                self.awaited_until = None;
                self.failed(&error);
            }
        }
    }

    fn failed(&mut self, error: &io::Error) {
        self.retry_at = Some(Instant::now() + SPOOL_RETRY);
        let spool = self.directory.display();
        self.shared
            .counters
            .warn_once(format!("cannot use the spool {spool}, entries wait in memory: {error}"));
    }
}

/// Returns `true` if another exporter has the spool open, such as the one that this one replaces.
fn is_in_use(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ResourceBusy
}

/// Wait between attempts to use a disk that fails.
const SPOOL_RETRY: Duration = Duration::from_secs(2);
/// Maximum wait for a spool in use. An exporter that is being closed has five seconds to send, and then
/// writes the rest to the disk.
const AWAITED_MAX: Duration = Duration::from_secs(10);
/// Wait between attempts to open a spool in use.
const AWAITED_LOOK: Duration = Duration::from_millis(50);

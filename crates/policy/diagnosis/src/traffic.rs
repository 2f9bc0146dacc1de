//! Live traffic: a bounded list of recent exchanges for the page and `egret tail`.
//!
//! The list is closed until somebody reads it. While it is open, workers record some or all exchanges as they
//! do for diagnoses, and the diagnosis thread puts them on the list. No worker takes a lock for it or waits
//! for a reader: a reader that is too slow misses what has left the list, and is told how much.

mod config;
mod entry;
mod filter;
mod list;
mod resend;
mod sampling;
#[cfg(test)]
mod tests;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use egret_accounts::SecretsInForce;
use egret_clock::{Moment, Random};
use egret_har::recording::Recording;
use egret_har::{Key, key::KeyError};
use parking_lot::Mutex;
use serde::Serialize;
use tracing::{error, warn};

use crate::finished::RecordReader;
use crate::observers::Diagnoses;
use crate::record::RecordedExchange;
use entry::Writer;
use list::{List, TrafficEntry};
use resend::Expected;
use sampling::{Adaption, Sampling};

pub use config::{Redact, TrafficConfig};
pub use entry::ExplainedDecision;
pub use filter::{FilterError, TrafficFilter};
pub use resend::{NotResendable, Pin, Resend, ResendRisk, ResendTarget};

/// Maximum number of entries that one call looks at. The lock of the writer is held meanwhile.
const LOOKED_AT_MAX: usize = 256;

/// The list of recent exchanges.
pub struct Traffic {
    config: TrafficConfig,
    /// The rules for bodies. `None` if the config is invalid; then nothing is recorded.
    recording: Option<Recording>,
    is_open: AtomicBool,
    sampling: Sampling,
    adaption: Mutex<Adaption>,
    list: Mutex<List>,
    rules: Mutex<Rules>,
    /// Writes exchanges by the rules in force. It exists while the list is open. Its lock is taken before
    /// that of the list.
    writer: Mutex<Option<Writer>>,
    readers: Mutex<Readers>,
    resends: Mutex<Expected>,
    /// `true` if the last exchange of each kind stays on the list.
    keeps_kinds: bool,
}

/// The rules that come from the rest of the config.
#[derive(Default)]
struct Rules {
    key: Option<Arc<Key>>,
    secret_names: Arc<[Box<str>]>,
    in_force: Arc<SecretsInForce>,
}

#[derive(Default)]
struct Readers {
    last: u64,
    /// The number of each reader, and the number of exchanges of which it wants one.
    wanted: Vec<(u64, u32)>,
}

/// Somebody who reads the list as it grows, until it is dropped.
#[derive(Debug)]
pub struct TrafficReader {
    traffic: Arc<Traffic>,
    number: u64,
}

/// A request that is sent again. Until it is dropped, its exchange is marked as such.
#[derive(Debug)]
pub struct Resending {
    traffic: Arc<Traffic>,
    number: u64,
}

/// The state of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TrafficStatus {
    /// `true` while exchanges are recorded.
    pub open: bool,
    /// The values that readers do not see.
    pub redact: Redact,
    /// Number of exchanges on the list, and its bound.
    pub entries: usize,
    /// See `entries`.
    pub entries_max: u32,
    /// Bytes that they occupy, and their bound.
    pub bytes: usize,
    /// See `bytes`.
    pub bytes_max: u64,
    /// Number of exchanges of which one is recorded.
    pub one_in: u32,
    /// Number of exchanges while the list was open.
    pub seen: u64,
    /// Number of exchanges that were put on the list.
    pub recorded: u64,
    /// Number of exchanges that were to be recorded, but the queue was full.
    pub missed: u64,
    /// Number of readers of the stream.
    pub readers: usize,
}

/// The part of the list that a reader has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// Number of the entry to go on with.
    pub next: u64,
    /// Number of entries that left the list before the reader got to them.
    pub lost: u64,
    /// `true` if there may be more entries already.
    pub has_more: bool,
}

impl fmt::Debug for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traffic").field("status", &self.status()).finish_non_exhaustive()
    }
}

impl Traffic {
    /// Creates a closed list for the exchanges of `workers` workers.
    pub fn new(config: TrafficConfig, workers: usize) -> Self {
        Self {
            recording: config.recording(),
            config,
            is_open: AtomicBool::new(false),
            sampling: Sampling::new(workers),
            adaption: Mutex::default(),
            list: Mutex::default(),
            rules: Mutex::default(),
            writer: Mutex::default(),
            readers: Mutex::default(),
            resends: Mutex::default(),
            keeps_kinds: false,
        }
    }

    /// Creates the list of failed exchanges, which is always open unless the config switches it off.
    pub fn of_failures(config: TrafficConfig) -> Self {
        let failures = Self { keeps_kinds: true, ..Self::new(config.of_failures(), 0) };
        failures.set_open(true);
        failures
    }

    /// Returns `true` if the config does not switch live traffic off.
    pub fn is_on(&self) -> bool {
        self.config.entries > 0 && self.recording.is_some()
    }

    /// Returns `true` while exchanges are recorded.
    pub fn is_open(&self) -> bool {
        self.is_open.load(Relaxed)
    }

    /// Opens or closes the list. A closed list is empty. Returns `true` if that is a change.
    pub fn set_open(&self, is_open: bool) -> bool {
        let is_open = is_open && self.is_on();
        if self.is_open.swap(is_open, Relaxed) == is_open {
            return false;
        }
        self.sampling.restart();
        *self.adaption.lock() = Adaption::default();
        if !is_open {
            *self.writer.lock() = None;
            self.list.lock().clear();
        }
        true
    }

    /// Applies the key of the pseudonyms and the names of secrets from the config in force.
    pub fn apply(&self, diagnoses: &Diagnoses) {
        let mut writer = self.writer.lock();
        let mut rules = self.rules.lock();
        let key = diagnoses.key().or(rules.key.as_ref()).map(Arc::clone);
        let in_force = Arc::clone(diagnoses.in_force());
        *rules = Rules { key, secret_names: Arc::clone(diagnoses.secret_names()), in_force };
        // The next exchange gets a new one.
        *writer = None;
    }

    /// Counts an exchange of that worker, on its thread. Returns `true` if it is to be recorded.
    pub fn takes(&self, worker: usize, random: &mut Random) -> bool {
        self.sampling.takes(worker, random)
    }

    /// Counts an exchange of that worker that was to be recorded and had no place.
    pub fn miss(&self, worker: usize) {
        self.sampling.miss(worker);
    }

    /// Returns `true` if the beginnings of bodies are kept.
    pub fn wants_bodies(&self) -> bool {
        self.config.bodies.bytes() > 0
    }

    /// Number of bytes that workers copy from the beginning of a body. Its media type is looked at later,
    /// since that takes longer than the copy.
    pub(crate) fn copied_bytes(&self) -> usize {
        usize::try_from(self.config.bodies.bytes()).unwrap_or(usize::MAX)
    }

    /// Number of bytes that are kept of a body with that media type.
    fn wanted_bytes(&self, media_type: &[u8]) -> usize {
        let wanted = self.recording.as_ref().map_or(0, |recording| recording.wanted_bytes(media_type));
        usize::try_from(wanted).unwrap_or(usize::MAX)
    }

    /// The secrets that accounts send.
    pub(crate) fn in_force(&self) -> Arc<SecretsInForce> {
        Arc::clone(&self.rules.lock().in_force)
    }

    /// Puts an exchange on the list. `masked` is the exchange without the secrets of accounts, if it has any.
    /// Called on the diagnosis thread.
    pub(crate) fn see(
        &self,
        received: &RecordedExchange,
        masked: Option<&RecordedExchange>,
        reader: &mut RecordReader,
    ) {
        if !self.is_open() {
            return;
        }
        let exchange = masked.unwrap_or(received);
        let add = || {
            let Some(parsed) = reader.read(exchange) else { return };
            let mut writer = self.writer.lock();
            let Some(writer) = self.writer_of(&mut writer) else { return };
            let id = self.list.lock().next_id();
            let resend = exchange.facts.resend;
            let resent_of = resend.and_then(|number| self.resends.lock().of(number));
            let mut line = Vec::with_capacity(640);
            let (status, duration_us) = writer.line(id, resent_of, parsed, &mut line);
            let body_bytes_max = parsed.media_types().map(|media_type| self.wanted_bytes(media_type));
            let exchange = exchange.copy(body_bytes_max);
            // A failed exchange is not sent again from its list.
            let received =
                (masked.is_some() && !self.keeps_kinds).then(|| Box::new(received.copy(body_bytes_max)));
            let kind = self.keeps_kinds.then(|| kind_of(&exchange, status));
            let entry = TrafficEntry { id, line: line.into(), status, duration_us, exchange, received, kind };
            let entries_max = usize::try_from(self.config.entries).unwrap_or(usize::MAX);
            let bytes_max = usize::try_from(self.config.memory.bytes()).unwrap_or(usize::MAX);
            self.list.lock().add(entry, entries_max, bytes_max);
            // Who learns the number may ask for the entry at once.
            if let (Some(number), Some(_)) = (resend, resent_of) {
                self.resends.lock().note(number, id);
            }
        };
        if catch_unwind(AssertUnwindSafe(add)).is_err() {
            error!("the list of recent exchanges has panicked: this is a bug in Egret");
        }
    }

    /// Adapts the number of exchanges of which one is recorded. Called a few times per second on the
    /// diagnosis thread.
    pub fn tick(&self) {
        if self.is_open() {
            self.sampling.adapt(&mut self.adaption.lock(), Moment::now());
        }
    }

    /// Returns the state of the list.
    pub fn status(&self) -> TrafficStatus {
        let list = self.list.lock();
        let ((entries, bytes), recorded) = (list.size(), list.next_id() - 1);
        drop(list);
        TrafficStatus {
            open: self.is_open(),
            redact: self.config.redact,
            entries,
            entries_max: self.config.entries,
            bytes,
            bytes_max: self.config.memory.bytes(),
            one_in: self.sampling.one_in(),
            seen: self.sampling.seen(),
            recorded,
            missed: self.sampling.missed(),
            readers: self.readers.lock().wanted.len(),
        }
    }

    /// Registers a reader, who wants one of `one_in` exchanges or fewer.
    pub fn reader(self: &Arc<Self>, one_in: u32) -> TrafficReader {
        let mut readers = self.readers.lock();
        readers.last += 1;
        let number = readers.last;
        readers.wanted.push((number, one_in));
        self.sampling.set_least(readers.least());
        TrafficReader { traffic: Arc::clone(self), number }
    }

    /// Number of the next entry.
    pub fn next_id(&self) -> u64 {
        self.list.lock().next_id()
    }

    /// Appends the lines of the entries from the number `from` on that meet `filter`, each with a line end.
    /// Stops soon after `bytes_max`.
    pub fn lines(&self, from: u64, filter: &TrafficFilter, bytes_max: usize, out: &mut Vec<u8>) -> Batch {
        let list = self.list.lock();
        let (first, entries) = (list.first_id(), list.from(from, LOOKED_AT_MAX));
        drop(list);
        // Numbers start with 1.
        let from = from.max(1);
        let mut batch = Batch {
            next: from.max(first),
            lost: first.saturating_sub(from),
            has_more: entries.len() >= LOOKED_AT_MAX,
        };
        let mut reader = RecordReader::default();
        for entry in entries {
            if out.len() >= bytes_max {
                batch.has_more = true;
                break;
            }
            batch.next = entry.id + 1;
            if self.meets(filter, &entry, &mut reader) {
                out.extend_from_slice(&entry.line);
                out.push(b'\n');
            }
        }
        batch
    }

    /// Appends the newest `max` entries before the number `before` that meet `filter`, the newest first, as
    /// the elements of a JSON array. Stops soon after `bytes_max`.
    pub fn latest(
        &self,
        before: u64,
        filter: &TrafficFilter,
        max: usize,
        bytes_max: usize,
        out: &mut Vec<u8>,
    ) {
        let (mut before, mut found, mut reader) = (before, 0, RecordReader::default());
        loop {
            let entries = self.list.lock().before(before, LOOKED_AT_MAX);
            let Some(last) = entries.last() else { return };
            before = last.id;
            for entry in entries {
                if found >= max || out.len() >= bytes_max {
                    return;
                }
                if self.meets(filter, &entry, &mut reader) {
                    if found > 0 {
                        out.push(b',');
                    }
                    found += 1;
                    out.extend_from_slice(&entry.line);
                }
            }
        }
    }

    /// Returns the details of an entry as JSON. `does` tells what a remedy of a flow is configured to do.
    pub fn details(&self, id: u64, does: &dyn Fn(&str, &str) -> Option<String>) -> Option<Vec<u8>> {
        let entry = self.list.lock().get(id)?;
        let mut reader = RecordReader::default();
        let parsed = reader.read(&entry.exchange)?;
        let mut writer = self.writer.lock();
        let writer = self.writer_of(&mut writer)?;
        let mut out = Vec::with_capacity(2 * entry.bytes());
        // The list's line is an object, and the details are further members.
        out.extend_from_slice(entry.line.strip_suffix(b"}").unwrap_or(&entry.line));
        writer.details(parsed, does, &mut out);
        out.push(b'}');
        Some(out)
    }

    /// Puts the request of an entry together, to be sent again. `None` if there is no such entry.
    pub fn resend(&self, id: u64) -> Option<Result<Resend, NotResendable>> {
        let entry = self.list.lock().get(id)?;
        let mut reader = RecordReader::default();
        // Who sends it again does not see it.
        Some(Resend::of(reader.read(entry.received.as_deref().unwrap_or(&entry.exchange))?))
    }

    /// Expects the request of the entry `of` to be recorded once more, since it is sent again. `None` if too
    /// many are expected already.
    pub fn resending(self: &Arc<Self>, of: u64) -> Option<Resending> {
        let number = self.resends.lock().add(of)?;
        Some(Resending { traffic: Arc::clone(self), number })
    }

    fn meets(&self, filter: &TrafficFilter, entry: &TrafficEntry, reader: &mut RecordReader) -> bool {
        let mut writer = self.writer.lock();
        self.writer_of(&mut writer).is_some_and(|writer| filter.takes(entry, writer.mask(), reader))
    }

    /// Returns the writer, and creates it first if there is none. `None` if there is no key, which hides
    /// everything.
    fn writer_of<'a>(&self, writer: &'a mut Option<Writer>) -> Option<&'a mut Writer> {
        if writer.is_none() {
            let mut rules = self.rules.lock();
            if rules.key.is_none() {
                rules.key = Key::random().map(Arc::new).map_err(|error| warn_of_key(&error)).ok();
            }
            let recording = self.recording.clone()?.with_secret_names(&rules.secret_names);
            *writer = Some(Writer::new(&self.config, recording, rules.key.as_ref()?));
        }
        writer.as_mut()
    }
}

/// Returns the kind of a failure: its provider, and its error or else its status.
fn kind_of(exchange: &RecordedExchange, status: u16) -> Box<str> {
    let provider = exchange.provider();
    match exchange.facts.error {
        Some(error) => format!("{provider} {error}"),
        None => format!("{provider} {status}"),
    }
    .into()
}

fn warn_of_key(error: &KeyError) {
    warn!(%error, "live traffic shows nothing");
}

impl Readers {
    /// The smallest number of exchanges of which a reader wants one.
    fn least(&self) -> u32 {
        self.wanted.iter().map(|(_, one_in)| *one_in).min().unwrap_or(1)
    }
}

impl Resending {
    /// Its number among the requests that were sent again.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Number of the exchange, once it is on the list.
    pub fn id(&self) -> Option<u64> {
        self.traffic.resends.lock().id(self.number)
    }
}

impl Drop for Resending {
    fn drop(&mut self) {
        self.traffic.resends.lock().remove(self.number);
    }
}

impl Drop for TrafficReader {
    fn drop(&mut self) {
        let mut readers = self.traffic.readers.lock();
        readers.wanted.retain(|(number, _)| *number != self.number);
        self.traffic.sampling.set_least(readers.least());
    }
}

//! All diagnoses of a config, compiled, with their counters.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use egret_accounts::SecretsInForce;
use egret_config::Problem;
use egret_config::reload::{Identities, Identity, KeptStates, StateKeeper};
use egret_har::Key;
use egret_har::sink::Sink;
use egret_match::CapturingPatterns;
use egret_match::matching::MatchConfig;
use egret_match::router::Matches;
use serde::Serialize;
use tracing::error;

use crate::condition::ResponseCondition;
use crate::context::{CompileContext, Exports};
use crate::diagnoses::{AnyDiagnosis, DiagnosisConfig};
use crate::diagnosis::{OnPressure, Tick};
use crate::discovered::Discovered;
use crate::family::{Family, FamilyKind};
use crate::finished::{Endpoint, Parsed, RecordReader};
use crate::masked::masked;
use crate::record::RecordedExchange;
use crate::spend::{Spend, Spent};
use crate::traffic::Traffic;

/// The compiled diagnoses of a config.
#[derive(Debug, Default)]
pub struct Diagnoses {
    slots: Vec<DiagnosisSlot>,
    /// By flow number. Empty if no flow has diagnoses.
    flows: Vec<CompiledFlow>,
    sinks: Vec<Arc<dyn Sink>>,
    states: KeptStates,
    /// Key of the pseudonyms, if a diagnosis needs one.
    key: Option<Arc<Key>>,
    /// Names of fields and parameters that hold the secrets of accounts.
    secret_names: Arc<[Box<str>]>,
    /// The secrets that accounts send.
    in_force: Arc<SecretsInForce>,
    /// The sums of what calls have cost.
    spend: Arc<Spend>,
}

/// A flow as its diagnoses need it.
#[derive(Debug)]
struct CompiledFlow {
    /// Its diagnoses in `slots`.
    slots: Range<usize>,
    /// The paths of its match.
    endpoints: Vec<String>,
    /// The patterns of its match.
    patterns: CapturingPatterns,
    /// `when_response`, if it has one.
    condition: Option<ResponseCondition>,
}

/// A compiled diagnosis with its settings and counters.
#[derive(Debug)]
struct DiagnosisSlot {
    diagnosis: AnyDiagnosis,
    on_pressure: OnPressure,
    wants_bodies: bool,
    wants_usage: bool,
    counts: Arc<HandOverCounts>,
    flow: usize,
    identity: Identity,
    /// `true` makes every call of the diagnosis panic, for tests.
    #[cfg(test)]
    panics: bool,
}

/// A recorded exchange, with the diagnoses that see it. It gives access to the recorded data as if it were
/// that data, because writers of a record do not care who reads it.
#[derive(Debug, Default)]
pub struct Record {
    /// The diagnoses that the observers' numbers refer to. Kept when the record is reused, so its reference
    /// count changes only after a reload.
    diagnoses: Option<Arc<Diagnoses>>,
    /// The diagnoses that see this record.
    observers: Vec<Observer>,
    /// The list of recent exchanges. Kept like `diagnoses`.
    traffic: Option<Arc<Traffic>>,
    /// `true` if the record is for that list.
    is_watched: bool,
    /// The list of failed exchanges. Kept like `diagnoses`.
    failures: Option<Arc<Traffic>>,
    /// `true` if the record is for that list.
    is_failure: bool,
    exchange: RecordedExchange,
}

impl Deref for Record {
    type Target = RecordedExchange;

    fn deref(&self) -> &RecordedExchange {
        &self.exchange
    }
}

impl DerefMut for Record {
    fn deref_mut(&mut self) -> &mut RecordedExchange {
        &mut self.exchange
    }
}

/// A diagnosis that sees a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Observer {
    /// Number of the diagnosis in the config.
    slot: u32,
    /// Pattern of the flow's match that matched the exchange.
    pattern: u32,
}

/// Counters of a diagnosis.
#[derive(Debug)]
struct HandOverCounts {
    /// One element per worker, so no two workers write to the same cache line.
    workers: Box<[Cells]>,
    /// Written only by the diagnosis thread.
    recorded: AtomicU64,
    skipped: AtomicU64,
    failed: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Cells {
    handed_over: AtomicU64,
    dropped: AtomicU64,
    shed: AtomicU64,
}

/// The result of handing over an exchange, on the worker's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandOver {
    /// It is queued for the diagnosis.
    HandedOver,
    /// It is dropped because the queue is full.
    Dropped,
    /// It is not recorded because diagnoses are shed for a while.
    Shed,
}

/// Counters of a diagnosis, summed over all workers. Every exchange is in exactly one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct DiagnosisCounts {
    /// Seen by the diagnosis.
    pub recorded: u64,
    /// Dropped because the queue was full.
    pub dropped: u64,
    /// Not recorded because diagnoses were shed.
    pub shed: u64,
    /// Not recorded because the flow's `when_response` is not met.
    pub skipped: u64,
    /// Lost because the diagnosis panicked, which is a bug.
    pub failed: u64,
    /// Waiting in the queue.
    pub queued: u64,
}

/// Counters of a diagnosis and its description.
#[derive(Debug, Clone, PartialEq)]
pub struct DiagnosisStats {
    /// Key of the diagnosis in the config, with a number if the flow has several of that kind.
    pub diagnosis: String,
    /// Description for people.
    pub description: String,
    /// Behaviour when the queue is full.
    pub on_pressure: OnPressure,
    /// Counters.
    pub counts: DiagnosisCounts,
    /// Metrics of the diagnosis itself.
    pub metrics: Vec<Family>,
}

/// A flow with its diagnoses, as they are compiled.
#[derive(Debug, Clone, Copy)]
pub struct DiagnosedFlow<'a> {
    /// The name of the flow.
    pub name: &'a str,
    /// The exchanges that the flow applies to.
    pub matching: &'a MatchConfig,
    /// The diagnoses, in the order of the config.
    pub diagnoses: &'a [DiagnosisConfig],
    /// The condition on finished exchanges, if it has one.
    pub condition: Option<&'a ResponseCondition>,
}

/// The parts of the config that all diagnoses share.
#[derive(Debug, Clone, Copy)]
pub struct DiagnosesContext<'a> {
    /// The exporters, the key of pseudonyms, and the stored state of diagnoses.
    pub exports: &'a Exports,
    /// The names of header fields and parameters that carry the secrets of accounts.
    pub secret_names: &'a Arc<[Box<str>]>,
    /// The secrets that accounts send, which no diagnosis sees.
    pub in_force: &'a Arc<SecretsInForce>,
}

impl Diagnoses {
    /// Compiles the diagnoses of `config` for `workers` workers. `secret_names` are the names under which
    /// accounts have their secrets. State is carried over from `before`.
    pub fn compile(
        config: &[DiagnosedFlow<'_>],
        context: DiagnosesContext<'_>,
        workers: usize,
        before: Option<&Self>,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let mut compiled = Self {
            sinks: context.exports.sinks.values().map(Arc::clone).collect(),
            key: context.exports.key.as_ref().map(Arc::clone),
            secret_names: Arc::clone(context.secret_names),
            in_force: Arc::clone(context.in_force),
            spend: before.map(|before| Arc::clone(&before.spend)).unwrap_or_default(),
            ..Self::default()
        };
        if config.iter().all(|flow| flow.diagnoses.is_empty()) {
            return compiled;
        }
        for (number, flow) in config.iter().enumerate() {
            let start = compiled.slots.len();
            compiled.add_flow(number, flow, context, workers, before, problems);
            compiled.flows.push(CompiledFlow {
                slots: start..compiled.slots.len(),
                endpoints: flow.matching.path.iter().cloned().collect(),
                patterns: CapturingPatterns::of(flow.matching),
                condition: flow.condition.cloned(),
            });
        }
        compiled.check_families(problems);
        compiled
    }

    /// Adds a problem for each metric that has two kinds: readers would refuse all metrics.
    fn check_families(&self, problems: &mut Vec<Problem>) {
        let mut kinds: HashMap<String, (FamilyKind, &str)> = HashMap::new();
        for slot in &self.slots {
            for Family { name, kind, .. } in slot.diagnosis.metrics() {
                // A histogram has three metrics besides its own name.
                let endings: &[&str] = match kind {
                    FamilyKind::Histogram => &["", "_bucket", "_sum", "_count"],
                    _ => &[""],
                };
                for ending in endings {
                    let (known, flow) =
                        *kinds.entry(format!("{name}{ending}")).or_insert((kind, &slot.identity.flow));
                    if known != kind {
                        let path = format!("flows[{}].diagnoses", slot.flow);
                        let message = format!(
                            "the metric `{name}{ending}` is of another kind in the flow `{flow}`: choose another name"
                        );
                        problems.push(Problem::new(path, message));
                    }
                }
            }
        }
    }

    /// Compiles the diagnoses of one flow.
    fn add_flow(
        &mut self,
        number: usize,
        flow: &DiagnosedFlow<'_>,
        context: DiagnosesContext<'_>,
        workers: usize,
        before: Option<&Self>,
        problems: &mut Vec<Problem>,
    ) {
        let DiagnosesContext { exports, secret_names, .. } = context;
        let mut identities = Identities::new(flow.name);
        for (at, config) in flow.diagnoses.iter().enumerate() {
            let path = format!("flows[{number}].diagnoses[{at}]");
            let Some(key) = config.only_key(&path, problems) else { continue };
            let identity = identities.next(key);
            let mut context = CompileContext {
                matching: flow.matching,
                exports,
                secret_names,
                path: format!("{path}.{key}"),
                problems,
                states: StateKeeper::new(
                    identity.clone(),
                    before.map(|before| &before.states),
                    &mut self.states,
                ),
            };
            let Some(diagnosis) = AnyDiagnosis::compile(config, &mut context) else { continue };
            let known = before.and_then(|before| before.slots.iter().find(|slot| slot.identity == identity));
            let counts = known
                .map_or_else(|| Arc::new(HandOverCounts::new(workers)), |known| Arc::clone(&known.counts));
            self.slots.push(DiagnosisSlot {
                wants_bodies: diagnosis.wants_bodies(),
                wants_usage: diagnosis.wants_usage(),
                diagnosis,
                on_pressure: config.on_pressure,
                counts,
                flow: number,
                identity,
                #[cfg(test)]
                panics: false,
            });
        }
    }

    /// Key of the pseudonyms, if a diagnosis needs one.
    pub(crate) fn key(&self) -> Option<&Arc<Key>> {
        self.key.as_ref()
    }

    /// Names of fields and parameters that hold the secrets of accounts.
    pub(crate) fn secret_names(&self) -> &Arc<[Box<str>]> {
        &self.secret_names
    }

    /// The secrets that accounts send.
    pub(crate) fn in_force(&self) -> &Arc<SecretsInForce> {
        &self.in_force
    }

    /// Returns `true` if no flow has diagnoses.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns `true` if neither a diagnosis nor a sink needs [`tick`](Self::tick).
    pub fn has_nothing_to_tick(&self) -> bool {
        self.slots.is_empty() && self.sinks.is_empty()
    }

    /// Returns `true` if any of the matching flows has diagnoses.
    pub fn is_for(&self, matches: &Matches) -> bool {
        !self.is_empty() && matches.iter().any(|found| !self.slots_of(found.flow()).is_empty())
    }

    /// Assigns the diagnoses of the matching flows to `record`. If `sheds`, diagnoses with
    /// `on_pressure: drop` are left out and counted. Returns `true` if any diagnosis is assigned.
    pub fn assign(
        self: &Arc<Self>,
        matches: &Matches,
        worker: usize,
        sheds: bool,
        record: &mut Record,
    ) -> bool {
        record.observers.clear();
        for found in matches.iter() {
            for slot in self.slots_of(found.flow()) {
                if sheds && self.slots[slot].on_pressure == OnPressure::Drop {
                    self.slots[slot].counts.count(worker, HandOver::Shed);
                } else {
                    let slot = u32::try_from(slot).unwrap_or(u32::MAX);
                    record.observers.push(Observer { slot, pattern: found.pattern() });
                }
            }
        }
        // A reused record nearly always belongs to the same config; then the shared reference count stays
        // untouched.
        if !record.diagnoses.as_ref().is_some_and(|before| Arc::ptr_eq(before, self)) {
            record.diagnoses = Some(Arc::clone(self));
        }
        !record.observers.is_empty()
    }

    /// Passes the exchange of a record to each of its diagnoses whose flow's `when_response` is met.
    fn see(&self, record: &Record, exchange: &RecordedExchange, reader: &mut RecordReader) {
        let parsed = reader.read(exchange);
        // The flow judged last. The observers of one flow follow each other.
        let mut judged: Option<(usize, bool)> = None;
        // A call is summed once, whatever the number of diagnoses that know its cost, with the labels of all.
        let mut first: Option<(&str, Spent)> = None;
        for Observer { slot, pattern } in &record.observers {
            let Some(slot) = self.slots.get(*slot as usize) else { continue };
            let Some(parsed) = parsed else {
                slot.counts.failed.fetch_add(1, Relaxed);
                continue;
            };
            let Some(endpoint) = self.endpoint(slot.flow, *pattern) else { continue };
            let is_met = match judged.filter(|(flow, _)| *flow == slot.flow) {
                Some((_, is_met)) => is_met,
                None => self.is_met(slot, parsed, endpoint),
            };
            judged = Some((slot.flow, is_met));
            let count = if is_met { slot.see(parsed, endpoint) } else { &slot.counts.skipped };
            count.fetch_add(1, Relaxed);
            let Some(mut spent) = slot.diagnosis.take_spent() else { continue };
            match &mut first {
                None => first = Some((&slot.identity.flow, spent)),
                Some((_, first)) => {
                    // The value of the first ledger with a label wins.
                    spent.labels.append(&mut first.labels);
                    first.labels = spent.labels;
                }
            }
        }
        if let Some((flow, spent)) = first {
            self.spend.add(exchange.facts.ended(), flow, &spent);
        }
    }

    /// Returns the path of the flow's match that has this number.
    fn endpoint(&self, flow: usize, pattern: u32) -> Option<Endpoint<'_>> {
        let CompiledFlow { endpoints, patterns, .. } = self.flows.get(flow)?;
        let number = pattern as usize;
        let text = endpoints.get(number).map_or("", String::as_str);
        Some(Endpoint { text, number, patterns })
    }

    fn condition(&self, flow: usize) -> Option<&ResponseCondition> {
        self.flows.get(flow)?.condition.as_ref()
    }

    /// Returns `true` if the exchange meets the condition of the slot's flow.
    fn is_met(&self, slot: &DiagnosisSlot, parsed: Parsed<'_>, endpoint: Endpoint<'_>) -> bool {
        let Some(condition) = self.condition(slot.flow) else { return true };
        let exchange =
            parsed.view_for(&slot.identity.flow, endpoint, condition.wants_bodies(), |media_type| {
                condition.wanted_bytes(media_type)
            });
        let mut is_met = false;
        if !slot.guarded(|| is_met = condition.is_met(&exchange)) {
            condition.count_failure();
        }
        is_met
    }

    /// Ticks all diagnoses and sinks.
    pub fn tick(&self, tick: Tick) {
        for slot in &self.slots {
            slot.guarded(|| slot.diagnosis.tick(tick));
        }
        for sink in &self.sinks {
            if catch_unwind(AssertUnwindSafe(|| sink.tick())).is_err() {
                error!("an exporter has panicked: this is a bug in Egret");
            }
        }
    }

    /// Returns the endpoints that each flow's diagnoses have found.
    pub fn discovered(&self) -> Vec<Discovered> {
        let found = |slot: &DiagnosisSlot| {
            let found = slot.diagnosis.discovered()?;
            Some(Discovered { flow: slot.identity.flow.clone(), ..found })
        };
        self.slots.iter().filter_map(found).collect()
    }

    /// The sums of what calls have cost, by the diagnoses that know it.
    pub fn spend(&self) -> &Arc<Spend> {
        &self.spend
    }

    /// Returns the counters of a flow's diagnoses.
    pub fn stats(&self, flow: usize) -> Vec<DiagnosisStats> {
        self.slots[self.slots_of(flow)].iter().map(DiagnosisSlot::stats).collect()
    }

    /// Returns the names and descriptions of a flow's diagnoses, in order.
    pub fn describe(&self, flow: usize) -> impl Iterator<Item = (&str, String)> {
        self.slots[self.slots_of(flow)].iter().map(|slot| (slot.identity.kind, slot.diagnosis.describe()))
    }

    fn slots_of(&self, flow: usize) -> Range<usize> {
        self.flows.get(flow).map_or(0..0, |flow| flow.slots.clone())
    }
}

impl Record {
    /// Removes the exchange's data and keeps the memory, within bounds.
    pub fn clear(&mut self) {
        self.observers.clear();
        self.is_watched = false;
        self.is_failure = false;
        self.exchange.clear();
    }

    /// Assigns the record to the list of recent exchanges.
    pub fn watch(&mut self, traffic: &Arc<Traffic>) {
        self.is_watched = true;
        if self.traffic.is_none() {
            self.traffic = Some(Arc::clone(traffic));
        }
    }

    /// Assigns the record to the list of failed exchanges.
    pub fn watch_failure(&mut self, failures: &Arc<Traffic>) {
        self.is_failure = true;
        if self.failures.is_none() {
            self.failures = Some(Arc::clone(failures));
        }
    }

    /// Takes the record back from the list of failed exchanges. Returns `true` if it has other readers.
    pub fn forget_failure(&mut self) -> bool {
        self.is_failure = false;
        self.is_watched || !self.observers.is_empty()
    }

    /// Shows the record to its diagnoses, and puts the exchange on the lists that it is meant for.
    pub fn show(&self, reader: &mut RecordReader) {
        let in_force = self.diagnoses.as_ref().map(|diagnoses| Arc::clone(diagnoses.in_force()));
        let in_force = in_force.or_else(|| self.lists().next().map(Traffic::in_force));
        let patterns = in_force.and_then(|secrets| secrets.patterns());
        let masked = patterns.and_then(|patterns| masked(&self.exchange, &patterns, reader));
        if !self.observers.is_empty()
            && let Some(diagnoses) = &self.diagnoses
        {
            diagnoses.see(self, masked.as_ref().unwrap_or(&self.exchange), reader);
        }
        for list in self.lists() {
            list.see(&self.exchange, masked.as_ref(), reader);
        }
    }

    /// Returns `true` if the record is for a list of exchanges, whose requests can be sent again.
    pub fn is_listed(&self) -> bool {
        self.is_watched || self.is_failure
    }

    /// The lists that the record is meant for.
    fn lists(&self) -> impl Iterator<Item = &Traffic> {
        let recent = self.traffic.as_deref().filter(|_| self.is_watched);
        let failed = self.failures.as_deref().filter(|_| self.is_failure);
        recent.into_iter().chain(failed)
    }

    /// Returns the number of bytes that the record occupies while it is queued.
    pub fn size(&self) -> usize {
        size_of::<Self>() + self.exchange.heap_bytes()
    }

    /// The diagnoses that see the record.
    pub fn diagnoses(&self) -> Option<&Arc<Diagnoses>> {
        self.diagnoses.as_ref()
    }

    /// Drops the reference to the record's config unless it is `latest`, and to a list that is closed.
    pub fn keep_only(&mut self, latest: &Arc<Diagnoses>) {
        if self.traffic.as_ref().is_some_and(|traffic| !traffic.is_open()) {
            self.traffic = None;
        }
        if !self.diagnoses.as_ref().is_some_and(|known| Arc::ptr_eq(known, latest)) {
            self.diagnoses = None;
        }
    }

    /// Returns `true` if any of its diagnoses has `on_pressure: wait`.
    pub fn waits_for_room(&self) -> bool {
        self.slots().any(|slot| slot.on_pressure == OnPressure::Wait)
    }

    /// Returns `true` if any of its diagnoses wants copies of bodies.
    pub fn wants_bodies(&self) -> bool {
        self.slots().any(|slot| slot.wants_bodies)
            || self.conditions().any(ResponseCondition::wants_bodies)
            || self.lists().any(Traffic::wants_bodies)
    }

    /// Returns `true` if any of its diagnoses, or of the conditions of their flows, reads the usage that the
    /// response reports.
    pub fn wants_usage(&self) -> bool {
        self.slots().any(|slot| slot.wants_usage) || self.conditions().any(ResponseCondition::wants_usage)
    }

    /// Returns the number of bytes that its diagnoses, and the conditions of their flows, want from the
    /// beginning of a body with that media type.
    pub fn wanted_bytes(&self, media_type: &[u8]) -> usize {
        let wanted = |slot: &DiagnosisSlot| {
            if slot.wants_bodies { slot.diagnosis.wanted_bytes(media_type) } else { 0 }
        };
        let conditions = self.conditions().map(|condition| condition.wanted_bytes(media_type));
        let watched = self.lists().map(Traffic::copied_bytes);
        self.slots().map(wanted).chain(conditions).chain(watched).max().unwrap_or_default()
    }

    /// Returns the same for a message with this head, as it was sent.
    pub fn wanted_bytes_of(&self, head: &[u8]) -> usize {
        const NAME: &[u8] = b"content-type:";
        let media_type = head.split(|byte| *byte == b'\n').find_map(|line| {
            let (name, value) = line.split_at_checked(NAME.len())?;
            name.eq_ignore_ascii_case(NAME).then(|| value.trim_ascii())
        });
        self.wanted_bytes(media_type.unwrap_or_default())
    }

    /// Counts `fate` for each of its diagnoses.
    pub fn count(&self, worker: usize, fate: HandOver) {
        self.slots().for_each(|slot| slot.counts.count(worker, fate));
        if fate == HandOver::Dropped {
            self.lists().for_each(|list| list.miss(worker));
        }
    }

    fn slots(&self) -> impl Iterator<Item = &DiagnosisSlot> {
        let slots = self.diagnoses.as_ref().map_or(&[][..], |diagnoses| &diagnoses.slots);
        self.observers.iter().filter_map(|observer| slots.get(observer.slot as usize))
    }

    /// The conditions of the flows whose diagnoses see the record.
    fn conditions(&self) -> impl Iterator<Item = &ResponseCondition> {
        let diagnoses = self.diagnoses.as_ref();
        self.slots().filter_map(move |slot| diagnoses?.condition(slot.flow))
    }
}

impl DiagnosisSlot {
    /// Shows the exchange to the diagnosis. Returns the counter of the result.
    fn see(&self, parsed: Parsed<'_>, endpoint: Endpoint<'_>) -> &AtomicU64 {
        let exchange = parsed.view_for(&self.identity.flow, endpoint, self.wants_bodies, |media_type| {
            self.diagnosis.wanted_bytes(media_type)
        });
        if self.guarded(|| self.diagnosis.see(&exchange)) {
            &self.counts.recorded
        } else {
            &self.counts.failed
        }
    }

    /// Runs a diagnosis' code and catches panics. A panic is a bug, and it must not affect other diagnoses.
    /// Returns `true` if there was no panic.
    fn guarded(&self, act: impl FnOnce()) -> bool {
        let act = || {
            #[cfg(test)]
            assert!(!self.panics, "a test asked for this panic");
            act();
        };
        let done = catch_unwind(AssertUnwindSafe(act)).is_ok();
        if !done {
            let Identity { flow, kind: diagnosis, .. } = &self.identity;
            error!(flow, diagnosis, "a diagnosis has panicked: this is a bug in Egret");
        }
        done
    }

    fn stats(&self) -> DiagnosisStats {
        DiagnosisStats {
            diagnosis: self.identity.to_string(),
            description: self.diagnosis.describe(),
            on_pressure: self.on_pressure,
            counts: self.counts.sums(),
            metrics: self.diagnosis.metrics(),
        }
    }
}

impl HandOverCounts {
    fn new(workers: usize) -> Self {
        let workers = (0..workers).map(|_| Cells::default()).collect();
        let [recorded, skipped, failed] = [0; 3].map(AtomicU64::new);
        Self { workers, recorded, skipped, failed }
    }

    /// Increments a counter. Only its own worker writes a cell, so no locked operation is needed.
    fn count(&self, worker: usize, fate: HandOver) {
        let Some(cells) = self.workers.get(worker) else { return };
        let cell = match fate {
            HandOver::HandedOver => &cells.handed_over,
            HandOver::Dropped => &cells.dropped,
            HandOver::Shed => &cells.shed,
        };
        cell.store(cell.load(Relaxed).wrapping_add(1), Relaxed);
    }

    fn sums(&self) -> DiagnosisCounts {
        // Read the counters in reverse order of counting, so nothing seems seen before it was handed over.
        let [recorded, skipped, failed] =
            [&self.recorded, &self.skipped, &self.failed].map(|count| count.load(Relaxed));
        let sum =
            |cell: fn(&Cells) -> &AtomicU64| self.workers.iter().map(|cells| cell(cells).load(Relaxed)).sum();
        let handed_over: u64 = sum(|cells| &cells.handed_over);
        DiagnosisCounts {
            recorded,
            dropped: sum(|cells| &cells.dropped),
            shed: sum(|cells| &cells.shed),
            skipped,
            failed,
            queued: handed_over.saturating_sub(recorded + skipped + failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::condition::CONDITION_BODY_BYTES_MAX;
    use crate::fixture::{Archive, hand_over};

    const GET: &str = "GET https://one.example/users/7?a=1";

    #[test]
    fn every_exchange_is_counted_once_for_each_diagnosis() {
        let archive = Archive::with(&json!([
            { "har": { "export": "kept" } },
            { "har": { "export": "kept", "obfuscate": false }, "on_pressure": "wait" },
        ]));
        let mut record = archive.record(GET, "200");
        hand_over(&record);
        record.count(0, HandOver::Dropped);
        assert!(record.waits_for_room());
        // Diagnoses with `on_pressure: wait` are never shed.
        assert!(archive.assign(GET, true, &mut record));
        record.count(0, HandOver::HandedOver);
        let one = DiagnosisCounts { recorded: 1, dropped: 1, shed: 1, ..DiagnosisCounts::default() };
        let other = DiagnosisCounts { shed: 0, queued: 1, ..one };
        assert_eq!(archive.counts(), [one, other]);
        assert_eq!(archive.entries().len(), 2);
    }

    #[test]
    fn a_panic_costs_one_diagnosis_one_exchange() {
        let mut archive =
            Archive::with(&json!([{ "har": { "export": "kept" } }, { "har": { "export": "kept" } }]));
        Arc::get_mut(&mut archive.diagnoses).unwrap().slots[0].panics = true;
        hand_over(&archive.record(GET, "200"));
        archive.diagnoses.tick(Tick { now: egret_clock::Timestamp::from_secs(1), is_last: false });
        let counts = archive.counts();
        assert_eq!((counts[0].recorded, counts[0].failed), (0, 1));
        assert_eq!((counts[1].recorded, counts[1].failed), (1, 0));
    }

    /// Hands over one exchange for each response, and returns the counters.
    fn counted(archive: &Archive, responses: &[&str]) -> DiagnosisCounts {
        for response in responses {
            hand_over(&archive.record(GET, response));
        }
        archive.counts()[0]
    }

    #[test]
    fn diagnoses_see_what_meets_the_condition_of_their_flow() {
        let archive = Archive::with_condition(
            "response.status == 0 || response.status >= 500 || response.headers['x-wait'] == 'long'",
            &json!([{ "har": { "export": "kept" } }, { "discovery": {} }]),
        );
        let counts = counted(&archive, &["200", "503", "", "404", "200\nX-Wait: long"]);
        assert_eq!((counts.recorded, counts.skipped, counts.queued), (3, 2, 0));
        assert_eq!(archive.counts()[1], counts);
        assert_eq!((archive.entries().len(), archive.condition_failures()), (3, 0));
    }

    #[test]
    fn a_condition_knows_how_the_exchange_ended() {
        let is_met = |condition: &str, change: fn(&mut Record)| {
            let archive = Archive::with_condition(condition, &json!([{ "har": { "export": "kept" } }]));
            let mut record = archive.record(GET, "502");
            change(&mut record);
            hand_over(&record);
            archive.counts()[0].recorded == 1
        };
        for (condition, expected) in [
            // The record's times: sent after 0.1 ms, first byte after 5 ms, ended after 5.1 ms.
            ("response.duration_ms == 5.1", true),
            ("response.duration_ms > 5", true),
            ("response.provider_ms == 0", true),
            ("response.error == '' && !response.generated", true),
            ("request.params.id == '7' && attempt == 1", true),
            ("response.body != null", false),
        ] {
            assert_eq!(is_met(condition, |_| {}), expected, "{condition}");
        }
        assert!(is_met("response.provider_ms == 4.9 && attempt == 2", |record| record.facts.attempts = 2));
        assert!(is_met("response.error == 'first-byte-timeout' && response.generated", |record| {
            record.facts.error = Some("first-byte-timeout");
            record.facts.is_generated = true;
        }));
    }

    #[test]
    fn a_condition_without_a_value_is_not_met_and_counted() {
        let archive = Archive::with_condition(
            "response.body.code == 1",
            &json!([{ "har": { "export": "kept" } }, { "har": { "export": "kept" } }]),
        );
        let counts = counted(&archive, &["200", "200"]);
        assert_eq!((counts.recorded, counts.skipped), (0, 2));
        // Once for each exchange, whatever the number of diagnoses.
        assert_eq!(archive.condition_failures(), 2);
    }

    #[test]
    fn bodies_are_captured_for_a_condition_only_if_it_reads_them() {
        let archive = |condition: &str| {
            Archive::with_condition(condition, &json!([{ "har": { "export": "kept", "bodies": "none" } }]))
        };
        let blind = archive("response.status == 200").record(GET, "200");
        assert!(!blind.wants_bodies());
        assert_eq!(blind.wanted_bytes(b"application/json"), 0);
        let reading = archive("response.body.code == 7");
        let mut record = reading.record(GET, "200\nContent-Type: application/json");
        assert!(record.wants_bodies());
        assert_eq!(record.wanted_bytes(b"application/json"), CONDITION_BODY_BYTES_MAX);
        assert_eq!(record.wanted_bytes(b"video/mp4"), 0);
        let head = b"HTTP/1.1 200 OK\r\ncontent-TYPE: application/json\r\n\r\n";
        assert_eq!(record.wanted_bytes_of(head), CONDITION_BODY_BYTES_MAX);
        assert_eq!(record.wanted_bytes_of(b"HTTP/1.1 200 OK\r\nContent-Type: video/mp4\r\n\r\n"), 0);
        let body = br#"{"code":7,"hidden":"from the archive"}"#;
        record.response_body.bytes.extend_from_slice(body);
        record.response_body.body_bytes = body.len() as u64;
        hand_over(&record);
        assert_eq!(reading.counts()[0].recorded, 1);
        // The diagnosis itself sees no more of the body than it asks for.
        assert!(!reading.entries()[0].contains("code"), "{}", reading.entries()[0]);
    }

    #[test]
    fn records_of_before_a_reload_are_seen_after_it() {
        let mut archive = Archive::with(&json!([{ "har": { "export": "kept" } }]));
        let mut before = archive.record(GET, "200");
        archive.reload(&json!([{ "har": { "export": "kept", "bodies": "1KiB" } }]));
        let after = archive.record(GET, "503");
        hand_over(&before);
        hand_over(&after);
        assert_eq!(archive.entries().len(), 2);
        assert_eq!(archive.counts()[0].recorded, 2);
        before.keep_only(&archive.diagnoses);
        assert!(before.diagnoses().is_none());
    }

    #[test]
    fn a_diagnosis_is_told_by_which_path_its_flow_was_found() {
        let archive = Archive::with(&json!([{ "har": { "export": "kept" } }]));
        let seen = |line: &str| {
            let record = archive.record(line, "200");
            let pattern = record.observers[0].pattern as usize;
            archive.diagnoses.flows[0].endpoints[pattern].clone()
        };
        assert_eq!((seen(GET), seen("GET https://one.example/b/c")), ("/users/{id}".into(), "/*".into()));
    }
}

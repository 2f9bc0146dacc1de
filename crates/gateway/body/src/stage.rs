//! The stages of a body: each sees the data that passes, in order. A stage holds back no more than what may
//! have to be masked or left out, and its state has a bound.

use std::borrow::Cow;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use egret_accounts::{PatternMask, SecretPatterns};
use egret_cache::Stored;
use egret_clock::Moment;
use egret_http1::Span;
use egret_match::{EventScan, seen_at_end};
use egret_message::Fields;
use egret_net::budget::{Budget, Share};
use egret_remedy::BodyFault;
use egret_store::entries::{BodyRelay, BodyWriter, StoredBody};
use egret_usage::{ContentScan, ReportFilter, UsageRecord, UsageScan};

use crate::fault::{FaultStage, FaultedBody};

/// One thing that is done with a body while it passes.
#[derive(Debug)]
enum Stage {
    Mask(Box<SecretMask>),
    Fault(Box<FaultStage>),
    Store(Storing),
    Keep(Tap),
    Usage(Box<UsageStage>),
    Hide(Box<HideStage>),
    Stall(Box<StallStage>),
}

/// Watches for events with content, because the time from one to the next is limited.
#[derive(Debug)]
struct StallStage {
    limit: Duration,
    scan: ContentScan,
    /// `true` if one has passed since the last look.
    has_content: bool,
    /// `true` if one has passed at all. Until then, any byte is progress.
    has_begun: bool,
}

/// The progress of a body, as its time limits see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamProgress {
    /// Any byte is progress.
    Bytes,
    /// An event with content has passed. The next one must follow within this time.
    Content(Duration),
    /// There was no event with content.
    Nothing,
}

/// The stages of a body, in the order in which they see it: what is masked is neither stored nor kept. The
/// pipe of most bodies has none.
#[derive(Debug, Default)]
pub struct Stages(Vec<Stage>);

impl Stages {
    /// Masks `echoes`, before any other stage sees the body.
    pub fn mask(&mut self, echoes: &Arc<SecretPatterns>) {
        self.0.insert(0, Stage::Mask(Box::new(SecretMask::new(echoes))));
    }

    /// Lets the body break off or pass slowly. The stages that follow see what the receiver gets.
    pub fn inject(&mut self, fault: &Arc<BodyFault>, body: FaultedBody) {
        self.0.push(Stage::Fault(Box::new(FaultStage::new(fault, body))));
    }

    fn fault(&self) -> Option<&FaultStage> {
        self.0.iter().find_map(|stage| if let Stage::Fault(fault) = stage { Some(&**fault) } else { None })
    }

    fn fault_mut(&mut self) -> Option<&mut FaultStage> {
        self.0
            .iter_mut()
            .find_map(|stage| if let Stage::Fault(fault) = stage { Some(&mut **fault) } else { None })
    }

    /// Returns `true` if all stages must see the body at the receiver's pace: it breaks off or passes slowly,
    /// or a part of it is left out once another stage has read it.
    pub fn are_inseparable(&self) -> bool {
        self.0.iter().any(|stage| matches!(stage, Stage::Fault(_) | Stage::Hide(_)))
    }

    /// Returns `true` if the body has broken off before its end.
    pub fn is_cut(&self) -> bool {
        self.fault().is_some_and(FaultStage::is_cut)
    }

    /// Ready once what was sent before the cut has had time to leave.
    pub(crate) fn poll_cut(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.fault_mut().map_or(Poll::Ready(()), |fault| fault.poll_cut(cx, Moment::now()))
    }

    /// Ready with the number of bytes that may pass now.
    pub(crate) fn poll_allowance(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        self.fault_mut().map_or(Poll::Ready(usize::MAX), |fault| fault.poll_allowance(cx, Moment::now()))
    }

    /// Stores the body. Nothing is stored if it breaks off or exceeds the limit.
    pub fn store(&mut self, writer: BodyWriter<Stored>) {
        self.0.push(Stage::Store(Storing::new(writer)));
    }

    /// Observes the body with a tap that `start` prepares.
    pub fn tap(&mut self, start: impl FnOnce(&mut Tap)) {
        let mut tap = self.take_tap().unwrap_or_default();
        start(&mut tap);
        self.0.push(Stage::Keep(tap));
    }

    /// Takes the tap, if there is one.
    pub fn take_tap(&mut self) -> Option<Tap> {
        let at = self.0.iter().position(|stage| matches!(stage, Stage::Keep(_)))?;
        match self.0.remove(at) {
            Stage::Keep(tap) => Some(tap),
            _ => None,
        }
    }

    /// Returns the tap, if there is one.
    pub fn tap_mut(&mut self) -> Option<&mut Tap> {
        self.0.iter_mut().find_map(|stage| match stage {
            Stage::Keep(tap) => Some(tap),
            _ => None,
        })
    }

    /// Reads the usage that the response with these fields reports, unless it cannot report any or is read
    /// already. Reads no more of it if `budget` has no room for the decoder of a coded body.
    pub fn read_usage(&mut self, fields: Fields<'_>, budget: &Arc<Budget>) {
        if self.0.iter().any(|stage| matches!(stage, Stage::Usage(_))) {
            return;
        }
        if let Some(scan) = UsageScan::of_response(fields) {
            let stage = UsageStage { scan, share: Share::default(), budget: Arc::clone(budget) };
            self.0.push(Stage::Usage(Box::new(stage)));
        }
    }

    /// Leaves the report of usage out of a stream with these fields, once it has been read. The stages that
    /// follow see what the receiver gets. `budget` is as for [`read_usage`](Self::read_usage).
    pub fn hide_usage(&mut self, fields: Fields<'_>, budget: &Arc<Budget>) {
        self.read_usage(fields, budget);
        self.0.push(Stage::Hide(Box::default()));
    }

    /// Limits the time from one event with content to the next.
    pub fn limit_stalls(&mut self, limit: Duration) {
        let stage = StallStage { limit, scan: ContentScan::default(), has_content: false, has_begun: false };
        self.0.push(Stage::Stall(Box::new(stage)));
    }

    /// Returns the progress since the last call.
    pub fn progress(&mut self) -> StreamProgress {
        let stall = self.0.iter_mut().find_map(|stage| match stage {
            Stage::Stall(stall) => Some(stall),
            _ => None,
        });
        let Some(stall) = stall.filter(|stall| stall.has_begun) else { return StreamProgress::Bytes };
        if mem::take(&mut stall.has_content) {
            StreamProgress::Content(stall.limit)
        } else {
            StreamProgress::Nothing
        }
    }

    /// Takes the usage that the body has reported, if it was read. The body has come to its end if
    /// `is_whole`.
    pub fn take_usage(&mut self, is_whole: bool) -> Option<Box<UsageRecord>> {
        let at = self.0.iter().position(|stage| matches!(stage, Stage::Usage(_)))?;
        match self.0.remove(at) {
            Stage::Usage(usage) => Some(Box::new(usage.scan.finish(is_whole))),
            _ => None,
        }
    }

    /// Takes the stage that reads usage from `other`.
    pub fn adopt_usage(&mut self, other: &mut Self) {
        if let Some(at) = other.0.iter().position(|stage| matches!(stage, Stage::Usage(_))) {
            self.0.push(other.0.remove(at));
        }
    }

    /// Returns the store's stage, unless the store has all of the body or has given it up.
    pub fn storing(&self) -> Option<&Storing> {
        self.0.iter().find_map(|stage| match stage {
            Stage::Store(storing) if !matches!(storing.state, StoringState::Ended) => Some(storing),
            _ => None,
        })
    }

    /// Stops storing the body.
    pub fn stop_storing(&mut self) {
        self.0.retain(|stage| !matches!(stage, Stage::Store(_)));
    }

    /// Passes the data in `spans` of `input` through the stages. The body has ended if `is_done`. Returns the
    /// bytes to forward, and sets `spans` to the data within them; and `true` if the receiver gets the end.
    pub fn pass<'s>(&'s mut self, input: &'s [u8], spans: &mut Vec<Span>, is_done: bool) -> (&'s [u8], bool) {
        let (mut data, mut is_done) = (input, is_done);
        for stage in &mut self.0 {
            match stage {
                Stage::Mask(mask) => data = mask.pass(data, spans, is_done),
                Stage::Fault(fault) => {
                    fault.pass(data, spans, Moment::now());
                    is_done &= !fault.is_cut();
                }
                Stage::Store(storing) => storing.take(data, spans, is_done),
                Stage::Keep(tap) => spans.iter().for_each(|span| tap.take(span.of(data))),
                Stage::Usage(usage) => usage.take(spans.iter().map(|span| span.of(data))),
                Stage::Hide(hide) => data = hide.pass(data, spans, is_done),
                Stage::Stall(stall) => {
                    let scan = &mut stall.scan;
                    let found = spans.iter().fold(false, |found, span| found | scan.push(span.of(data)));
                    stall.has_content |= found;
                    stall.has_begun |= found;
                }
            }
        }
        (data, is_done)
    }

    /// Masks the lines of the trailers.
    pub fn pass_trailers(&self, lines: &mut [u8]) {
        for stage in &self.0 {
            if let Stage::Mask(mask) = stage {
                mask.echoes.mask(lines);
            }
        }
    }
}

/// A body that is being stored in a cache.
#[derive(Debug)]
pub struct Storing {
    body: Arc<StoredBody>,
    state: StoringState,
}

#[derive(Debug)]
enum StoringState {
    Filling(BodyWriter<Stored>),
    /// The body has outgrown the store, and is passed on to those who have begun to read it.
    Relaying(BodyRelay),
    /// The store has all of it, or nobody reads it.
    Ended,
}

impl Storing {
    fn new(writer: BodyWriter<Stored>) -> Self {
        let body = Arc::clone(&writer.entry().body);
        Self { body, state: StoringState::Filling(writer) }
    }

    /// Returns the stored body.
    pub fn body(&self) -> &Arc<StoredBody> {
        &self.body
    }

    /// Returns `true` if the body has outgrown the store.
    pub fn has_outgrown(&self) -> bool {
        matches!(self.state, StoringState::Relaying(_))
    }

    /// Stores the body's data in `spans` of `input`, or passes it on. The body has ended if `is_done`.
    fn take(&mut self, input: &[u8], spans: &[Span], is_done: bool) {
        let joined: Vec<u8>;
        let data = match spans {
            [] => &[],
            [span] => span.of(input),
            // Joined, because chunks of one byte each would be stored as blocks of one byte each.
            spans => {
                joined = spans.iter().flat_map(|span| span.of(input)).copied().collect();
                &joined
            }
        };
        let relay = match mem::replace(&mut self.state, StoringState::Ended) {
            StoringState::Ended => return,
            StoringState::Filling(mut writer) => match writer.push(data) {
                Ok(()) if is_done => {
                    writer.finish();
                    return;
                }
                Ok(()) => {
                    self.state = StoringState::Filling(writer);
                    return;
                }
                Err(_) => writer.give_up(data),
            },
            // This stage holds the body too.
            StoringState::Relaying(relay) if !relay.has_readers(1) => return,
            StoringState::Relaying(mut relay) => {
                relay.push(data);
                relay
            }
        };
        if is_done { relay.finish() } else { self.state = StoringState::Relaying(relay) }
    }
}

/// Reads the usage that a passing body reports.
#[derive(Debug)]
struct UsageStage {
    scan: UsageScan,
    /// The share of the budget for gathered bodies that a decoder takes.
    share: Share,
    budget: Arc<Budget>,
}

impl UsageStage {
    fn take<'d>(&mut self, data: impl Iterator<Item = &'d [u8]>) {
        data.for_each(|data| self.scan.push(data));
        if self.share.cover(&self.budget, self.scan.held_bytes()).is_err() {
            self.scan.give_up();
            self.share.release();
        }
    }
}

/// Leaves the report of usage out of a stream.
#[derive(Debug, Default)]
struct HideStage {
    filter: ReportFilter,
    /// The bytes to forward.
    left: Vec<u8>,
}

impl HideStage {
    /// Takes the stream's data in `spans` of `input`. The stream has ended if `is_done`. Returns the bytes to
    /// forward, and sets `spans` to the data within them.
    fn pass(&mut self, input: &[u8], spans: &mut Vec<Span>, is_done: bool) -> &[u8] {
        self.left.clear();
        for span in spans.drain(..) {
            self.filter.push(span.of(input), &mut self.left);
        }
        if is_done {
            self.filter.finish(&mut self.left);
        }
        if !self.left.is_empty() {
            spans.push(Span::new(0, self.left.len()));
        }
        &self.left
    }
}

/// Masks the secrets in a body before any of it is seen.
#[derive(Debug)]
struct SecretMask {
    echoes: Arc<SecretPatterns>,
    mask: PatternMask,
    /// The masked bytes to forward.
    masked: Vec<u8>,
}

impl SecretMask {
    /// Creates a mask for a body in which `echoes` are hidden.
    fn new(echoes: &Arc<SecretPatterns>) -> Self {
        Self { echoes: Arc::clone(echoes), mask: PatternMask::new(Arc::clone(echoes)), masked: Vec::new() }
    }

    /// Takes the body's data in `spans` of `input`. The body has ended if `is_done`. Returns the bytes to
    /// forward, and sets `spans` to the data within them.
    fn pass(&mut self, input: &[u8], spans: &mut Vec<Span>, is_done: bool) -> &[u8] {
        self.masked.clear();
        self.mask.push_all(spans.drain(..).map(|span| span.of(input)), &mut self.masked);
        if is_done {
            self.mask.finish(&mut self.masked);
        }
        if !self.masked.is_empty() {
            spans.push(Span::new(0, self.masked.len()));
        }
        &self.masked
    }
}

/// Observes a passing body: counts its length, and copies its beginning and its end, each up to its own
/// limit. Reads a stream of events instead of copying its end.
#[derive(Debug, Default)]
pub struct Tap {
    start: Vec<u8>,
    start_max: usize,
    end: Vec<u8>,
    end_max: usize,
    /// Reads the events, if the body is a stream of them whose end would otherwise be kept.
    events: Option<Box<EventScan>>,
    /// The share of the budget for gathered bodies that the end or the events take.
    share: Share,
    /// The budget of that share. `None` if the end is not needed, or was dropped because there was no room.
    budget: Option<Arc<Budget>>,
    passed_bytes: u64,
}

impl Tap {
    /// Keeps the first `max` bytes, in the memory of `bytes`.
    pub fn keep_start(&mut self, mut bytes: Vec<u8>, max: usize) {
        bytes.clear();
        (self.start, self.start_max) = (bytes, max);
    }

    /// Keeps the last `max` bytes, in the memory of `bytes`. Keeps nothing if `budget` has no room for them.
    pub fn keep_end(&mut self, mut bytes: Vec<u8>, max: usize, budget: &Arc<Budget>) {
        bytes.clear();
        (self.end, self.end_max) = (bytes, max);
        self.budget = Some(Arc::clone(budget));
    }

    /// Reads the events of the body. Reads no more of them if `budget` has no room.
    pub fn read_events(&mut self, events: EventScan, budget: &Arc<Budget>) {
        self.events = Some(Box::new(events));
        self.budget = Some(Arc::clone(budget));
    }

    fn take(&mut self, data: &[u8]) {
        self.passed_bytes += data.len() as u64;
        if self.start.len() < self.start_max {
            self.start.extend_from_slice(&data[..data.len().min(self.start_max - self.start.len())]);
        }
        if let Some(budget) = &self.budget {
            if let Some(events) = &mut self.events {
                events.push(data);
                if self.share.cover(budget, events.held_bytes()).is_err() {
                    events.give_up();
                    self.budget = None;
                    self.share.release();
                }
                return;
            }
            let data = &data[data.len().saturating_sub(self.end_max)..];
            let (held, needed) = (self.end.capacity(), self.end.len() + data.len());
            if needed > held {
                let bytes = needed.max(2 * held);
                if self.share.cover(budget, bytes).is_err() {
                    self.budget = None;
                    self.end = Vec::new();
                    self.share.release();
                    return;
                }
                self.end.reserve_exact(bytes - self.end.len());
            }
            self.end.extend_from_slice(data);
            // Done only when the buffer has doubled, so the cost stays proportional.
            if self.end.len() > self.end_max.saturating_mul(2) {
                self.end.drain(..self.end.len() - self.end_max);
            }
        }
    }

    /// Returns the length of the body so far.
    pub fn passed_bytes(&self) -> u64 {
        self.passed_bytes
    }

    /// Takes the beginning of the body.
    pub fn take_start(&mut self) -> Vec<u8> {
        mem::take(&mut self.start)
    }

    /// Returns `true` if the end of the body is kept, or its events are read.
    pub fn wants_end(&self) -> bool {
        self.end_max > 0 || self.events.is_some()
    }

    /// Returns the body that expressions see, for a response with these fields.
    pub fn seen_body(&mut self, fields: Fields<'_>) -> Option<Cow<'_, [u8]>> {
        if let Some(events) = self.events.take() {
            return events.finish().map(Cow::Owned);
        }
        let end = &self.end[self.end.len().saturating_sub(self.end_max)..];
        let is_whole = end.len() as u64 == self.passed_bytes;
        if is_whole { seen_at_end(fields, end) } else { None }
    }

    /// Returns the memory of the end, to be reused.
    pub fn into_end(self) -> Vec<u8> {
        self.end
    }
}

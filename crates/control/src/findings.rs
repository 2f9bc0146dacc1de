//! Findings: the list of all that is wrong now, each with its begin, its evidence and what to do about it.
//!
//! The control thread takes a sample of the counters every two seconds. Rules compare it with the sample of
//! ten seconds before, and tell which troubles there are. A trouble that the rules tell is a finding from
//! then on, until they no longer do. An exchange takes no part in it.

mod endpoints;
mod log;
mod parts;
mod policies;
mod providers;
mod refusals;
mod sample;
mod trouble;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use egret_clock::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;

use crate::history::UsualWait;
use crate::observed::Observed;
use log::FindingsLog;
use sample::CountersSample;
pub(crate) use sample::Decisions;
pub(crate) use trouble::{FindingKind, SAMPLE_INTERVAL, Severity};
use trouble::{Trouble, WINDOW_SAMPLES};

/// Number of samples that are kept: a minute and the current one.
const SAMPLES_MAX: usize = 31;
/// Number of findings at one time. Those that begin later are not shown.
const FINDINGS_MAX: usize = 100;
/// Number of events that are kept.
const EVENTS_MAX: usize = 100;
/// Time for which a provider that fails stays a finding without another call.
const SILENCE_MAX: Duration = Duration::from_mins(5);
/// Bytes of a text that comes from a name or an error.
const TEXT_BYTES_MAX: usize = 512;

/// An entry of `/api/v1/findings`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub kind: FindingKind,
    pub severity: Severity,
    pub subject: String,
    /// Its begin, in microseconds since the epoch.
    pub since_us: u64,
    pub summary: String,
    pub evidence: String,
    pub advice: String,
}

/// An event, for the charts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Event {
    /// Its time, in microseconds since the epoch.
    pub at_us: u64,
    pub what: EventKind,
    /// It in one sentence.
    pub text: String,
}

/// The kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EventKind {
    /// The gateway has started.
    Started,
    /// A config was applied.
    ConfigApplied,
    /// A finding has begun.
    Began,
    /// A finding has ended.
    Ended,
}

/// The content of `/api/v1/findings`.
#[derive(Debug, Serialize)]
pub(crate) struct FindingsView {
    /// The worst first.
    pub findings: Vec<Finding>,
    /// The newest first.
    pub events: Vec<Event>,
}

/// The samples, and the findings that they have led to.
#[derive(Debug, Default)]
pub(crate) struct Findings(Mutex<SampledState>);

#[derive(Debug, Default)]
struct SampledState {
    /// The oldest first.
    samples: VecDeque<CountersSample>,
    active: BTreeMap<(FindingKind, String), Active>,
    /// The oldest first.
    events: VecDeque<Event>,
    log: FindingsLog,
}

#[derive(Debug)]
struct Active {
    finding: Finding,
    /// The last time that a rule told it.
    seen: Timestamp,
}

impl Findings {
    /// Adds a sample taken at `now`. `usual` tells the usual time until a provider's response begins.
    pub fn add(&self, now: Timestamp, observed: &Observed, usual: &dyn Fn(&str) -> Option<UsualWait>) {
        let mut state = self.0.lock();
        let sample = CountersSample::of(observed);
        state.note_changes(now, &sample);
        state.samples.push_back(sample);
        if state.samples.len() > SAMPLES_MAX {
            state.samples.pop_front();
        }
        let troubles = state.troubles(now, observed, usual);
        state.update(now, troubles);
    }

    /// Returns the decisions that remedies had made a minute ago, or at the start, by flow and remedy.
    pub fn decisions_before(&self) -> BTreeMap<(String, String), Decisions> {
        self.0.lock().samples.front().map(|sample| sample.decisions.clone()).unwrap_or_default()
    }

    /// Returns the findings and the events.
    pub fn view(&self) -> FindingsView {
        let state = self.0.lock();
        let mut findings: Vec<Finding> = state.active.values().map(|active| active.finding.clone()).collect();
        findings.sort_by_key(|finding| (finding.severity, finding.kind, finding.since_us));
        FindingsView { findings, events: state.events.iter().rev().cloned().collect() }
    }
}

impl SampledState {
    /// Adds the events that show between the last sample and this one.
    fn note_changes(&mut self, now: Timestamp, sample: &CountersSample) {
        let Some(last) = self.samples.back() else {
            let started = now - Duration::from_secs(sample.uptime_s);
            return self.note(started, EventKind::Started, "the gateway has started".to_owned());
        };
        let applied = sample.reloads.saturating_sub(last.reloads);
        if applied > 0 {
            self.note(now, EventKind::ConfigApplied, "a config was applied".to_owned());
        }
    }

    fn note(&mut self, at: Timestamp, what: EventKind, text: String) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(Event { at_us: at.as_micros(), what, text });
    }

    /// Returns the troubles that the rules see now.
    fn troubles(
        &self,
        now: Timestamp,
        observed: &Observed,
        usual: &dyn Fn(&str) -> Option<UsualWait>,
    ) -> Vec<Trouble> {
        let Some(current) = self.samples.back() else { return Vec::new() };
        let back = self.samples.len().saturating_sub(1 + WINDOW_SAMPLES);
        let (Some(before), Some(minute)) = (self.samples.get(back), self.samples.front()) else {
            return Vec::new();
        };
        let mut troubles = providers::troubles(current, before, minute, usual);
        troubles.extend(endpoints::troubles(&self.samples));
        troubles.extend(refusals::troubles(current, before));
        troubles.extend(policies::troubles(now, &observed.flows, current, before));
        troubles.extend(parts::troubles(observed, current, before));
        troubles
    }

    /// Begins and ends findings.
    fn update(&mut self, now: Timestamp, troubles: Vec<Trouble>) {
        for trouble in troubles {
            self.tell(now, trouble);
        }
        let silent = self.silent();
        let is_over = |active: &Active| {
            let is_unknown = active.finding.kind.needs_calls()
                && silent.contains(&active.finding.subject)
                && now.since(active.seen) < SILENCE_MAX;
            active.seen != now && !is_unknown
        };
        let over: Vec<_> =
            self.active.iter().filter(|(_, active)| is_over(active)).map(|(key, _)| key.clone()).collect();
        for key in over {
            let Some(ended) = self.active.remove(&key) else { continue };
            self.log.end(now, &ended.finding);
            self.note(now, EventKind::Ended, format!("no longer: {}", ended.finding.summary));
        }
    }

    fn tell(&mut self, now: Timestamp, trouble: Trouble) {
        let Trouble { kind, severity, subject, summary, evidence, advice, since } = trouble;
        let key = (kind, subject.clone());
        let known = self.active.get(&key).map(|active| active.finding.since_us);
        if known.is_none() && self.active.len() >= FINDINGS_MAX {
            return;
        }
        let since_us = known.unwrap_or_else(|| since.unwrap_or(now).as_micros());
        let [subject, summary, evidence] = [subject, summary, evidence].map(cut);
        let finding = Finding { kind, severity, subject, since_us, summary, evidence, advice };
        if known.is_none() {
            self.note(Timestamp::from_micros(since_us), EventKind::Began, finding.summary.clone());
            self.log.begin(now, &finding);
        }
        self.active.insert(key, Active { finding, seen: now });
    }

    /// Returns the providers without a call in the window.
    fn silent(&self) -> Vec<String> {
        let back = self.samples.len().saturating_sub(1 + WINDOW_SAMPLES);
        let (Some(current), Some(before)) = (self.samples.back(), self.samples.get(back)) else {
            return Vec::new();
        };
        let is_silent = |name: &&String| {
            current.provider(name).is_none_or(|provider| provider.calls_since(before.provider(name)) == 0)
        };
        self.active.values().map(|active| &active.finding.subject).filter(is_silent).cloned().collect()
    }
}

/// Returns a text, cut to a bound.
fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
    text
}

#[cfg(test)]
mod tests;

//! Counts the units of one group by the rules of its kind of quota. It is given the time, and decides by
//! arithmetic alone.
//!
//! A unit that was taken is *in transit* until the response arrives: at some moment in between, the provider
//! counts it. It is held for all of that time, and counted as if the provider had counted it at the end. So
//! network jitter cannot bring two calls closer together at the provider than they are here.

mod adaptive;
mod bucket;
mod handed;
mod pace;
mod rule;
mod schedule;
mod sliding;
mod windows;

use egret_clock::{Timestamp, planted};
use egret_store::Window;

use super::alerts::WindowUse;
use super::handed_state::{GaugeState, MeterState};
pub use adaptive::LoadSign;
pub(super) use adaptive::{Adaptation, AdaptiveLimit};
use bucket::Bucket;
use handed::Handed;
pub(super) use handed::{REPORT_MICROS, UsageReport};
use pace::Pace;
pub(super) use rule::{Refill, Rule};
pub(super) use schedule::Schedule;
use sliding::Sliding;
use windows::Windows;

/// Maximum time by which a caller's clock may be behind the latest time seen. Callers read the clock a little
/// earlier; beyond this, the system clock was set back.
const LAG_MAX_MICROS: u64 = 1_000_000;

/// Time for which the request of a call that was given up may still be on its way to the provider.
pub(super) const STRAY_MICROS: u64 = 1_000_000;

/// Shortest estimate of the time for which calls in transit hold units.
const HELD_MIN_MICROS: u64 = 1_000_000;

/// The state of a unit that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The provider may count it at any moment.
    Transit,
    /// It is counted; the mark identifies where, for the meter that returned it.
    Counted(u64),
}

/// The usage of a group.
#[derive(Debug)]
pub(super) struct Meter {
    rule: Rule,
    gauge: Gauge,
    transit: u64,
    /// The number of slots, if it follows the provider's latency.
    adaptive: Option<Box<AdaptiveLimit>>,
    pace: Pace,
    /// Number of times that units turned out to come back later than estimated.
    delays: u64,
    /// The latest time seen.
    latest: u64,
}

#[derive(Debug)]
enum Gauge {
    Sliding(Sliding),
    Windows(Windows),
    Bucket(Bucket),
    Slots,
    /// The next process counts.
    Handed(Handed),
}

impl Meter {
    pub(super) fn new(rule: Rule) -> Self {
        let gauge = match &rule.refill {
            Refill::Sliding { window } => Gauge::Sliding(Sliding::new(*window)),
            Refill::Windows { .. } => Gauge::Windows(Windows::default()),
            Refill::Bucket { .. } => Gauge::Bucket(Bucket::default()),
            Refill::Slots => Gauge::Slots,
        };
        let adaptive = adaptive_limit(&rule, None);
        Self { rule, gauge, transit: 0, adaptive, pace: Pace::default(), delays: 0, latest: 0 }
    }

    pub(super) fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Applies another rule of the same kind of refill; the counts stay.
    pub(super) fn set_rule(&mut self, rule: Rule) {
        self.rule = rule;
        self.adaptive = adaptive_limit(&self.rule, self.adaptive.take());
        if let Gauge::Windows(windows) = &mut self.gauge {
            windows.bound_spilled(&self.rule);
        }
        self.note_delay();
    }

    /// Sets the time at which units counted now come back, if it is not one window later.
    pub(super) fn set_edge(&mut self, edge: Option<u64>) {
        if let Gauge::Sliding(sliding) = &mut self.gauge {
            sliding.set_edge(edge);
        }
    }

    /// Updates the time, and frees the units that have come back until then. Small differences do not set the
    /// time back. If the system clock was set back, the counts move with it.
    pub(super) fn advance(&mut self, now: Timestamp) {
        let micros = now.as_micros();
        let behind = self.latest.saturating_sub(micros);
        if behind > LAG_MAX_MICROS {
            self.set_back(behind);
        }
        self.pass_to(micros);
    }

    #[cold]
    fn set_back(&mut self, micros: u64) {
        self.latest -= micros;
        match &mut self.gauge {
            Gauge::Sliding(sliding) => sliding.shift_back(micros),
            Gauge::Windows(windows) => windows.shift_back(micros, self.latest, &self.rule),
            Gauge::Bucket(bucket) => bucket.shift_back(micros),
            Gauge::Slots | Gauge::Handed(_) => {}
        }
        self.pace.shift_back(micros);
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.shift_back(micros);
        }
    }

    /// Updates the time by a clock that nobody sets, and frees the units that have come back until then.
    pub(super) fn pass_to(&mut self, micros: u64) {
        self.latest = self.latest.max(micros);
        match &mut self.gauge {
            Gauge::Sliding(sliding) => sliding.expire(self.latest),
            Gauge::Windows(windows) => {
                let epoch = windows.epoch();
                windows.roll(self.latest, &self.rule, self.transit);
                if windows.epoch() != epoch && windows.used() > 0 {
                    self.note_delay();
                }
            }
            Gauge::Bucket(bucket) => bucket.drain(self.latest, self.rule.limit),
            Gauge::Slots | Gauge::Handed(_) => {}
        }
    }

    /// The latest time seen.
    pub(super) fn now(&self) -> u64 {
        self.latest
    }

    /// Returns `true` if that many units are free.
    pub(super) fn fits(&self, units: u64) -> bool {
        match &self.gauge {
            Gauge::Bucket(bucket) => bucket.fits(self.transit.saturating_add(units), &self.rule),
            _ => self.used().saturating_add(units) <= self.allowance(),
        }
    }

    /// Returns `true` if that many units are free once all calls in transit have given back what they hold.
    pub(super) fn fits_beside_counted(&self, units: u64) -> bool {
        match &self.gauge {
            Gauge::Slots | Gauge::Handed(_) => false,
            Gauge::Bucket(bucket) => bucket.fits(units, &self.rule),
            Gauge::Sliding(_) | Gauge::Windows(_) => {
                let counted = self.used().saturating_sub(self.transit);
                counted.saturating_add(units) <= self.allowance()
            }
        }
    }

    /// The estimated time at which calls in transit end.
    pub(super) fn transit_end(&self) -> u64 {
        self.pace.ends().max(self.latest.saturating_add(HELD_MIN_MICROS))
    }

    /// Units counted or in transit.
    pub(super) fn used(&self) -> u64 {
        match &self.gauge {
            Gauge::Sliding(sliding) => sliding.counted().saturating_add(self.transit),
            Gauge::Windows(windows) => windows.used(),
            Gauge::Bucket(bucket) => bucket.debt(&self.rule).saturating_add(self.transit),
            Gauge::Slots => self.transit,
            Gauge::Handed(handed) => handed.done().saturating_add(self.transit),
        }
    }

    /// Total units at the moment, used or not.
    pub(super) fn allowance(&self) -> u64 {
        match &self.gauge {
            Gauge::Windows(windows) => self.rule.limit.saturating_add(windows.spilled()),
            Gauge::Handed(handed) => handed.held(),
            _ => self.adaptive().map_or_else(|| self.rule.max_units(), AdaptiveLimit::limit),
        }
    }

    /// The adaptive limit, if there is one.
    pub(super) fn adaptive(&self) -> Option<&AdaptiveLimit> {
        self.adaptive.as_deref()
    }

    /// Returns `true` if nothing is used, so the meter equals a new one.
    pub(super) fn is_full(&self) -> bool {
        match &self.gauge {
            Gauge::Windows(windows) => windows.used() == 0 && windows.spilled() == 0,
            Gauge::Handed(_) => false,
            _ => self.used() == 0,
        }
    }

    /// Number of the window, counted from the first; 0 without windows.
    pub(super) fn epoch(&self) -> u64 {
        if let Gauge::Windows(windows) = &self.gauge { windows.epoch() } else { 0 }
    }

    /// The current window, for a store; `None` without windows.
    pub(super) fn window(&self) -> Option<Window> {
        let Refill::Windows { schedule, spillover } = &self.rule.refill else { return None };
        let (begin, end) = schedule.window(self.latest);
        let (before, _) = schedule.window(begin.saturating_sub(1));
        Some(Window { begin, end, before, limit: self.rule.limit, spillover: *spillover })
    }

    /// The use of the current window; `None` without windows, or while no call has begun one.
    pub(super) fn window_use(&self) -> Option<WindowUse> {
        let Gauge::Windows(windows) = &self.gauge else { return None };
        let used = windows.used().saturating_sub(self.transit);
        let (limit, rule_limit) = (self.allowance(), self.rule.limit);
        Some(WindowUse { end: windows.end()?, used, limit, rule_limit })
    }

    /// Replaces the count by that of a store.
    pub(super) fn set(&mut self, used: u64, spilled: u64) {
        if let Gauge::Windows(windows) = &mut self.gauge {
            windows.set(used, spilled);
        }
    }

    /// A number that changes when units turn out to come back later than [`forecast`](Self::forecast) has
    /// said.
    pub(super) fn delays(&self) -> u64 {
        self.delays
    }

    /// Notes that units may come back later than estimated.
    pub(super) fn note_delay(&mut self) {
        self.delays += 1;
    }

    /// Units of calls in transit.
    pub(super) fn transit(&self) -> u64 {
        self.transit
    }

    /// Takes units that fit.
    pub(super) fn take(&mut self, units: u64) {
        self.transit = self.transit.saturating_add(units);
        self.pace.made(units, self.latest);
        if let Gauge::Windows(windows) = &mut self.gauge {
            windows.take(units, self.latest, &self.rule);
        }
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.taken(self.transit);
        }
    }

    /// Lets an adaptive limit learn from the end of a call that began at `made`. Returns `true` if it rises.
    pub(super) fn ended(&mut self, sign: LoadSign, made: u64) -> bool {
        self.adaptive.as_mut().is_some_and(|adaptive| adaptive.ended(sign, made, self.latest))
    }

    /// Counts the units of a call that has taken so long, because its response has arrived. Slots stay taken.
    pub(super) fn responded(&mut self, units: u64, took_us: u64) -> Stage {
        let stage = self.count(units, self.latest);
        if stage != Stage::Transit && self.pace.took(took_us) {
            self.note_delay();
        }
        stage
    }

    /// Counts the units of a call that was given up; the provider may count them until a little later.
    pub(super) fn abandoned(&mut self, units: u64) -> Stage {
        let until = self.latest.saturating_add(STRAY_MICROS);
        match &mut self.gauge {
            Gauge::Windows(windows) => windows.abandoned(units, until),
            Gauge::Handed(handed) => {
                handed.abandon(units);
                self.transit = self.transit.saturating_sub(units);
                return Stage::Counted(0);
            }
            _ => {}
        }
        self.count(units, until)
    }

    /// Counts units that an earlier process held, because it has received their responses.
    pub(super) fn count_held(&mut self, units: u64) {
        self.count(units, self.latest);
    }

    fn count(&mut self, units: u64, at: u64) -> Stage {
        let units = if planted!(UnitUncounted) { 0 } else { units };
        let mark = match &mut self.gauge {
            Gauge::Sliding(sliding) => sliding.count(units, at.min(self.latest + sliding.window())),
            Gauge::Windows(windows) => windows.epoch(),
            Gauge::Bucket(bucket) => bucket.count(units, self.latest, &self.rule),
            Gauge::Slots => return Stage::Transit,
            Gauge::Handed(_) if self.rule.refill == Refill::Slots => return Stage::Transit,
            Gauge::Handed(handed) => handed.count(units),
        };
        self.transit = self.transit.saturating_sub(units);
        Stage::Counted(mark)
    }

    /// Adds units that were used beyond those taken.
    pub(super) fn add(&mut self, units: u64) {
        match &mut self.gauge {
            Gauge::Sliding(sliding) => {
                sliding.count(units, self.latest);
            }
            Gauge::Windows(windows) => windows.add(units, self.latest, &self.rule),
            Gauge::Bucket(bucket) => {
                bucket.count(units, self.latest, &self.rule);
            }
            Gauge::Handed(handed) if self.rule.refill != Refill::Slots => {
                handed.count(units);
            }
            Gauge::Slots | Gauge::Handed(_) => {}
        }
    }

    /// Returns units that were taken and not used, except those that have already come back by themselves.
    pub(super) fn give_back(&mut self, units: u64, stage: Stage) {
        match stage {
            Stage::Transit => {
                self.transit = self.transit.saturating_sub(units);
                if let Gauge::Windows(windows) = &mut self.gauge {
                    windows.give_back(units);
                }
            }
            Stage::Counted(mark) => match &mut self.gauge {
                Gauge::Sliding(sliding) => sliding.give_back(units, mark),
                Gauge::Windows(windows) if windows.epoch() == mark => windows.give_back(units),
                Gauge::Bucket(bucket) => bucket.give_back(units, mark, self.latest, &self.rule),
                Gauge::Handed(handed) => handed.give_back(units, mark),
                Gauge::Windows(_) | Gauge::Slots => {}
            },
        }
    }

    /// The earliest time at which that many units could be free, if no others are taken and all calls
    /// complete now. They may be more than one window has. `None` if time alone never frees them.
    pub(super) fn when(&self, units: u64) -> Option<u64> {
        self.reckon(units, &Pace::default())
    }

    /// The time at which that many units will be free, if no others are taken and calls take as long as
    /// recently.
    pub(super) fn forecast(&self, units: u64) -> Option<u64> {
        self.reckon(units, &self.pace)
    }

    fn reckon(&self, units: u64, pace: &Pace) -> Option<u64> {
        if self.fits(units) {
            return Some(self.latest);
        }
        let Self { rule, transit, latest, .. } = self;
        match &self.gauge {
            Gauge::Sliding(sliding) => sliding.when(units, *transit, rule.limit, *latest, pace),
            Gauge::Windows(windows) => windows.when(units, *transit, *latest, rule, pace),
            Gauge::Bucket(bucket) => bucket.when(transit.saturating_add(units), *latest, rule, pace),
            Gauge::Slots => None,
            Gauge::Handed(_) => Some(latest.saturating_add(REPORT_MICROS)),
        }
    }

    /// Time at which all units used now will have come back.
    pub(super) fn reset(&self) -> u64 {
        match &self.gauge {
            Gauge::Sliding(sliding) => sliding.reset(self.transit > 0, self.latest),
            Gauge::Windows(windows) => windows.end().unwrap_or(self.latest),
            Gauge::Bucket(bucket) => {
                let full = self.transit.saturating_add(self.rule.max_units());
                bucket.when(full, self.latest, &self.rule, &Pace::default()).unwrap_or(self.latest)
            }
            Gauge::Slots => self.latest,
            Gauge::Handed(_) => self.latest.saturating_add(REPORT_MICROS),
        }
    }

    /// Returns the counts for the next process, which counts from now on. This one may still use the units in
    /// transit and `spare` others.
    pub(super) fn hand_over(&mut self, spare: u64) -> MeterState {
        let held = self.transit.saturating_add(spare);
        let gauge = std::mem::replace(&mut self.gauge, Gauge::Handed(Handed::new(held)));
        let gauge = match gauge {
            Gauge::Sliding(sliding) => GaugeState::Sliding(sliding.state()),
            Gauge::Windows(windows) => GaugeState::Windows(windows.state(spare)),
            Gauge::Bucket(bucket) => bucket.state(),
            Gauge::Slots | Gauge::Handed(_) => GaugeState::Slots,
        };
        let adaptive = self.adaptive().and_then(AdaptiveLimit::state);
        MeterState { held, latest: self.latest, response: self.pace.response(), gauge, adaptive }
    }

    /// Takes over the counts of an earlier process. Returns `false` if they are those of another kind of
    /// quota.
    pub(super) fn inherit(&mut self, state: &MeterState, now: Timestamp) -> bool {
        let now = now.as_micros();
        match (&mut self.gauge, &state.gauge) {
            (Gauge::Sliding(sliding), GaugeState::Sliding(parts)) => sliding.inherit(parts, now),
            (Gauge::Windows(windows), GaugeState::Windows(counts)) => {
                windows.inherit(counts, now, &self.rule);
            }
            (Gauge::Bucket(bucket), GaugeState::Bucket(debt, at)) => bucket.inherit(*debt, *at, &self.rule),
            (Gauge::Slots, GaugeState::Slots) => {}
            _ => return false,
        }
        self.transit = self.transit.saturating_add(state.held);
        self.latest = self.latest.max(state.latest.min(now));
        self.pace.inherit(state.response);
        if let (Some(adaptive), Some(state)) = (&mut self.adaptive, state.adaptive) {
            adaptive.inherit(state);
        }
        true
    }

    /// Returns `true` if the next process counts.
    pub(super) fn is_handed(&self) -> bool {
        matches!(self.gauge, Gauge::Handed(_))
    }

    /// Notes that calls need so many units together. It matters only after the counts were handed over.
    /// Returns `true` if they may arrive soon.
    pub(super) fn want(&mut self, units: u64) -> bool {
        let Gauge::Handed(handed) = &mut self.gauge else { return false };
        handed.want(units);
        handed.may_get()
    }

    /// Reports to the next process, and keeps at most `calls` unused units, or as many as are needed. Returns
    /// `None` if the counts were not handed over.
    pub(super) fn report(&mut self, calls: u64) -> Option<UsageReport> {
        let Gauge::Handed(handed) = &mut self.gauge else { return None };
        Some(handed.report(self.transit, calls))
    }

    /// Adds units that the next process has lent; `None` if it does not lend any more.
    pub(super) fn lend(&mut self, units: Option<u64>) {
        if let Gauge::Handed(handed) = &mut self.gauge {
            match units {
                Some(units) => handed.lend(units),
                None => handed.cut(),
            }
        }
    }
}

/// The adaptive limit that a rule asks for, which goes on from an earlier one.
fn adaptive_limit(rule: &Rule, before: Option<Box<AdaptiveLimit>>) -> Option<Box<AdaptiveLimit>> {
    let adaptation = rule.adaptation?;
    let mut limit = before.unwrap_or_else(|| Box::new(AdaptiveLimit::new(adaptation)));
    limit.set_rule(adaptation);
    Some(limit)
}

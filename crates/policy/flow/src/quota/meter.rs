//! Counts the units of one group as its kind of quota counts them. Told the time, it decides by arithmetic alone.
//!
//! A unit that was taken is *in transit* until the answer arrives: at some moment in between the provider counts it. It is held
//! for the whole of that time and counted as if the provider had done so at its end, so that no jitter of the network can bring
//! two calls nearer together at the provider than they are here.

mod bucket;
mod pace;
mod sliding;
mod windows;

use egret_clock::Timestamp;
use egret_store::Window;

use bucket::Bucket;
use pace::Pace;
use sliding::Sliding;
pub(super) use windows::Schedule;
use windows::Windows;

/// How far behind the latest time seen a caller's clock may be before the system's clock must have been set back: callers read it
/// some time before they get here.
const LAG_MAX_MICROS: u64 = 1_000_000;

/// How long after a call was given up its request may still be on its way to the provider.
const STRAY_MICROS: u64 = 1_000_000;

/// What a quota allows one of its groups.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rule {
    /// Units in a window, or slots.
    pub limit: u64,
    /// How they come back.
    pub refill: Refill,
}

/// How units come back.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Refill {
    /// That many microseconds after their answer.
    Sliding { window: u64 },
    /// All at once when the next window begins, with up to `spillover` units of what was left.
    Windows { schedule: Schedule, spillover: u64 },
    /// `limit` of them evenly in `window` microseconds, up to `burst`.
    Bucket { window: u64, burst: u64 },
    /// When the call is over.
    Slots,
}

impl Rule {
    /// The most units that can ever be had at once.
    pub(super) fn most(&self) -> u64 {
        match &self.refill {
            Refill::Sliding { .. } | Refill::Slots => self.limit,
            Refill::Windows { spillover, .. } => self.limit.saturating_add(*spillover),
            Refill::Bucket { burst, .. } => *burst,
        }
    }
}

/// Where a unit that was taken stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The provider may count it at any moment.
    Transit,
    /// It is counted; the mark says where, for the meter that gave it.
    Counted(u64),
}

/// What a group has used.
#[derive(Debug)]
pub(super) struct Meter {
    rule: Rule,
    gauge: Gauge,
    transit: u64,
    pace: Pace,
    /// How often it has turned out that units come back later than was foreseen.
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
}

impl Meter {
    pub(super) fn new(rule: Rule) -> Self {
        let gauge = match &rule.refill {
            Refill::Sliding { window } => Gauge::Sliding(Sliding::new(*window)),
            Refill::Windows { .. } => Gauge::Windows(Windows::default()),
            Refill::Bucket { .. } => Gauge::Bucket(Bucket::default()),
            Refill::Slots => Gauge::Slots,
        };
        Self { rule, gauge, transit: 0, pace: Pace::default(), delays: 0, latest: 0 }
    }

    pub(super) fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Goes on by another rule of the same kind of refill; what was counted stays.
    pub(super) fn set_rule(&mut self, rule: Rule) {
        self.rule = rule;
        self.note_delay();
    }

    /// Takes note of the time: what has come back until then is free. Gives the time that counts here, which never goes back: a
    /// little behind the latest is taken as the latest, and when the system's clock was set back, what is counted moves with it.
    pub(super) fn advance(&mut self, now: Timestamp) -> u64 {
        let micros = now.as_micros();
        let behind = self.latest.saturating_sub(micros);
        if behind > LAG_MAX_MICROS {
            match &mut self.gauge {
                Gauge::Sliding(sliding) => sliding.shift_back(behind),
                Gauge::Windows(windows) => windows.shift_back(behind, micros, &self.rule),
                Gauge::Bucket(bucket) => bucket.shift_back(behind),
                Gauge::Slots => {}
            }
            self.pace.shift_back(behind);
            self.latest = micros;
        } else {
            self.latest = self.latest.max(micros);
        }
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
            Gauge::Slots => {}
        }
        self.latest
    }

    /// The latest time told.
    pub(super) fn now(&self) -> u64 {
        self.latest
    }

    /// Whether that many units are free.
    pub(super) fn fits(&self, units: u64) -> bool {
        match &self.gauge {
            Gauge::Bucket(bucket) => bucket.fits(self.transit.saturating_add(units), &self.rule),
            _ => self.used().saturating_add(units) <= self.allowance(),
        }
    }

    /// Units counted or in transit.
    pub(super) fn used(&self) -> u64 {
        match &self.gauge {
            Gauge::Sliding(sliding) => sliding.counted().saturating_add(self.transit),
            Gauge::Windows(windows) => windows.used(),
            Gauge::Bucket(bucket) => bucket.debt(&self.rule).saturating_add(self.transit),
            Gauge::Slots => self.transit,
        }
    }

    /// Units there are in all, used or not, at the moment.
    pub(super) fn allowance(&self) -> u64 {
        match &self.gauge {
            Gauge::Windows(windows) => self.rule.limit.saturating_add(windows.spilled()),
            _ => self.rule.most(),
        }
    }

    /// Whether nothing is used, so that a new meter would be the same.
    pub(super) fn is_full(&self) -> bool {
        match &self.gauge {
            Gauge::Windows(windows) => windows.used() == 0 && windows.spilled() == 0,
            _ => self.used() == 0,
        }
    }

    /// Which window it is, counted from the first; 0 where there are none.
    pub(super) fn epoch(&self) -> u64 {
        if let Gauge::Windows(windows) = &self.gauge { windows.epoch() } else { 0 }
    }

    /// The window that it is, as a store has to know it; `None` where there are none.
    pub(super) fn window(&self) -> Option<Window> {
        let Refill::Windows { schedule, spillover } = &self.rule.refill else { return None };
        let (begin, end) = schedule.window(self.latest);
        let (before, _) = schedule.window(begin.saturating_sub(1));
        Some(Window { begin, end, before, limit: self.rule.limit, spillover: *spillover })
    }

    /// Goes by the count of a store.
    pub(super) fn set(&mut self, used: u64, spilled: u64) {
        if let Gauge::Windows(windows) = &mut self.gauge {
            windows.set(used, spilled);
        }
    }

    /// A number that changes when it turns out that units come back later than [`forecast`](Self::forecast)
    /// has said.
    pub(super) fn delays(&self) -> u64 {
        self.delays
    }

    /// Units may come back later than was foreseen.
    pub(super) fn note_delay(&mut self) {
        self.delays += 1;
    }

    /// Whether nothing is in transit.
    pub(super) fn is_idle(&self) -> bool {
        self.transit == 0
    }

    /// Takes units that fit.
    pub(super) fn take(&mut self, units: u64) {
        self.transit = self.transit.saturating_add(units);
        self.pace.made(units, self.latest);
        if let Gauge::Windows(windows) = &mut self.gauge {
            windows.take(units, self.latest, &self.rule);
        }
    }

    /// The response to a call arrived, which was made at `made`: its units were counted by now. Slots stay
    /// taken.
    pub(super) fn answered(&mut self, units: u64, made: u64) -> Stage {
        let stage = self.count(units, self.latest);
        if stage != Stage::Transit && self.pace.took(self.latest.saturating_sub(made)) {
            self.note_delay();
        }
        stage
    }

    /// A call was given up: its units may be counted until a little later.
    pub(super) fn abandoned(&mut self, units: u64) -> Stage {
        let until = self.latest.saturating_add(STRAY_MICROS);
        if let Gauge::Windows(windows) = &mut self.gauge {
            windows.abandoned(units, until);
        }
        self.count(units, until)
    }

    fn count(&mut self, units: u64, at: u64) -> Stage {
        let mark = match &mut self.gauge {
            Gauge::Sliding(sliding) => sliding.count(units, at.min(self.latest + sliding.window())),
            Gauge::Windows(windows) => windows.epoch(),
            Gauge::Bucket(bucket) => bucket.count(units, self.latest, &self.rule),
            Gauge::Slots => return Stage::Transit,
        };
        self.transit = self.transit.saturating_sub(units);
        Stage::Counted(mark)
    }

    /// Units more than were taken turned out to be used.
    pub(super) fn add(&mut self, units: u64) {
        match &mut self.gauge {
            Gauge::Sliding(sliding) => {
                sliding.count(units, self.latest);
            }
            Gauge::Windows(windows) => windows.add(units, self.latest, &self.rule),
            Gauge::Bucket(bucket) => {
                bucket.count(units, self.latest, &self.rule);
            }
            Gauge::Slots => {}
        }
    }

    /// Units that were taken turned out not to be used; those that had come back by themselves do not so twice.
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
                Gauge::Windows(_) | Gauge::Slots => {}
            },
        }
    }

    /// The earliest time at which that many units could be free, if nobody else took any and all calls were
    /// answered now; they may be more than there are in one window. `None` where no time brings them.
    pub(super) fn when(&self, units: u64) -> Option<u64> {
        self.reckon(units, &Pace::default())
    }

    /// The time at which that many units will be free, if nobody else takes any and calls take as long as of
    /// late.
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
        }
    }

    /// When all that is used now will have come back.
    pub(super) fn reset(&self) -> u64 {
        match &self.gauge {
            Gauge::Sliding(sliding) => sliding.reset(self.transit > 0, self.latest),
            Gauge::Windows(windows) => windows.end().unwrap_or(self.latest),
            Gauge::Bucket(bucket) => {
                let full = self.transit.saturating_add(self.rule.most());
                bucket.when(full, self.latest, &self.rule, &Pace::default()).unwrap_or(self.latest)
            }
            Gauge::Slots => self.latest,
        }
    }
}

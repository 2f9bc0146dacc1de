//! A sliding window: units by the time they were counted, coarse enough to bound memory.

use std::collections::VecDeque;

use super::pace::Pace;

/// Number of parts of a window. Units counted in a part come back one window after its end. So at most this
/// fraction of the allowance stays unused, and the allowance is never exceeded.
const PARTS: u64 = 512;

/// Units counted in the last window.
#[derive(Debug)]
pub(super) struct Sliding {
    window: u64,
    /// Time at which units counted now come back, if it is not one window later.
    edge: Option<u64>,
    /// Length of a part, in microseconds.
    part: u64,
    counted: u64,
    /// Parts with units in them, oldest first. They span at most two windows, because nothing is counted more
    /// than one window ahead.
    parts: VecDeque<WindowPart>,
}

#[derive(Debug, Clone, Copy)]
struct WindowPart {
    /// Number of the part, counted from the epoch.
    index: u64,
    units: u64,
}

impl Sliding {
    pub(super) fn new(window: u64) -> Self {
        Self { window, edge: None, part: (window / PARTS).max(1), counted: 0, parts: VecDeque::new() }
    }

    pub(super) fn window(&self) -> u64 {
        self.window
    }

    pub(super) fn counted(&self) -> u64 {
        self.counted
    }

    pub(super) fn set_edge(&mut self, edge: Option<u64>) {
        self.edge = edge;
    }

    /// Time at which the units of a part come back: one window after the last moment at which one of them can
    /// have been counted.
    fn back_at(&self, index: u64) -> u64 {
        index.saturating_mul(self.part).saturating_add(self.part - 1).saturating_add(self.window)
    }

    pub(super) fn expire(&mut self, now: u64) {
        while let Some(oldest) = self.parts.front()
            && self.back_at(oldest.index) <= now
        {
            self.counted = self.counted.saturating_sub(oldest.units);
            self.parts.pop_front();
        }
    }

    /// Counts units at a time, and returns the number of their part.
    pub(super) fn count(&mut self, units: u64, at: u64) -> u64 {
        let at = self.edge.map_or(at, |edge| if at < edge { edge.saturating_sub(self.window) } else { edge });
        let index = at / self.part;
        self.counted = self.counted.saturating_add(units);
        let position = match self.parts.back_mut() {
            Some(newest) if newest.index == index => {
                newest.units = newest.units.saturating_add(units);
                return index;
            }
            Some(newest) if newest.index > index => self.parts.partition_point(|part| part.index < index),
            _ => self.parts.len(),
        };
        match self.parts.get_mut(position) {
            Some(part) if part.index == index => part.units = part.units.saturating_add(units),
            _ => self.parts.insert(position, WindowPart { index, units }),
        }
        index
    }

    /// Removes units from the part in which they were counted, as far as they are still there.
    pub(super) fn give_back(&mut self, units: u64, index: u64) {
        let Ok(position) = self.parts.binary_search_by_key(&index, |part| part.index) else { return };
        let part = &mut self.parts[position];
        let given = units.min(part.units);
        part.units -= given;
        self.counted = self.counted.saturating_sub(given);
        if part.units == 0 {
            self.parts.remove(position);
        }
    }

    /// Handles a clock that was set back: counted units keep their age, rounded down.
    pub(super) fn shift_back(&mut self, micros: u64) {
        let parts = micros / self.part;
        for part in &mut self.parts {
            part.index = part.index.saturating_sub(parts);
        }
    }

    /// Time at which `units` fit, if they do not now, and calls in transit complete as `pace` estimates.
    pub(super) fn when(&self, units: u64, transit: u64, limit: u64, now: u64, pace: &Pace) -> Option<u64> {
        if limit == 0 {
            return None;
        }
        // Units beyond the limit take one more window, and the duration of a call, for each further limit.
        let windows = units.saturating_sub(1) / limit;
        let units = units - windows * limit;
        let mut missing = (self.counted.saturating_add(transit).saturating_add(units)).saturating_sub(limit);
        let mut at = now;
        for part in &self.parts {
            if missing == 0 {
                break;
            }
            at = self.back_at(part.index);
            missing = missing.saturating_sub(part.units);
        }
        if missing > 0 {
            // Calls made last complete last.
            let needs_last = missing > transit.saturating_sub(pace.burst_units());
            let answered = if needs_last { now.max(pace.ends()) } else { now };
            at = at.max(self.back_at(answered / self.part));
        }
        let cycle = self.window.saturating_add(pace.response()).saturating_add(self.part - 1);
        Some(at.saturating_add(windows.saturating_mul(cycle)))
    }

    /// The parts with their numbers, for the next process.
    pub(super) fn state(&self) -> Vec<(u64, u64)> {
        self.parts.iter().map(|part| (part.index, part.units)).collect()
    }

    /// Takes over the parts of an earlier process, for which it was `now`.
    pub(super) fn inherit(&mut self, parts: &[(u64, u64)], now: u64) {
        // Nothing is counted more than a window ahead.
        let last = now.saturating_add(self.window) / self.part;
        for (index, units) in parts {
            self.count(*units, (*index).min(last).saturating_mul(self.part));
        }
    }

    pub(super) fn reset(&self, in_transit: bool, now: u64) -> u64 {
        let last = self.parts.back().map_or(now, |newest| self.back_at(newest.index));
        if in_transit { last.max(now.saturating_add(self.window)) } else { last }
    }
}

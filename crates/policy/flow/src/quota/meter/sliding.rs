//! A sliding window: units counted by when, coarsely enough that memory is bounded.

use std::collections::VecDeque;

use super::pace::Pace;

/// Parts into which a window is divided. What is counted in one of them comes back at the end of the part, a window later: at most
/// this fraction of the allowance goes unused, and it is never above.
const PARTS: u64 = 512;

/// Units counted in the last window.
#[derive(Debug)]
pub(super) struct Sliding {
    window: u64,
    /// Length of a part, in microseconds.
    part: u64,
    counted: u64,
    /// Parts with units in them, oldest first: at most two windows of them, since nothing is counted farther ahead than one.
    parts: VecDeque<Part>,
}

#[derive(Debug, Clone, Copy)]
struct Part {
    /// Which part of time it is, counted from the epoch.
    index: u64,
    units: u64,
}

impl Sliding {
    pub(super) fn new(window: u64) -> Self {
        Self { window, part: (window / PARTS).max(1), counted: 0, parts: VecDeque::new() }
    }

    pub(super) fn window(&self) -> u64 {
        self.window
    }

    pub(super) fn counted(&self) -> u64 {
        self.counted
    }

    /// When the units of a part are back: a window after the last moment at which one of them can have been counted.
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

    /// Counts units at a moment; gives the part they are in.
    pub(super) fn count(&mut self, units: u64, at: u64) -> u64 {
        let index = at / self.part;
        self.counted = self.counted.saturating_add(units);
        let place = match self.parts.back_mut() {
            Some(newest) if newest.index == index => {
                newest.units = newest.units.saturating_add(units);
                return index;
            }
            Some(newest) if newest.index > index => self.parts.partition_point(|part| part.index < index),
            _ => self.parts.len(),
        };
        match self.parts.get_mut(place) {
            Some(part) if part.index == index => part.units = part.units.saturating_add(units),
            _ => self.parts.insert(place, Part { index, units }),
        }
        index
    }

    /// Takes units out of the part they were counted in, as far as they are still there.
    pub(super) fn give_back(&mut self, units: u64, index: u64) {
        let Ok(place) = self.parts.binary_search_by_key(&index, |part| part.index) else { return };
        let part = &mut self.parts[place];
        let given = units.min(part.units);
        part.units -= given;
        self.counted = self.counted.saturating_sub(given);
        if part.units == 0 {
            self.parts.remove(place);
        }
    }

    /// The clock was set back: what was counted keeps its age, rounded to younger.
    pub(super) fn shift_back(&mut self, micros: u64) {
        let parts = micros / self.part;
        for part in &mut self.parts {
            part.index = part.index.saturating_sub(parts);
        }
    }

    /// When `units` fit, which they do not now, if what is in transit is answered as `pace` foresees.
    pub(super) fn when(&self, units: u64, transit: u64, limit: u64, now: u64, pace: &Pace) -> Option<u64> {
        if limit == 0 {
            return None;
        }
        // Beyond one limit each further one takes a window more, and the time of a response.
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
            // Those made last are answered last.
            let needs_last = missing > transit.saturating_sub(pace.burst_units());
            let answered = if needs_last { now.max(pace.ends()) } else { now };
            at = at.max(self.back_at(answered / self.part));
        }
        let cycle = self.window.saturating_add(pace.response()).saturating_add(self.part - 1);
        Some(at.saturating_add(windows.saturating_mul(cycle)))
    }

    pub(super) fn reset(&self, in_transit: bool, now: u64) -> u64 {
        let last = self.parts.back().map_or(now, |newest| self.back_at(newest.index));
        if in_transit { last.max(now.saturating_add(self.window)) } else { last }
    }
}

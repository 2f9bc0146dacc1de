//! The last day, for comparisons with the same time yesterday: the calls of each provider in steps of five
//! minutes. It takes at most 0.7 MB.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

use serde::Serialize;

/// Length of a step.
const STEP_S: u64 = 300;
/// Number of steps of a day.
const STEPS_OF_DAY: u64 = 86_400 / STEP_S;
/// Number of steps that are kept: a day and an hour.
const STEPS_MAX: usize = 300;
/// Number of providers and hosts in a step. Others are not compared.
const PROVIDERS_MAX: usize = 64;

/// The calls of a provider in some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct CallSum {
    pub exchanges: u32,
    /// The provider's own responses with status 5xx, and calls without a response.
    pub errors: u32,
    /// Calls that got a response, and the time for which they waited for its head.
    pub answered: u32,
    pub waited_us: u64,
}

/// The calls of a provider in the last whole step, and in the same one a day before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct ComparedCalls {
    now: CallsView,
    pub(super) yesterday: CallsView,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct CallsView {
    exchanges: u32,
    errors: u32,
    /// Mean time until a response began. `None` without one.
    pub wait_us: Option<u64>,
}

/// The steps so far.
#[derive(Debug, Default)]
pub(super) struct Day {
    /// The oldest first.
    steps: VecDeque<DayStep>,
    /// Names are kept as hashes with a secret key, which take less memory.
    names: RandomState,
}

#[derive(Debug)]
struct DayStep {
    /// Its begin, in steps since the epoch.
    number: u64,
    /// The providers with calls in it, by the hash of their name.
    providers: Vec<(u64, CallSum)>,
}

impl Day {
    /// The bound of its memory, in bytes.
    pub const BYTES_MAX: usize =
        STEPS_MAX * (size_of::<DayStep>() + PROVIDERS_MAX * size_of::<(u64, CallSum)>());

    /// Adds calls that ended at this time, in seconds since the epoch. Those whose providers come first are
    /// kept.
    pub fn add<'a>(&mut self, until_s: u64, calls: impl Iterator<Item = (&'a str, CallSum)>) {
        let number = until_s / STEP_S;
        if self.steps.back().is_none_or(|step| step.number < number) {
            if self.steps.len() >= STEPS_MAX {
                self.steps.pop_front();
            }
            self.steps.push_back(DayStep { number, providers: Vec::new() });
        }
        let Some(DayStep { providers, .. }) = self.steps.back_mut() else { return };
        for (name, calls) in calls {
            let key = self.names.hash_one(name);
            match providers.iter().position(|(known, _)| *known == key) {
                Some(place) => providers[place].1.add(calls),
                None if providers.len() < PROVIDERS_MAX => providers.push((key, calls)),
                None => {}
            }
        }
    }

    /// Compares the calls of a provider with those of yesterday. `None` if it has none of them.
    pub fn compared(&self, name: &str) -> Option<ComparedCalls> {
        let whole = self.steps.back()?.number.checked_sub(1)?;
        let key = self.names.hash_one(name);
        let of_step = |number: u64| {
            let step = self.steps.iter().rev().find(|step| step.number == number)?;
            step.providers.iter().find(|(known, _)| *known == key).map(|(_, calls)| calls.view())
        };
        let yesterday = of_step(whole.checked_sub(STEPS_OF_DAY)?)?;
        Some(ComparedCalls { now: of_step(whole).unwrap_or_else(|| CallSum::default().view()), yesterday })
    }

    /// Returns the bytes that it takes.
    pub fn bytes(&self) -> usize {
        let of_step =
            |step: &DayStep| size_of::<DayStep>() + step.providers.len() * size_of::<(u64, CallSum)>();
        self.steps.iter().map(of_step).sum()
    }
}

impl CallSum {
    fn add(&mut self, other: Self) {
        self.exchanges = self.exchanges.saturating_add(other.exchanges);
        self.errors = self.errors.saturating_add(other.errors);
        self.answered = self.answered.saturating_add(other.answered);
        self.waited_us = self.waited_us.saturating_add(other.waited_us);
    }

    fn view(self) -> CallsView {
        let Self { exchanges, errors, answered, waited_us } = self;
        CallsView { exchanges, errors, wait_us: waited_us.checked_div(answered.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(exchanges: u32, wait_us: u64) -> CallSum {
        CallSum { exchanges, errors: 1, answered: exchanges, waited_us: u64::from(exchanges) * wait_us }
    }

    #[test]
    fn calls_are_compared_with_those_of_the_same_time_yesterday() {
        let (mut day, start_s) = (Day::default(), 1_000 * STEP_S);
        for step in 0..=STEPS_OF_DAY + 1 {
            let wait_us = if step < 10 { 100 } else { 900 };
            for part in 0..STEP_S / 10 {
                let until_s = start_s + step * STEP_S + part * 10;
                day.add(until_s, [("shop", calls(2, wait_us)), ("bank", calls(1, 5))].into_iter());
            }
            let is_known = step > STEPS_OF_DAY;
            assert_eq!(day.compared("shop").is_some(), is_known, "{step}");
        }
        let compared = day.compared("shop").unwrap();
        assert_eq!(compared.now, CallsView { exchanges: 60, errors: 30, wait_us: Some(900) });
        assert_eq!(compared.yesterday, CallsView { exchanges: 60, errors: 30, wait_us: Some(100) });
        assert_eq!(day.compared("mail"), None);
    }

    #[test]
    fn steps_and_providers_are_bounded() {
        let mut day = Day::default();
        let names: Vec<String> = (0..2 * PROVIDERS_MAX).map(|number| format!("host-{number}")).collect();
        for step in 0..2 * STEPS_MAX as u64 {
            day.add(step * STEP_S, names.iter().map(|name| (&**name, calls(1, 1))));
        }
        assert_eq!(day.bytes(), Day::BYTES_MAX);
        assert_eq!(Day::BYTES_MAX, 624_000);
        assert!(day.compared("host-0").is_some() && day.compared("host-64").is_none());
    }
}

//! The units that were granted to a call: counted, corrected and given back as its response tells.

use std::sync::Arc;

use egret_clock::{Timestamp, planted};
use parking_lot::MutexGuard;
use smallvec::SmallVec;

use super::group::{Group, GroupUsage};
use super::learn::{Learned, ProviderReaders};
use super::meter::{LoadSign, Refill, Stage};
use super::quota::{Few, Quota, wait_max_micros};

/// Units that were granted to a call.
///
/// Report the progress of the call: [`responded`](Self::responded) when the head of the response has arrived,
/// [`settle`](Self::settle) when its cost is known, [`cancel`](Self::cancel) if it was not made. A grant that
/// is dropped releases the slots it holds. Units of a window stay used; for a call without a response they
/// count from the moment it was given up.
#[derive(Debug)]
#[must_use = "a grant that is dropped at once uses its units and releases its slots"]
pub struct Grant {
    /// Time at which the units were taken.
    pub(super) made: Timestamp,
    pub(super) charges: Few<Charge>,
}

/// The charge of a call to one group.
#[derive(Debug)]
pub(super) struct Charge {
    pub group: Arc<Group>,
    /// Index of the quota in the lineage.
    pub level: u8,
    pub units: u64,
    pub stage: Stage,
}

/// The units that another call like one with a grant needs: as many, in the same groups.
#[derive(Debug, Clone)]
pub struct Redraw {
    groups: Few<(Arc<Group>, u8, u64)>,
}

impl Redraw {
    /// Takes the units, or none if some group has not enough of them.
    pub fn take(&self, now: Timestamp) -> Option<Grant> {
        // In the order in which the first call has taken them: child before parent.
        let mut states: Few<MutexGuard<'_, GroupUsage>> = SmallVec::new();
        for (group, _, units) in &self.groups {
            let mut state = group.lock();
            state.advance(now);
            if state.refuses(*units).is_some() {
                return None;
            }
            states.push(state);
        }
        for (state, (group, _, units)) in states.iter_mut().zip(&self.groups) {
            state.take(*units);
            state.ask_if_due(group);
        }
        drop(states);
        let charge = |(group, level, units): &(Arc<Group>, u8, u64)| Charge {
            group: Arc::clone(group),
            level: *level,
            units: *units,
            stage: Stage::Transit,
        };
        Some(Grant { made: now, charges: self.groups.iter().map(charge).collect() })
    }
}

/// The permit to use the units of a grant, as long as the lease of these units lasts.
#[derive(Debug)]
pub struct Permit(Arc<Group>);

impl Permit {
    /// Returns `true` if a call that needs the units may be sent at this moment.
    pub fn is_valid(&self) -> bool {
        self.0.is_usable()
    }
}

impl Grant {
    /// The permits that the call needs when it is sent: one for each group whose units a cluster shares.
    pub fn permits(&self) -> impl Iterator<Item = Permit> {
        let leased = self.charges.iter().filter(|charge| charge.group.is_leased());
        leased.map(|charge| Permit(charge.group.clone()))
    }

    /// Returns `true` if a call that needs the units may be sent at this moment.
    pub fn is_usable(&self) -> bool {
        self.charges.iter().all(|charge| charge.group.is_usable())
    }

    /// The units that a second call beside this one needs.
    pub fn redraw(&self) -> Redraw {
        let groups = self.charges.iter().map(|charge| (charge.group.clone(), charge.level, charge.units));
        Redraw { groups: groups.collect() }
    }

    /// The head of the response has arrived, so the provider has counted the call. From now on its units are
    /// coming back.
    pub fn responded(&mut self, now: Timestamp) {
        for charge in &mut self.charges {
            if charge.stage == Stage::Transit {
                charge.stage = charge.group.responded(now, charge.units, self.made);
            }
        }
    }

    /// Replaces the units charged by the actual cost. The difference is given back, or charged even if less
    /// is left, at the expense of later calls. Slots do not change. A cost above the whole limit is reduced
    /// to the limit.
    pub fn settle(&mut self, now: Timestamp, actual: u64) {
        self.responded(now);
        for charge in &mut self.charges {
            if charge.units == actual || charge.stage == Stage::Transit {
                continue;
            }
            charge.units = charge.group.free(|state| {
                state.advance(now);
                let actual = actual.min(state.max_units().max(charge.units));
                state.settle(charge.units, actual, charge.stage);
                actual
            });
        }
    }

    /// Does the same, but gives nothing back: the actual cost is at least this.
    pub fn settle_at_least(&mut self, now: Timestamp, known: u64) {
        let charged = self.charges.iter().map(|charge| charge.units).max();
        self.settle(now, charged.map_or(known, |charged| charged.max(known)));
    }

    /// Lets adaptive limits learn how the call has ended, as far as it shows the provider's load. Call it
    /// when the head of the response has arrived.
    pub fn ended(&self, now: Timestamp, sign: LoadSign) {
        for charge in &self.charges {
            charge.group.ended(now, sign, self.made);
        }
    }

    /// Returns all units: the call was not made.
    pub fn cancel(mut self, now: Timestamp) {
        for charge in self.charges.drain(..) {
            charge.group.free(|state| {
                state.advance(now);
                state.give_back(charge.units, charge.stage);
            });
        }
    }

    /// Corrects the counts of `quota`, from which this grant was taken, and of its ancestors, by the
    /// provider's report in status and fields, for quotas with `learn`. Call it after
    /// [`responded`](Self::responded), so that the call itself is counted. `provider` returns the fields of a
    /// well-known provider, and is not called if no quota learns.
    pub fn learn<'a, 'p>(
        &mut self,
        now: Timestamp,
        quota: &Quota,
        status: u16,
        fields: &(impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone),
        provider: impl Fn() -> Option<&'p ProviderReaders>,
    ) {
        for (level, quota) in quota.lineage().enumerate() {
            let (Some(reader), Some(config)) = (&quota.reader, &quota.config.learn) else { continue };
            let told = provider().and_then(|readers| {
                let counts_tokens = quota.config.cost.usage.is_some();
                if counts_tokens { readers.tokens.as_ref() } else { readers.requests.as_ref() }
            });
            let told = told.and_then(|told| told.read(status, fields, now));
            let Some(learned) = Learned::of_both(reader.read(status, fields, now), told) else { continue };
            let wait_max_micros = wait_max_micros(config);
            for charge in self.charges.iter().filter(|charge| usize::from(charge.level) == level) {
                charge.group.correct(now, &learned, wait_max_micros);
            }
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        for charge in self.charges.drain(..) {
            if charge.stage != Stage::Transit || planted!(UnitKept) {
                continue;
            }
            charge.group.free(|state| {
                if state.meter().rule().refill == Refill::Slots {
                    state.give_back(charge.units, Stage::Transit);
                } else {
                    state.abandon(charge.units);
                }
            });
        }
    }
}

/// The units that a second call beside a slow one has drawn. They are returned when dropped, unless the call
/// was sent.
#[derive(Debug)]
pub struct SecondDraw {
    grants: Vec<Grant>,
    taken: Timestamp,
}

impl SecondDraw {
    /// Takes the units of all `redraws`; `None` if not all of them are there.
    pub fn take(redraws: &[Redraw], now: Timestamp) -> Option<Self> {
        let mut draw = Self { grants: Vec::new(), taken: now };
        for redraw in redraws {
            draw.grants.push(redraw.take(now)?);
        }
        Some(draw)
    }

    /// Returns `true` if a call that needs the units may be sent at this moment.
    pub fn is_usable(&self) -> bool {
        self.grants.iter().all(Grant::is_usable)
    }

    /// Returns the grants of a call that is sent. When they are dropped, the call counts in full: one of the
    /// two calls ends without a response that tells what it has cost.
    pub fn into_grants(mut self) -> Vec<Grant> {
        std::mem::take(&mut self.grants)
    }
}

impl Drop for SecondDraw {
    fn drop(&mut self) {
        for grant in self.grants.drain(..) {
            grant.cancel(self.taken);
        }
    }
}

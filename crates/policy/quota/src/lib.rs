//! Quotas: named allowances that remedies draw from.
//!
//! A quota counts per group. Each group's usage has its own lock, held for one decision. A call that draws
//! from a quota with ancestors locks its group in each of them, always child before parent. It charges all of
//! them or none while it holds all locks, so no other call ever sees a partial charge.
//!
//! This module does not read a clock. Callers pass the time, all from the same clock. See [`Quota::take`] for
//! the effect of setting that clock.

mod calendar;
mod config;
mod correction;
mod expressions;
mod group;
mod groups;
mod learn;
mod lease;
mod meter;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, MutexGuard};
use std::task::Waker;
use std::time::Duration;

use egret_clock::Timestamp;
use egret_config::Problem;
use egret_store::Ledger;
use smallvec::SmallVec;

use calendar::Calendar;
use group::{Group, State};
use groups::Groups;
pub use learn::Reader;
use lease::{Backing, GroupKind};
use meter::{Refill, Rule, Schedule, Stage};

pub use config::{
    CostConfig, GroupBy, LearnConfig, LearnFrom, LearnHeaders, OnStoreError, Percent, Period, QuotaConfig,
    QuotaConfigs, QuotaKind, RenewalConfig, ShareDefault, SharesConfig, SpilloverConfig, StoreKind,
    WindowStart, validate,
};
pub use expressions::QuotaExpressions;
pub use learn::Learned;

/// The groups that one call draws from, inline for the common case: a quota, its parent, and the rest of one
/// with shares.
type Few<T> = SmallVec<[T; 3]>;

/// The compiled quotas of a config.
#[derive(Debug, Default)]
pub struct Quotas {
    by_name: BTreeMap<String, Arc<Quota>>,
}

impl Quotas {
    /// Compiles the valid quotas, and reports the mistakes of the others in `problems`.
    ///
    /// A quota of `previous` with the same name and the same way of counting keeps its counts. So `limit`,
    /// `burst`, `shares`, `parent`, `spillover`, `cost`, `groups_max` and `on_store_error` can change without
    /// a reset.
    ///
    /// `parameters` are the path parameters of the flows; grouping by any other one is a mistake.
    ///
    /// Quotas that are stored in a file borrow units from `ledger`. Without a ledger they behave as if the
    /// store fails.
    pub fn compile(
        configs: &QuotaConfigs,
        previous: Option<&Self>,
        ledger: Option<&Ledger>,
        parameters: &[&str],
        problems: &mut Vec<Problem>,
    ) -> Self {
        let wrong = validate(configs, parameters);
        let is_good = |name: &str| {
            let path = format!("quotas.{name}");
            let is_its = |rest: &str| rest.is_empty() || rest.starts_with('.');
            !wrong.iter().any(|problem| problem.path.strip_prefix(&path).is_some_and(is_its))
        };
        let mut quotas = Self::default();
        let sources = Sources { configs, previous, ledger, parameters, is_good: &is_good };
        for (name, config) in configs {
            quotas.compile_one(name, config, &sources);
        }
        problems.extend(wrong);
        quotas
    }

    /// Compiles a quota after its ancestors. Validation has excluded too many ancestors and cycles.
    fn compile_one(&mut self, name: &str, config: &QuotaConfig, sources: &Sources<'_>) -> Option<Arc<Quota>> {
        if let Some(quota) = self.by_name.get(name) {
            return Some(quota.clone());
        }
        if !(sources.is_good)(name) {
            return None;
        }
        let parent = match &config.parent {
            Some(parent) => Some(self.compile_one(parent, sources.configs.get(parent)?, sources)?),
            None => None,
        };
        let before = sources.previous.and_then(|previous| previous.by_name.get(name));
        let quota = Arc::new(Quota::new(name, config, parent, before, sources)?);
        self.by_name.insert(name.to_owned(), quota.clone());
        Some(quota)
    }

    /// Returns the quota with that name.
    pub fn get(&self, name: &str) -> Option<&Arc<Quota>> {
        self.by_name.get(name)
    }

    /// Iterates over all quotas, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Quota>> {
        self.by_name.values()
    }

    /// Returns unused borrowed units to the store. Call it after the last call, before the ledger is closed.
    pub fn give_back(&self) {
        for quota in self.iter() {
            quota.counts.each(|_, group| group.lock().give_back_lease());
        }
    }
}

/// The inputs for compiling quotas.
struct Sources<'a> {
    configs: &'a QuotaConfigs,
    previous: Option<&'a Quotas>,
    ledger: Option<&'a Ledger>,
    parameters: &'a [&'a str],
    is_good: &'a dyn Fn(&str) -> bool,
}

/// A named allowance.
#[derive(Debug)]
pub struct Quota {
    name: Arc<str>,
    config: QuotaConfig,
    parent: Option<Arc<Quota>>,
    rule: Rule,
    reader: Option<Reader>,
    expressions: QuotaExpressions,
    counts: Counts,
}

/// The counts of a quota. They survive a change of its config that keeps the way of counting.
#[derive(Debug)]
struct Counts {
    /// All calls of a quota without groups.
    whole: Arc<Group>,
    /// The groups with their own share.
    listed: HashMap<Box<[u8]>, Arc<Group>>,
    /// The usage of all groups without their own share together.
    rest: Arc<Group>,
    others: Arc<Groups>,
}

impl Quota {
    /// Compiles a quota. Returns `None` for a config that [`validate`] rejects.
    fn new(
        name: &str,
        config: &QuotaConfig,
        parent: Option<Arc<Self>>,
        before: Option<&Arc<Self>>,
        sources: &Sources<'_>,
    ) -> Option<Self> {
        let rule = rule(config)?;
        let before = before.filter(|before| before.counts_like(config)).map(|before| &before.counts);
        let backing = match config.store {
            StoreKind::Memory => None,
            StoreKind::File => Some(Backing { ledger: sources.ledger.cloned(), quota: name.into() }),
        };
        let counts = Counts::new(config, &rule, backing.as_ref(), before);
        let reader = config.learn.as_ref().map(Reader::new);
        // The mistakes in them were reported when the config was validated.
        let expressions = QuotaExpressions::compile(config, sources.parameters, "", &mut Vec::new());
        let quota =
            Self { name: name.into(), config: config.clone(), parent, rule, reader, expressions, counts };
        quota.set_rules();
        Some(quota)
    }

    /// Returns `true` if the counts keep their meaning under another config.
    fn counts_like(&self, config: &QuotaConfig) -> bool {
        let now = &self.config;
        let grouped_alike =
            now.group_by == config.group_by && now.shares.is_some() == config.shares.is_some();
        let timed_alike = (now.kind, now.window, now.starts) == (config.kind, config.window, config.starts);
        grouped_alike
            && timed_alike
            && (now.period, &now.renews, now.store) == (config.period, &config.renews, config.store)
    }

    /// Applies this quota's limits to every group.
    fn set_rules(&self) {
        let is_open = self.config.on_store_error == OnStoreError::Open;
        self.counts.each(|place, group| {
            let rule = self.rule_of(place, &group.name);
            group.free(|state| state.set_rule(rule, is_open));
        });
    }

    fn rule_of(&self, place: GroupKind, name: &[u8]) -> Rule {
        let Some(shares) = &self.config.shares else { return self.rule.clone() };
        match place {
            GroupKind::Whole => self.rule.clone(),
            GroupKind::Rest => part(&self.rule, shares.rest_of(self.rule.limit)),
            GroupKind::Overflow => self.rule_of_other(),
            GroupKind::Named => {
                let share = std::str::from_utf8(name).ok().and_then(|name| shares.groups.get(name));
                share
                    .map_or_else(|| self.rule_of_other(), |share| part(&self.rule, share.of(self.rule.limit)))
            }
        }
    }

    /// Returns the rule of a group without its own share.
    fn rule_of_other(&self) -> Rule {
        match self.config.shares.as_ref().map(|shares| shares.default) {
            Some(ShareDefault::Share(share)) => part(&self.rule, share.of(self.rule.limit)),
            _ => self.rule.clone(),
        }
    }

    /// The quota's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The quota's config.
    pub fn config(&self) -> &QuotaConfig {
        &self.config
    }

    /// The quota's expressions.
    pub fn expressions(&self) -> &QuotaExpressions {
        &self.expressions
    }

    /// The quota that is drawn from together with this one.
    pub fn parent(&self) -> Option<&Arc<Self>> {
        self.parent.as_ref()
    }

    /// Iterates over this quota, its parent, and so on, in the order in which a call names its groups.
    pub fn lineage(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |quota| quota.parent.as_deref())
    }

    /// Takes `cost` units from this quota and all its ancestors, or from none of them.
    ///
    /// `names` holds the call's group for each quota of [`lineage`](Self::lineage). A missing or empty name
    /// is the group of the calls without one; the name for a quota without `group_by` is ignored.
    ///
    /// Times need not be in order. A time more than a second before the latest one means that the clock was
    /// set back, and the counts are moved back with it. A clock that was set forward cannot be distinguished
    /// from time that passed.
    pub fn take(&self, now: Timestamp, names: &[&[u8]], cost: u64) -> Result<Grant, Refusal> {
        if self.parent.is_none() && self.config.group_by.is_none() {
            return self.take_alone(now, cost);
        }
        let charges = self.charges(now, names)?;
        let mut states: Few<MutexGuard<'_, State>> = SmallVec::new();
        let mut refusal: Option<Refusal> = None;
        for charge in &charges {
            let mut state = charge.group.lock();
            state.advance(now);
            if let Some((why, retry_at)) = state.refuses(cost) {
                let is_worse =
                    refusal.as_ref().is_none_or(|worst| (worst.why, worst.retry_at) < (why, retry_at));
                if is_worse {
                    refusal = Some(Refusal { quota: charge.quota.name.clone(), why, retry_at });
                }
            }
            states.push(state);
        }
        let ask = |states: &mut Few<MutexGuard<'_, State>>| {
            for (charge, state) in charges.iter().zip(states) {
                state.ask_if_due(&charge.group);
            }
        };
        if let Some(refusal) = refusal {
            ask(&mut states);
            return Err(refusal);
        }
        for state in &mut states {
            state.take(cost);
        }
        ask(&mut states);
        drop(states);
        let hold = |charge: Charge<'_>| Hold {
            group: charge.group,
            level: charge.level,
            units: cost,
            stage: Stage::Transit,
        };
        Ok(Grant { made: now, holds: charges.into_iter().map(hold).collect() })
    }

    /// The fast path of `take` for a quota without groups and parents: one lock, no allocation.
    fn take_alone(&self, now: Timestamp, cost: u64) -> Result<Grant, Refusal> {
        let group = &self.counts.whole;
        let mut state = group.lock();
        state.advance(now);
        let refusal = state.refuses(cost);
        if refusal.is_none() {
            state.take(cost);
        }
        state.ask_if_due(group);
        drop(state);
        if let Some((why, retry_at)) = refusal {
            return Err(Refusal { quota: self.name.clone(), why, retry_at });
        }
        let mut holds = Few::new();
        holds.push(Hold { group: group.clone(), level: 0, units: cost, stage: Stage::Transit });
        Ok(Grant { made: now, holds })
    }

    /// Estimates when a call of `cost` units will be granted if `ahead` units are taken before it, and calls
    /// take as long as recently. It may be later in fact. Returns `None` if there is no estimate: slots
    /// become free when a call ends.
    pub fn when(&self, now: Timestamp, names: &[&[u8]], cost: u64, ahead: u64) -> Option<Timestamp> {
        let mut when = now;
        for charge in self.charges(now, names).ok()? {
            let mut state = charge.group.lock();
            state.advance(now);
            if cost > state.meter().rule().most() {
                return None;
            }
            when = when.max(state.forecast(cost.saturating_add(ahead))?);
        }
        Some(when)
    }

    /// Wakes `waker` once when units become free for a reason other than time, or later than
    /// [`when`](Self::when) has estimated. Such a reason is a call that ends and held a slot, is not made, or
    /// turns out cheaper, or a change of the quota. Watch first, then try to take, so no event is missed.
    ///
    /// Returns a number that changes when units turn out to come back later than estimated.
    pub fn watch(&self, now: Timestamp, names: &[&[u8]], waker: &Waker) -> u64 {
        let mut delays = 0_u64;
        for charge in self.charges(now, names).unwrap_or_default() {
            let mut state = charge.group.lock();
            state.watch(waker);
            delays = delays.wrapping_add(state.delays());
        }
        delays
    }

    /// Returns the status that a call sees: that of the quota in the lineage with the least remaining units.
    pub fn standing(&self, now: Timestamp, names: &[&[u8]]) -> Option<QuotaStatus> {
        let standing = |charge: Charge<'_>| {
            let mut state = charge.group.lock();
            state.advance(now);
            QuotaStatus {
                quota: charge.quota.name.clone(),
                limit: state.meter().allowance(),
                remaining: state.remaining(),
                reset: state.reset(),
                window: charge.quota.config.window.map(egret_config::Duration::get),
            }
        };
        self.charges(now, names).ok()?.into_iter().map(standing).min_by_key(|standing| standing.remaining)
    }

    /// Returns the status of the quota and of at most `groups_max` of its groups, the most recently used
    /// first.
    pub fn snapshot(&self, now: Timestamp, groups_max: usize) -> QuotaSnapshot {
        let counts = &self.counts;
        let mut groups = Vec::new();
        let mut groups_count = 0;
        if self.config.group_by.is_none() {
            groups.push(self.group_snapshot(now, &counts.whole, None));
            groups_count = 1;
        } else {
            let (others, count) = counts.others.list(groups_max.saturating_sub(counts.listed.len()));
            groups_count += counts.listed.len() + count;
            groups.extend(
                counts.listed.values().take(groups_max).map(|group| self.group_snapshot(now, group, None)),
            );
            groups.sort_by(|a, b| a.name.cmp(&b.name));
            groups.extend(others.iter().map(|group| self.group_snapshot(now, group, None)));
        }
        if let Some(overflow) = counts.others.overflow() {
            groups.push(self.group_snapshot(now, overflow, Some("(more)")));
        }
        if self.config.shares.as_ref().is_some_and(|shares| shares.default != ShareDefault::Block) {
            groups.push(self.group_snapshot(now, &counts.rest, Some("(rest)")));
        }
        QuotaSnapshot { name: self.name.to_string(), kind: self.config.kind, groups, groups_count }
    }

    fn group_snapshot(&self, now: Timestamp, group: &Group, label: Option<&str>) -> GroupSnapshot {
        let mut state = group.lock();
        state.advance(now);
        GroupSnapshot {
            name: label.map_or_else(|| self.shown(&group.name), str::to_owned),
            used: state.meter().used(),
            limit: state.meter().allowance(),
            remaining: state.remaining(),
            reset: state.reset(),
            has_store_failed: state.has_store_failed(),
        }
    }

    /// Returns a group's name for display.
    fn shown(&self, name: &[u8]) -> String {
        if !name.is_empty() && self.config.group_by.as_ref().is_some_and(GroupBy::is_secret) {
            return self.counts.others.disguise(name);
        }
        // Escaped names never start like this, so no group can be mistaken for `(more)` or `(rest)`.
        let stroke = if name.starts_with(b"(") { "\\" } else { "" };
        format!("{stroke}{}", name.escape_ascii())
    }

    /// Returns the groups to charge for a call, in this quota and its ancestors.
    fn charges(&self, now: Timestamp, names: &[&[u8]]) -> Result<Few<Charge<'_>>, Refusal> {
        let mut charges = SmallVec::new();
        for (level, quota) in self.lineage().enumerate() {
            let name = names.get(level).copied().unwrap_or_default();
            quota.charge(now, name, u8::try_from(level).unwrap_or(u8::MAX), &mut charges)?;
        }
        Ok(charges)
    }

    fn charge<'a>(
        &'a self,
        now: Timestamp,
        name: &[u8],
        level: u8,
        charges: &mut Few<Charge<'a>>,
    ) -> Result<(), Refusal> {
        let counts = &self.counts;
        let mut sit = |group: Arc<Group>| charges.push(Charge { quota: self, group, level });
        if self.config.group_by.is_none() {
            sit(counts.whole.clone());
            return Ok(());
        }
        let other = |rule: &Rule| {
            let groups_max = usize::try_from(self.config.groups_max).unwrap_or(usize::MAX);
            counts.others.get(name, rule, groups_max, now)
        };
        let Some(shares) = &self.config.shares else {
            sit(other(&self.rule));
            return Ok(());
        };
        if let Some(group) = counts.listed.get(name) {
            sit(group.clone());
            return Ok(());
        }
        match shares.default {
            ShareDefault::Block => {
                return Err(Refusal { quota: self.name.clone(), why: Why::ShareBlocked, retry_at: None });
            }
            ShareDefault::Allow => {}
            ShareDefault::Share(_) => sit(other(&self.rule_of_other())),
        }
        sit(counts.rest.clone());
        Ok(())
    }
}

/// A group that a call draws from.
struct Charge<'a> {
    quota: &'a Quota,
    group: Arc<Group>,
    level: u8,
}

impl Counts {
    fn new(config: &QuotaConfig, rule: &Rule, backing: Option<&Backing>, before: Option<&Self>) -> Self {
        let group = |place: GroupKind, name: &str| {
            let lease = backing.map(|backing| backing.lease(place, name.as_bytes()));
            Arc::new(Group::new(name.as_bytes(), rule.clone(), lease))
        };
        let names = config.shares.iter().flat_map(|shares| shares.groups.keys());
        let listed = names.map(|name| {
            let kept = before.and_then(|before| before.listed.get(name.as_bytes()));
            (name.as_bytes().into(), kept.cloned().unwrap_or_else(|| group(GroupKind::Named, name)))
        });
        let others = || Arc::new(Groups::new(rule.clone(), backing));
        Self {
            whole: before.map_or_else(|| group(GroupKind::Whole, ""), |before| before.whole.clone()),
            listed: listed.collect(),
            rest: before.map_or_else(|| group(GroupKind::Rest, ""), |before| before.rest.clone()),
            others: before.map_or_else(others, |before| before.others.clone()),
        }
    }

    /// Calls `work` for every group.
    fn each(&self, mut work: impl FnMut(GroupKind, &Group)) {
        work(GroupKind::Whole, &self.whole);
        work(GroupKind::Rest, &self.rest);
        for group in self.listed.values() {
            work(GroupKind::Named, group);
        }
        self.others.each(work);
    }
}

/// Returns the rule of a whole quota; `None` if its config is incomplete.
fn rule(config: &QuotaConfig) -> Option<Rule> {
    let micros = |window: egret_config::Duration| u64::try_from(window.get().as_micros()).ok();
    let window = config.window.and_then(micros).filter(|window| *window > 0);
    let spillover = config.spillover.map_or(0, |spillover| spillover.max);
    let refill = match config.kind {
        QuotaKind::Sliding => Refill::Sliding { window: window? },
        QuotaKind::Fixed => {
            let schedule = match config.starts {
                WindowStart::Clock => Schedule::Clock(window?),
                WindowStart::First => Schedule::First(window?),
            };
            Refill::Windows { schedule, spillover }
        }
        QuotaKind::Calendar => {
            let calendar = Calendar::new(config.period?, &config.renews).ok()?;
            Refill::Windows { schedule: Schedule::Calendar(Arc::new(calendar)), spillover }
        }
        QuotaKind::TokenBucket => {
            Refill::Bucket { window: window?, burst: config.burst.unwrap_or(config.limit) }
        }
        QuotaKind::Concurrency => Refill::Slots,
    };
    Some(Rule { limit: config.limit, refill })
}

/// Returns a rule scaled to `limit`; its other numbers shrink in proportion, rounded down.
fn part(whole: &Rule, limit: u64) -> Rule {
    let in_proportion = |units: u64| {
        let units = u128::from(units) * u128::from(limit) / u128::from(whole.limit.max(1));
        u64::try_from(units).unwrap_or(u64::MAX)
    };
    let refill = match whole.refill.clone() {
        Refill::Windows { schedule, spillover } => {
            Refill::Windows { schedule, spillover: in_proportion(spillover) }
        }
        Refill::Bucket { window, burst } => Refill::Bucket { window, burst: in_proportion(burst) },
        same @ (Refill::Sliding { .. } | Refill::Slots) => same,
    };
    Rule { limit, refill }
}

/// Units that were granted to a call.
///
/// Report the progress of the call: [`answered`](Self::answered) when the head of the response has arrived,
/// [`settle`](Self::settle) when its cost is known, [`cancel`](Self::cancel) if it was not made. A grant that
/// is dropped releases the slots it holds. Units of a window stay used; for a call without a response they
/// count from the moment it was given up.
#[derive(Debug)]
#[must_use = "a grant that is dropped at once uses its units and releases its slots"]
pub struct Grant {
    /// Time at which the units were taken.
    made: Timestamp,
    holds: Few<Hold>,
}

/// The charge of a call to one group.
#[derive(Debug)]
struct Hold {
    group: Arc<Group>,
    /// Index of the quota in the lineage.
    level: u8,
    units: u64,
    stage: Stage,
}

impl Grant {
    /// The head of the response has arrived, so the provider has counted the call. From now on its units are
    /// coming back.
    pub fn answered(&mut self, now: Timestamp) {
        for hold in &mut self.holds {
            if hold.stage == Stage::Transit {
                hold.stage = hold.group.answered(now, hold.units, self.made);
            }
        }
    }

    /// Replaces the units charged by the actual cost. The difference is given back, or charged even if less
    /// is left, at the expense of later calls. Slots do not change. A cost above the whole limit is reduced
    /// to the limit.
    pub fn settle(&mut self, now: Timestamp, actual: u64) {
        self.answered(now);
        for hold in &mut self.holds {
            if hold.units == actual || hold.stage == Stage::Transit {
                continue;
            }
            hold.units = hold.group.free(|state| {
                state.advance(now);
                let actual = actual.min(state.meter().rule().most().max(hold.units));
                state.settle(hold.units, actual, hold.stage);
                actual
            });
        }
    }

    /// Returns all units: the call was not made.
    pub fn cancel(mut self, now: Timestamp) {
        for hold in self.holds.drain(..) {
            hold.group.free(|state| {
                state.advance(now);
                state.give_back(hold.units, hold.stage);
            });
        }
    }

    /// Corrects the counts of `quota`, from which this grant was taken, and of its ancestors, by the
    /// provider's report in status and fields, for quotas with `learn`. Call it after
    /// [`answered`](Self::answered), so that the call itself is counted.
    pub fn learn<'a>(
        &mut self,
        now: Timestamp,
        quota: &Quota,
        status: u16,
        fields: &(impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone),
    ) {
        for (level, quota) in quota.lineage().enumerate() {
            let (Some(reader), Some(config)) = (&quota.reader, &quota.config.learn) else { continue };
            let Some(learned) = reader.read(status, fields, now) else { continue };
            let wait_max_micros = u64::try_from(config.wait_max.get().as_micros()).unwrap_or(u64::MAX);
            for hold in self.holds.iter().filter(|hold| usize::from(hold.level) == level) {
                hold.group.correct(now, &learned, wait_max_micros);
            }
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        for hold in self.holds.drain(..) {
            if hold.stage != Stage::Transit {
                continue;
            }
            hold.group.free(|state| {
                if state.meter().rule().refill == Refill::Slots {
                    state.give_back(hold.units, Stage::Transit);
                } else {
                    state.abandon(hold.units);
                }
            });
        }
    }
}

/// A rejected charge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The quota that rejects the call: the one asked, or an ancestor.
    pub quota: Arc<str>,
    /// The reason.
    pub why: Why,
    /// Time for the next attempt; `None` if unknown.
    pub retry_at: Option<Timestamp>,
}

/// The reason for which a quota rejects a call, in ascending order of importance: if several quotas reject
/// it, the greatest reason is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// The store is being asked for units, which takes milliseconds. [`Quota::watch`] reports when they
    /// arrive; if they have not by the time to retry, the store has failed.
    Fetching,
    /// The units are used up.
    Exhausted,
    /// The store does not respond, and the quota is configured to reject calls then.
    StoreDown,
    /// The shares leave nothing for the call's group.
    ShareBlocked,
    /// The call costs more than is ever available at once.
    CostAboveLimit,
}

impl Why {
    /// The name in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fetching => "fetching",
            Self::Exhausted => "exhausted",
            Self::StoreDown => "store-down",
            Self::ShareBlocked => "share-blocked",
            Self::CostAboveLimit => "cost-above-limit",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quota = &self.quota;
        match self.why {
            Why::Fetching => write!(f, "quota `{quota}` is being read from its store"),
            Why::Exhausted => write!(f, "quota `{quota}` is used up"),
            Why::StoreDown => write!(f, "the store of quota `{quota}` does not respond"),
            Why::ShareBlocked => write!(f, "quota `{quota}` has no share for this group"),
            Why::CostAboveLimit => write!(f, "the cost of this call exceeds the limit of quota `{quota}`"),
        }
    }
}

impl std::error::Error for Refusal {}

/// The status of a quota, as one call sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaStatus {
    /// The quota's name.
    pub quota: Arc<str>,
    /// Number of units in total.
    pub limit: u64,
    /// Number of units left.
    pub remaining: u64,
    /// Time at which all units used now will have come back.
    pub reset: Timestamp,
    /// Length of a window, if the quota has windows.
    pub window: Option<Duration>,
}

/// The status of a quota and its groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaSnapshot {
    /// The quota's name.
    pub name: String,
    /// Its kind.
    pub kind: QuotaKind,
    /// Some or all of its groups.
    pub groups: Vec<GroupSnapshot>,
    /// Total number of groups.
    pub groups_count: usize,
}

/// The status of one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSnapshot {
    /// The group's name: empty for the calls without one, a digest if it may be a secret, `(more)` for the
    /// overflow group, `(rest)` for all groups without their own share together.
    pub name: String,
    /// Number of units used.
    pub used: u64,
    /// Number of units in total.
    pub limit: u64,
    /// Number of units left.
    pub remaining: u64,
    /// Time at which all units used now will have come back.
    pub reset: Timestamp,
    /// `true` if the store does not respond.
    pub has_store_failed: bool,
}

#[cfg(test)]
mod store_tests;
#[cfg(test)]
mod tests;

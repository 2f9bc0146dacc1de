//! A quota: grants units to calls.

use std::sync::Arc;
use std::task::Waker;

use egret_clock::Timestamp;
use parking_lot::MutexGuard;
use smallvec::SmallVec;

use super::alerts::{Alert, Alerting};
use super::backing::{Backing, Stores};
use super::calendar::Calendar;
use super::config::{
    AdaptiveConfig, GroupBy, LearnConfig, QuotaConfig, QuotaKind, QuotaUnit, RenewalConfig, ShareDefault,
    StoreKind, WindowStart,
};
use super::expressions::QuotaExpressions;
use super::grant::{Charge, Grant};
use super::group::{Group, GroupUsage};
use super::group_kind::GroupKind;
use super::group_set::GroupSet;
use super::handed_state::{Balance, GroupId, QuotaState};
use super::learn::ReportReader;
use super::lease::FileBacking;
use super::meter::{Adaptation, AdaptiveLimit, Refill, Rule, Schedule, Stage, UsageReport};
use super::refusal::{Refusal, Why};
use super::share::SharedBacking;
use super::status::{GroupSnapshot, QuotaSnapshot, QuotaStatus};

/// The groups that one call draws from, inline for the common case: a quota, its parent, and the rest of one
/// with shares.
pub(super) type Few<T> = SmallVec<[T; 3]>;

/// A named allowance.
#[derive(Debug)]
pub struct Quota {
    name: Arc<str>,
    pub(super) config: QuotaConfig,
    parent: Option<Arc<Quota>>,
    rule: Rule,
    pub(super) reader: Option<ReportReader>,
    expressions: QuotaExpressions,
    alerting: Option<Alerting>,
    /// `true` if this quota or an ancestor raises alerts.
    raises_alerts: bool,
    pub(super) counts: GroupSet,
}

/// The estimated time of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forecast {
    /// The time.
    pub at: Timestamp,
    /// The place in [`Quota::lineage`] of the quota whose units come last.
    pub level: u8,
    /// `true` if the units are held by calls under way, which may give some of them back at any moment.
    pub is_held: bool,
}

impl Forecast {
    /// Returns `true` if the units certainly come after `deadline`.
    pub fn is_after(&self, deadline: Timestamp) -> bool {
        !self.is_held && self.at > deadline
    }
}

/// The inputs for compiling a quota, besides its config.
pub(super) struct QuotaContext<'a> {
    /// The stores of quotas.
    pub stores: Stores<'a>,
    /// The path parameters of the flows.
    pub parameters: &'a [&'a str],
}

impl Quota {
    /// Compiles a quota. Returns `None` for a config that [`validate`](crate::validate) rejects.
    pub(super) fn new(
        name: &str,
        config: &QuotaConfig,
        parent: Option<Arc<Self>>,
        before: Option<&Arc<Self>>,
        context: &QuotaContext<'_>,
    ) -> Option<Self> {
        let rule = rule(config)?;
        let before = before.filter(|before| before.counts_like(config)).map(|before| &before.counts);
        let backing = backing(name, config, context.stores);
        let counts = GroupSet::new(config, &rule, &backing, before);
        let reader = config.learn.as_ref().map(ReportReader::new);
        // The mistakes in them were reported when the config was validated.
        let expressions = QuotaExpressions::compile(config, context.parameters, "", &mut Vec::new());
        let alerting = Alerting::new(&config.alerts, context.stores.alerts);
        let raises_alerts = alerting.is_some() || parent.as_ref().is_some_and(|parent| parent.raises_alerts);
        let quota = Self {
            name: name.into(),
            config: config.clone(),
            parent,
            rule,
            reader,
            expressions,
            alerting,
            raises_alerts,
            counts,
        };
        quota.set_rules();
        Some(quota)
    }

    /// Returns `true` if the counts keep their meaning under another config.
    fn counts_like(&self, config: &QuotaConfig) -> bool {
        let now = &self.config;
        let grouped_alike =
            now.group_by == config.group_by && now.shares.is_some() == config.shares.is_some();
        let units_alike = now.unit == config.unit;
        let timed_alike = (now.kind, now.window, now.starts) == (config.kind, config.window, config.starts);
        grouped_alike
            && units_alike
            && timed_alike
            && (now.period, &now.renews, now.store) == (config.period, &config.renews, config.store)
    }

    /// Applies this quota's limits to every group.
    fn set_rules(&self) {
        let policy = self.config.store_policy();
        self.counts.each(|kind, group| {
            let rule = self.rule_of(kind, &group.name);
            group.free(|state| state.set_rule(rule, policy));
        });
    }

    /// Returns the counts for the next process, which counts from now on. See [`Group::hand_over`].
    pub(super) fn hand_over(&self, now: Timestamp, calls: u64) -> Option<QuotaState> {
        self.counts.others.hand_over();
        let mut groups = Vec::new();
        self.counts.each(|kind, group| groups.extend(group.hand_over(kind, now, calls)));
        let (name, way) = (self.name.to_string(), self.way());
        (!groups.is_empty()).then(|| QuotaState { name, way, keys: self.counts.others.keys(), groups })
    }

    /// Takes over the counts of an earlier process, if they have the same meaning. Shows `see` each group
    /// with the units that this process may still use.
    pub(super) fn inherit(
        &self,
        now: Timestamp,
        state: &QuotaState,
        mut see: impl FnMut(Arc<Group>, GroupId, u64),
    ) {
        if state.way != self.way() {
            return;
        }
        self.counts.others.set_keys(state.keys);
        let wait_max_micros = self.config.learn.as_ref().map_or(0, wait_max_micros);
        for group in &state.groups {
            let id = GroupId { quota: state.name.clone(), kind: group.kind, name: group.name.clone() };
            let found = self.find(now, &id);
            let held = found.inherit(group, now, wait_max_micros);
            see(found, id, held);
        }
    }

    /// Returns the group with this name, or a new one.
    pub(super) fn find(&self, now: Timestamp, id: &GroupId) -> Arc<Group> {
        self.counts.find(id.kind, &id.name, &self.rule_of(id.kind, &id.name), now)
    }

    /// Reports to the next process what has become of the units of each group.
    pub(super) fn report(&self, now: Timestamp, calls: u64, balances: &mut Vec<Balance>) {
        self.counts.each(|kind, group| {
            let Some(report) = group.report(now, calls) else { return };
            let UsageReport { counted, abandoned, returned, wanted } = report;
            let group = GroupId { quota: self.name.to_string(), kind, name: group.name.to_vec() };
            balances.push(Balance { group, counted, abandoned, returned, wanted });
        });
    }

    /// A text that is equal for configs whose counts have the same meaning, also in the next process.
    fn way(&self) -> String {
        let QuotaConfig { starts, store, .. } = &self.config;
        format!("{} {starts:?} {store:?}", way_of_counting(&self.config))
    }

    fn rule_of(&self, kind: GroupKind, name: &[u8]) -> Rule {
        let Some(shares) = &self.config.shares else { return self.rule.clone() };
        match kind {
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

    /// Returns `true` if a grant of this quota may end before its call is sent, because a cluster shares
    /// units of it or of an ancestor.
    pub fn needs_permit(&self) -> bool {
        self.lineage().any(|quota| quota.config.store == StoreKind::Redis)
    }

    /// Returns `true` if the limit of this quota or of an ancestor follows the provider's latency.
    pub fn is_adaptive(&self) -> bool {
        self.lineage().any(|quota| quota.config.adaptive.is_some())
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
        self.take_or_watch(now, names, cost, None)
    }

    /// Does the same as [`take`](Self::take). If the units are being fetched from a store, `waker` is woken
    /// once when they arrive.
    pub fn take_or_watch(
        &self,
        now: Timestamp,
        names: &[&[u8]],
        cost: u64,
        waker: Option<&Waker>,
    ) -> Result<Grant, Refusal> {
        if self.parent.is_none() && self.config.group_by.is_none() {
            return self.take_alone(now, cost, waker);
        }
        let groups = self.groups(now, names)?;
        let mut states: Few<MutexGuard<'_, GroupUsage>> = SmallVec::new();
        let mut refusal: Option<Refusal> = None;
        for group in &groups {
            let mut state = group.group.lock();
            state.advance(now);
            if let Some((why, retry_at)) = state.refuses(cost) {
                let is_worse =
                    refusal.as_ref().is_none_or(|worst| (worst.why, worst.retry_at) < (why, retry_at));
                if is_worse {
                    refusal = Some(Refusal { quota: group.quota.name.clone(), why, retry_at });
                }
            }
            states.push(state);
        }
        let ask = |states: &mut Few<MutexGuard<'_, GroupUsage>>| {
            for (group, state) in groups.iter().zip(states) {
                state.ask_if_due(&group.group);
            }
        };
        if let Some(refusal) = refusal {
            if let Some(waker) = waker.filter(|_| refusal.why == Why::Fetching) {
                states.iter_mut().for_each(|state| state.watch(waker));
            }
            ask(&mut states);
            drop(states);
            self.raise_alerts_of_refused(now, &groups);
            return Err(refusal);
        }
        for state in &mut states {
            state.take(cost);
        }
        ask(&mut states);
        drop(states);
        let charge = |group: GroupRef<'_>| Charge {
            group: group.group,
            level: group.level,
            units: cost,
            stage: Stage::Transit,
        };
        Ok(Grant { made: now, charges: groups.into_iter().map(charge).collect() })
    }

    /// The fast path of `take` for a quota without groups and parents: one lock, no allocation.
    fn take_alone(&self, now: Timestamp, cost: u64, waker: Option<&Waker>) -> Result<Grant, Refusal> {
        let group = &self.counts.whole;
        let mut state = group.lock();
        state.advance(now);
        let refusal = state.refuses(cost);
        match (&refusal, waker) {
            (None, _) => state.take(cost),
            (Some((Why::Fetching, _)), Some(waker)) => state.watch(waker),
            (Some(_), _) => {}
        }
        state.ask_if_due(group);
        drop(state);
        if let Some((why, retry_at)) = refusal {
            if let Some(alerting) = &self.alerting {
                self.raise_alerts_of(now, group, alerting);
            }
            return Err(Refusal { quota: self.name.clone(), why, retry_at });
        }
        let mut charges = Few::new();
        charges.push(Charge { group: group.clone(), level: 0, units: cost, stage: Stage::Transit });
        Ok(Grant { made: now, charges })
    }

    /// Estimates when a call of `cost` units will be granted if `ahead` units are taken before it, and calls
    /// take as long as recently. It may be later in fact. Returns `None` if there is no estimate: slots
    /// become free when a call ends.
    pub fn forecast(&self, now: Timestamp, names: &[&[u8]], cost: u64, ahead: u64) -> Option<Forecast> {
        let mut turn = Forecast { at: now, level: 0, is_held: false };
        for group in self.groups(now, names).ok()? {
            let mut state = group.group.lock();
            state.advance(now);
            if cost > state.max_units() {
                return None;
            }
            state.note_waiting(cost.saturating_add(ahead));
            let (at, is_held) = match state.held_until(cost) {
                Some(until) if !state.fits(cost.saturating_add(ahead)) => (until, true),
                _ => (state.forecast(cost.saturating_add(ahead))?, false),
            };
            if at > turn.at {
                turn = Forecast { at, level: group.level, is_held };
            }
        }
        Some(turn)
    }

    /// Wakes `waker` once when units become free for a reason other than time, or later than
    /// [`forecast`](Self::forecast) has estimated. Such a reason is a call that ends and held a slot, is not
    /// made, or turns out cheaper, or a change of the quota. Watch first, then try to take, so no event is
    /// missed. `waiting` is the number of units that all waiting calls need. A shared quota tells it to the
    /// store.
    ///
    /// Returns a number that changes when units turn out to come back later than estimated.
    pub fn watch(&self, now: Timestamp, names: &[&[u8]], waiting: u64, waker: &Waker) -> u64 {
        let mut delays = 0_u64;
        for group in self.groups(now, names).unwrap_or_default() {
            let mut state = group.group.lock();
            state.watch(waker);
            state.note_waiting(waiting);
            delays = delays.wrapping_add(state.delays());
        }
        delays
    }

    /// Raises the alerts that the groups of `grant`, taken from this quota, have newly reached. Call it after
    /// the cost of a call was counted.
    pub fn raise_alerts(&self, now: Timestamp, grant: &Grant) {
        if !self.raises_alerts {
            return;
        }
        for (level, quota) in self.lineage().enumerate() {
            let Some(alerting) = &quota.alerting else { continue };
            for charge in grant.charges.iter().filter(|charge| usize::from(charge.level) == level) {
                quota.raise_alerts_of(now, &charge.group, alerting);
            }
        }
    }

    /// Raises the alerts of groups that have refused a call. Units can be used without the end of a call that
    /// has a grant: by calls that were given up, and by those of another process.
    #[cold]
    fn raise_alerts_of_refused(&self, now: Timestamp, groups: &[GroupRef<'_>]) {
        if !self.raises_alerts {
            return;
        }
        for GroupRef { quota, group, .. } in groups {
            if let Some(alerting) = &quota.alerting {
                quota.raise_alerts_of(now, group, alerting);
            }
        }
    }

    fn raise_alerts_of(&self, now: Timestamp, group: &Arc<Group>, alerting: &Alerting) {
        let raised = group.lock().raise(now, &alerting.percents);
        let Some((window, percents)) = raised else { return };
        for percent in percents {
            let (kind, label) = self.label(group);
            let (way, limit) = (self.way(), window.rule_limit);
            let has_room = alerting.sink.raise(Alert {
                quota: self.name.clone(),
                group: label,
                percent: *percent,
                used: window.used,
                limit: window.limit,
                unit: self.config.unit,
                window_end: Timestamp::from_micros(window.end),
                is_shared: group.is_leased(),
                key: [format!("{} {way} {limit}\0{}", self.name, kind.tag()).as_bytes(), &*group.name]
                    .concat()
                    .into(),
            });
            if !has_room {
                return group.lock().raise_again();
            }
        }
    }

    /// Returns the kind of a group, and its name for display.
    fn label(&self, group: &Arc<Group>) -> (GroupKind, String) {
        let counts = &self.counts;
        let is_overflow = || counts.others.overflow().is_some_and(|overflow| Arc::ptr_eq(overflow, group));
        if Arc::ptr_eq(group, &counts.whole) {
            (GroupKind::Whole, String::new())
        } else if Arc::ptr_eq(group, &counts.rest) {
            (GroupKind::Rest, "(rest)".to_owned())
        } else if is_overflow() {
            (GroupKind::Overflow, "(more)".to_owned())
        } else {
            (GroupKind::Named, self.shown(&group.name))
        }
    }

    /// Returns the status that a call sees: that of the quota in the lineage with the least remaining units.
    pub fn status(&self, now: Timestamp, names: &[&[u8]]) -> Option<QuotaStatus> {
        let status = |group: GroupRef<'_>| {
            let mut state = group.group.lock();
            state.advance(now);
            QuotaStatus {
                quota: group.quota.name.clone(),
                limit: state.allowance(),
                remaining: state.remaining(),
                reset: state.reset(),
                window: group.quota.config.window.map(egret_config::Duration::get),
            }
        };
        self.groups(now, names).ok()?.into_iter().map(status).min_by_key(|status| status.remaining)
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
        let on_store_error = self.config.store_policy();
        QuotaSnapshot {
            name: self.name.to_string(),
            kind: self.config.kind,
            unit: self.config.unit,
            on_store_error,
            groups,
            groups_count,
        }
    }

    fn group_snapshot(&self, now: Timestamp, group: &Group, label: Option<&str>) -> GroupSnapshot {
        let mut state = group.lock();
        state.advance(now);
        GroupSnapshot {
            name: label.map_or_else(|| self.shown(&group.name), str::to_owned),
            used: state.meter().used(),
            reserved: state.meter().transit(),
            limit: state.allowance(),
            remaining: state.remaining(),
            reset: state.reset(),
            has_store_failed: state.has_store_failed(),
            shared: state.shared(),
            latencies_us: state.meter().adaptive().and_then(AdaptiveLimit::latencies),
        }
    }

    /// Returns a group's name for display.
    fn shown(&self, name: &[u8]) -> String {
        if !name.is_empty() && self.config.group_by.as_ref().is_some_and(GroupBy::is_secret) {
            return self.counts.others.disguise(name);
        }
        // Escaped names never start like this, so no group can be mistaken for `(more)` or `(rest)`.
        let escape = if name.starts_with(b"(") { "\\" } else { "" };
        format!("{escape}{}", name.escape_ascii())
    }

    /// Returns the groups to charge for a call, in this quota and its ancestors.
    fn groups(&self, now: Timestamp, names: &[&[u8]]) -> Result<Few<GroupRef<'_>>, Refusal> {
        let mut groups = SmallVec::new();
        for (level, quota) in self.lineage().enumerate() {
            let name = names.get(level).copied().unwrap_or_default();
            quota.add_groups(now, name, u8::try_from(level).unwrap_or(u8::MAX), &mut groups)?;
        }
        Ok(groups)
    }

    fn add_groups<'a>(
        &'a self,
        now: Timestamp,
        name: &[u8],
        level: u8,
        groups: &mut Few<GroupRef<'a>>,
    ) -> Result<(), Refusal> {
        let counts = &self.counts;
        let mut add = |group: Arc<Group>| groups.push(GroupRef { quota: self, group, level });
        if self.config.group_by.is_none() {
            add(counts.whole.clone());
            return Ok(());
        }
        let other = |rule: &Rule| {
            let groups_max = usize::try_from(self.config.groups_max).unwrap_or(usize::MAX);
            counts.others.get(name, rule, groups_max, now)
        };
        let Some(shares) = &self.config.shares else {
            add(other(&self.rule));
            return Ok(());
        };
        if let Some(group) = counts.listed.get(name) {
            add(group.clone());
            return Ok(());
        }
        match shares.default {
            ShareDefault::Block => {
                return Err(Refusal { quota: self.name.clone(), why: Why::ShareBlocked, retry_at: None });
            }
            ShareDefault::Allow => {}
            ShareDefault::Share(_) => add(other(&self.rule_of_other())),
        }
        add(counts.rest.clone());
        Ok(())
    }
}

/// A group that a call draws from.
struct GroupRef<'a> {
    quota: &'a Quota,
    group: Arc<Group>,
    level: u8,
}

/// Returns the store of a quota's groups.
fn backing(name: &str, config: &QuotaConfig, stores: Stores<'_>) -> Backing {
    match (config.store, stores.cluster) {
        (StoreKind::Memory, _) => Backing::Memory,
        (StoreKind::Redis, Some(sink)) => Backing::Shared(SharedBacking {
            sink: sink.clone(),
            quota: name.into(),
            fingerprint: sink.digest(way_of_counting(config).as_bytes()).get(..8).unwrap_or_default().into(),
        }),
        // A store that always fails.
        (StoreKind::Redis, None) => Backing::File(FileBacking { ledger: None, quota: name.into() }),
        (StoreKind::File, _) => {
            Backing::File(FileBacking { ledger: stores.ledger.cloned(), quota: name.into() })
        }
    }
}

/// A text that is equal for configs whose counts have the same meaning.
fn way_of_counting(config: &QuotaConfig) -> String {
    let QuotaConfig { kind, unit, window, group_by, shares, period, renews, .. } = config;
    let window_us = window.map_or(0, |window| window.get().as_micros());
    let group_by = group_by.as_ref().map(GroupBy::to_string).unwrap_or_default();
    let has_shares = shares.is_some();
    let RenewalConfig { day, time, time_zone } = renews;
    let unit = if *unit == QuotaUnit::Usd { " usd" } else { "" };
    format!("{kind} {window_us} {group_by} {has_shares} {period:?} {day} {time} {time_zone}{unit}")
}

/// Returns the rule of a whole quota; `None` if its config is incomplete.
pub(super) fn rule(config: &QuotaConfig) -> Option<Rule> {
    let micros = |window: egret_config::Duration| u64::try_from(window.get().as_micros()).ok();
    let window = config.window.and_then(micros).filter(|window| *window > 0);
    let units = |units: u64| units.saturating_mul(config.unit.scale());
    let spillover = units(config.spillover.map_or(0, |spillover| spillover.max));
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
            Refill::Bucket { window: window?, burst: units(config.burst.unwrap_or(config.limit)) }
        }
        QuotaKind::Concurrency => Refill::Slots,
    };
    let adaptation = config.adaptive.map(|AdaptiveConfig { min, tolerance }| Adaptation {
        min,
        max: config.limit,
        tolerance,
    });
    Some(Rule { limit: units(config.limit), refill, is_estimated: config.is_estimated(), adaptation })
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
    Rule { limit, refill, ..*whole }
}

/// The longest time for which a provider's report may hold calls back.
pub(super) fn wait_max_micros(config: &LearnConfig) -> u64 {
    u64::try_from(config.wait_max.get().as_micros()).unwrap_or(u64::MAX)
}

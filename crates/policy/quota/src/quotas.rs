//! All quotas of a config, compiled.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use egret_clock::Timestamp;
use egret_config::Problem;

use super::backing::Stores;
use super::config::{QuotaConfig, QuotaConfigs};
use super::group::Group;
use super::handed_state::{Balance, GroupId, Lending, QuotaState};
use super::meter::UsageReport;
use super::quota::{Quota, QuotaContext};
use super::validate::validate;

/// The compiled quotas of a config.
#[derive(Debug, Default)]
pub struct Quotas {
    by_name: BTreeMap<String, Arc<Quota>>,
    /// The names of quotas that are left out because of a mistake, which has been reported.
    invalid: HashSet<String>,
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
    /// Quotas that are stored elsewhere borrow units from `stores`.
    pub fn compile(
        configs: &QuotaConfigs,
        previous: Option<&Self>,
        stores: Stores<'_>,
        parameters: &[&str],
        problems: &mut Vec<Problem>,
    ) -> Self {
        let wrong = validate(configs, parameters);
        // The names may have dots, so each beginning of a path may be one.
        let places = wrong.iter().filter_map(|problem| problem.path.strip_prefix("quotas."));
        let names = places.flat_map(|place| {
            let ends = place.match_indices('.').map(|(end, _)| end).chain([place.len()]);
            ends.map(move |end| &place[..end])
        });
        let bad: HashSet<&str> = names.collect();
        let is_good = |name: &str| !bad.contains(name);
        let mut quotas = Self::default();
        let sources =
            Sources { configs, previous, context: QuotaContext { stores, parameters }, is_good: &is_good };
        for (name, config) in configs {
            quotas.compile_one(name, config, &sources);
        }
        let left_out = configs.keys().filter(|name| !quotas.by_name.contains_key(*name));
        quotas.invalid = left_out.cloned().collect();
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
        let quota = Arc::new(Quota::new(name, config, parent, before, &sources.context)?);
        self.by_name.insert(name.to_owned(), quota.clone());
        Some(quota)
    }

    /// Returns the quota with that name.
    pub fn get(&self, name: &str) -> Option<&Arc<Quota>> {
        self.by_name.get(name)
    }

    /// Returns `true` if the config has a quota of that name, with a mistake that has been reported.
    pub fn is_invalid(&self, name: &str) -> bool {
        self.invalid.contains(name)
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

/// The counts when one process hands them over to the next. Quotas that a cluster shares stay with it.
impl Quotas {
    /// Returns the counts for the next process, which counts from now on. Calls of this process may still use
    /// the units that they have taken, and as many others as `calls` may need at once; these are used in the
    /// counts. Further units must be [lent](Self::lend).
    pub fn hand_over(&self, now: Timestamp, calls: u64) -> Vec<QuotaState> {
        self.iter().filter_map(|quota| quota.hand_over(now, calls)).collect()
    }

    /// Reports what has become of the units that the next process holds for this one, in which at most
    /// `calls` may still begin at once.
    pub fn report(&self, now: Timestamp, calls: u64) -> Vec<Balance> {
        let mut balances = Vec::new();
        self.iter().for_each(|quota| quota.report(now, calls, &mut balances));
        balances
    }

    /// Adds units that the next process has lent.
    pub fn lend(&self, now: Timestamp, lendings: &[Lending]) {
        for lending in lendings {
            if let Some(quota) = self.get(&lending.group.quota) {
                quota.find(now, &lending.group).lend(Some(lending.units));
            }
        }
    }

    /// Notes that the next process does not lend any more.
    pub fn stop_lending(&self) {
        for quota in self.iter() {
            quota.counts.each(|_, group| group.lend(None));
        }
    }

    /// Takes over the counts of an earlier process. A quota that counts in another way now starts without
    /// usage, as after a reload.
    pub fn inherit(&self, now: Timestamp, states: &[QuotaState]) -> Inheritance {
        let mut held = HashMap::new();
        for state in states {
            let Some(quota) = self.get(&state.name) else { continue };
            quota.inherit(now, state, |group, id, units| {
                held.insert(id, GrantedUnits { group, units });
            });
        }
        Inheritance { held }
    }
}

/// The units that this process holds for an earlier one.
#[derive(Debug, Default)]
pub struct Inheritance {
    held: HashMap<GroupId, GrantedUnits>,
}

#[derive(Debug)]
struct GrantedUnits {
    group: Arc<Group>,
    units: u64,
}

impl Inheritance {
    /// Counts what the earlier process reports, and lends it the units that it wants, as far as there are
    /// any. Units that are missing are lent first when they come back.
    pub fn settle(&mut self, quotas: &Quotas, now: Timestamp, balances: &[Balance]) -> Vec<Lending> {
        let mut lendings = Vec::new();
        for Balance { group: id, counted, abandoned, returned, wanted } in balances {
            if !self.held.contains_key(id) {
                let Some(quota) = quotas.get(&id.quota) else { continue };
                self.held.insert(id.clone(), GrantedUnits { group: quota.find(now, id), units: 0 });
            }
            let Some(held) = self.held.get_mut(id) else { continue };
            let report = UsageReport {
                counted: *counted,
                abandoned: *abandoned,
                returned: *returned,
                wanted: *wanted,
            };
            let (left, units) = held.group.settle(now, held.units, report);
            held.units = left;
            if *wanted > 0 {
                lendings.push(Lending { group: id.clone(), units });
            }
        }
        lendings
    }

    /// Counts all units that are still held: the earlier process has ended, and may have used them.
    pub fn end(self, now: Timestamp) {
        for held in self.held.into_values() {
            let report = UsageReport { abandoned: held.units, ..UsageReport::default() };
            held.group.settle(now, held.units, report);
        }
    }
}

/// The inputs for compiling all quotas.
struct Sources<'a> {
    configs: &'a QuotaConfigs,
    previous: Option<&'a Quotas>,
    context: QuotaContext<'a>,
    is_good: &'a dyn Fn(&str) -> bool,
}

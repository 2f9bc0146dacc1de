//! All quotas of a config, compiled.

use std::collections::BTreeMap;
use std::sync::Arc;

use egret_config::Problem;

use super::backing::Stores;
use super::config::{QuotaConfig, QuotaConfigs};
use super::quota::{Quota, QuotaContext};
use super::validate::validate;

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
    /// Quotas that are stored elsewhere borrow units from `stores`.
    pub fn compile(
        configs: &QuotaConfigs,
        previous: Option<&Self>,
        stores: Stores<'_>,
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
        let sources =
            Sources { configs, previous, context: QuotaContext { stores, parameters }, is_good: &is_good };
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
        let quota = Arc::new(Quota::new(name, config, parent, before, &sources.context)?);
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

/// The inputs for compiling all quotas.
struct Sources<'a> {
    configs: &'a QuotaConfigs,
    previous: Option<&'a Quotas>,
    context: QuotaContext<'a>,
    is_good: &'a dyn Fn(&str) -> bool,
}

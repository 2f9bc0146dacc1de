//! The groups of a quota: those with a share of their own, and all others.

use std::collections::HashMap;
use std::sync::Arc;

use egret_clock::Timestamp;

use super::backing::Backing;
use super::config::QuotaConfig;
use super::group::Group;
use super::group_kind::GroupKind;
use super::groups::Groups;

use super::meter::Rule;

/// The counts of a quota. They survive a change of its config that keeps the way of counting.
#[derive(Debug)]
pub(super) struct GroupSet {
    /// All calls of a quota without groups.
    pub whole: Arc<Group>,
    /// The groups with their own share.
    pub listed: HashMap<Box<[u8]>, Arc<Group>>,
    /// The usage of all groups without their own share together.
    pub rest: Arc<Group>,
    pub others: Arc<Groups>,
}

impl GroupSet {
    pub fn new(config: &QuotaConfig, rule: &Rule, backing: &Backing, before: Option<&Self>) -> Self {
        let group = |kind: GroupKind, name: &str| {
            let backed = backing.group(kind, name.as_bytes(), rule);
            Arc::new(Group::new(name.as_bytes(), rule.clone(), backed))
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

    /// Returns the group of a kind, by its name; a new one has this rule.
    pub fn find(&self, kind: GroupKind, name: &[u8], rule: &Rule, now: Timestamp) -> Arc<Group> {
        match kind {
            GroupKind::Whole => self.whole.clone(),
            GroupKind::Rest => self.rest.clone(),
            GroupKind::Overflow => self.others.use_overflow(),
            GroupKind::Named => {
                let listed = self.listed.get(name).cloned();
                // An earlier process had room for it.
                listed.unwrap_or_else(|| self.others.get(name, rule, usize::MAX, now))
            }
        }
    }

    /// Calls `work` for every group.
    pub fn each(&self, mut work: impl FnMut(GroupKind, &Group)) {
        work(GroupKind::Whole, &self.whole);
        work(GroupKind::Rest, &self.rest);
        for group in self.listed.values() {
            work(GroupKind::Named, group);
        }
        self.others.each(work);
    }
}

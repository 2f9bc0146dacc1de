//! The state that all parts of the translation share.

use std::collections::{BTreeMap, BTreeSet};

use crate::draft::{Draft, Match};
use crate::emit;
use crate::source::{Findings, Mapping};

/// The translation so far.
#[derive(Debug)]
pub(super) struct Import<'a> {
    pub findings: &'a Findings,
    pub draft: Draft,
    pub accounts: Accounts<'a>,
    pub exporters: Exporters,
    pub quotas: Quotas,
}

/// The accounts of `policies.yaml`, and their translation as far as remedies use them.
#[derive(Debug, Default)]
pub(super) struct Accounts<'a> {
    pub known: BTreeMap<String, Mapping<'a>>,
    /// The providers of each account that is used, or all of them.
    pub uses: BTreeMap<String, Use>,
}

/// The use of an account.
#[derive(Debug)]
pub(super) struct Use {
    /// Its name in Egret.
    pub name: String,
    pub providers: BTreeSet<String>,
    pub everywhere: bool,
}

/// The exporters of the original, and what they are called in Egret.
#[derive(Debug, Default)]
pub(super) struct Exporters {
    pub names: BTreeMap<String, String>,
    /// Boundaries of Prometheus' histograms, in milliseconds.
    pub buckets_ms: Vec<f64>,
}

/// The quotas read so far, by their ids.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    pub known: BTreeMap<String, OriginalQuota>,
}

/// A quota.
#[derive(Debug, Clone)]
pub(super) struct OriginalQuota {
    pub name: String,
    pub strategy: Strategy,
    pub parent: Option<String>,
    pub matches: Vec<Match>,
    pub is_used: bool,
}

/// The way in which a quota counts.
#[derive(Debug, Clone)]
pub(super) enum Strategy {
    Counted(Box<emit::Quota>),
    /// The provider says in these fields what is left.
    ByHeaders(Box<emit::Throttle>),
}

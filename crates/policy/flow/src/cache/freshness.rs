//! For how long a stored answer is fresh (RFC 9111 §4.2), and whether it may be given when it no longer is (§4.2.4).

use std::collections::BTreeMap;
use std::time::Duration;

use egret_clock::Timestamp;

use super::config::{CacheConfig, Statuses};
use super::directives::{Extent, RequestDirectives, ResponseDirectives};
use super::key::Partition;
use super::stored::Stored;

/// Which lifetimes a config gives.
#[derive(Debug)]
pub(super) struct Lifetimes {
    /// The narrowest first.
    ttl: Vec<(Statuses, Duration)>,
    pub overrides: bool,
    heuristic_max: Duration,
    stale_while_revalidate: Option<Duration>,
    stale_if_error: Option<Duration>,
    /// Whether a credential's part of the cache is a private cache.
    private: bool,
}

/// For how long a stale answer may be given while the provider cannot be reached, where nobody says (RFC 9111
/// §4.2.4). Long enough for a restart of the provider, and short enough that nobody takes old prices for new
/// ones for an hour.
const STALE_IF_SILENT: Duration = Duration::from_mins(5);

/// Why a stale answer is to stand in for the provider's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The provider answers with an error, or the gateway itself refuses the call.
    Error,
    /// There is no response: the provider cannot be connected to, is too late, or has closed.
    Silence,
}

/// How a stored answer stands at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freshness {
    /// How old it is.
    pub age: Duration,
    /// For how long it is fresh, all in all.
    pub lifetime: Duration,
}

impl Freshness {
    /// Whether it is fresh.
    pub fn is_fresh(self) -> bool {
        self.lifetime > self.age
    }

    /// For how long it has not been fresh.
    pub fn staleness(self) -> Duration {
        self.age.saturating_sub(self.lifetime)
    }

    /// For how long it is fresh from now on, in seconds; below zero for how long it has not been.
    pub fn ttl_s(self) -> i64 {
        let seconds = |span: Duration| i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
        seconds(self.lifetime).saturating_sub(seconds(self.age))
    }
}

/// Statuses that may be stored without being told for how long (RFC 9110 §15.1).
pub(super) fn is_heuristic(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

impl Lifetimes {
    pub fn new(config: &CacheConfig) -> Self {
        let ttl: &BTreeMap<Statuses, _> = &config.ttl;
        let mut ttl: Vec<_> = ttl.iter().map(|(statuses, ttl)| (*statuses, ttl.get())).collect();
        ttl.sort_by_key(|(statuses, _)| statuses.len());
        Self {
            ttl,
            overrides: config.overrides,
            heuristic_max: config.heuristic_max.get(),
            stale_while_revalidate: config.stale_while_revalidate.map(egret_config::Duration::get),
            stale_if_error: config.stale_if_error.map(egret_config::Duration::get),
            private: config.private,
        }
    }

    /// What the config says of a status.
    pub fn told(&self, status: u16) -> Option<Duration> {
        self.ttl.iter().find(|(statuses, _)| statuses.covers(status)).map(|(_, ttl)| *ttl)
    }

    /// Whether the config decides for a status, whatever an answer says.
    pub fn is_forced(&self, status: u16) -> bool {
        self.overrides && self.told(status).is_some()
    }

    /// Whether a part of the cache is a private one.
    pub fn is_private(&self, partition: Partition) -> bool {
        self.private && partition == Partition::Credential
    }

    /// How `stored` stands.
    pub fn standing(&self, stored: &Stored, partition: Partition, now: Timestamp) -> Freshness {
        Freshness { age: stored.age(now), lifetime: self.lifetime(stored, partition) }
    }

    /// RFC 9111 §4.2.1, §4.2.2.
    fn lifetime(&self, stored: &Stored, partition: Partition) -> Duration {
        let told = self.told(stored.status);
        if let Some(told) = told.filter(|_| self.overrides) {
            return told;
        }
        let directives = &stored.directives;
        let shared = directives.s_maxage.filter(|_| !self.is_private(partition));
        if let Some(seconds) = shared.or(directives.max_age) {
            return Duration::from_secs(seconds);
        }
        if let Some(expires) = stored.expires {
            return expires.since(stored.date);
        }
        let may_guess = is_heuristic(stored.status) || directives.public;
        let guess = || {
            let modified = stored.last_modified.filter(|_| may_guess)?;
            Some((stored.date.since(modified) / 10).min(self.heuristic_max))
        };
        told.or_else(guess).unwrap_or_default()
    }

    /// Whether it is to be validated each time, however fresh.
    pub fn needs_validation(&self, stored: &Stored) -> bool {
        !self.is_forced(stored.status) && stored.directives.no_cache == Extent::All
    }

    /// Whether it must not be given stale (RFC 9111 §4.2.4).
    fn forbids_stale(&self, stored: &Stored, partition: Partition) -> bool {
        if self.is_forced(stored.status) {
            return false;
        }
        let ResponseDirectives { must_revalidate, proxy_revalidate, s_maxage, no_cache, .. } =
            &stored.directives;
        let is_shared = !self.is_private(partition);
        *must_revalidate || *no_cache == Extent::All || is_shared && (*proxy_revalidate || s_maxage.is_some())
    }

    /// Whether a stale answer will do for what the client wants.
    pub fn client_takes_stale(
        &self,
        stored: &Stored,
        partition: Partition,
        standing: Freshness,
        wants: &RequestDirectives,
    ) -> bool {
        wants.max_stale.is_some_and(|seconds| standing.staleness() <= Duration::from_secs(seconds))
            && !self.forbids_stale(stored, partition)
    }

    /// Whether a stale answer may be given while it is asked for anew.
    pub fn may_revalidate_later(&self, stored: &Stored, partition: Partition, standing: Freshness) -> bool {
        let told = stored.directives.stale_while_revalidate.filter(|_| !self.is_forced(stored.status));
        // What the config says is for what is worth having.
        let configured = self.stale_while_revalidate.filter(|_| stored.status < 500);
        let window = told.map(Duration::from_secs).or(configured);
        window.is_some_and(|window| standing.staleness() <= window) && !self.forbids_stale(stored, partition)
    }

    /// Whether it may be given where the provider cannot be had, or answers with an error (RFC 5861 §4, RFC
    /// 9111 §4.2.4). An error that is stored stands in for nothing once it is stale.
    pub fn may_serve_on_error(
        &self,
        stored: &Stored,
        partition: Partition,
        standing: Freshness,
        (wants, trouble): (&RequestDirectives, Trouble),
    ) -> bool {
        let told = stored.directives.stale_if_error.filter(|_| !self.is_forced(stored.status));
        // Who says how old it may be does not want it stale (RFC 9111 §5.2.1.1).
        let is_fine = trouble == Trouble::Silence && wants.max_age.is_none() && wants.min_fresh.is_none();
        let window = told
            .map(Duration::from_secs)
            .or(self.stale_if_error)
            .or(is_fine.then_some(STALE_IF_SILENT))
            .max(wants.stale_if_error.map(Duration::from_secs));
        let is_within = stored.status < 500 && window.is_some_and(|window| standing.staleness() <= window);
        standing.is_fresh() && !self.needs_validation(stored)
            || is_within && !self.forbids_stale(stored, partition)
    }
}

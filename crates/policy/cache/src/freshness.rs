//! Freshness of stored responses (RFC 9111 §4.2), and the rules for serving stale ones (§4.2.4).

use std::collections::BTreeMap;
use std::time::Duration;

use egret_clock::Timestamp;

use super::config::{CacheConfig, Statuses};
use super::directives::{Extent, RequestDirectives, ResponseDirectives};
use super::key::Partition;
use super::stored::Stored;

/// The configured lifetimes.
#[derive(Debug)]
pub(super) struct Lifetimes {
    /// Sorted, narrowest range first.
    ttl: Vec<(Statuses, Duration)>,
    pub overrides: bool,
    heuristic_max: Duration,
    stale_while_revalidate: Option<Duration>,
    stale_if_error: Option<Duration>,
    /// `true` if the partition of a credential is a private cache.
    private: bool,
}

/// Time for which a stale response is served while the provider cannot be reached, if neither the config nor
/// the response sets one (RFC 9111 §4.2.4). It is long enough for a restart of the provider, and too short to
/// show outdated prices for an hour.
const STALE_IF_SILENT: Duration = Duration::from_mins(5);

/// The failure that a stale response covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderFailure {
    /// The provider responds with an error, or the gateway itself rejects the call.
    Error,
    /// There is no response: the provider cannot be connected to, times out, or closes the connection.
    Silence,
}

/// The age and freshness lifetime of a stored response at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freshness {
    /// The age.
    pub age: Duration,
    /// The freshness lifetime.
    pub lifetime: Duration,
}

impl Freshness {
    /// Returns `true` if the response is fresh.
    pub fn is_fresh(self) -> bool {
        self.lifetime > self.age
    }

    /// Time since it became stale; zero while it is fresh.
    pub fn staleness(self) -> Duration {
        self.age.saturating_sub(self.lifetime)
    }

    /// Remaining freshness in seconds; negative once it is stale.
    pub fn ttl_s(self) -> i64 {
        let seconds = |span: Duration| i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
        seconds(self.lifetime).saturating_sub(seconds(self.age))
    }
}

/// Returns `true` for statuses that may be stored without an explicit lifetime (RFC 9110 §15.1).
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

    /// Returns the configured `ttl` of a status.
    pub fn configured_ttl(&self, status: u16) -> Option<Duration> {
        self.ttl.iter().find(|(statuses, _)| statuses.covers(status)).map(|(_, ttl)| *ttl)
    }

    /// Returns `true` if the config overrides the directives of responses with that status.
    pub fn is_forced(&self, status: u16) -> bool {
        self.overrides && self.configured_ttl(status).is_some()
    }

    /// Returns `true` if a partition is a private cache.
    pub fn is_private(&self, partition: Partition) -> bool {
        self.private && partition == Partition::Credential
    }

    /// Returns the freshness of `stored`.
    pub fn freshness(&self, stored: &Stored, partition: Partition, now: Timestamp) -> Freshness {
        Freshness { age: stored.age(now), lifetime: self.lifetime(stored, partition) }
    }

    /// Computes the freshness lifetime (RFC 9111 §4.2.1, §4.2.2).
    fn lifetime(&self, stored: &Stored, partition: Partition) -> Duration {
        let configured = self.configured_ttl(stored.status);
        if let Some(configured) = configured.filter(|_| self.overrides) {
            return configured;
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
        configured.or_else(guess).unwrap_or_default()
    }

    /// Returns `true` if the response must be validated for each request, even while it is fresh.
    pub fn needs_validation(&self, stored: &Stored) -> bool {
        !self.is_forced(stored.status) && stored.directives.no_cache == Extent::All
    }

    /// Returns `true` if the response must not be served stale (RFC 9111 §4.2.4).
    fn forbids_stale(&self, stored: &Stored, partition: Partition) -> bool {
        if self.is_forced(stored.status) {
            return false;
        }
        let ResponseDirectives { must_revalidate, proxy_revalidate, s_maxage, no_cache, .. } =
            &stored.directives;
        let is_shared = !self.is_private(partition);
        *must_revalidate || *no_cache == Extent::All || is_shared && (*proxy_revalidate || s_maxage.is_some())
    }

    /// Returns `true` if the client accepts the stale response.
    pub fn client_takes_stale(
        &self,
        stored: &Stored,
        partition: Partition,
        freshness: Freshness,
        wants: &RequestDirectives,
    ) -> bool {
        wants.max_stale.is_some_and(|seconds| freshness.staleness() <= Duration::from_secs(seconds))
            && !self.forbids_stale(stored, partition)
    }

    /// Returns `true` if the stale response may be served while it is revalidated in the background.
    pub fn may_revalidate_later(&self, stored: &Stored, partition: Partition, freshness: Freshness) -> bool {
        let requested = stored.directives.stale_while_revalidate.filter(|_| !self.is_forced(stored.status));
        // The configured time does not apply to errors.
        let configured = self.stale_while_revalidate.filter(|_| stored.status < 500);
        let window = requested.map(Duration::from_secs).or(configured);
        window.is_some_and(|window| freshness.staleness() <= window) && !self.forbids_stale(stored, partition)
    }

    /// Returns `true` if the response may be served when the provider cannot be reached or responds with an
    /// error (RFC 5861 §4, RFC 9111 §4.2.4). A stored error is never served stale.
    pub fn may_serve_on_error(
        &self,
        stored: &Stored,
        partition: Partition,
        freshness: Freshness,
        wants: &RequestDirectives,
        failure: ProviderFailure,
    ) -> bool {
        let requested = stored.directives.stale_if_error.filter(|_| !self.is_forced(stored.status));
        // A client that limits the age does not want a stale response (RFC 9111 §5.2.1.1).
        let is_fine =
            failure == ProviderFailure::Silence && wants.max_age.is_none() && wants.min_fresh.is_none();
        let window = requested
            .map(Duration::from_secs)
            .or(self.stale_if_error)
            .or(is_fine.then_some(STALE_IF_SILENT))
            .max(wants.stale_if_error.map(Duration::from_secs));
        let is_within = stored.status < 500 && window.is_some_and(|window| freshness.staleness() <= window);
        freshness.is_fresh() && !self.needs_validation(stored)
            || is_within && !self.forbids_stale(stored, partition)
    }
}

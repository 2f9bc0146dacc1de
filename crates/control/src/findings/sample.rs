//! The counters that findings compare, taken at one moment: far fewer than all, because a minute of them is
//! kept.

use std::collections::BTreeMap;

use egret_observe::failure::ErrorKind;
use egret_observe::refusals::RefusedHost;
use egret_observe::stats::{EndpointSnapshot, ErrorCount, ProviderSnapshot};
use egret_remedy::Decision;

use crate::observed::Observed;

/// Number of providers and hosts in a sample, those with most calls.
const PROVIDERS_MAX: usize = 256;

/// Numbers of decisions of a remedy, in the order of [`Decision::ALL`].
pub(crate) type Decisions = [u64; Decision::ALL.len()];

/// The counters of one moment.
#[derive(Debug)]
pub(crate) struct CountersSample {
    pub uptime_s: u64,
    pub reloads: u64,
    pub client_tls_failures: u64,
    pub certificates_refused: u64,
    /// The host whose certificate was refused last.
    pub refused_host: Option<RefusedHost>,
    pub provider_tunnels: u64,
    pub access_log_dropped: u64,
    /// By the provider's name, or the host.
    providers: BTreeMap<String, ProviderSample>,
    /// Entries that exporters have lost, by exporter.
    pub exporters_dropped: BTreeMap<String, u64>,
    /// Exchanges that diagnoses have lost, by flow.
    pub diagnoses_lost: BTreeMap<String, u64>,
    /// Decisions of remedies, by flow and remedy.
    pub decisions: BTreeMap<(String, String), Decisions>,
}

/// The counters of a provider.
#[derive(Debug, Default, Clone)]
pub(crate) struct ProviderSample {
    answered: u64,
    waited_us: u64,
    /// Finished exchanges.
    exchanges: u64,
    call_errors: Vec<ErrorCount>,
    errors: Vec<ErrorCount>,
    pub endpoints: Vec<EndpointSnapshot>,
}

impl CountersSample {
    pub fn of(observed: &Observed) -> Self {
        let Observed { stats, flows, exporters, .. } = observed;
        let mut providers: Vec<_> = stats.providers.iter().map(ProviderSample::of).collect();
        providers.sort_by_key(|(_, provider)| std::cmp::Reverse(provider.exchanges));
        providers.truncate(PROVIDERS_MAX);
        let lost = exporters.iter().map(|exporter| (exporter.name.clone(), exporter.dropped.values().sum()));
        let of_diagnoses = flows.flows.iter().map(|flow| {
            let counts = flow.diagnoses.iter().map(|diagnosis| diagnosis.counts);
            (flow.name.clone(), counts.map(|counts| counts.dropped + counts.failed).sum())
        });
        let remedies =
            flows.flows.iter().flat_map(|flow| flow.remedies.iter().map(move |remedy| (&flow.name, remedy)));
        let decisions =
            remedies.map(|(flow, remedy)| ((flow.clone(), remedy.remedy.clone()), remedy.decisions.counts));
        Self {
            uptime_s: stats.uptime_s,
            reloads: stats.reloads,
            client_tls_failures: stats.clients.tls_failures,
            certificates_refused: stats.interception.refused,
            refused_host: stats.interception.refusing.first().cloned(),
            provider_tunnels: stats.interception.provider_tunnels,
            access_log_dropped: stats.access_log_dropped,
            providers: providers.into_iter().collect(),
            exporters_dropped: lost.collect(),
            diagnoses_lost: of_diagnoses.collect(),
            decisions: decisions.collect(),
        }
    }

    pub fn provider(&self, name: &str) -> Option<&ProviderSample> {
        self.providers.get(name)
    }

    pub fn providers(&self) -> impl Iterator<Item = (&str, &ProviderSample)> {
        self.providers.iter().map(|(name, provider)| (name.as_str(), provider))
    }
}

impl ProviderSample {
    fn of(snapshot: &ProviderSnapshot) -> (String, Self) {
        let name = snapshot.host.clone().unwrap_or_else(|| snapshot.name.clone());
        let exchanges = snapshot.exchanges.iter().map(|count| count.count).sum();
        let sample = Self {
            answered: snapshot.answered_calls,
            waited_us: snapshot.waited_us,
            exchanges,
            call_errors: snapshot.call_errors.clone(),
            errors: snapshot.errors.clone(),
            endpoints: snapshot.endpoints.clone(),
        };
        (name, sample)
    }

    /// Returns the counters of the endpoint with this URL.
    pub fn endpoint(&self, url: &str) -> Option<&EndpointSnapshot> {
        self.endpoints.iter().find(|endpoint| endpoint.url == url)
    }

    /// Returns the calls that got a response since then, and the time for which they waited for it.
    pub fn waits_since(&self, before: Option<&Self>) -> (u64, u64) {
        let (answered, waited_us) = before.map_or((0, 0), |before| (before.answered, before.waited_us));
        (self.answered.saturating_sub(answered), self.waited_us.saturating_sub(waited_us))
    }

    /// Returns the number of calls since then, with and without a response.
    pub fn calls_since(&self, before: Option<&Self>) -> u64 {
        let without = self.call_errors_since(before);
        let without: u64 = without.iter().filter(|error| !is_status(error)).map(|error| error.count).sum();
        self.waits_since(before).0 + without
    }

    /// Returns the finished exchanges since then.
    pub fn exchanges_since(&self, before: Option<&Self>) -> u64 {
        self.exchanges.saturating_sub(before.map_or(0, |before| before.exchanges))
    }

    /// Returns how calls have failed since then, the most frequent first.
    pub fn call_errors_since(&self, before: Option<&Self>) -> Vec<ErrorCount> {
        let mut errors = since(&self.call_errors, before.map_or(&[], |before| &before.call_errors));
        // A response that a flow cannot use is an error of its exchange only.
        for error in self.errors_since(before).into_iter().filter(|error| !is_refusal(error)) {
            match errors.iter_mut().find(|known| known.name == error.name) {
                Some(known) => known.count = known.count.max(error.count),
                None => errors.push(error),
            }
        }
        errors.sort_by_key(|error| std::cmp::Reverse(error.count));
        errors
    }

    /// Returns the errors that Egret has responded with since then, the most frequent first.
    pub fn errors_since(&self, before: Option<&Self>) -> Vec<ErrorCount> {
        since(&self.errors, before.map_or(&[], |before| &before.errors))
    }
}

/// Returns `true` if Egret refused the call, and not because of the provider.
pub(crate) fn is_refusal(error: &ErrorCount) -> bool {
    let kind = ErrorKind::ALL.iter().find(|kind| kind.slug() == error.name);
    kind.is_some_and(|kind| !kind.is_of_provider())
}

/// Returns `true` if a failed call had a response.
pub(crate) fn is_status(error: &ErrorCount) -> bool {
    error.name.starts_with(|first: char| first.is_ascii_digit())
}

fn since(now: &[ErrorCount], before: &[ErrorCount]) -> Vec<ErrorCount> {
    let count_before =
        |name| before.iter().find(|error| error.name == name).map_or(0, |error: &ErrorCount| error.count);
    let new = |error: &ErrorCount| {
        let count = error.count.saturating_sub(count_before(error.name));
        (count > 0).then(|| ErrorCount { count, ..error.clone() })
    };
    let mut errors: Vec<ErrorCount> = now.iter().filter_map(new).collect();
    errors.sort_by_key(|error| std::cmp::Reverse(error.count));
    errors
}

/// Returns how much a count has grown.
pub(crate) fn grown(now: u64, before: u64) -> u64 {
    now.saturating_sub(before)
}

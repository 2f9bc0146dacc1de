//! A trouble as a rule notices it: its kind, how bad it is, its evidence, and what to do about it.

use std::time::Duration;

use egret_clock::Timestamp;
use egret_items::words;
use serde::Serialize;

/// Time between two samples.
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_secs(2);
/// Number of samples back with which the current one is compared.
pub(crate) const WINDOW_SAMPLES: usize = 5;
/// Length of this window, for texts.
pub(crate) const WINDOW_S: u64 = WINDOW_SAMPLES as u64 * SAMPLE_INTERVAL.as_secs();

words! {
    /// The kinds of findings, with the worst first.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub(crate) enum FindingKind: fn slug {
        /// Calls to a provider fail.
        ProviderFailing => "provider-failing",
        /// Circuit breakers refuse calls.
        CircuitOpen => "circuit-open",
        /// A queue fills, or is full.
        QueueFilling => "queue-filling",
        /// A provider rejects the credentials.
        CredentialsRejected => "credentials-rejected",
        /// An account is not used for a while, or its token cannot be fetched.
        AccountUnusable => "account-unusable",
        /// A provider answers 429.
        ProviderThrottling => "provider-throttling",
        /// A provider takes much longer than in its last hour.
        ProviderSlow => "provider-slow",
        /// Workers leave an endpoint of a provider out.
        EndpointExcluded => "endpoint-excluded",
        /// Egret refuses calls of its clients.
        CallsRefused => "calls-refused",
        /// Clients refuse Egret's certificate, or their TLS handshakes fail.
        ClientsFailing => "clients-failing",
        /// The keys of an issuer of tokens cannot be fetched.
        IssuerFailing => "issuer-failing",
        /// A secret was not renewed, so the last one is in use.
        SecretStale => "secret-stale",
        /// The config file was refused, so an older one is in effect.
        ConfigRefused => "config-refused",
        /// The store of quotas does not respond.
        StoreAway => "store-away",
        /// An exporter fails or loses entries.
        ExporterFailing => "exporter-failing",
        /// Diagnoses lose exchanges.
        DiagnosesBehind => "diagnoses-behind",
        /// A remedy cannot decide.
        RemedyFailing => "remedy-failing",
        /// The disk of a cache does not work.
        CacheDiskFailing => "cache-disk-failing",
        /// Gateways of a cluster have different limits for a quota.
        LimitsDiffer => "limits-differ",
        /// A quota with a long window is nearly used up.
        QuotaNearEnd => "quota-near-end",
        /// Tunnels to a provider pass by its flows.
        FlowsBypassed => "flows-bypassed",
        /// A certificate expires soon.
        CertificateExpiring => "certificate-expiring",
        /// Few file descriptors are left.
        DescriptorsNearEnd => "descriptors-near-end",
    }
}

impl FindingKind {
    /// Every kind, for the reference page.
    #[cfg(test)]
    pub const ALL: [Self; 23] = [
        Self::ProviderFailing,
        Self::CircuitOpen,
        Self::QueueFilling,
        Self::CredentialsRejected,
        Self::AccountUnusable,
        Self::ProviderThrottling,
        Self::ProviderSlow,
        Self::EndpointExcluded,
        Self::CallsRefused,
        Self::ClientsFailing,
        Self::IssuerFailing,
        Self::SecretStale,
        Self::ConfigRefused,
        Self::StoreAway,
        Self::ExporterFailing,
        Self::DiagnosesBehind,
        Self::RemedyFailing,
        Self::CacheDiskFailing,
        Self::LimitsDiffer,
        Self::QuotaNearEnd,
        Self::FlowsBypassed,
        Self::CertificateExpiring,
        Self::DescriptorsNearEnd,
    ];

    /// Returns `true` if calls decide whether the trouble goes on: without any, nobody knows.
    pub const fn needs_calls(self) -> bool {
        matches!(self, Self::ProviderFailing | Self::CredentialsRejected)
    }
}

words! {
    /// Degree of a finding.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub(crate) enum Severity: fn word {
        /// Calls fail, or something is lost.
        Error => "error",
        /// It will soon, or something works differently than meant.
        Warning => "warning",
    }
}

/// The observation of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub kind: FindingKind,
    pub severity: Severity,
    /// Name of what is in trouble: a provider, a flow, an exporter.
    pub subject: String,
    /// The trouble in one sentence.
    pub summary: String,
    /// Figures and the last cause, which show that it is so.
    pub evidence: String,
    /// The remedy, in words.
    pub advice: String,
    /// Its begin, if something remembers it better than the samples.
    pub since: Option<Timestamp>,
}

/// Returns a number of things in words: `1 call`, `2 calls`.
pub(crate) fn number_of(count: u64, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{plural}")
}

/// Returns the share of `part` in `whole` as a percentage.
pub(crate) fn percent(part: u64, whole: u64) -> u64 {
    (100 * part).checked_div(whole).unwrap_or_default()
}

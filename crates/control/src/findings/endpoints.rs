//! Findings about the endpoints of providers that have several: workers leave them out.

use std::collections::VecDeque;

use egret_observe::stats::EndpointSnapshot;

use super::sample::{CountersSample, grown};
use super::trouble::{FindingKind, Severity, Trouble};

/// Number of samples that are looked at: 24 s, so that a call which only shows that the endpoint still fails
/// does not end the finding.
const SAMPLES: usize = 12;
/// An endpoint is left out if it was in so many of them: longer than a pause of a few seconds.
const EXCLUDED_MIN: usize = 3;

/// Returns the troubles of all endpoints. The oldest sample is the first.
pub(super) fn troubles(samples: &VecDeque<CountersSample>) -> Vec<Trouble> {
    let (Some(current), Some(minute)) = (samples.back(), samples.front()) else { return Vec::new() };
    let mut troubles = Vec::new();
    for (name, provider) in current.providers() {
        for endpoint in &provider.endpoints {
            let at = |sample| of_sample(sample, name, &endpoint.url);
            let recent = samples.iter().rev().take(SAMPLES).filter_map(at);
            if recent.filter(|endpoint| endpoint.excluded > 0).count() >= EXCLUDED_MIN {
                troubles.push(excluded(name, endpoint, at(minute)));
            }
        }
    }
    troubles
}

fn of_sample<'a>(sample: &'a CountersSample, provider: &str, url: &str) -> Option<&'a EndpointSnapshot> {
    sample.provider(provider)?.endpoint(url)
}

fn excluded(provider: &str, endpoint: &EndpointSnapshot, minute: Option<&EndpointSnapshot>) -> Trouble {
    let EndpointSnapshot { url, calls, failures, excluded } = endpoint;
    let (calls_before, failures_before) = minute.map_or((0, 0), |before| (before.calls, before.failures));
    Trouble {
        kind: FindingKind::EndpointExcluded,
        severity: Severity::Warning,
        subject: format!("{provider}: {url}"),
        summary: format!("{provider}: the endpoint {url} is left out"),
        evidence: format!(
            "workers that leave it out now: {excluded}; calls to it in the last minute: {}, of which failed: {}",
            grown(*calls, calls_before),
            grown(*failures, failures_before)
        ),
        advice: "check that it runs; without failures, it has asked for a pause (`Retry-After`). Calls try it again by themselves"
            .to_owned(),
        since: None,
    }
}

//! The outcome in sentences that claim no more certainty than the rounds allow.

use std::fmt::Write as _;

use egret_measure::statistics::{Estimate, ROUNDS_FOR_VERDICT, ratio};

use super::case_summary::{CaseSummary, ProxyKind, RoundFigures, ScenarioSummary};
use super::format::{bounds, is_lopsided, margin, places, share, signed_ms, thousands};
use super::slopes::SlopeSummary;
use super::summary::Summary;
use crate::results::Results;

/// A higher rate counts as sustained if its p99 is at most this multiple of the p99 at the lowest rate.
const SATURATION_FACTOR: f64 = 3.0;

/// Percentiles that the verdict names.
pub(crate) const VERDICT_PERCENTILES: [usize; 3] = [50, 95, 99];

/// A rate counts as sustained if at least this share of the offered requests is completed.
const CARRIED_SHARE: f64 = 0.98;

/// Returns all sentences of the verdict.
pub(crate) fn verdict(summary: &Summary) -> Vec<String> {
    let mut sentences = Vec::new();
    sentences.extend(correlation(&summary.slopes));
    sentences.extend(sustained_rates(summary));
    for case in &summary.cases {
        let name = if summary.cases.len() > 1 { format!("{}: ", case.case) } else { String::new() };
        for scenario in case.scenarios.iter().filter(|scenario| scenario.scenario != summary.baseline) {
            sentences.extend(
                footprint(&summary.baseline, case, scenario).map(|sentence| name.clone() + &sentence),
            );
        }
        sentences.extend(against_peers(case).map(|sentence| name.clone() + &sentence));
        if summary.failures_expected {
            let counted = case.scenarios.iter().filter_map(counted);
            sentences.extend(counted.map(|sentence| name.clone() + &sentence));
        }
    }
    sentences
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Describes the response time that a scenario adds at p50, p95 and p99, or the ratio of the request rates if
/// the client reports no times.
fn footprint(baseline: &str, case: &CaseSummary, scenario: &ScenarioSummary) -> Option<String> {
    let name = &scenario.scenario;
    let [Some(p50), Some(p95), Some(p99)] = VERDICT_PERCENTILES.map(|percent| scenario.added_ms.get(percent))
    else {
        let (own, theirs) =
            scenario.paired(case.scenario(baseline)?, |round| Some(round.requests_per_second));
        let ratio = ratio(&own, &theirs)?;
        return Some(format!("`{name}` handles {} {baseline}'s requests per second.", times(&ratio)));
    };
    let rounds = scenario.rounds;
    if !p99.is_firm() {
        let [p50, p95, p99] = [p50, p95, p99].map(signed_ms);
        let rounds = if rounds == 1 { "1 round".into() } else { format!("{rounds} rounds") };
        return Some(format!(
            "`{name}`: about {p99} at p99, {p95} at p95 and {p50} at p50 compared with {baseline} ({rounds}: too few for a verdict)."
        ));
    }
    let confidence = percent(p99.confidence);
    let against = case.scenario(baseline)?;
    let [p99, p95, p50] = [(p99, 99), (p95, 95), (p50, 50)].map(|(estimate, percent)| {
        added(estimate, &format!("p{percent}"), baseline) + &large(scenario, against, percent)
    });
    Some(format!("`{name}` {p99}; {p95}; {p50} ({confidence} confidence, {rounds} rounds)."))
}

/// For a change of a tenth or more, returns the ratio to the baseline's response time: `, 0.33 × direct`.
fn large(scenario: &ScenarioSummary, against: &ScenarioSummary, percent: usize) -> String {
    let (Some(own), Some(theirs)) = (scenario.response_ms.get(percent), against.response_ms.get(percent))
    else {
        return String::new();
    };
    let ratio = own.value / theirs.value;
    let is_large = theirs.value > 0.0 && !(0.9..1.1).contains(&ratio);
    if is_large { format!(", {ratio:.2} × {}", against.scenario) } else { String::new() }
}

/// `adds 0.11 ms ± 0.03 at p99`
fn added(estimate: &Estimate, at: &str, baseline: &str) -> String {
    if !estimate.excludes(0.0) {
        return format!("shows no measurable difference from {baseline} at {at}: {}", signed_ms(estimate));
    }
    let word = if estimate.value > 0.0 { "adds" } else { "saves" };
    let size = places(estimate.value.abs(), estimate.margin());
    let bounds = if is_lopsided(estimate) { bounds(estimate) } else { format!("± {}", margin(estimate)) };
    format!("{word} {size} ms {bounds} at {at}")
}

/// Describes the outcome of a scenario's requests and the provider's counters.
fn counted(scenario: &ScenarioSummary) -> Option<String> {
    let name = &scenario.scenario;
    let failed = share(scenario.failed_share.as_ref()?.value);
    let counted = scenario.counted.as_ref()?;
    let calls = format!("{:.2} calls to the provider per request", counted.calls_per_request.value);
    let mut sentence = format!("`{name}`: {failed} of the requests failed; {calls}");
    if let (Some(admitted), Some(refused), Some(used)) =
        (&counted.admitted, &counted.refused, &counted.allowance_used)
    {
        let [admitted, refused] = [admitted, refused].map(|count| thousands(count.value));
        let _ = write!(
            sentence,
            ", of which it admitted {admitted} and rejected {refused}; {} of its allowance used",
            share(used.value)
        );
    }
    if let Some(busiest) = &counted.busiest_window {
        let _ = write!(sentence, "; its busiest window had {:.2} × the limit", busiest.value);
    }
    if let Some(calls) = &scenario.store_calls_per_request {
        let _ = write!(sentence, "; {} calls to the store per request", places(calls.value, calls.value));
    }
    Some(sentence + ".")
}

fn times(ratio: &Estimate) -> String {
    format!("{:.2} × (± {:.2})", ratio.value, ratio.margin())
}

/// Compares the cost of each Egret scenario with each other proxy's.
fn against_peers(case: &CaseSummary) -> impl Iterator<Item = String> + '_ {
    let of = |kind: ProxyKind| case.scenarios.iter().filter(move |scenario| scenario.kind == kind);
    of(ProxyKind::Egret).flat_map(move |own| of(ProxyKind::Peer).filter_map(move |peer| beside(own, peer)))
}

fn beside(own: &ScenarioSummary, peer: &ScenarioSummary) -> Option<String> {
    let compared = |figure: fn(&RoundFigures) -> Option<f64>| {
        let (own, theirs) = own.paired(peer, figure);
        ratio(&own, &theirs)
    };
    let mut parts = Vec::new();
    parts.extend(
        compared(|round| round.cpu_us_per_request)
            .map(|ratio| format!("{} the CPU per request", times(&ratio))),
    );
    parts.extend(compared(|round| round.memory_mib).map(|ratio| format!("{} the memory", times(&ratio))));
    parts.extend(compared(|round| round.p99_ms).map(|ratio| format!("{} the p99", times(&ratio))));
    (!parts.is_empty())
        .then(|| format!("`{}` compared with `{}`: {}.", own.scenario, peer.scenario, parts.join(", ")))
}

/// Describes the correlation between added time and provider time: one sentence for each scenario, listing
/// the percentiles with a clear slope, or all if none has one.
fn correlation(slopes: &[SlopeSummary]) -> Vec<String> {
    let mut scenarios: Vec<&str> = slopes.iter().map(|slope| slope.scenario.as_str()).collect();
    scenarios.dedup();
    scenarios
        .into_iter()
        .filter_map(|scenario| {
            let own: Vec<&SlopeSummary> = slopes.iter().filter(|slope| slope.scenario == scenario).collect();
            let growing: Vec<&&SlopeSummary> =
                own.iter().filter(|slope| slope.ms_per_s.is_firm() && slope.ms_per_s.excludes(0.0)).collect();
            let spread = own.iter().map(|slope| slope.spread_ms).reduce(f64::max)?;
            let text = |slope: &SlopeSummary| format!("p{} {}", slope.percentile, signed_ms(&slope.ms_per_s));
            let list = |slopes: &[&SlopeSummary]| {
                slopes.iter().map(|slope| text(slope)).collect::<Vec<_>>().join(", ")
            };
            let spread = format!("the cases differ by at most {} ms", places(spread, spread));
            let firm = own.iter().all(|slope| slope.ms_per_s.is_firm());
            Some(if growing.is_empty() && firm {
                format!("`{scenario}`: no correlation with provider time (per second of it: {}); {spread}.", list(&own))
            } else if growing.is_empty() {
                format!(
                    "`{scenario}`: too few rounds to detect a correlation with provider time (per second of it: {}); {spread}.",
                    list(&own)
                )
            } else {
                let growing: Vec<&SlopeSummary> = growing.into_iter().copied().collect();
                format!("`{scenario}` is correlated with provider time (per second of it: {}); {spread}.", list(&growing))
            })
        })
        .collect()
}

/// Names the highest offered rate at which each scenario's p99 stays near its p99 at the lowest rate.
fn sustained_rates(summary: &Summary) -> Vec<String> {
    let cases: Vec<&CaseSummary> = summary.by_rate().into_iter().map(|(_, case)| case).collect();
    if cases.len() < 3 {
        return Vec::new();
    }
    let names = cases[0].scenarios.iter().map(|scenario| scenario.scenario.as_str());
    names.filter_map(|name| sustained_rate(&cases, name)).collect()
}

fn sustained_rate(cases: &[&CaseSummary], name: &str) -> Option<String> {
    let least = cases.first()?.scenario(name)?.response_ms.get(99)?.value;
    let carried = cases.iter().take_while(|case| {
        let (Some(scenario), Some(offered)) = (case.scenario(name), case.offered_per_second) else {
            return false;
        };
        let near = scenario.response_ms.get(99).is_some_and(|p99| p99.value <= SATURATION_FACTOR * least);
        near && scenario.requests_per_second.value >= CARRIED_SHARE * f64::from(offered)
    });
    let rate = carried.last()?.offered_per_second?;
    let end = cases.last()?.offered_per_second? == rate;
    let word = if end { "and no knee was reached" } else { "and the next rate is beyond its knee" };
    Some(format!(
        "`{name}` sustains {rate} requests/s with p99 within {SATURATION_FACTOR} × that of the lowest rate, {word}."
    ))
}

/// Lists the reasons to doubt the figures.
pub(crate) fn doubts(summary: &Summary, results: &Results) -> Vec<String> {
    let metadata = &results.metadata;
    let mut doubts = Vec::new();
    if !summary.whole {
        doubts.push(format!(
            "Incomplete: {} of {} turns were run.",
            results.turns.len(),
            results.turns_planned()
        ));
    }
    let rounds = usize::try_from(metadata.experiment.rounds).unwrap_or(usize::MAX);
    if rounds < ROUNDS_FOR_VERDICT {
        doubts.push(format!("Fewer than {ROUNDS_FOR_VERDICT} rounds: no interval reaches 90 % confidence."));
    }
    if metadata.quick {
        doubts.push("Quick profile: suitable for a first look, not for conclusions.".into());
    }
    if metadata.machine_was_busy() {
        let load = metadata.load_average_highest();
        doubts.push(format!(
            "The machine was busy before the run: load average {load} on {} cores.",
            metadata.machine.cores
        ));
    }
    if metadata.pinned.is_empty() {
        doubts.push("Only one core: proxy, provider and client shared it.".into());
    }
    for case in summary.cases.iter().filter(|_| !summary.failures_expected) {
        for scenario in case.scenarios.iter().filter(|scenario| scenario.failed > 0) {
            let (failed, requests) = (scenario.failed, scenario.requests);
            doubts.push(format!(
                "{}, `{}`: {failed} of {requests} requests failed.",
                case.case, scenario.scenario
            ));
        }
    }
    if results.turns.iter().any(|turn| turn.figures.client_saturated == Some(true)) {
        doubts.push("The client was the bottleneck in some turns.".into());
    }
    doubts
        .extend(metadata.left_out.iter().map(|(scenario, why)| format!("`{scenario}` was left out: {why}.")));
    doubts
}

//! The conclusion of a report in one or two sentences, above its details.

use egret_measure::statistics::Estimate;

use super::bounded_figure::BoundedFigure;
use super::case_summary::{ProxyKind, ScenarioSummary};
use super::format::places;
use super::summary::Summary;

/// The percentile that the conclusion names.
const PERCENT: usize = 99;

/// Returns the conclusion. An experiment with bounds is about them; every other one is about the response
/// time that Egret adds, or the proxies if it has no Egret.
pub(super) fn headline(summary: &Summary) -> String {
    if !summary.held.is_empty() {
        return of_bounds(&summary.held);
    }
    let added: Vec<Added<'_>> = added(summary);
    if added.is_empty() {
        return "No scenario can be compared with another.".into();
    }
    if !added.iter().all(|added| added.estimate.is_firm()) {
        return "A first look: too few rounds for a conclusion.".into();
    }
    of_added(&summary.baseline, &added)
}

/// The time that a scenario adds in a case.
struct Added<'a> {
    case: &'a str,
    scenario: &'a str,
    estimate: Estimate,
}

/// The times that all scenarios with Egret add, or all scenarios if there is none.
fn added(summary: &Summary) -> Vec<Added<'_>> {
    let mut all = summary.cases.iter().flat_map(|case| &case.scenarios);
    let has_egret = all.any(|scenario| scenario.kind == ProxyKind::Egret);
    let is_meant = |scenario: &&ScenarioSummary| {
        scenario.scenario != summary.baseline && (!has_egret || scenario.kind == ProxyKind::Egret)
    };
    let each = summary.cases.iter().flat_map(|case| {
        let scenarios = case.scenarios.iter().filter(is_meant);
        scenarios.filter_map(move |scenario| {
            let estimate = *scenario.added_ms.get(PERCENT)?;
            Some(Added { case: &case.case, scenario: &scenario.scenario, estimate })
        })
    });
    each.collect()
}

fn of_added(baseline: &str, added: &[Added<'_>]) -> String {
    let sure = added.iter().filter(|added| added.estimate.excludes(0.0));
    let of = |added: &Added<'_>| added.estimate.value;
    let max = sure.clone().max_by(|one, other| of(one).total_cmp(&of(other)));
    let Some(max) = max else {
        return format!("No difference from {baseline} could be measured at p{PERCENT}.");
    };
    let names: std::collections::BTreeSet<&str> = added.iter().map(|added| added.scenario).collect();
    let several_cases = added.iter().any(|other| other.case != added[0].case);
    let place = match (names.len() > 1, several_cases) {
        (true, true) => format!(" (`{}`, {})", max.scenario, max.case),
        (true, false) => format!(" (`{}`)", max.scenario),
        (false, true) => format!(" ({})", max.case),
        (false, false) => String::new(),
    };
    let ms = places(max.estimate.value.abs(), max.estimate.margin());
    match (max.estimate.value > 0.0, added.len() > 1) {
        (true, true) => format!("At most {ms} ms are added to {baseline} at p{PERCENT}{place}."),
        (true, false) => format!("`{}` adds {ms} ms to {baseline} at p{PERCENT}.", max.scenario),
        // Every difference that is sure is negative.
        (false, _) => {
            format!(
                "Nothing is added to {baseline} at p{PERCENT}: kept connections to the provider save time."
            )
        }
    }
}

fn of_bounds(held: &[BoundedFigure]) -> String {
    let broken: Vec<&BoundedFigure> = held.iter().filter(|held| !held.holds()).collect();
    let unsure = held.iter().filter(|held| !held.is_sure()).count();
    let rest = match unsure {
        0 => String::new(),
        _ if unsure == held.len() => " The rounds are too few to be sure.".into(),
        _ => format!(" {unsure} of these verdicts {} unsure.", if unsure == 1 { "is" } else { "are" }),
    };
    match broken[..] {
        [] if held.len() == 1 => format!("The figure is within its bound.{rest}"),
        [] => format!("All {} figures are within their bounds.{rest}", held.len()),
        [only] => {
            let BoundedFigure { case, scenario, figure, .. } = only;
            format!(
                "1 of {} figures is beyond its bound: {figure} of `{scenario}` in `{case}`.{rest}",
                held.len()
            )
        }
        _ => format!("{} of {} figures are beyond their bounds.{rest}", broken.len(), held.len()),
    }
}

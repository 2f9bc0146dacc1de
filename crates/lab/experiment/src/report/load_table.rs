//! The table of an experiment: the cost at full load, and the response times at a fixed rate.

use egret_measure::statistics::{Estimate, ratio};

use super::case_summary::{CaseSummary, ProxyKind, ScenarioSummary};
use super::format::thousands;
use super::summary::Summary;
use super::text_table::TextTable;
use crate::config::TableConfig;

/// Cell text for a missing figure.
const NONE: &str = "–";

/// Builds the table. Returns `None` if the case at full load was not run.
pub(crate) fn build(config: &TableConfig, summary: &Summary) -> Option<TextTable> {
    let loaded = summary.case(&config.loaded)?;
    let at_rate = summary.case(&config.at_rate);
    let own = loaded.scenarios.iter().find(|scenario| scenario.kind == ProxyKind::Egret);
    let rate = at_rate.and_then(|case| case.offered_per_second);
    let at = rate.map_or_else(|| "at rate".to_owned(), |rate| format!("at {rate}/s"));
    let beside = own.map_or(NONE, |own| &own.scenario);
    let head = [
        "proxy".to_owned(),
        "CPU µs/request".to_owned(),
        format!("{beside} ÷ it"),
        "requests/s".to_owned(),
        "p50 µs".to_owned(),
        "p99 µs".to_owned(),
        format!("p50 µs {at}"),
        format!("p99 µs {at}"),
        "memory MiB".to_owned(),
    ];
    let rows = loaded.scenarios.iter().map(|scenario| row(scenario, own, at_rate).into());
    Some(TextTable { title: config.title.clone(), head: head.into(), rows: rows.collect() })
}

fn row(
    scenario: &ScenarioSummary,
    own: Option<&ScenarioSummary>,
    at_rate: Option<&CaseSummary>,
) -> [String; 9] {
    let cost = |figure: Option<&Estimate>| {
        figure.map_or_else(|| NONE.to_owned(), |figure| format!("{:.1}", figure.value))
    };
    let time = |scenario: Option<&ScenarioSummary>, percent: usize| {
        let figure = scenario.and_then(|scenario| scenario.response_ms.get(percent));
        figure.map_or_else(|| NONE.to_owned(), |figure| thousands(figure.value * 1e3))
    };
    let calm = at_rate.and_then(|case| case.scenario(&scenario.scenario));
    let compared = own.filter(|own| own.scenario != scenario.scenario).and_then(|own| {
        let (own, theirs) = own.paired(scenario, |round| round.cpu_us_per_request);
        ratio(&own, &theirs)
    });
    let compared = compared.map_or_else(
        || NONE.to_owned(),
        |Estimate { value, low, high, .. }| format!("{value:.2} ({low:.2}–{high:.2})"),
    );
    [
        scenario.scenario.clone(),
        cost(scenario.cpu_us_per_request.as_ref()),
        compared,
        thousands(scenario.requests_per_second.value),
        time(Some(scenario), 50),
        time(Some(scenario), 99),
        time(calm, 50),
        time(calm, 99),
        cost(scenario.memory_mib.as_ref()),
    ]
}

//! Markdown table that compares scenarios on the same work at full load and at a fixed rate, side by side.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::summary::{CaseSummary, Kind, ScenarioSummary, Summary};
use super::svg::thousands;
use crate::experiment::TableConfig;
use crate::statistics::{Estimate, ratio};

/// Cell text for a missing figure.
const NONE: &str = "–";

/// A table of texts, ready to print.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Table {
    /// Title of the table.
    pub title: String,
    /// Column headings.
    pub head: Vec<String>,
    /// One row per scenario.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Builds the table. Returns `None` if the case at full load was not run.
    pub(super) fn of(config: &TableConfig, summary: &Summary) -> Option<Self> {
        let loaded = summary.case(&config.loaded)?;
        let at_rate = summary.case(&config.at_rate);
        let own = loaded.scenarios.iter().find(|scenario| scenario.kind == Kind::Egret);
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
        Some(Self { title: config.title.clone(), head: head.into(), rows: rows.collect() })
    }
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

/// Writes the title, and the table as Markdown with aligned columns.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = || std::iter::once(&self.head).chain(&self.rows);
        let width = |column: usize| all().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        writeln!(f, "{}\n", self.title)?;
        for (index, row) in all().enumerate() {
            for (cell, width) in row.iter().zip(&widths) {
                write!(f, "| {cell:<width$} ")?;
            }
            writeln!(f, "|")?;
            if index == 0 {
                let rules = widths.iter().map(|width| format!("| {} ", "-".repeat(*width)));
                writeln!(f, "{}|", rules.collect::<String>())?;
            }
        }
        Ok(())
    }
}

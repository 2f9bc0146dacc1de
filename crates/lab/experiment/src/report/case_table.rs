//! A table of an experiment with some figures of some cases: a row for each scenario.

use egret_measure::statistics::estimate;

use super::bounded_figure::value;
use super::text_table::TextTable;
use crate::config::TableConfig;
use crate::results::Results;

/// Cell text for a missing figure.
const NONE: &str = "–";

/// Builds the table from the medians over the rounds. Returns `None` if none of its cases was run.
pub(crate) fn build(config: &TableConfig, results: &Results) -> Option<TextTable> {
    let was_run = |case: &&String| results.turns.iter().any(|turn| turn.case == **case);
    let cases: Vec<&String> = config.cases.iter().filter(was_run).collect();
    let columns: Vec<_> =
        config.figures.iter().flat_map(|figure| cases.iter().map(move |case| (*figure, *case))).collect();
    let cell = |scenario: &str, (figure, case): &(_, &String)| {
        let turns = results.turns.iter().filter(|turn| turn.case == **case && turn.scenario == scenario);
        let values: Vec<f64> = turns.filter_map(|turn| value(turn, *figure)).collect();
        estimate(&values).map_or_else(|| NONE.to_owned(), |median| figure.text(median.value))
    };
    let rows = results.metadata.experiment.scenarios.iter().filter_map(|scenario| {
        let cells: Vec<String> = columns.iter().map(|column| cell(&scenario.name, column)).collect();
        let is_shown = cells.iter().any(|cell| cell != NONE);
        is_shown.then(|| [scenario.name.clone()].into_iter().chain(cells).collect())
    });
    let head = columns.iter().map(|(figure, case)| format!("{figure}, {case}"));
    let head = ["proxy".to_owned()].into_iter().chain(head).collect();
    (!cases.is_empty()).then(|| TextTable { title: config.title.clone(), head, rows: rows.collect() })
}

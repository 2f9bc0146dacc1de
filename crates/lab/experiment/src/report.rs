//! The report on a results folder: a summary in figures and words, charts, and one page that contains them
//! all.

mod added_table;
mod bars;
mod bounded_figure;
mod case_summary;
mod case_table;
mod chart_parts;
mod compare;
mod evaluation;
mod format;
mod headline;
mod lines;
mod load_table;
mod over_time;
mod page;
mod provider_time;
mod slopes;
mod summary;
mod svg;
mod text_table;
mod turns;
mod verdict;

use std::path::Path;

use crate::results::{Results, ResultsError, make_directory, write_json, write_whole};

pub use bounded_figure::BoundedFigure;
pub use compare::{Comparison, Difference, compare};
pub use over_time::{OverTime, over_time};
pub use summary::Summary;
pub use text_table::TextTable;

/// Writes the report into a results folder.
///
/// It consists of `report.html`, which is self-contained; every chart as a file in `charts/`; the percentiles
/// of each scenario in `percentiles/`, in ab's format; every turn in `turns.csv`; and the figures in
/// `summary.json`.
pub fn report(results: &Results) -> Result<Summary, ResultsError> {
    let summary = Summary::of(results);
    let sections = page::sections(&summary);
    write_percentiles(&summary, &results.directory.join("percentiles"))?;
    let directory = results.directory.join("charts");
    make_directory(&directory)?;
    for chart in sections.iter().flat_map(|section| &section.charts) {
        write_whole(&directory.join(format!("{}.svg", chart.name)), &chart.file())?;
    }
    for (name, overview) in page::overviews(&summary, &results.metadata.experiment.tables) {
        write_whole(&directory.join(format!("{name}.svg")), &overview)?;
    }
    write_whole(&results.directory.join("turns.csv"), &turns::csv(results))?;
    write_json(&results.directory.join("summary.json"), &summary)?;
    write_whole(&results.directory.join("report.html"), &page::page(results, &summary, &sections))?;
    Ok(summary)
}

fn write_percentiles(summary: &Summary, directory: &Path) -> Result<(), ResultsError> {
    make_directory(directory)?;
    for case in &summary.cases {
        for scenario in case.scenarios.iter().filter(|scenario| !scenario.response_ms.is_empty()) {
            let file = directory.join(format!("{}-{}.csv", case.case, scenario.scenario));
            write_whole(&file, &scenario.percentiles_csv())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

//! The table of what each scenario adds to the baseline at the percentiles of the verdict, for the terminal.

use egret_measure::statistics::Estimate;

use super::format::signed_ms;
use super::summary::Summary;
use super::text_table::TextTable;
use super::verdict::VERDICT_PERCENTILES;

impl Summary {
    /// The table of added times, with a row for each scenario of each case. `None` if the client reports no
    /// times.
    pub fn added(&self) -> Option<TextTable> {
        let several = self.cases.len() > 1;
        let cell = |estimate: Option<&Estimate>| {
            estimate.map_or_else(|| "–".into(), |estimate| signed_ms(estimate).replacen(" ms", "", 1))
        };
        let mut rows = Vec::new();
        for case in &self.cases {
            for scenario in case.scenarios.iter().filter(|scenario| !scenario.added_ms.is_empty()) {
                let mut row = if several { vec![case.case.clone()] } else { Vec::new() };
                row.push(scenario.scenario.clone());
                row.extend(VERDICT_PERCENTILES.map(|percent| cell(scenario.added_ms.get(percent))));
                rows.push(row);
            }
        }
        let mut head = if several { vec!["case".to_owned()] } else { Vec::new() };
        head.push("scenario".into());
        head.extend(VERDICT_PERCENTILES.map(|percent| format!("p{percent}, ms")));
        let title = format!("Added to {}", self.baseline);
        (!rows.is_empty()).then_some(TextTable { title, head, rows })
    }
}

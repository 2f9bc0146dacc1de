//! The file of percentiles in the format of ab's `-e`.

use std::path::Path;

use super::output_error::OutputError;

/// Name of the file for percentiles in the format of ab's `-e`.
pub(crate) const PERCENTILES_CSV: &str = "percentiles.csv";

/// Parses a percentile CSV as ab writes it: a heading, then the rows 0 to 100.
pub(crate) fn percentiles(directory: &Path) -> Result<Vec<f64>, OutputError> {
    let text = std::fs::read_to_string(directory.join(PERCENTILES_CSV)).map_err(OutputError::Percentiles)?;
    parse_percentiles(&text).ok_or(OutputError::PercentileRows)
}

fn parse_percentiles(text: &str) -> Option<Vec<f64>> {
    let rows = text.lines().skip(1).map(|line| {
        let (percent, time) = line.split_once(',')?;
        Some((percent.trim().parse::<usize>().ok()?, time.trim().parse::<f64>().ok()?))
    });
    let rows: Vec<(usize, f64)> = rows.collect::<Option<_>>()?;
    let whole = rows.len() == 101 && rows.iter().enumerate().all(|(index, (percent, _))| index == *percent);
    whole.then(|| rows.into_iter().map(|(_, time)| time).collect())
}

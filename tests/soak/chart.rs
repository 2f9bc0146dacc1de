//! The charts of a run.

use egret_experiment::report::{OverTime, over_time};

use super::figures::Sample;

/// A figure of a sample.
type Figure = fn(&Sample) -> f64;

#[expect(clippy::cast_precision_loss, reason = "a chart shows three digits")]
const CHARTS: [(&str, &str, &[(&str, Figure)]); 4] = [
    ("Memory", "resident, without files, MiB", &[("Egret", |sample| (sample.memory >> 10) as f64 / 1024.0)]),
    (
        "Descriptors and threads",
        "number",
        &[("descriptors", |sample| sample.descriptors as f64), ("threads", |sample| sample.threads as f64)],
    ),
    (
        "Median time of a call",
        "ms",
        &[
            ("through Egret", |sample| sample.through.p50 as f64 / 1000.0),
            ("to the provider itself", |sample| sample.direct.p50 as f64 / 1000.0),
        ],
    ),
    (
        "99th percentile of a call",
        "ms",
        &[
            ("through Egret", |sample| sample.through.p99 as f64 / 1000.0),
            ("to the provider itself", |sample| sample.direct.p99 as f64 / 1000.0),
        ],
    ),
];

/// Draws the samples into one SVG file.
pub(crate) fn svg(samples: &[Sample], note: &str) -> String {
    let charts = CHARTS.map(|(title, unit, lines)| {
        let line = |(name, figure): &(&str, Figure)| {
            ((*name).to_owned(), samples.iter().map(|sample| (sample.at / 60.0, figure(sample))).collect())
        };
        OverTime {
            title: title.to_owned(),
            note: note.to_owned(),
            unit: unit.to_owned(),
            lines: lines.iter().map(line).collect(),
        }
    });
    over_time(&charts)
}

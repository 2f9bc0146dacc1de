//! Parts that the line charts of a report share: axes, points, and the note on their intervals.

use egret_measure::statistics::Estimate;

use super::lines::{Axis, ChartLine, Point};
use super::svg::Scale;

/// Highest percentile drawn. Beyond it a turn has too few samples.
const PERCENTILE_MAX: f64 = 99.0;

/// Explanation of the bands or whiskers of a chart.
pub(crate) fn note(estimates: Option<&Estimate>, rounds: usize, what: &str) -> String {
    match estimates {
        Some(estimate) if rounds > 1 => {
            format!("median of {rounds} rounds; {what}: {:.0} % confidence", estimate.confidence * 100.0)
        }
        _ => "one round".into(),
    }
}

/// The points of a line over the percentiles.
pub(crate) fn percentile_points(estimates: &[Estimate]) -> Vec<Point> {
    let percents = (0..=99_u8).map(f64::from);
    percents.zip(estimates).map(|(x, estimate)| point(x, estimate)).collect()
}

/// The point of an estimate.
pub(crate) fn point(x: f64, estimate: &Estimate) -> Point {
    Point { x, y: estimate.value, low: estimate.low, high: estimate.high }
}

/// The axis of percentiles.
pub(crate) fn percentile_axis() -> Axis {
    Axis { label: "share of requests completed, %".into(), scale: Scale::Tail(PERCENTILE_MAX) }
}

/// Creates an axis that fits all lines with their bounds, and the values in `with`.
pub(crate) fn fitted(label: &str, lines: &[ChartLine], with: &[f64]) -> Axis {
    let points = lines.iter().flat_map(|line| &line.points);
    let values = points.flat_map(|point| [point.y, point.low, point.high]).chain(with.iter().copied());
    Axis { label: label.into(), scale: Scale::around(values) }
}

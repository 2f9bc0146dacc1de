//! Charts of figures over the time of a run.

use super::lines::{Axis, ChartLine, LineChart, Point};
use super::svg::{SERIES, Scale, abreast};

/// Figures with the same unit over time.
#[derive(Debug, Clone)]
pub struct OverTime {
    /// Title of the chart.
    pub title: String,
    /// Explanation shown below the title.
    pub note: String,
    /// Unit of the figures, with their name: `resident memory, MiB`.
    pub unit: String,
    /// Figures by name: the time in minutes and the value, in order.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

impl OverTime {
    fn chart(&self) -> LineChart {
        let point = |(x, y): &(f64, f64)| Point { x: *x, y: *y, low: *y, high: *y };
        let line = |at: usize, name: &str, points: &[(f64, f64)]| ChartLine {
            name: name.to_owned(),
            class: format!("s{}", at % SERIES),
            points: points.iter().map(point).collect(),
        };
        let points = || self.lines.iter().flat_map(|(_, points)| points);
        LineChart {
            name: self.title.clone(),
            title: self.title.clone(),
            note: self.note.clone(),
            x: Axis { label: "minutes".into(), scale: Scale::around(points().map(|point| point.0)) },
            y: Axis {
                label: self.unit.clone(),
                scale: Scale::around(points().map(|point| point.1).chain([0.0])),
            },
            lines: self.lines.iter().enumerate().map(|(at, (name, points))| line(at, name, points)).collect(),
            marked: false,
            zero: None,
        }
    }
}

/// Draws charts into one SVG file, two per row. The vertical axes begin at zero.
pub fn over_time(charts: &[OverTime]) -> String {
    abreast(&charts.iter().map(|chart| chart.chart().draw()).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_has_a_line_from_zero() {
        let lines =
            vec![("a".to_owned(), vec![(0.0, 20.0), (1.0, 40.0)]), ("b".to_owned(), vec![(0.0, 30.0)])];
        let chart = OverTime { title: "Memory".into(), note: "of a run".into(), unit: "MiB".into(), lines };
        let svg = over_time(&[chart.clone(), chart]);
        assert_eq!(
            (svg.matches("data-name=\"a\"").count(), svg.matches("aria-label=\"Memory\"").count()),
            (4, 2)
        );
        assert_eq!(svg.matches(">0<").count(), 2, "the vertical axes begin at zero");
    }
}

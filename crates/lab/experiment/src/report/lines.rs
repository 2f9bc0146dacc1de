//! Line charts: one line per series, with a band or whiskers for the confidence interval, axes with units,
//! and a legend.

use std::fmt::Write;

use super::svg::{At, Chart, Drawing, Scale, WIDTH, escape, tick_text};

const HEIGHT: f64 = 400.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 20.0;
const BOTTOM: f64 = 56.0;

/// Height of the title and its note. The legend's rows follow below.
const HEADER: f64 = 60.0;
const LEGEND_ROW: f64 = 20.0;

/// Approximate width of a letter in the legend. Text cannot be measured here.
const LETTER: f64 = 7.2;

/// Distance between whiskers at the same position.
const DODGE: f64 = 5.0;

/// A series of a chart.
#[derive(Debug, Clone)]
pub(crate) struct ChartLine {
    /// Name in the legend.
    pub name: String,
    /// CSS class of the colour: `base` or `s0` to `s7`, optionally with `dashed`.
    pub class: String,
    /// Points in ascending order of `x`.
    pub points: Vec<Point>,
}

/// A value and its bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    /// Position on the horizontal axis.
    pub x: f64,
    /// The value.
    pub y: f64,
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
}

/// An axis of a chart.
#[derive(Debug, Clone)]
pub(crate) struct Axis {
    /// Label with the unit.
    pub label: String,
    /// Placement of values along the axis.
    pub scale: Scale,
}

/// A line chart.
#[derive(Debug, Clone)]
pub(crate) struct LineChart {
    /// File name of the chart, without the extension.
    pub name: String,
    /// Title of the chart.
    pub title: String,
    /// Explanation shown below the title.
    pub note: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// The series of the chart.
    pub lines: Vec<ChartLine>,
    /// Marks each point with a whisker instead of joining the bounds to a band; for few points.
    pub marked: bool,
    /// Name of the line at zero, if there is one: the baseline.
    pub zero: Option<String>,
}

impl LineChart {
    /// Draws the chart.
    pub fn draw(&self) -> Chart {
        let mut drawing = Drawing::new(&self.title, &self.note, HEIGHT);
        let top = HEADER + self.legend(&mut drawing);
        let frame = Frame { chart: self, top };
        frame.axes(&mut drawing);
        for (index, line) in self.lines.iter().enumerate() {
            frame.line(line, self.dodge(index), &mut drawing);
        }
        drawing.finish(&self.name, &self.title, HEIGHT)
    }

    /// Horizontal offset of a line, which separates whiskers at the same position.
    fn dodge(&self, index: usize) -> f64 {
        let place = |index: usize| f64::from(u8::try_from(index).unwrap_or(u8::MAX));
        let middle = place(self.lines.len().saturating_sub(1)) / 2.0;
        if self.marked { (place(index) - middle) * DODGE } else { 0.0 }
    }

    /// Draws the legend and returns its height.
    fn legend(&self, drawing: &mut Drawing) -> f64 {
        let zero = self.zero.iter().map(|name| (name.as_str(), "base"));
        let lines = self.lines.iter().map(|line| (line.name.as_str(), line.class.as_str()));
        let (mut x, mut y) = (LEFT, HEADER + 8.0);
        drawing.open("legend", "legend");
        for (name, class) in zero.chain(lines) {
            let width = 44.0 + LETTER * f64::from(u16::try_from(name.chars().count()).unwrap_or(u16::MAX));
            if x + width > WIDTH - RIGHT && x > LEFT {
                (x, y) = (LEFT, y + LEGEND_ROW);
            }
            drawing.open(&format!("entry {class}"), name);
            drawing.line("swatch", At(x, y - 4.0), At(x + 22.0, y - 4.0));
            drawing.text("label", At(x + 28.0, y), "start", name);
            drawing.close();
            x += width;
        }
        drawing.close();
        y - HEADER + LEGEND_ROW / 2.0
    }
}

/// The area in which values are drawn.
struct Frame<'a> {
    chart: &'a LineChart,
    top: f64,
}

impl Frame<'_> {
    fn x(&self, value: f64) -> f64 {
        LEFT + self.chart.x.scale.place(value) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let bottom = HEIGHT - BOTTOM;
        bottom - self.chart.y.scale.place(value) * (bottom - self.top)
    }

    fn axes(&self, drawing: &mut Drawing) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let ticks = self.chart.y.scale.ticks();
        drawing.open("axis y", &self.chart.y.label);
        for tick in &ticks {
            let y = self.y(*tick);
            drawing.open("tick", "");
            drawing.line("rule", At(LEFT, y), At(right, y));
            drawing.text("", At(LEFT - 8.0, y + 4.0), "end", &tick_text(*tick, &ticks));
            drawing.close();
        }
        drawing.add(format_args!(
            "<text class=\"name\" transform=\"translate(18 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            f64::midpoint(self.top, bottom),
            escape(&self.chart.y.label)
        ));
        drawing.close();
        let ticks = self.chart.x.scale.ticks();
        drawing.open("axis x", &self.chart.x.label);
        drawing.line("edge", At(LEFT, bottom), At(right, bottom));
        for tick in &ticks {
            let x = self.x(*tick);
            drawing.open("tick", "");
            drawing.line("edge", At(x, bottom), At(x, bottom + 5.0));
            drawing.text("", At(x, bottom + 19.0), "middle", &tick_text(*tick, &ticks));
            drawing.close();
        }
        drawing.text("name", At(f64::midpoint(LEFT, right), HEIGHT - 16.0), "middle", &self.chart.x.label);
        drawing.close();
        if let Some(name) = &self.chart.zero {
            let y = self.y(0.0);
            drawing.open("baseline", name);
            drawing.line("zero", At(LEFT, y), At(right, y));
            drawing.close();
        }
    }

    fn line(&self, line: &ChartLine, dodge: f64, drawing: &mut Drawing) {
        let inside: Vec<Point> = line.points.iter().copied().filter(|point| self.holds(point)).collect();
        drawing.add(format_args!(
            "<g class=\"line {}\" data-name=\"{}\" transform=\"translate({dodge:.1} 0)\">",
            line.class,
            escape(&line.name)
        ));
        if !self.chart.marked {
            let upper = inside.iter().map(|point| (point.x, point.high));
            let lower = inside.iter().rev().map(|point| (point.x, point.low));
            let around = self.joined(upper.chain(lower), " ");
            drawing.add(format_args!("<polygon points=\"{around}\"/>"));
        }
        let path = self.joined(inside.iter().map(|point| (point.x, point.y)), " L");
        drawing.add(format_args!("<path d=\"M{path}\"/>"));
        if self.chart.marked {
            for point in &inside {
                let x = self.x(point.x);
                drawing.line("whisker", At(x, self.y(point.low)), At(x, self.y(point.high)));
                drawing.add(format_args!("<circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"3.5\"/>", self.y(point.y)));
            }
        }
        drawing.close();
    }

    fn holds(&self, point: &Point) -> bool {
        let place = self.chart.x.scale.place(point.x);
        (-1e-9..=1.0 + 1e-9).contains(&place)
    }

    fn joined(&self, points: impl Iterator<Item = (f64, f64)>, separator: &str) -> String {
        let mut text = String::new();
        for (x, y) in points {
            let separator = if text.is_empty() { "" } else { separator };
            let _ = write!(text, "{separator}{:.1},{:.1}", self.x(x), self.y(y));
        }
        text
    }
}

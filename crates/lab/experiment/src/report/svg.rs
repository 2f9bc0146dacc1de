//! A small SVG writer: elements, scales with round ticks, and one style for light and dark backgrounds.

use std::fmt::{Display, Write};

use super::format::thousands;

/// Width of every chart, in the units of its view box.
pub(crate) const WIDTH: f64 = 640.0;

/// Number of series colours: teal, orange, violet, green, pink, ochre, blue, slate. The first is for the main
/// series.
pub(crate) const SERIES: usize = 8;

/// Style of charts, standalone or in a page. Colours are variables, so the dark theme changes them in one
/// place.
pub(crate) const STYLE: &str = include_str!("svg/chart.css");

/// A finished chart.
#[derive(Debug, Clone)]
pub(crate) struct Chart {
    /// File name of the chart, without the extension.
    pub name: String,
    /// Title of the chart.
    pub title: String,
    /// SVG elements of the chart.
    body: String,
    height: f64,
}

impl Chart {
    /// The SVG element for a page that already has the style.
    pub fn inline(&self) -> String {
        self.element("")
    }

    /// The content of a standalone file.
    pub fn file(&self) -> String {
        self.element(&format!("<style>{STYLE}</style>\n")) + "\n"
    }

    fn element(&self, style: &str) -> String {
        let Self { name, title, body, height } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" data-name=\"{}\" role=\"img\" aria-label=\"{}\" \
             viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\">\n{style}{body}</svg>",
            escape(name),
            escape(title),
        )
    }
}

/// Combines charts into one file, two per row.
pub(crate) fn abreast(charts: &[Chart]) -> String {
    let lines = charts.chunks(2);
    let tallest = |line: &[Chart]| line.iter().map(|chart| chart.height).fold(0.0, f64::max);
    let (width, height) = (2.0 * WIDTH, lines.clone().map(tallest).sum::<f64>());
    let mut file = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" role=\"img\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\">\n<style>{STYLE}</style>\n\
         <rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>\n"
    );
    let mut y = 0.0;
    for line in lines {
        for (x, chart) in [0.0, WIDTH].into_iter().zip(line) {
            let _ = writeln!(file, "<g transform=\"translate({x} {y})\">{}</g>", chart.inline());
        }
        y += tallest(line);
    }
    file + "</svg>\n"
}

/// A position in a chart: distance from the left, and from the top.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct At(pub f64, pub f64);

/// A chart being drawn.
#[derive(Debug, Default)]
pub(crate) struct Drawing(String);

impl Drawing {
    /// Starts a drawing with a background, a title, and a note below it.
    pub fn new(title: &str, note: &str, height: f64) -> Self {
        let mut drawing = Self::default();
        drawing.add(format_args!("<rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\"/>"));
        drawing.text("title", At(16.0, 26.0), "start", title);
        drawing.text("note", At(16.0, 45.0), "start", note);
        drawing
    }

    /// Adds an element verbatim.
    pub fn add(&mut self, element: impl Display) {
        let _ = writeln!(self.0, "{element}");
    }

    /// Adds a text; `anchor` is `start`, `middle` or `end`.
    pub fn text(&mut self, class: &str, at: At, anchor: &str, text: &str) {
        let At(x, y) = at;
        self.add(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            escape(text)
        ));
    }

    /// Adds a straight line.
    pub fn line(&mut self, class: &str, from: At, to: At) {
        let (At(x1, y1), At(x2, y2)) = (from, to);
        self.add(format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }

    /// Opens a group.
    pub fn open(&mut self, class: &str, name: &str) {
        self.add(format_args!("<g class=\"{class}\" data-name=\"{}\">", escape(name)));
    }

    /// Closes the innermost open group.
    pub fn close(&mut self) {
        self.add("</g>");
    }

    /// Finishes the chart.
    pub fn finish(self, name: impl Into<String>, title: impl Into<String>, height: f64) -> Chart {
        Chart { name: name.into(), title: title.into(), body: self.0, height }
    }
}

/// Escapes text for SVG and HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Placement of values along an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scale {
    /// Linear, from the first value to the second.
    Linear(f64, f64),
    /// Logarithmic: equal ratios take equal space.
    Logarithmic(f64, f64),
    /// Percentiles up to this one. Each further nine takes as much space as the range up to the first nine,
    /// so the tail is visible.
    Tail(f64),
}

/// Approximate number of ticks on an axis.
const TICKS: f64 = 6.0;

impl Scale {
    /// Creates a linear scale whose ends are round values just outside the given values.
    pub fn around(values: impl Iterator<Item = f64> + Clone) -> Self {
        let least = values.clone().reduce(f64::min).unwrap_or(0.0);
        let max = values.reduce(f64::max).unwrap_or(1.0);
        let room = if max > least { max - least } else { max.abs().max(1.0) };
        let step = round_step(room / TICKS);
        Self::Linear((least / step).floor() * step, (max / step).ceil() * step)
    }

    /// Position of a value, 0 to 1.
    pub fn place(&self, value: f64) -> f64 {
        match *self {
            Self::Linear(least, max) => (value - least) / (max - least),
            Self::Logarithmic(least, max) => (value / least).ln() / (max / least).ln(),
            Self::Tail(max) => nines(value) / nines(max),
        }
    }

    /// Values of the ticks.
    pub fn ticks(&self) -> Vec<f64> {
        match *self {
            Self::Linear(least, max) => {
                let step = round_step((max - least) / TICKS);
                let first = (least / step - 1e-9).ceil();
                let ticks = std::iter::successors(Some(first), |mark| Some(mark + 1.0));
                ticks.map(|mark| mark * step).take_while(|tick| *tick <= max + step * 1e-9).collect()
            }
            Self::Logarithmic(least, max) => {
                let first = least.log10().floor();
                let decades = std::iter::successors(Some(first), |decade| Some(decade + 1.0))
                    .map(|decade| 10_f64.powf(decade));
                let ticks = decades
                    .take_while(|decade| *decade <= max)
                    .flat_map(|decade| [decade, 2.0 * decade, 5.0 * decade]);
                ticks.filter(|tick| (least * 0.999..=max * 1.001).contains(tick)).collect()
            }
            Self::Tail(max) => [0.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9]
                .into_iter()
                .filter(|tick| *tick <= max)
                .collect(),
        }
    }
}

/// Number of nines of a percentile: 1 for 90, 2 for 99.
fn nines(percentile: f64) -> f64 {
    -(1.0 - percentile / 100.0).log10()
}

/// The smallest of 1, 2, 5 times a power of ten that is at least `step`.
fn round_step(step: f64) -> f64 {
    let decade = 10_f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * decade >= step * 0.999);
    factor.unwrap_or(10.0) * decade
}

/// Formats a tick's value with only as many digits as the distance to the next tick requires.
pub(crate) fn tick_text(value: f64, ticks: &[f64]) -> String {
    // On a logarithmic scale, each tick has the digits that its own value requires.
    let ratios = ticks.len() > 2 && ticks[0] > 0.0 && ticks[2] - ticks[1] > 1.4 * (ticks[1] - ticks[0]);
    let ticks = if ratios { &[0.0, value] } else { ticks };
    let step = ticks.windows(2).map(|pair| (pair[1] - pair[0]).abs()).reduce(f64::min).unwrap_or(1.0);
    let digits = (0..6).find(|digits| {
        let scaled = step * 10_f64.powi(*digits);
        (scaled - scaled.round()).abs() < 1e-6 * scaled.max(1.0)
    });
    let digits = usize::try_from(digits.unwrap_or(6)).unwrap_or(0);
    let value = if value.abs() < step * 1e-6 { 0.0 } else { value };
    if value >= 1_000.0 && digits == 0 {
        thousands(value)
    } else {
        format!("{value:.digits$}").replace('-', "−")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(Scale::around([151.2, 168.9].into_iter()), Scale::Linear(150.0, 170.0));
        assert_eq!(Scale::Linear(150.0, 170.0).ticks(), [150.0, 155.0, 160.0, 165.0, 170.0]);
        assert_eq!(Scale::Logarithmic(1.0, 30.0).ticks(), [1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!(Scale::Tail(99.0).ticks(), [0.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0]);
        let flat = Scale::around([3.0, 3.0].into_iter());
        assert!(flat.ticks().iter().all(|tick| flat.place(*tick).is_finite()));
    }

    #[test]
    fn the_tail_has_as_much_room_for_each_nine() {
        let scale = Scale::Tail(99.0);
        assert_eq!((scale.place(0.0), scale.place(99.0)), (0.0, 1.0));
        assert!((scale.place(90.0) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn texts_have_the_digits_they_need() {
        assert_eq!(tick_text(0.25, &[0.0, 0.25, 0.5]), "0.25");
        assert_eq!(tick_text(-5.0, &[-5.0, 0.0]), "−5");
        assert_eq!(tick_text(0.05, &[0.05, 0.1, 0.2]), "0.05");
        assert_eq!(tick_text(20.0, &[0.05, 0.1, 0.2, 20.0]), "20");
        assert_eq!(tick_text(1_000.0, &[0.0, 500.0, 1_000.0]), "1,000");
        assert_eq!(tick_text(150.0, &[150.0, 155.0]), "150");
        assert_eq!(thousands(1_234_567.0), "1,234,567");
        assert_eq!(escape("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
    }
}

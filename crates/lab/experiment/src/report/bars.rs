//! Bar charts: one bar per scenario, with its value, a whisker for the confidence interval, and an axis with
//! its unit.

use egret_measure::statistics::Estimate;

use super::format::{places, thousands};
use super::svg::{At, Chart, Drawing, Scale, WIDTH, tick_text};

const HEADER: f64 = 64.0;
const ROW: f64 = 30.0;
const BAR: f64 = 16.0;
const BOTTOM: f64 = 56.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 84.0;

/// A bar of a chart.
#[derive(Debug, Clone)]
pub(crate) struct Bar {
    /// The label in front of the bar.
    pub name: String,
    /// CSS class of the colour.
    pub class: String,
    /// The value with its interval.
    pub value: Estimate,
}

/// A bar chart whose bars start at zero, to the left for negative values.
#[derive(Debug, Clone)]
pub(crate) struct BarChart {
    /// File name of the chart, without the extension.
    pub name: String,
    /// Title of the chart.
    pub title: String,
    /// Explanation shown below the title.
    pub note: String,
    /// Label of the axis, with the unit.
    pub label: String,
    /// The bars from top to bottom.
    pub bars: Vec<Bar>,
}

impl BarChart {
    /// Draws the chart.
    pub fn draw(&self) -> Chart {
        let rows = f64::from(u16::try_from(self.bars.len()).unwrap_or(u16::MAX));
        let height = HEADER + rows * ROW + BOTTOM;
        let mut drawing = Drawing::new(&self.title, &self.note, height);
        let max = self.bars.iter().map(|bar| bar.value.high).reduce(f64::max).unwrap_or(1.0);
        let least = self.bars.iter().map(|bar| bar.value.low).reduce(f64::min).unwrap_or(0.0);
        let ends = [least.min(0.0), 0.0, max.max(f64::MIN_POSITIVE)];
        let scale = Scale::around(ends.into_iter());
        let x = |value: f64| LEFT + scale.place(value) * (WIDTH - LEFT - RIGHT);
        self.axis(&mut drawing, scale, x, height);
        for (row, bar) in self.bars.iter().enumerate() {
            let y = HEADER + f64::from(u16::try_from(row).unwrap_or(u16::MAX)) * ROW;
            draw_bar(&mut drawing, bar, y, x);
        }
        drawing.finish(&self.name, &self.title, height)
    }

    fn axis(&self, drawing: &mut Drawing, scale: Scale, x: impl Fn(f64) -> f64, height: f64) {
        let bottom = height - BOTTOM;
        let ticks = scale.ticks();
        drawing.open("axis x", &self.label);
        for tick in &ticks {
            drawing.open("tick", "");
            drawing.line("rule", At(x(*tick), HEADER - 6.0), At(x(*tick), bottom));
            drawing.text("", At(x(*tick), bottom + 18.0), "middle", &tick_text(*tick, &ticks));
            drawing.close();
        }
        if scale.place(0.0) > 0.0 {
            drawing.line("zero", At(x(0.0), HEADER - 6.0), At(x(0.0), bottom));
        }
        drawing.text("name", At(f64::midpoint(LEFT, WIDTH - RIGHT), height - 14.0), "middle", &self.label);
        drawing.close();
    }
}

fn draw_bar(drawing: &mut Drawing, bar: &Bar, y: f64, x: impl Fn(f64) -> f64) {
    let Estimate { value, low, high, .. } = bar.value;
    let (start, middle) = (x(0.0), y + BAR / 2.0);
    drawing.open(&format!("bar {}", bar.class), &bar.name);
    drawing.text("label", At(LEFT - 10.0, middle + 4.5), "end", &bar.name);
    drawing.add(format_args!(
        "<rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR}\" rx=\"2\"/>",
        start.min(x(value)),
        (x(value) - start).abs().max(0.5)
    ));
    drawing.line("whisker", At(x(low), middle), At(x(high), middle));
    let text =
        if value >= 10_000.0 { thousands(value) } else { places(value, value.abs()).replace('-', "−") };
    drawing.text("value", At(x(high).max(start) + 8.0, middle + 4.5), "start", &text);
    drawing.close();
}

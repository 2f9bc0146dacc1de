//! The view of a run in a terminal: rate, percentiles, a histogram, and errors by their cause.

use std::time::Duration;

use egret_measure::live::{LiveBlock, StyledText, TerminalSize};
use egret_measure::streams::Stdout;

use crate::engine::Progress;
use crate::progress_text::{Extent, progress_text};
use crate::snapshot::Snapshot;
use crate::tally::Series;

/// Interval between two pictures.
const PICTURE_EVERY: Duration = Duration::from_millis(500);

/// Time before a picture at which the threads are asked for their counters: two of their checks.
const LEAD: Duration = Duration::from_millis(250);

/// Maximum number of rows of the histogram.
const HISTOGRAM_ROWS_MAX: usize = 12;

/// Maximum number of errors shown; the rarest are summed up.
const ERRORS_MAX: usize = 6;

/// Columns of a histogram's row besides its bar.
const LABEL_COLUMNS: usize = 34;

/// Maximum width of a bar, in columns.
const BAR_COLUMNS_MAX: usize = 60;

/// Percentiles shown.
const PERCENTS: [f64; 4] = [50.0, 90.0, 95.0, 99.0];

/// Numbers of the styles for a terminal.
const DIM: u8 = 2;
const RED: u8 = 31;
const CYAN: u8 = 36;

/// The view.
#[derive(Debug)]
pub(crate) struct LiveView {
    block: LiveBlock,
    extent: Extent,
    /// `false` where the user wants no colours.
    has_colours: bool,
    /// Time since counting began and the number of exchanges, at the last picture.
    last: (Duration, u64),
}

impl LiveView {
    /// Creates the view of a run.
    pub fn new(extent: Extent) -> Self {
        // https://no-color.org
        let has_colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { block: LiveBlock::default(), extent, has_colours, last: (Duration::ZERO, 0) }
    }

    /// Shows the state of the run, if the last picture is old enough.
    pub fn show(&mut self, progress: Progress<'_>) {
        let (elapsed, done) = self.last;
        let since = progress.elapsed.saturating_sub(elapsed);
        if since + LEAD >= PICTURE_EVERY {
            progress.want_snapshot();
        }
        if since < PICTURE_EVERY {
            return;
        }
        let rate_now = per_second(progress.done.saturating_sub(done), since);
        self.last = (progress.elapsed, progress.done);
        let size = TerminalSize::of_stdout();
        let lines = picture(progress, rate_now, &progress.snapshot(), self.extent, size);
        let styled =
            |(style, text): StyledPart| StyledText { text, style: style.filter(|_| self.has_colours) };
        let lines: Vec<Vec<StyledText>> =
            lines.into_iter().map(|line| line.into_iter().map(styled).collect()).collect();
        self.block.show(&mut Stdout, size, &lines);
    }

    /// Clears the view.
    pub fn clear(&mut self) {
        self.block.clear(&mut Stdout, TerminalSize::of_stdout());
    }
}

/// A text with the number of its style.
type StyledPart = (Option<u8>, String);

/// The lines for a moment of the run.
fn picture(
    progress: Progress<'_>,
    rate_now: f64,
    snapshot: &Snapshot,
    extent: Extent,
    size: TerminalSize,
) -> Vec<Vec<StyledPart>> {
    let columns = size.columns.saturating_sub(1);
    let mean = per_second(progress.done, progress.elapsed);
    let failed = snapshot.failed;
    let mut rates = vec![(None, format!("{rate_now:.0} requests/s now, {mean:.0} on average, "))];
    rates.push((if failed > 0 { Some(RED) } else { None }, format!("{failed} failed")));
    let mut lines = vec![
        vec![(None, progress_text(progress.done, progress.elapsed, extent, columns))],
        rates,
        vec![(None, percentiles(&snapshot.total))],
        Vec::new(),
    ];
    lines.extend(histogram(&snapshot.total, columns));
    lines.extend(errors(snapshot));
    lines
}

fn percentiles(total: &Series) -> String {
    if total.count() == 0 {
        return "no response yet".to_owned();
    }
    let each = PERCENTS.map(|percent| format!("p{percent} {}", time_text(total.percentile(percent))));
    format!("{}  max {}", each.join("  "), time_text(total.max()))
}

/// A row for each class of times that has some. Bounds are 1, 2 and 5 times a power of ten, in microseconds.
fn histogram(total: &Series, columns: usize) -> Vec<Vec<StyledPart>> {
    let counts = classes(total);
    let max = counts.iter().map(|class| class.count).max().unwrap_or(0);
    let room = columns.saturating_sub(LABEL_COLUMNS).min(BAR_COLUMNS_MAX);
    let row = |class: &Class| {
        let bounds = format!("{:>9} – {:<9}", time_text(class.from_us), time_text(class.to_us));
        let bar = "█".repeat(scaled(class.count, max, room));
        let share = share_text(class.count, total.count());
        vec![(Some(DIM), bounds), (None, format!("{share:>8} ")), (Some(CYAN), bar)]
    };
    counts.iter().map(row).collect()
}

/// A class of times, with the number of exchanges in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Class {
    from_us: u64,
    to_us: u64,
    count: u64,
}

/// The classes from the shortest time to the longest. If they are too many, the longest times share one.
fn classes(total: &Series) -> Vec<Class> {
    let mut found: Vec<Class> = Vec::new();
    let mut recorded = total.recorded().peekable();
    let mut from_us = 0;
    for to_us in bounds_us() {
        let mut count = 0;
        while let Some((_, more)) = recorded.next_if(|(us, _)| *us < to_us) {
            count += more;
        }
        if count > 0 || !found.is_empty() {
            found.push(Class { from_us, to_us, count });
        }
        if recorded.peek().is_none() {
            break;
        }
        from_us = to_us;
    }
    if let Some(rest) = found.get(HISTOGRAM_ROWS_MAX..).filter(|rest| !rest.is_empty()) {
        let (count, to_us) = (rest.iter().map(|class| class.count).sum::<u64>(), rest[rest.len() - 1].to_us);
        found.truncate(HISTOGRAM_ROWS_MAX);
        if let Some(last) = found.last_mut() {
            (last.count, last.to_us) = (last.count + count, to_us);
        }
    }
    found
}

/// 1, 2, 5, 10, 20 … microseconds, up to more than an hour.
fn bounds_us() -> impl Iterator<Item = u64> {
    (0..11).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power)))
}

/// The errors, the most frequent first.
fn errors(snapshot: &Snapshot) -> Vec<Vec<StyledPart>> {
    let mut errors: Vec<(&str, u64)> =
        snapshot.errors.iter().map(|(text, count)| (text.as_str(), *count)).collect();
    errors.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let mut lines: Vec<Vec<StyledPart>> = Vec::new();
    if !errors.is_empty() {
        lines.push(Vec::new());
    }
    let row = |count: u64, text: &str| vec![(Some(RED), format!("{count:>9}  ")), (None, text.to_owned())];
    lines.extend(errors.iter().take(ERRORS_MAX).map(|(text, count)| row(*count, text)));
    let rest: u64 = errors.iter().skip(ERRORS_MAX).map(|(_, count)| count).sum();
    if rest > 0 {
        lines.push(row(rest, "others"));
    }
    lines
}

#[expect(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
fn per_second(count: u64, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// Length of a bar: at least one column for a class that is not empty.
fn scaled(count: u64, max: u64, room: usize) -> usize {
    let columns = u128::from(count) * room as u128 / u128::from(max.max(1));
    usize::try_from(columns).unwrap_or(room).max(usize::from(count > 0 && room > 0))
}

#[expect(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
fn share_text(count: u64, of: u64) -> String {
    let percent = count as f64 * 100.0 / of.max(1) as f64;
    if count > 0 && percent < 0.01 { "<0.01 %".to_owned() } else { format!("{percent:.2} %") }
}

/// A time with a unit and at most four digits.
#[expect(clippy::cast_precision_loss, reason = "times stay below 2^53")]
fn time_text(us: u64) -> String {
    let us = us as f64;
    let (value, unit) = if us < 1e3 {
        return format!("{us:.0} µs");
    } else if us < 1e6 {
        (us / 1e3, "ms")
    } else {
        (us / 1e6, "s")
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(times_us: &[(u64, u64)]) -> Series {
        let mut series = Series::default();
        for (us, count) in times_us {
            (0..*count).for_each(|_| series.record(*us));
        }
        series
    }

    fn text(lines: &[Vec<StyledPart>]) -> Vec<String> {
        lines.iter().map(|line| line.iter().map(|(_, text)| text.as_str()).collect()).collect()
    }

    #[test]
    fn times_fall_into_classes_of_one_two_and_five() {
        let classes = classes(&series(&[(150, 3), (199, 1), (200, 5), (900, 1)]));
        let expected = [(100, 200, 4), (200, 500, 5), (500, 1_000, 1)];
        assert_eq!(classes, expected.map(|(from_us, to_us, count)| Class { from_us, to_us, count }));
    }

    #[test]
    fn every_exchange_is_in_a_class_however_far_times_are_apart() {
        for times in [&[(1, 1), (3_000_000_000, 1)][..], &[(0, 4)], &[(7, 2), (70_000, 1), (50_000_000, 9)]] {
            let series = series(times);
            let classes = classes(&series);
            assert_eq!(classes.iter().map(|class| class.count).sum::<u64>(), series.count(), "{times:?}");
            assert!(classes.len() <= HISTOGRAM_ROWS_MAX, "{times:?}");
            assert!(classes.windows(2).all(|pair| pair[0].to_us == pair[1].from_us), "{times:?}");
        }
        assert!(classes(&Series::default()).is_empty());
    }

    #[test]
    fn a_row_has_bounds_share_and_a_bar_in_proportion() {
        let rows = text(&histogram(&series(&[(150, 1), (300, 3)]), 60));
        let bars: Vec<usize> = rows.iter().map(|row| row.matches('█').count()).collect();
        assert_eq!(bars, [(60 - LABEL_COLUMNS) / 3, 60 - LABEL_COLUMNS]);
        assert!(rows[0].contains("100 µs – 200 µs") && rows[0].contains(" 25.00 % "), "{rows:?}");
        // A narrow terminal has no room for bars, and the rest remains.
        let rows = text(&histogram(&series(&[(150, 1)]), 30));
        assert!(rows[0].ends_with("100.00 % "), "{rows:?}");
    }

    #[test]
    fn the_most_frequent_errors_come_first_and_the_rest_is_summed_up() {
        let errors_of = |count: u64| {
            let each = (1..=count).map(|number| (format!("error {number}"), number)).collect();
            text(&errors(&Snapshot { errors: each, ..Snapshot::default() }))
        };
        assert!(errors_of(0).is_empty());
        assert_eq!(errors_of(2), ["", "        2  error 2", "        1  error 1"]);
        let many = errors_of(9);
        assert_eq!(many.len(), 1 + ERRORS_MAX + 1);
        assert_eq!(many.last().unwrap(), "        6  others");
    }

    #[test]
    fn times_have_a_unit_and_few_digits() {
        for (us, text) in [
            (0, "0 µs"),
            (999, "999 µs"),
            (1_000, "1 ms"),
            (1_234, "1.23 ms"),
            (20_500, "20.5 ms"),
            (200_000, "200 ms"),
            (1_500_000, "1.5 s"),
            (100_000_000, "100 s"),
        ] {
            assert_eq!(time_text(us), text);
        }
    }
}

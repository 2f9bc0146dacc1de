//! The state of a run as a bar and a text beside it.

use std::time::Duration;

use crate::plan::Plan;

/// Maximum width of the bar, in columns.
const BAR_COLUMNS_MAX: usize = 40;

/// The end of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    /// Duration of the run, if it has a fixed one.
    pub duration: Option<Duration>,
    /// Number of exchanges of the run, if it has a fixed one.
    pub count: Option<u64>,
}

impl From<&Plan> for Extent {
    fn from(plan: &Plan) -> Self {
        Self { duration: plan.duration, count: plan.count }
    }
}

/// The bar and the text beside it.
#[expect(clippy::cast_precision_loss, reason = "a bar has forty steps")]
pub(crate) fn progress_text(done: u64, elapsed: Duration, extent: Extent, columns: usize) -> String {
    let Extent { duration, count } = extent;
    let (elapsed_s, done_share) = (elapsed.as_secs_f64(), |count: u64| done as f64 / count.max(1) as f64);
    let (share, text) = match (duration.map(|duration| duration.as_secs_f64()), count) {
        (Some(whole_s), _) => {
            (elapsed_s / whole_s, format!("{elapsed_s:.1} of {whole_s} s, {done} requests"))
        }
        (None, Some(count)) if done > 0 => {
            let left_s = elapsed_s / done_share(count) - elapsed_s;
            (done_share(count), format!("{done} of {count} requests, {left_s:.1} s left"))
        }
        (None, count) => {
            (0.0, count.map_or(format!("{done} requests"), |count| format!("{done} of {count} requests")))
        }
    };
    let width = columns.saturating_sub(text.chars().count() + 1).min(BAR_COLUMNS_MAX);
    let full = (0..width).filter(|column| (*column as f64 + 0.5) / width as f64 <= share).count();
    format!("{}{} {text}", "█".repeat(full), "░".repeat(width - full))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const TIMED: Extent = Extent { duration: Some(Duration::from_secs(4)), count: None };
    const COUNTED: Extent = Extent { duration: None, count: Some(200) };

    #[test]
    fn a_run_shows_the_time_or_requests_left() {
        let timed = progress_text(100, SECOND, TIMED, 80);
        assert_eq!(timed, format!("{}{} 1.0 of 4 s, 100 requests", "█".repeat(10), "░".repeat(30)));
        let counted = progress_text(100, SECOND, COUNTED, 80);
        assert_eq!(counted, format!("{}{} 100 of 200 requests, 1.0 s left", "█".repeat(20), "░".repeat(20)));
    }

    #[test]
    fn a_bar_never_exceeds_its_width() {
        for columns in [0, 10, 30, 40, 79, 300] {
            let progress_text = progress_text(300, 9 * SECOND, TIMED, columns);
            let bar = progress_text.chars().filter(|letter| "█░".contains(*letter)).count();
            assert!(
                bar <= BAR_COLUMNS_MAX && (bar == 0 || progress_text.chars().count() <= columns),
                "{progress_text}"
            );
            assert!(!progress_text.contains('░'), "{progress_text}");
        }
        assert!(progress_text(0, Duration::ZERO, COUNTED, 60).ends_with("░ 0 of 200 requests"));
    }
}

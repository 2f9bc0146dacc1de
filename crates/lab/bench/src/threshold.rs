//! Thresholds that make a run fail, for use in CI pipelines: `p99>10ms`, `errors>1%`, `rps<500`.

use std::str::FromStr;

use crate::engine::RunOutcome;

/// A condition under which a run counts as failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    text: String,
    metric: Metric,
    comparison: Comparison,
    /// In the metric's unit.
    limit: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Metric {
    /// A percentile of the response time, in microseconds.
    Percentile(f64),
    /// The longest response time, in microseconds.
    Max,
    /// The mean response time, in microseconds.
    Mean,
    /// Failed exchanges, as a number or a share.
    Errors(Measure),
    /// Responses that are not 2xx, as a number or a share.
    Non2xx(Measure),
    /// Exchanges per second.
    Rate,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Measure {
    Count,
    Percent,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Comparison {
    Above,
    AtLeast,
    Below,
    AtMost,
}

/// The error for a text that is not a threshold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a threshold: expected a metric (p50 to p99.99, max, mean, errors, non_2xx, rps), one of \
             > >= < <=, and a limit, like `p99>10ms`, `errors>1%` or `rps<500`", .0)]
pub struct ThresholdError(String);

impl FromStr for Threshold {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        parse(text).ok_or_else(|| ThresholdError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Threshold> {
    let at = text.find(['<', '>'])?;
    let (name, rest) = text.split_at(at);
    let (comparison, limit) = if let Some(limit) = rest.strip_prefix(">=") {
        (Comparison::AtLeast, limit)
    } else if let Some(limit) = rest.strip_prefix("<=") {
        (Comparison::AtMost, limit)
    } else if let Some(limit) = rest.strip_prefix('>') {
        (Comparison::Above, limit)
    } else {
        (Comparison::Below, rest.strip_prefix('<')?)
    };
    let limit = limit.trim();
    let (metric, limit) = match name.trim() {
        "max" => (Metric::Max, time_us(limit)?),
        "mean" => (Metric::Mean, time_us(limit)?),
        "rps" => (Metric::Rate, number(limit)?),
        "errors" => measured(limit, Metric::Errors)?,
        "non_2xx" => measured(limit, Metric::Non2xx)?,
        name => {
            let percent: f64 = name.strip_prefix('p')?.replace('_', ".").parse().ok()?;
            (
                Metric::Percentile(Some(percent).filter(|percent| (0.0..=100.0).contains(percent))?),
                time_us(limit)?,
            )
        }
    };
    Some(Threshold { text: text.to_owned(), metric, comparison, limit })
}

fn measured(limit: &str, metric: impl Fn(Measure) -> Metric) -> Option<(Metric, f64)> {
    match limit.strip_suffix('%') {
        Some(limit) => Some((metric(Measure::Percent), number(limit)?)),
        None => Some((metric(Measure::Count), number(limit)?)),
    }
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0)
}

/// Parses a time with its unit. Returns microseconds.
fn time_us(text: &str) -> Option<f64> {
    let digits = text.find(|letter: char| letter.is_ascii_alphabetic())?;
    let (value, unit) = text.split_at(digits);
    let factor = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return None,
    };
    Some(number(value)? * factor)
}

impl Threshold {
    /// Returns the measured value in words if the outcome breaks the threshold.
    #[expect(clippy::cast_precision_loss, reason = "counts and microseconds are far below 2^53")]
    pub(crate) fn broken_by(&self, outcome: &RunOutcome) -> Option<String> {
        let tally = &outcome.tally;
        let share = |part: u64| if tally.done == 0 { 0.0 } else { part as f64 * 100.0 / tally.done as f64 };
        let (value, shown) = match self.metric {
            Metric::Percentile(percent) => time(tally.total().percentile(percent) as f64),
            Metric::Max => time(tally.total().max() as f64),
            Metric::Mean => time(tally.total().mean()),
            Metric::Errors(Measure::Count) => (tally.failed as f64, tally.failed.to_string()),
            Metric::Errors(Measure::Percent) => percent(share(tally.failed)),
            Metric::Non2xx(Measure::Count) => (tally.non_2xx() as f64, tally.non_2xx().to_string()),
            Metric::Non2xx(Measure::Percent) => percent(share(tally.non_2xx())),
            Metric::Rate => (outcome.requests_per_second(), format!("{:.2}", outcome.requests_per_second())),
        };
        let broken = match self.comparison {
            Comparison::Above => value > self.limit,
            Comparison::AtLeast => value >= self.limit,
            Comparison::Below => value < self.limit,
            Comparison::AtMost => value <= self.limit,
        };
        broken.then(|| format!("{}: measured {shown}", self.text))
    }
}

fn time(us: f64) -> (f64, String) {
    (us, format!("{:.3} ms", us / 1e3))
}

fn percent(share: f64) -> (f64, String) {
    (share, format!("{share:.2} %"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::outcome;

    #[test]
    fn a_threshold_has_metric_comparison_and_limit() {
        for (text, metric, comparison, limit) in [
            ("p99>10ms", Metric::Percentile(99.0), Comparison::Above, 10_000.0),
            ("p99.9 >= 1.5s", Metric::Percentile(99.9), Comparison::AtLeast, 1_500_000.0),
            ("p99_9>250us", Metric::Percentile(99.9), Comparison::Above, 250.0),
            ("max<=1s", Metric::Max, Comparison::AtMost, 1_000_000.0),
            ("errors>1%", Metric::Errors(Measure::Percent), Comparison::Above, 1.0),
            ("non_2xx>0", Metric::Non2xx(Measure::Count), Comparison::Above, 0.0),
            ("rps<500", Metric::Rate, Comparison::Below, 500.0),
        ] {
            let threshold: Threshold = text.parse().unwrap();
            assert_eq!((threshold.metric, threshold.comparison), (metric, comparison), "{text}");
            assert!((threshold.limit - limit).abs() < 1e-6, "{text}");
        }
    }

    #[test]
    fn a_malformed_threshold_is_refused() {
        for text in [
            "",
            "p99",
            "p99=10ms",
            "p99>10",
            "p101>1s",
            "p99>1min",
            "rps<-1",
            "errors>x%",
            "mean>NaNms",
            "latency>1s",
        ] {
            assert_eq!(text.parse::<Threshold>(), Err(ThresholdError(text.to_owned())));
        }
    }

    /// Returns `true` if ten exchanges of 1 to 10 ms in a second, of which one failed and two returned 503,
    /// break it.
    fn breaks(text: &str) -> bool {
        let mut outcome = outcome((1..=10).map(|ms| ms * 1_000));
        outcome.tally.failed = 1;
        (0..2).for_each(|_| outcome.tally.status(503));
        text.parse::<Threshold>().unwrap().broken_by(&outcome).is_some()
    }

    #[test]
    fn a_threshold_is_broken_exactly_beyond_its_limit() {
        for (broken, kept) in [
            // A percentile has three digits.
            ("p50>4.99ms", "p50>5.01ms"),
            ("p99>=10ms", "p99>10ms"),
            ("p10<1.1ms", "p10<1ms"),
            ("max<=10ms", "max<10ms"),
            ("mean>5499us", "mean>5500us"),
            ("errors>0", "errors>1"),
            ("errors>=10%", "errors>10%"),
            ("non_2xx>1", "non_2xx>2"),
            ("non_2xx>19.9%", "non_2xx>20%"),
            ("rps<11", "rps<10"),
            ("rps<=10", "rps>10"),
        ] {
            assert!(breaks(broken), "{broken}");
            assert!(!breaks(kept), "{kept}");
        }
    }

    #[test]
    fn a_broken_threshold_says_what_was_measured() {
        let outcome = outcome([2_000, 4_000]);
        let measured = |text: &str| text.parse::<Threshold>().unwrap().broken_by(&outcome).unwrap();
        assert_eq!(measured("max>3ms"), "max>3ms: measured 4.000 ms");
        assert_eq!(measured("errors<1%"), "errors<1%: measured 0.00 %");
        assert_eq!(measured("rps<2.5"), "rps<2.5: measured 2.00");
        assert_eq!(measured("non_2xx<=0"), "non_2xx<=0: measured 0");
    }

    #[test]
    fn without_exchanges_no_share_is_exceeded() {
        let outcome = outcome([]);
        for text in ["errors>0%", "non_2xx>0%", "p99>0us", "mean>0us"] {
            assert_eq!(text.parse::<Threshold>().unwrap().broken_by(&outcome), None, "{text}");
        }
    }
}

//! Delays of responses: constant, or drawn from a distribution.

use std::str::FromStr;
use std::time::Duration;

use egret_clock::Random;

use crate::duration::{self, DurationError};
use crate::random::Draw as _;

/// Maximum number of points in a list of percentiles.
const POINTS_MAX: usize = 100;

/// Maximum duration in a distribution's parameters. Drawn values are also capped at the provider's maximum.
const PARAMETER_MAX: Duration = Duration::from_hours(24);

/// A distribution of delays.
///
/// Written as a duration with a unit (`150ms`), or as the name of a distribution with its parameters:
///
/// * `constant:150ms`
/// * `normal:150ms,20ms`: mean and standard deviation; negative values become zero
/// * `lognormal:150ms,0.5`: median, and the standard deviation of the logarithm
/// * `percentiles:50=100ms,90=200ms,99=1s`: linear between the points; constant below the first and above the
///   last
#[derive(Debug, Clone, PartialEq)]
pub enum Delay {
    /// A constant delay.
    Constant(Duration),
    /// A normal distribution.
    Normal {
        /// The mean.
        mean: Duration,
        /// The standard deviation.
        deviation: Duration,
    },
    /// A log-normal distribution: never negative, with a long tail, like most response times.
    Lognormal {
        /// The median.
        median: Duration,
        /// The standard deviation of the logarithm. 0 is constant; with 0.5 the 99th percentile is 3.2 times
        /// the median.
        sigma: f64,
    },
    /// Pairs of percent and duration, both in ascending order.
    Percentiles(Vec<(f64, Duration)>),
}

/// The reason why a text is not a delay.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DelayError {
    /// It contains an invalid duration.
    #[error("{0}")]
    Duration(#[from] DurationError),
    /// It names an unknown distribution.
    #[error("unknown distribution {0:?}: expected constant, normal, lognormal or percentiles")]
    UnknownDistribution(String),
    /// The parameters do not fit the distribution, whose form this text shows.
    #[error("write {0}")]
    Parameters(&'static str),
}

impl FromStr for Delay {
    type Err = DelayError;

    fn from_str(text: &str) -> Result<Self, DelayError> {
        let Some((name, parameters)) = text.split_once(':') else {
            return Ok(Self::Constant(parameter(text)?));
        };
        match name {
            "constant" => Ok(Self::Constant(parameter(parameters)?)),
            "normal" => {
                let (mean, deviation) = pair(parameters, "normal:MEAN,DEVIATION like normal:150ms,20ms")?;
                Ok(Self::Normal { mean: parameter(mean)?, deviation: parameter(deviation)? })
            }
            "lognormal" => {
                let expected = "lognormal:MEDIAN,SIGMA like lognormal:150ms,0.5, with SIGMA from 0 to 5";
                let (median, sigma) = pair(parameters, expected)?;
                let sigma = sigma.parse().ok().filter(|sigma| (0.0..=5.0).contains(sigma));
                Ok(Self::Lognormal {
                    median: parameter(median)?,
                    sigma: sigma.ok_or(DelayError::Parameters(expected))?,
                })
            }
            "percentiles" => percentiles(parameters).map(Self::Percentiles),
            other => Err(DelayError::UnknownDistribution(other.to_owned())),
        }
    }
}

fn parameter(text: &str) -> Result<Duration, DurationError> {
    duration::parse_with_unit(text, PARAMETER_MAX)
}

fn pair<'a>(text: &'a str, expected: &'static str) -> Result<(&'a str, &'a str), DelayError> {
    text.split_once(',').ok_or(DelayError::Parameters(expected))
}

fn percentiles(text: &str) -> Result<Vec<(f64, Duration)>, DelayError> {
    let refuse = || {
        DelayError::Parameters(
            "percentiles:PERCENT=DURATION,... like percentiles:50=100ms,99=1s, both rising, at most 100 points",
        )
    };
    let mut points: Vec<(f64, Duration)> = Vec::new();
    for point in text.split(',') {
        let (percent, duration) = point.split_once('=').ok_or_else(refuse)?;
        let percent: f64 = percent.trim_start_matches('p').parse().map_err(|_| refuse())?;
        let duration = parameter(duration)?;
        let rises = points.last().is_none_or(|last| percent > last.0 && duration >= last.1);
        if !(0.0..=100.0).contains(&percent) || !rises || points.len() == POINTS_MAX {
            return Err(refuse());
        }
        points.push((percent, duration));
    }
    Ok(points)
}

impl Delay {
    /// Draws the next delay, at most `max`.
    pub(crate) fn draw(&self, random: &mut Random, max: Duration) -> Duration {
        let drawn = match self {
            Self::Constant(duration) => *duration,
            Self::Normal { mean, deviation } => {
                seconds(mean.as_secs_f64() + deviation.as_secs_f64() * random.normal(), max)
            }
            Self::Lognormal { median, sigma } => {
                seconds(median.as_secs_f64() * (sigma * random.normal()).exp(), max)
            }
            Self::Percentiles(points) => interpolated(points, random.unit() * 100.0),
        };
        drawn.min(max)
    }
}

/// Converts seconds to a duration: negative values become zero, and values that are too large become `max`.
fn seconds(seconds: f64, max: Duration) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(max)
}

/// Interpolates linearly between the points.
fn interpolated(points: &[(f64, Duration)], percent: f64) -> Duration {
    let above = points.partition_point(|point| point.0 <= percent);
    match (above.checked_sub(1).and_then(|below| points.get(below)), points.get(above)) {
        (Some((from, low)), Some((to, high))) => {
            *low + high.saturating_sub(*low).mul_f64((percent - from) / (to - from))
        }
        (Some((_, level)), None) | (None, Some((_, level))) => *level,
        (None, None) => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAX: Duration = Duration::from_secs(10);

    /// Percentiles 1, 50 and 99 of many draws, in milliseconds.
    fn drawn(text: &str) -> [u128; 3] {
        let delay: Delay = text.parse().unwrap();
        let mut random = Random::new(7);
        let mut draws: Vec<Duration> = (0..20_000).map(|_| delay.draw(&mut random, MAX)).collect();
        draws.sort_unstable();
        [200, 10_000, 19_800].map(|rank| draws[rank].as_millis())
    }

    #[test]
    fn drawn_delays_have_the_requested_distribution() {
        assert_eq!(drawn("150ms"), [150; 3]);
        assert_eq!(drawn("constant:0.15s"), [150; 3]);
        let about = |expected: [u128; 3], drawn: [u128; 3]| {
            for (expected, drawn) in expected.into_iter().zip(drawn) {
                assert!(drawn.abs_diff(expected) <= expected / 20 + 1, "{expected} {drawn}");
            }
        };
        // The 1st and 99th percentiles are 2.326 standard deviations below and above the mean.
        about([103, 150, 197], drawn("normal:150ms,20ms"));
        about([47, 150, 480], drawn("lognormal:150ms,0.5"));
        about([100, 100, 1_000], drawn("percentiles:p50=100ms,90=200ms,99=1s"));
        about([2, 100, 198], drawn("percentiles:0=0,100=200ms"));
    }

    #[test]
    fn drawn_delays_stay_between_zero_and_the_maximum() {
        let delay: Delay = "normal:1s,1h".parse().unwrap();
        let mut random = Random::new(1);
        let draws: Vec<Duration> = (0..100).map(|_| delay.draw(&mut random, MAX)).collect();
        assert!(draws.contains(&Duration::ZERO) && draws.contains(&MAX));
        assert_eq!(Delay::Constant(MAX * 2).draw(&mut random, MAX), MAX);
    }

    #[test]
    fn a_delay_that_is_not_understood_says_what_to_write() {
        for (text, expected) in [
            ("soon", "150ms"),
            ("gamma:1s", "constant, normal, lognormal or percentiles"),
            ("normal:1s", "normal:150ms,20ms"),
            ("lognormal:1s,9", "SIGMA from 0 to 5"),
            ("lognormal:1s,NaN", "SIGMA from 0 to 5"),
            ("percentiles:50", "percentiles:50=100ms"),
            ("percentiles:50=1s,40=2s", "both rising"),
            ("percentiles:50=1s,60=0.5s", "both rising"),
            ("percentiles:101=1s", "both rising"),
            ("constant:-1s", "too short"),
            ("100", "`100ms` or `100s`"),
            ("percentiles:50=1", "`1ms` or `1s`"),
        ] {
            let message = text.parse::<Delay>().unwrap_err().to_string();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }

    proptest! {
        #[test]
        fn a_list_of_percentiles_is_followed_at_its_points_and_between(
            steps in prop::collection::vec((1_u32..20, 0_u64..500), 1..5),
            percent in 0.0..=100.0_f64,
        ) {
            // Points that rise in both coordinates, as the grammar requires.
            let mut points = Vec::new();
            let (mut at, mut millis) = (0, 0);
            for (step, more) in steps {
                (at, millis) = (at + step, millis + more);
                points.push((at, millis));
            }
            let text: Vec<String> = points.iter().map(|(at, millis)| format!("{at}={millis}ms")).collect();
            let delay: Delay = format!("percentiles:{}", text.join(",")).parse().unwrap();
            let Delay::Percentiles(parsed) = delay else { panic!("{delay:?}") };
            for (at, millis) in &points {
                prop_assert_eq!(interpolated(&parsed, f64::from(*at)), Duration::from_millis(*millis));
            }
            let (least, max) = (points[0].1, points[points.len() - 1].1);
            let found = interpolated(&parsed, percent);
            prop_assert!((Duration::from_millis(least)..=Duration::from_millis(max)).contains(&found), "{found:?}");
            prop_assert!(interpolated(&parsed, (percent + 1.0).min(100.0)) >= found, "it falls");
        }
    }
}

//! Statistics of a few rounds: percentiles, medians, and confidence intervals by bootstrap.
//!
//! A round is one observation of a machine whose speed varies. Where possible, figures are compared within a
//! round, and the median over the rounds is reported. The confidence interval comes from resampling the
//! rounds with replacement (the percentile bootstrap). The generator is seeded: the same rounds always give
//! the same interval.
//!
//! Few rounds allow little confidence: `n` rounds bracket the true median with a confidence of at most
//! `1 - 2 × 0.5ⁿ`, which is 75 % for three and 94 % for five. [`Estimate::confidence`] is the confidence
//! actually reached, so three rounds never claim 95 %.

use egret_clock::Random;
use serde::{Deserialize, Serialize};

/// Confidence level of the intervals.
pub const CONFIDENCE: f64 = 0.95;

/// Minimum number of rounds for a verdict. Fewer rounds bracket the median with less than 90 % confidence.
pub const ROUNDS_FOR_VERDICT: usize = 5;

/// Number of bootstrap resamples. More would only steady the second digit of the bounds.
const RESAMPLES: usize = 2_000;

/// Seed of the generator: a report made twice is the same twice.
const SEED: u64 = 0x0E62_E7A1_5EED;

/// The percentile by nearest rank: the share `percent` (0 to 100) of the samples is at or below it. The
/// result is always one of the samples.
///
/// `sorted` is in ascending order; returns `None` if it is empty.
pub fn percentile<T: Copy>(sorted: &[T], percent: f64) -> Option<T> {
    // Without this small correction, 99.9 % of 1000 would be rank 1000, because 99.9 has no exact binary
    // form.
    let rank =
        whole((percent / 100.0 * real(sorted.len() as u64) - 1e-9).ceil()).clamp(1, sorted.len().max(1));
    sorted.get(rank - 1).copied()
}

/// The middle value, or the mean of the two middle values. `None` if there are no values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    median_of(&mut sorted)
}

/// The arithmetic mean. `None` if there are no values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / real(values.len() as u64))
}

/// The standard deviation of the sample (divisor `n - 1`). `None` for fewer than two values.
pub fn standard_deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / real(values.len() as u64 - 1)).sqrt())
}

/// A figure with its confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
pub struct Estimate {
    /// The figure itself.
    pub value: f64,
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
    /// Confidence of the interval, 0 to 1: [`CONFIDENCE`], or less if there were too few rounds.
    pub confidence: f64,
}

impl Estimate {
    /// The larger distance from the figure to a bound, for use after `±`.
    pub fn margin(&self) -> f64 {
        (self.high - self.value).max(self.value - self.low)
    }

    /// Returns `true` if both bounds are on the same side of `reference`, so the figure differs from it
    /// significantly.
    pub fn excludes(&self, reference: f64) -> bool {
        self.low > reference || self.high < reference
    }

    /// Returns `true` if there were enough rounds for a verdict.
    pub fn is_firm(&self) -> bool {
        self.confidence >= best_confidence(ROUNDS_FOR_VERDICT)
    }
}

/// Estimates the median over rounds. `None` without rounds.
pub fn estimate(rounds: &[f64]) -> Option<Estimate> {
    let value = median(rounds)?;
    let mut draw = Draw::new(rounds.len());
    let drawn = (0..RESAMPLES).filter_map(|_| median_of(draw.take(rounds))).collect();
    Some(bounded(value, drawn, best_confidence(rounds.len())))
}

/// Estimates how far `measured` exceeds `baseline`: the median of the differences within each round.
///
/// Both have one value per round, in the same order, so effects of the machine on a round cancel out. The
/// longer list is cut.
pub fn difference(measured: &[f64], baseline: &[f64]) -> Option<Estimate> {
    let pairs: Vec<f64> =
        measured.iter().zip(baseline).map(|(measured, baseline)| measured - baseline).collect();
    estimate(&pairs)
}

/// Estimates the ratio of `measured` to `baseline`: the median of the ratios within each round, paired as in
/// [`difference`].
///
/// Returns `None` unless every baseline is above 0.
pub fn ratio(measured: &[f64], baseline: &[f64]) -> Option<Estimate> {
    let positive = baseline.iter().all(|baseline| *baseline > 0.0);
    let pairs: Vec<f64> =
        measured.iter().zip(baseline).map(|(measured, baseline)| measured / baseline).collect();
    if positive { estimate(&pairs) } else { None }
}

/// Estimates how far the median of `b` exceeds the median of `a`, for rounds of two separate runs, which are
/// not paired.
pub fn difference_of_runs(a: &[f64], b: &[f64]) -> Option<Estimate> {
    of_runs(a, b, |a, b| b - a)
}

/// Estimates the ratio of the median of `b` to the median of `a`, for rounds of two separate runs. Returns
/// `None` unless every value of `a` is above 0.
pub fn ratio_of_runs(a: &[f64], b: &[f64]) -> Option<Estimate> {
    if a.iter().all(|a| *a > 0.0) { of_runs(a, b, |a, b| b / a) } else { None }
}

fn of_runs(a: &[f64], b: &[f64], compare: impl Fn(f64, f64) -> f64) -> Option<Estimate> {
    let value = compare(median(a)?, median(b)?);
    let (mut of_a, mut of_b) = (Draw::new(a.len()), Draw::from(SEED ^ u64::MAX, b.len()));
    let drawn = (0..RESAMPLES)
        .filter_map(|_| Some(compare(median_of(of_a.take(a))?, median_of(of_b.take(b))?)))
        .collect();
    Some(bounded(value, drawn, best_confidence(a.len().min(b.len()))))
}

/// Estimates the increase of `y` per unit of `x`: the median over the rounds of each round's least-squares
/// slope.
///
/// Each round is a list of points. A round whose `x` are all equal has no slope and is left out.
pub fn slope(rounds: &[Vec<(f64, f64)>]) -> Option<Estimate> {
    let slopes: Vec<f64> = rounds.iter().filter_map(|points| least_squares_slope(points)).collect();
    estimate(&slopes)
}

fn least_squares_slope(points: &[(f64, f64)]) -> Option<f64> {
    let xs: Vec<f64> = points.iter().map(|(x, _)| *x).collect();
    let ys: Vec<f64> = points.iter().map(|(_, y)| *y).collect();
    let (mean_x, mean_y) = (mean(&xs)?, mean(&ys)?);
    let spread: f64 = xs.iter().map(|x| (x - mean_x).powi(2)).sum();
    let shared: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    (spread > 0.0).then(|| shared / spread)
}

/// The highest confidence that this many rounds allow: the true median lies between their minimum and
/// maximum, unless all rounds fell on one side of it.
fn best_confidence(rounds: usize) -> f64 {
    let rounds = i32::try_from(rounds).unwrap_or(i32::MAX);
    (1.0 - 2.0 * 0.5_f64.powi(rounds)).clamp(0.0, CONFIDENCE)
}

fn bounded(value: f64, mut drawn: Vec<f64>, confidence: f64) -> Estimate {
    drawn.sort_by(f64::total_cmp);
    let tail = (1.0 - CONFIDENCE) / 2.0 * 100.0;
    let bound = |percent| percentile(&drawn, percent).unwrap_or(value);
    Estimate { value, low: bound(tail), high: bound(100.0 - tail), confidence }
}

fn median_of(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let upper = values.get(values.len() / 2)?;
    if values.len() % 2 == 1 {
        Some(*upper)
    } else {
        Some(f64::midpoint(values[values.len() / 2 - 1], *upper))
    }
}

/// Draws as many values as there are, with replacement.
struct Draw {
    random: Random,
    drawn: Vec<f64>,
}

impl Draw {
    fn new(count: usize) -> Self {
        Self::from(SEED, count)
    }

    fn from(seed: u64, count: usize) -> Self {
        Self { random: Random::new(seed), drawn: Vec::with_capacity(count) }
    }

    fn take(&mut self, values: &[f64]) -> &mut Vec<f64> {
        let last = values.len().saturating_sub(1) as u64;
        self.drawn.clear();
        for _ in values {
            let index = usize::try_from(self.random.up_to(last)).unwrap_or(0);
            self.drawn.extend(values.get(index));
        }
        &mut self.drawn
    }
}

/// Converts a count, or a number of bytes or ticks. Exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
pub fn real(count: u64) -> f64 {
    count as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a position between 0 and a number of samples; the cast saturates at both ends"
)]
fn whole(position: f64) -> usize {
    position as usize
}

#[cfg(test)]
mod tests;

//! What a handful of rounds says and how surely: percentiles, medians, and confidence by bootstrap.
//!
//! A round is one look at a machine that is never quite the same. So figures are compared within a round where they can be,
//! the median of the rounds is what is told, and how far it may be off comes from drawing rounds anew, with replacement
//! (the percentile bootstrap). Draws come from a seeded generator: the same rounds always give the same interval.
//!
//! Few rounds carry little: `n` rounds bracket the true median with a confidence of at most `1 - 2 × 0.5ⁿ`, which is 75 %
//! for three and 94 % for five. [`Estimate::confidence`] says what was reached, so that nobody is told 95 % by three rounds.

mod random;

pub use random::Random;
use serde::{Deserialize, Serialize};

/// Confidence that intervals are made for.
pub const CONFIDENCE: f64 = 0.95;

/// Fewer rounds than this bracket a median too loosely for a verdict: their confidence stays below 90 %.
pub const ROUNDS_FOR_VERDICT: usize = 5;

/// Times that rounds are drawn anew. More would steady the second digit of an interval's ends, which nobody reads.
const RESAMPLES: usize = 2_000;

/// Where the generator starts, so that a report made twice says the same twice.
const SEED: u64 = 0x0E62_E7A1_5EED;

/// The share `percent` (0 to 100) of samples is at or below this one: nearest rank, so always a sample that was seen.
///
/// `sorted` is in ascending order; `None` if it is empty.
pub fn percentile<T: Copy>(sorted: &[T], percent: f64) -> Option<T> {
    // Without the small step back, 99.9 % of 1000 would be rank 1000, since 99.9 has no exact form.
    let rank = whole((percent / 100.0 * real(sorted.len()) - 1e-9).ceil()).clamp(1, sorted.len().max(1));
    sorted.get(rank - 1).copied()
}

/// The percentile as ab writes it into its CSV (`-e`): the sample at `0.5 + n × percent / 100`, mostly one above nearest rank.
///
/// ab reads past its last sample for small `n`; here the last sample is the end. `None` if `sorted` is empty.
pub fn percentile_as_ab<T: Copy>(sorted: &[T], percent: u8) -> Option<T> {
    let last = sorted.len().checked_sub(1)?;
    let index = match percent {
        0 => 0,
        100.. => last,
        percent => whole(0.5 + real(sorted.len()) * f64::from(percent) / 100.0),
    };
    sorted.get(index.min(last)).copied()
}

/// The middle value, or the mean of the two middle ones. `None` if there are none.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    median_of(&mut sorted)
}

/// The arithmetic mean. `None` if there are no values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / real(values.len()))
}

/// The sample's standard deviation (divisor `n - 1`). `None` for fewer than two values.
pub fn standard_deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / real(values.len() - 1)).sqrt())
}

/// A figure, and between which bounds it lies how surely.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
pub struct Estimate {
    /// The figure itself.
    pub value: f64,
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
    /// How surely the bounds hold, 0 to 1: [`CONFIDENCE`], or less where there were too few rounds for it.
    pub confidence: f64,
}

impl Estimate {
    /// The larger distance from the figure to a bound: what stands behind `±`.
    pub fn margin(&self) -> f64 {
        (self.high - self.value).max(self.value - self.low)
    }

    /// Whether both bounds lie on one side of `reference`, so that the figure differs from it for sure.
    pub fn excludes(&self, reference: f64) -> bool {
        self.low > reference || self.high < reference
    }

    /// Whether there were enough rounds to call a difference a difference.
    pub fn is_firm(&self) -> bool {
        self.confidence >= best_confidence(ROUNDS_FOR_VERDICT)
    }
}

/// The median over rounds. `None` without rounds.
pub fn estimate(rounds: &[f64]) -> Option<Estimate> {
    let value = median(rounds)?;
    let mut draw = Draw::new(rounds.len());
    let drawn = (0..RESAMPLES).filter_map(|_| median_of(draw.take(rounds))).collect();
    Some(bounded(value, drawn, best_confidence(rounds.len())))
}

/// How far `measured` lies above `baseline`: the median of the differences within each round.
///
/// Both have a value for each round, in the same order; what the machine did to a round then cancels out. The longer one is cut.
pub fn difference(measured: &[f64], baseline: &[f64]) -> Option<Estimate> {
    let pairs: Vec<f64> =
        measured.iter().zip(baseline).map(|(measured, baseline)| measured - baseline).collect();
    estimate(&pairs)
}

/// How many times `baseline` `measured` is: the median of the ratios within each round, as [`difference`] pairs them.
///
/// `None` where a baseline is not above 0.
pub fn ratio(measured: &[f64], baseline: &[f64]) -> Option<Estimate> {
    let positive = baseline.iter().all(|baseline| *baseline > 0.0);
    let pairs: Vec<f64> =
        measured.iter().zip(baseline).map(|(measured, baseline)| measured / baseline).collect();
    if positive { estimate(&pairs) } else { None }
}

/// How far the median of `b` lies above that of `a`, for rounds of two separate runs, which nothing pairs.
pub fn difference_of_runs(a: &[f64], b: &[f64]) -> Option<Estimate> {
    of_runs(a, b, |a, b| b - a)
}

/// How many times the median of `a` that of `b` is, for rounds of two separate runs. `None` where a value of `a` is not above 0.
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

/// How much `y` rises for each unit of `x`: the median over rounds of each round's least-squares slope.
///
/// Each round is a list of points; one whose `x` are all the same says nothing and is left out.
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

/// The most that this many rounds can say of a median: it lies between the least and the most, unless all fell on one side.
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
        self.drawn.clear();
        for _ in values {
            self.drawn.push(values[self.random.below(values.len())]);
        }
        &mut self.drawn
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of samples are far below 2^52")]
fn real(count: usize) -> f64 {
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

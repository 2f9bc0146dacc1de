//! Tests of the figures against values computed by hand, and of the intervals against their confidence.
#![expect(clippy::float_cmp, reason = "samples are returned unchanged, not computed")]

use proptest::prelude::*;

use super::*;

fn hundred() -> Vec<u32> {
    (1..=100).collect()
}

#[test]
fn a_percentile_is_the_sample_of_nearest_rank() {
    let samples = hundred();
    for (percent, expected) in [(0.0, 1), (1.0, 1), (50.0, 50), (99.0, 99), (99.1, 100), (100.0, 100)] {
        assert_eq!(percentile(&samples, percent), Some(expected), "{percent}");
    }
    let thousand: Vec<u32> = (1..=1000).collect();
    assert_eq!(percentile(&thousand, 99.9), Some(999));
    assert_eq!(percentile(&[7], 50.0), Some(7));
    assert_eq!(percentile::<u32>(&[], 50.0), None);
}

#[test]
fn median_mean_and_deviation() {
    assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    assert_eq!(median(&[]), None);
    assert_eq!(mean(&[1.0, 2.0, 6.0]), Some(3.0));
    assert_eq!(standard_deviation(&[2.0, 4.0, 6.0]), Some(2.0));
    assert_eq!(standard_deviation(&[2.0]), None);
}

#[test]
fn five_rounds_bracket_the_median_by_their_extremes() {
    let estimate = estimate(&[10.0, 12.0, 11.0, 15.0, 9.0]).unwrap();
    assert_eq!((estimate.value, estimate.low, estimate.high), (11.0, 9.0, 15.0));
    assert_eq!(estimate.margin(), 4.0);
    assert!(estimate.is_firm() && (estimate.confidence - 0.9375).abs() < 1e-9);
}

#[test]
fn few_rounds_are_not_firm() {
    let estimate = estimate(&[10.0, 12.0, 11.0]).unwrap();
    assert!(!estimate.is_firm());
    assert!((estimate.confidence - 0.75).abs() < 1e-9);
    assert_eq!(super::estimate(&[1.0]).unwrap().confidence, 0.0);
    assert_eq!(super::estimate(&[]), None);
}

#[test]
fn an_interval_holds_the_true_median_about_as_often_as_it_says() {
    let mut random = Random::new(1);
    let mut held = 0;
    for _ in 0..400 {
        let rounds: Vec<f64> = (0..15).map(|_| real(random.up_to(1_000_000)) / 1e6).collect();
        let estimate = estimate(&rounds).unwrap();
        held += u32::from(!estimate.excludes(0.5));
    }
    assert!((365..=398).contains(&held), "{held} of 400");
}

#[test]
fn drift_cancels_within_a_round() {
    let baseline = [100.0, 140.0, 180.0, 220.0, 260.0];
    let measured = [101.0, 141.0, 181.0, 221.0, 261.0];
    let paired = difference(&measured, &baseline).unwrap();
    assert_eq!((paired.value, paired.low, paired.high), (1.0, 1.0, 1.0));
    assert!(paired.excludes(0.0));
    assert!(!difference_of_runs(&baseline, &measured).unwrap().excludes(0.0));
}

#[test]
fn ratios_are_taken_of_positive_baselines_only() {
    assert_eq!(ratio(&[2.0, 4.0], &[1.0, 2.0]).unwrap().value, 2.0);
    assert_eq!(ratio(&[2.0], &[0.0]), None);
    assert_eq!(ratio_of_runs(&[1.0, 1.0], &[2.0, 2.0]).unwrap().value, 2.0);
    assert_eq!(ratio_of_runs(&[0.0], &[2.0]), None);
}

#[test]
fn a_slope_is_each_rounds_own() {
    let round = |offset: f64| vec![(200.0, offset + 2.0), (300.0, offset + 3.0), (500.0, offset + 5.0)];
    let rising = slope(&[round(0.0), round(10.0), round(-3.0)]).unwrap();
    assert!((rising.value - 0.01).abs() < 1e-12, "{rising:?}");
    assert_eq!(slope(&[vec![(1.0, 1.0), (1.0, 2.0)]]), None);
}

#[test]
fn few_rounds_reach_the_confidence_of_their_extremes() {
    // 1 - 2 * 0.5^n, and never more than 95 %.
    for (rounds, confidence) in
        [(1, 0.0), (2, 0.5), (3, 0.75), (4, 0.875), (5, 0.9375), (6, 0.95), (100, 0.95)]
    {
        assert!((best_confidence(rounds) - confidence).abs() < 1e-9, "{rounds}");
    }
    assert_eq!(best_confidence(0), 0.0);
}

#[test]
fn the_interval_of_many_rounds_is_that_of_the_binomial_distribution() {
    // Of 101 ordered rounds, those of rank 41 and 61 bound the median with 95 % confidence: ranks are
    // binomially distributed with n = 101 and p = 0.5, whose standard deviation is 5.02.
    let rounds: Vec<f64> = (1..=101).map(f64::from).collect();
    let estimate = estimate(&rounds).unwrap();
    assert_eq!((estimate.value, estimate.confidence), (51.0, 0.95));
    assert!((39.0..=43.0).contains(&estimate.low) && (59.0..=63.0).contains(&estimate.high), "{estimate:?}");
}

#[test]
fn shifted_rounds_have_a_shifted_interval() {
    let rounds = [10.0, 12.5, 11.0, 15.0, 9.0, 13.0, 10.5];
    let one = estimate(&rounds).unwrap();
    assert_eq!(one, estimate(&rounds).unwrap());
    let moved = estimate(&rounds.map(|value| value * 2.0 + 100.0)).unwrap();
    assert_eq!((moved.low, moved.high), (one.low * 2.0 + 100.0, one.high * 2.0 + 100.0));
    let mut shuffled = rounds;
    shuffled.reverse();
    assert_eq!(estimate(&shuffled).unwrap().value, one.value);
}

#[test]
fn an_interval_excludes_what_lies_outside_of_it() {
    let estimate = Estimate { value: 2.0, low: 1.0, high: 4.0, confidence: 0.95 };
    assert!(estimate.excludes(0.9) && estimate.excludes(4.1));
    assert!(!estimate.excludes(1.0) && !estimate.excludes(4.0));
    assert_eq!(estimate.margin(), 2.0, "the larger side");
    assert!(estimate.is_firm() && !Estimate { confidence: 0.875, ..estimate }.is_firm());
}

proptest! {
    #[test]
    fn an_interval_holds_its_value_and_stays_within_the_rounds(
        rounds in prop::collection::vec(-1e6..1e6_f64, 1..12),
    ) {
        let estimate = estimate(&rounds).unwrap();
        let least = rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let max = rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        prop_assert!(least <= estimate.low && estimate.low <= estimate.value);
        prop_assert!(estimate.value <= estimate.high && estimate.high <= max);
        prop_assert_eq!(median(&rounds), Some(estimate.value));
    }

    #[test]
    fn a_percentile_has_its_share_at_or_below_it(
        mut samples in prop::collection::vec(0_u32..1_000, 1..200),
        percent in 0.0..=100.0_f64,
    ) {
        samples.sort_unstable();
        let found = percentile(&samples, percent).unwrap();
        let count = |is_counted: &dyn Fn(&u32) -> bool| real(samples.iter().filter(|sample| is_counted(sample)).count() as u64);
        let (total, wanted) = (real(samples.len() as u64), percent / 100.0);
        prop_assert!(count(&|sample| *sample <= found) / total >= wanted - 1e-9);
        // Nearest rank: no smaller sample has that share.
        prop_assert!(count(&|sample| *sample < found) / total < wanted.max(1e-9) + 1e-9);
    }

    #[test]
    fn a_slope_of_points_on_a_line_is_the_lines(
        slope_of_line in -100.0..100.0_f64,
        offset in -100.0..100.0_f64,
        xs in prop::collection::btree_set(0_u32..1_000, 2..10),
    ) {
        let points: Vec<(f64, f64)> =
            xs.into_iter().map(f64::from).map(|x| (x, slope_of_line * x + offset)).collect();
        let estimate = slope(&[points]).unwrap();
        prop_assert!((estimate.value - slope_of_line).abs() < 1e-6, "{estimate:?}");
    }
}

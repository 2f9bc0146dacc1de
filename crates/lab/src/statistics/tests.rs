//! Tests of the figures against values computed by hand, and of the intervals against their confidence.
#![expect(clippy::float_cmp, reason = "samples are returned unchanged, not computed")]

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
fn abs_percentile_is_one_above_and_never_out_of_bounds() {
    let samples = hundred();
    for (percent, expected) in [(0, 1), (1, 2), (50, 51), (99, 100), (100, 100)] {
        assert_eq!(percentile_as_ab(&samples, percent), Some(expected), "{percent}");
    }
    assert_eq!(percentile_as_ab(&[1, 2], 99), Some(2));
    assert_eq!(percentile_as_ab::<u32>(&[], 99), None);
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
        let rounds: Vec<f64> = (0..15).map(|_| random.unit()).collect();
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
fn draws_are_the_same_each_time_and_cover_the_range() {
    let mut random = Random::new(7);
    let draws: Vec<usize> = (0..1000).map(|_| random.below(4)).collect();
    let mut again = Random::new(7);
    assert!(draws.iter().all(|draw| *draw == again.below(4)));
    for value in 0..4 {
        let count = draws.iter().filter(|draw| **draw == value).count();
        assert!((180..=320).contains(&count), "{value}: {count}");
    }
    assert_eq!(random.below(0), 0);
}

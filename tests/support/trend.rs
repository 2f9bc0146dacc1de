//! Growth of a figure that was read many times.

/// The growth of a figure over the whole time of its points, by Theil and Sen: the median of the slopes
/// between all pairs of points, times the time. Up to 29 % of the points may be anything, so neither a peak
/// nor a dip counts. 0 for less than two points.
pub fn growth(points: &[(f64, f64)]) -> f64 {
    let pairs = points.iter().enumerate().flat_map(|(at, first)| {
        points[at + 1..].iter().map(move |second| (second.1 - first.1) / (second.0 - first.0))
    });
    let length = points.last().map_or(0.0, |last| last.0 - points[0].0);
    median(pairs.filter(|slope| slope.is_finite()).collect()) * length
}

/// The middle one of these values; 0 if there is none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// The lowest of the points of each of `count` parts, in order: what is there for a moment does not count.
pub fn lowest(points: &[(f64, f64)], count: usize) -> Vec<(f64, f64)> {
    let parts = points.chunks(points.len().div_ceil(count).max(1));
    parts.filter_map(|part| part.iter().min_by(|one, other| one.1.total_cmp(&other.1)).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(slope: f64) -> Vec<(f64, f64)> {
        (0..100).map(f64::from).map(|at| (at, 7.0 + slope * at)).collect()
    }

    #[test]
    fn growth_is_seen_in_spite_of_peaks() {
        let mut points = line(0.5);
        points[10..30].iter_mut().for_each(|point| point.1 += 1_000.0);
        assert!((growth(&points) - 49.5).abs() < 1.0, "{}", growth(&points));
    }

    #[test]
    fn a_flat_figure_with_peaks_does_not_grow() {
        let mut points = line(0.0);
        points[80..].iter_mut().for_each(|point| point.1 += 1_000.0);
        assert!(growth(&points).abs() < 1e-9, "{}", growth(&points));
        assert_eq!((growth(&[]), growth(&points[..1])), (0.0, 0.0));
    }

    #[test]
    fn the_lowest_points_keep_the_growth() {
        let mut points = line(0.5);
        points.iter_mut().step_by(3).for_each(|point| point.1 += 1_000.0);
        let lowest = lowest(&points, 20);
        assert_eq!(lowest.len(), 20);
        assert!((growth(&lowest) - 0.5 * (lowest[19].0 - lowest[0].0)).abs() < 2.0, "{lowest:?}");
    }
}

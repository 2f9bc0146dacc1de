//! Formats figures with as many digits as they deserve.

use egret_measure::statistics::Estimate;

/// Formats a signed figure with its margin: `+0.11 ms ± 0.03`, or with its bounds if they are asymmetric:
/// `−2.60 ms (−7.07 to −0.52)`.
pub(crate) fn signed_ms(estimate: &Estimate) -> String {
    signed_in("ms", estimate)
}

/// Formats a signed figure in another unit with its margin or bounds.
pub(crate) fn signed_in(unit: &str, estimate: &Estimate) -> String {
    let value = signed(estimate.value, estimate.margin());
    if is_lopsided(estimate) {
        format!("{value} {unit} {}", bounds(estimate))
    } else {
        format!("{value} {unit} ± {}", margin(estimate))
    }
}

/// Formats a figure and its margin with the same number of decimals: `155.90 ± 3.91`.
pub(crate) fn plus_minus(estimate: &Estimate) -> (String, String) {
    (places(estimate.value, estimate.margin()).replace('-', "−"), margin(estimate))
}

/// Formats the margin of a figure.
pub(crate) fn margin(estimate: &Estimate) -> String {
    places(estimate.margin(), estimate.margin())
}

/// Returns `true` if the bounds are so asymmetric that `±` would misstate the nearer one.
pub(crate) fn is_lopsided(estimate: &Estimate) -> bool {
    let (below, above) = (estimate.value - estimate.low, estimate.high - estimate.value);
    below.max(above) > 2.0 * below.min(above)
}

/// Formats the bounds of a figure: `(−7.07 to −0.52)`.
pub(crate) fn bounds(estimate: &Estimate) -> String {
    let [low, high] = [estimate.low, estimate.high].map(|bound| signed(bound, estimate.margin()));
    format!("({low} to {high})")
}

/// Formats a value with its sign, and with as many decimals as suit the scale.
fn signed(value: f64, scale: f64) -> String {
    let sign = if value < 0.0 { "−" } else { "+" };
    format!("{sign}{}", places(value.abs(), scale))
}

/// Formats a value with as many decimals as show three digits of `scale`, at most three: times below a
/// microsecond are noise.
pub(crate) fn places(value: f64, scale: f64) -> String {
    match scale {
        scale if scale >= 100.0 => format!("{value:.0}"),
        scale if scale >= 10.0 => format!("{value:.1}"),
        scale if scale >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Formats a share with a hundredth of a percent, because a bound may be as low as one in a thousand.
pub(crate) fn share(share: f64) -> String {
    if share == 0.0 { "0 %".into() } else { format!("{:.2} %", share * 1e2) }
}

/// Formats a number with thousands separators: `12,500`.
pub(crate) fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(low: f64, value: f64, high: f64) -> Estimate {
        Estimate { value, low, high, confidence: 0.95 }
    }

    #[test]
    fn a_figure_has_the_decimals_of_its_margin() {
        for (low, value, high, text) in [
            (0.08, 0.11, 0.14, "+0.110 ms ± 0.030"),
            (99.0, 100.0, 101.0, "+100.00 ms ± 1.00"),
            (-112.0, -100.0, -88.0, "−100.0 ms ± 12.0"),
            (1_000.0, 1_200.0, 1_400.0, "+1200 ms ± 200"),
            (0.0, 0.0, 0.0, "+0.000 ms ± 0.000"),
        ] {
            assert_eq!(signed_ms(&estimate(low, value, high)), text);
        }
        assert_eq!(plus_minus(&estimate(-4.0, -2.0, 0.0)), ("−2.00".to_owned(), "2.00".to_owned()));
    }

    #[test]
    fn bounds_are_written_out_where_they_are_uneven() {
        let uneven = estimate(-7.07, -2.6, -0.52);
        assert!(is_lopsided(&uneven));
        assert_eq!(signed_ms(&uneven), "−2.60 ms (−7.07 to −0.52)");
        // Twice as far on one side is still close to `±`.
        assert!(!is_lopsided(&estimate(-2.0, 0.0, 1.0)) && is_lopsided(&estimate(-2.1, 0.0, 1.0)));
    }

    #[test]
    fn shares_and_counts_are_written_for_people() {
        assert_eq!(
            (share(0.0), share(0.001), share(1.0)),
            ("0 %".into(), "0.10 %".into(), "100.00 %".into())
        );
        for (value, text) in [(0.0, "0"), (999.4, "999"), (999.5, "1,000"), (1_234_567.0, "1,234,567")] {
            assert_eq!(thousands(value), text);
        }
        for (value, scale, text) in
            [(1.0, 100.0, "1"), (1.0, 99.0, "1.0"), (1.0, 9.0, "1.00"), (1.0, 0.09, "1.000")]
        {
            assert_eq!(places(value, scale), text);
        }
    }
}

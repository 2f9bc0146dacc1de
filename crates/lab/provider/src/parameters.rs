//! Reads an endpoint's parameters within their limits. Errors use httpbin's wording.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use egret_clock::Random;

use crate::call::ProviderCall;
use crate::duration;
use crate::error::ProviderError;

/// The query parameters of a call. An empty value counts as absent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parameters<'a> {
    call: &'a ProviderCall,
}

impl<'a> Parameters<'a> {
    /// The parameters of a call.
    pub fn of(call: &'a ProviderCall) -> Self {
        Self { call }
    }

    /// Reads a duration up to the provider's maximum.
    pub fn duration(self, name: &str, default: Duration) -> Result<Duration, ProviderError> {
        let max = self.call.state.options().duration_max;
        self.read(name, |text| duration::parse(text, max)).map(|found| found.unwrap_or(default))
    }

    /// Reads a positive duration up to the provider's maximum.
    pub fn duration_above_zero(self, name: &str, default: Duration) -> Result<Duration, ProviderError> {
        let max = self.call.state.options().duration_max;
        let above_zero = |text: &str| match duration::parse(text, max) {
            Ok(duration) if duration.is_zero() => Err(duration::DurationError::TooShort),
            other => other,
        };
        self.read(name, above_zero).map(|found| found.unwrap_or(default))
    }

    /// Reads a number within bounds.
    pub fn count(
        self,
        name: &str,
        default: usize,
        bounds: RangeInclusive<usize>,
    ) -> Result<usize, ProviderError> {
        self.read(name, |text| number(text, bounds)).map(|found| found.unwrap_or(default))
    }

    /// Reads a number of any size, clamped to bounds.
    pub fn clamped(
        self,
        name: &str,
        default: usize,
        bounds: RangeInclusive<usize>,
    ) -> Result<usize, ProviderError> {
        self.read(name, |text| clamped(text, bounds)).map(|found| found.unwrap_or(default))
    }

    /// Reads a share from 0 to 1.
    pub fn share(self, name: &str, default: f64) -> Result<f64, ProviderError> {
        let share = |text: &str| {
            let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
            share.ok_or("write a number from 0 to 1")
        };
        self.read(name, share).map(|found| found.unwrap_or(default))
    }

    /// The random sequence of this call: the same for the same `seed`.
    pub fn random(self) -> Result<Random, ProviderError> {
        let seed = self.read("seed", |text| text.parse::<i64>().map_err(|_| "write a whole number"))?;
        Ok(seed.map_or_else(|| self.call.state.sequences.next(), |seed| Random::new(seed.cast_unsigned())))
    }

    /// Reads any type that can be parsed from text.
    pub fn parsed<T: FromStr<Err: Display>>(self, name: &str) -> Result<Option<T>, ProviderError> {
        self.read(name, str::parse)
    }

    fn read<T, E: Display>(
        self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, ProviderError> {
        let text = self.call.query.get(name);
        text.map(read).transpose().map_err(|error| ProviderError::parameter(name, error))
    }
}

/// The reason why a text is not the number that a parameter needs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NumberError {
    /// The text is not a whole number.
    #[error("{0:?} is not a whole number")]
    NotWhole(String),
    /// The text is not a whole number within these bounds.
    #[error("{0:?} is not a whole number from {from} to {to}", from = .1.start(), to = .1.end())]
    NotWithin(String, RangeInclusive<usize>),
}

/// Parses a whole number within bounds.
pub(crate) fn number(text: &str, bounds: RangeInclusive<usize>) -> Result<usize, NumberError> {
    let parsed = text.parse().ok().filter(|number| bounds.contains(number));
    parsed.ok_or_else(|| NumberError::NotWithin(text.to_owned(), bounds))
}

/// Parses a whole number, clamped to bounds.
pub(crate) fn clamped(text: &str, bounds: RangeInclusive<usize>) -> Result<usize, NumberError> {
    let number: i64 = text.parse().map_err(|_| NumberError::NotWhole(text.to_owned()))?;
    Ok(usize::try_from(number).unwrap_or(0).clamp(*bounds.start(), *bounds.end()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::request;

    fn call(query: &str) -> ProviderCall {
        ProviderCall::new(request("GET", &format!("/x?{query}"), &[], ""), std::sync::Arc::default())
    }

    #[test]
    fn an_absent_or_empty_parameter_has_its_default() {
        for query in ["", "n=", "N=5"] {
            let call = call(query);
            let parameters = Parameters::of(&call);
            assert_eq!(parameters.count("n", 7, 1..=9), Ok(7), "{query}");
            assert_eq!(parameters.duration("n", Duration::from_secs(3)), Ok(Duration::from_secs(3)));
            assert_eq!(parameters.parsed::<u8>("n"), Ok(None));
        }
    }

    #[test]
    fn a_number_is_refused_or_clamped_at_its_bounds() {
        for (text, strict, clamped_to) in [
            ("1", Some(1), Some(1)),
            ("9", Some(9), Some(9)),
            ("0", None, Some(1)),
            ("10", None, Some(9)),
            ("-3", None, Some(1)),
            ("x", None, None),
            ("1.5", None, None),
            ("99999999999999999999", None, None),
        ] {
            assert_eq!(number(text, 1..=9).ok(), strict, "{text}");
            assert_eq!(clamped(text, 1..=9).ok(), clamped_to, "{text}");
        }
        assert_eq!(number("10", 1..=9).unwrap_err().to_string(), "\"10\" is not a whole number from 1 to 9");
        assert_eq!(clamped("x", 1..=9).unwrap_err().to_string(), "\"x\" is not a whole number");
    }

    #[test]
    fn durations_are_limited_and_some_must_be_above_zero() {
        let call = call("d=10s&long=11s&zero=0&share=0.5&over=1.5");
        let parameters = Parameters::of(&call);
        assert_eq!(parameters.duration("d", Duration::ZERO), Ok(Duration::from_secs(10)));
        assert!(parameters.duration("long", Duration::ZERO).is_err());
        assert_eq!(parameters.duration("zero", Duration::from_secs(1)), Ok(Duration::ZERO));
        assert!(parameters.duration_above_zero("zero", Duration::from_secs(1)).is_err());
        assert_eq!((parameters.share("share", 0.1), parameters.share("none", 0.1)), (Ok(0.5), Ok(0.1)));
        assert!(parameters.share("over", 0.1).is_err());
    }

    #[test]
    fn a_seed_fixes_the_random_sequence() {
        let draw = |query: &str| Parameters::of(&call(query)).random().unwrap().draw();
        assert_eq!(draw("seed=-1"), draw("seed=-1"));
        assert_ne!(draw("seed=1"), draw("seed=2"));
        assert_ne!(draw(""), draw(""), "without a seed");
        assert!(Parameters::of(&call("seed=x")).random().is_err());
    }
}

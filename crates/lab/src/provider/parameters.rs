//! Reads an endpoint's parameters within their limits. Errors use httpbin's wording.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use super::call::Call;
use super::duration;
use super::error::ProviderError;
use super::random::Random;

/// The query parameters of a call. An empty value counts as absent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parameters<'a> {
    call: &'a Call,
}

impl<'a> Parameters<'a> {
    /// The parameters of a call.
    pub fn of(call: &'a Call) -> Self {
        Self { call }
    }

    /// Reads a duration up to the provider's maximum.
    pub fn duration(self, name: &str, default: Duration) -> Result<Duration, ProviderError> {
        let max = self.call.lab.options().duration_max;
        self.read(name, |text| duration::parse(text, max)).map(|found| found.unwrap_or(default))
    }

    /// Reads a positive duration up to the provider's maximum.
    pub fn duration_above_zero(self, name: &str, default: Duration) -> Result<Duration, ProviderError> {
        let max = self.call.lab.options().duration_max;
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
        Ok(seed.map_or_else(|| self.call.lab.sequences.next(), |seed| Random::seeded(seed.cast_unsigned())))
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

/// Parses a whole number within bounds.
pub(super) fn number(text: &str, bounds: RangeInclusive<usize>) -> Result<usize, String> {
    let refuse = || format!("{text:?} is not a whole number from {} to {}", bounds.start(), bounds.end());
    text.parse().ok().filter(|number| bounds.contains(number)).ok_or_else(refuse)
}

/// Parses a whole number, clamped to bounds.
pub(super) fn clamped(text: &str, bounds: RangeInclusive<usize>) -> Result<usize, String> {
    let number: i64 = text.parse().map_err(|_| format!("{text:?} is not a whole number"))?;
    Ok(usize::try_from(number).unwrap_or(0).clamp(*bounds.start(), *bounds.end()))
}

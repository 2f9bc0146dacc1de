//! Parameters that a path pattern has captured.

use egret_http1::Span;

use crate::matching::path::{PathPattern, Readings};

/// The values captured by the parameters of a path, percent-decoded.
#[derive(Debug, Clone, Copy, Default)]
pub struct Parameters<'a> {
    pattern: Option<&'a PathPattern>,
    segments: &'a [Span],
    text: &'a [u8],
}

impl<'a> Parameters<'a> {
    /// Returns the parameters that the pattern `pattern` captures in the reading `reading`.
    pub(crate) fn of(pattern: Option<&'a PathPattern>, reading: usize, readings: &'a Readings) -> Self {
        Self { pattern, segments: readings.segments(reading), text: readings.text() }
    }

    /// Returns the parameters that `pattern` captures in the first reading that it matches.
    pub fn captured(pattern: Option<&'a PathPattern>, readings: &'a Readings) -> Self {
        let fits = |pattern: &&PathPattern, reading: usize| {
            pattern.matches(readings.segments(reading), readings.text())
        };
        let found = pattern.and_then(|pattern| {
            (0..readings.count()).find(|reading| fits(&pattern, *reading)).zip(Some(pattern))
        });
        found.map_or_else(Self::default, |(reading, pattern)| Self {
            pattern: Some(pattern),
            segments: readings.segments(reading),
            text: readings.text(),
        })
    }

    /// Returns the value of the parameter with that name.
    pub fn get(self, name: &str) -> Option<&'a [u8]> {
        self.iter().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// Returns names and values, in the order of the path.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let parameters = self.pattern.into_iter().flat_map(PathPattern::parameters);
        parameters.filter_map(move |(at, name)| Some((name, self.segments.get(at)?.of(self.text))))
    }
}

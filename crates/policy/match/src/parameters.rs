//! Parameters that the path and the host of a match have captured.

use crate::matching::host::{HostLabels, HostPattern, bare};
use crate::matching::path::{PathPattern, Readings};

/// The captured values. Those of a path are percent-decoded, those of a host are in lower case.
#[derive(Debug, Clone, Copy, Default)]
pub struct Parameters<'a> {
    path: Option<CapturedPath<'a>>,
    host: Option<(&'a HostLabels, &'a str)>,
}

/// A reading of a path that matches a pattern.
#[derive(Debug, Clone, Copy)]
struct CapturedPath<'a> {
    pattern: &'a PathPattern,
    reading: usize,
    readings: &'a Readings,
}

impl<'a> Parameters<'a> {
    /// Returns the parameters that the pattern `pattern` captures in the reading `reading`.
    pub(crate) fn of(pattern: Option<&'a PathPattern>, reading: usize, readings: &'a Readings) -> Self {
        Self { path: pattern.map(|pattern| CapturedPath { pattern, reading, readings }), host: None }
    }

    /// Adds the parameters that the first of `hosts` that matches captures in `host`, a request's host.
    #[must_use]
    pub(crate) fn with_host(self, hosts: &'a [HostPattern], host: &'a str) -> Self {
        let host = bare(host);
        let found = hosts.iter().find(|pattern| pattern.matches(host));
        Self { host: found.and_then(HostPattern::labels).map(|labels| (labels, host)), ..self }
    }

    /// Returns the value of the parameter with that name.
    pub fn get(self, name: &str) -> Option<&'a [u8]> {
        if let Some(regex) = self.path.and_then(|path| path.pattern.regex()) {
            let path = self.path?;
            let group = regex.group(name, path.readings.joined(path.reading)).map(str::as_bytes);
            return group.or_else(|| self.of_host(name));
        }
        self.of_segments()
            .find(|(other, _)| *other == name)
            .map(|(_, value)| value)
            .or_else(|| self.of_host(name))
    }

    /// Returns names and values, in the order of the host and then of the path.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let of_host = self.host.into_iter().flat_map(|(labels, host)| labels.captured(host));
        let of_host = of_host.map(|(name, value)| (name, value.as_bytes()));
        of_host.chain(self.of_segments()).chain(self.of_groups())
    }

    fn of_host(self, name: &str) -> Option<&'a [u8]> {
        let (labels, host) = self.host?;
        labels.captured(host).find(|(other, _)| *other == name).map(|(_, value)| value.as_bytes())
    }

    fn of_segments(self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let found = self.path.and_then(|path| match path.pattern {
            PathPattern::Segments(pattern) => {
                Some((pattern, path.readings.segments(path.reading), path.readings))
            }
            PathPattern::Regex(_) => None,
        });
        found.into_iter().flat_map(|(pattern, segments, readings)| {
            let value = move |at: usize| segments.get(at).map(|segment| segment.of(readings.text()));
            pattern.parameters().filter_map(move |(at, name)| Some((name, value(at)?)))
        })
    }

    fn of_groups(self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let found =
            self.path.and_then(|path| Some((path.pattern.regex()?, path.readings.joined(path.reading))));
        found.into_iter().flat_map(|(regex, text)| {
            regex.names().filter_map(move |name| Some((name, regex.group(name, text)?.as_bytes())))
        })
    }
}

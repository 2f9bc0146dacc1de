//! Captures the parameters of a request whose flow and path are already known.

use crate::matching::{HostPattern, MatchConfig, PathPattern, Readings};
use crate::parameters::Parameters;

/// The patterns of a match that may capture parameters.
#[derive(Debug, Clone, Default)]
pub struct CapturingPatterns {
    paths: Box<[Option<PathPattern>]>,
    hosts: Box<[HostPattern]>,
    has_parameters: bool,
}

impl CapturingPatterns {
    /// Returns the patterns of `config`. Invalid ones are skipped, because compiling the match reports them.
    pub fn of(config: &MatchConfig) -> Self {
        Self {
            paths: config.path.iter().map(|text| PathPattern::parse(text).ok()).collect(),
            hosts: config.host.iter().filter_map(|text| HostPattern::parse(text).ok()).collect(),
            has_parameters: !config.parameters().is_empty(),
        }
    }

    /// Returns the parameters of a request to `host` whose path matches the pattern with number `pattern`.
    /// `readings` is memory for the readings of `path`.
    pub fn captured<'a>(
        &'a self,
        pattern: usize,
        host: &'a str,
        path: &[u8],
        readings: &'a mut Readings,
    ) -> Parameters<'a> {
        if !self.has_parameters {
            return Parameters::default();
        }
        let pattern = self.paths.get(pattern).and_then(Option::as_ref);
        readings.read(path);
        if pattern.is_some_and(|pattern| pattern.regex().is_some()) {
            readings.join();
        }
        let readings = &*readings;
        let reading = pattern
            .and_then(|pattern| (0..readings.count()).find(|reading| pattern.matches(*reading, readings)));
        Parameters::of(reading.and(pattern), reading.unwrap_or_default(), readings)
            .with_host(&self.hosts, host)
    }
}

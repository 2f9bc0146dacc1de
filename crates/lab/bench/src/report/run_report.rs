//! A run with its result, and the figures that several formats show.

use super::style::Style;
use crate::compile::Compiled;
use crate::engine::RunOutcome;
use crate::tally::{Fault, Series};

/// A run with its result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunReport<'a> {
    /// The run.
    pub run: &'a Compiled,
    /// Its result.
    pub outcome: &'a RunOutcome,
    /// The presentation.
    pub style: &'a Style,
}

impl RunReport<'_> {
    /// The text printed before the run.
    pub fn banner(style: &Style) -> String {
        let version = env!("CARGO_PKG_VERSION");
        // Parsers look for ab's name and version. With ab's compatibility they find them, beside Egret's own
        // name.
        let [first, second] = if style.ab_compat {
            [format!("This is ApacheBench, Version 2.3 <as told by egret bench {version}>"), String::new()]
        } else {
            [
                format!("This is egret bench, Version {version}"),
                "Reports as ApacheBench 2.3 does, and more below".to_owned(),
            ]
        };
        match style.html {
            Some(_) => format!("<p>\n {first}<br>\n {second}<br>\n</p>\n<p>\n"),
            None => format!("{first}\n{second}\nLicensed under the Apache License, Version 2.0\n\n"),
        }
    }

    /// The line that names the host under test. ab's HTML table has none.
    pub fn opening(run: &Compiled, style: &Style, is_shown: bool) -> String {
        if style.html.is_some() {
            return String::new();
        }
        let through = run.proxy.as_ref().map(|proxy| format!("[through {proxy}] ")).unwrap_or_default();
        let end = if is_shown { "\n" } else { "..." };
        format!("Benchmarking {} {through}(be patient){end}", run.url.host)
    }

    /// Failures in ab's four classes: connect, receive, length, exceptions.
    pub(crate) fn faults(&self) -> [u64; 4] {
        let tally = &self.outcome.tally;
        let sum = |faults: &[Fault]| faults.iter().map(|fault| tally.faults(*fault)).sum();
        [
            sum(&[Fault::Connect]),
            sum(&[Fault::Receive, Fault::Closed]),
            sum(&[Fault::Length]),
            sum(&[Fault::Timeout, Fault::Protocol, Fault::Check]),
        ]
    }

    /// Converts to KiB per second.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a run stay below 2^53")]
    pub(crate) fn kib_per_second(&self, bytes: u64) -> f64 {
        let seconds = self.outcome.elapsed.as_secs_f64();
        if seconds > 0.0 { bytes as f64 / 1024.0 / seconds } else { 0.0 }
    }

    /// Body length of the first response; 0 without a response.
    pub(crate) fn document_length(&self) -> u64 {
        self.run.plan.requests.iter().find_map(|request| request.length.get()).unwrap_or(0)
    }

    /// The median of a series in microseconds: as defined, or as ab computes it.
    #[expect(clippy::cast_precision_loss, reason = "an hour in microseconds is far below 2^53")]
    pub(crate) fn median(&self, series: &Series) -> f64 {
        let count = series.count();
        let middle = |one: u64, other: u64| (series.at_rank(one) + series.at_rank(other)) as f64 / 2.0;
        match (self.style.ab_compat, count.is_multiple_of(2)) {
            // For an odd count ab averages two values; for an even count it takes the upper of the two middle
            // ones.
            (true, false) if count > 1 => middle(count / 2, count / 2 + 1),
            (true, _) | (false, false) => series.at_rank(count / 2) as f64,
            (false, true) => middle((count / 2).saturating_sub(1), count / 2),
        }
    }

    /// A row of ab's table of percentiles, in microseconds.
    pub(crate) fn percentile(&self, total: &Series, percent: u64) -> u64 {
        if self.style.ab_compat && percent < 100 {
            return total.at_rank(total.count() * percent / 100);
        }
        #[expect(clippy::cast_precision_loss, reason = "at most 100")]
        total.percentile(percent as f64)
    }
}

/// Converts to whole milliseconds, rounded as ab does.
pub(crate) fn ms(us: u64) -> u64 {
    (us + 500) / 1_000
}

//! Load clients: their command lines, and the parsing of their output.

mod ab;
mod bench;
mod oha;
mod siege;
mod wrk;

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::config::{Amount, Client};
use super::results::real;

/// A load client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientKind {
    /// `egret bench`: has the features of the others, and an open model.
    #[default]
    Bench,
    /// Apache's ab: HTTP/1.0, one thread, percentiles.
    Ab,
    /// siege: one thread per connection, no percentiles, times in hundredths of a second.
    Siege,
    /// wrk: persistent connections only, for a fixed duration.
    Wrk,
    /// oha: prints the times of all requests, from which percentiles are computed here.
    Oha,
}

impl fmt::Display for ClientKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bench => "bench",
            Self::Ab => "ab",
            Self::Siege => "siege",
            Self::Wrk => "wrk",
            Self::Oha => "oha",
        })
    }
}

/// A run of a client.
#[derive(Debug)]
pub struct Task<'a> {
    /// The client's settings.
    pub client: &'a Client,
    /// Amount of work; differs from the client's settings during the warm-up.
    pub amount: Amount,
    /// The URL to request.
    pub url: &'a str,
    /// The directory for its files.
    pub directory: &'a Path,
}

/// The figures measured by a client.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
pub struct Figures {
    /// Number of completed requests.
    pub requests: u64,
    /// Number of failed requests, as the client counts them: not connected, connection broken, not 2xx.
    pub failed: u64,
    /// Duration in seconds.
    pub duration_s: f64,
    /// Requests per second.
    pub requests_per_second: f64,
    /// Mean response time, if the client reports it.
    pub mean_ms: Option<f64>,
    /// Response times in milliseconds, one for each whole percentile from 0 to 100; empty if the client
    /// reports none.
    pub percentiles_ms: Vec<f64>,
    /// 99.9th percentile, if the client reports it.
    pub p99_9_ms: Option<f64>,
    /// `true` if the client was the bottleneck, if the client reports it.
    pub client_saturated: Option<bool>,
}

impl ClientKind {
    /// Name of the program; `None` for Egret's own client.
    pub fn program(self) -> Option<&'static str> {
        match self {
            Self::Bench => None,
            Self::Ab => Some("ab"),
            Self::Siege => Some("siege"),
            Self::Wrk => Some("wrk"),
            Self::Oha => Some("oha"),
        }
    }

    /// Builds the arguments, and writes the files they refer to into the task's directory.
    pub fn arguments(self, task: &Task<'_>) -> std::io::Result<Vec<OsString>> {
        match self {
            Self::Bench => bench::arguments(task),
            Self::Ab => ab::arguments(task),
            Self::Siege => siege::arguments(task),
            Self::Wrk => wrk::arguments(task),
            Self::Oha => oha::arguments(task),
        }
    }

    /// Parses the client's output and files.
    pub fn figures(self, directory: &Path, printed: &str) -> Result<Figures, String> {
        let figures = match self {
            Self::Bench => bench::figures(directory),
            Self::Ab => ab::figures(directory, printed),
            Self::Siege => siege::figures(printed),
            Self::Wrk => wrk::figures(printed),
            Self::Oha => oha::figures(printed),
        }?;
        let told = [figures.duration_s, figures.requests_per_second]
            .into_iter()
            .chain(figures.percentiles_ms.iter().copied());
        match told.into_iter().find(|figure| !figure.is_finite() || *figure < 0.0) {
            Some(figure) => Err(format!("invalid figure {figure}")),
            None => Ok(figures),
        }
    }
}

/// Name of the file for percentiles in the format of ab's `-e`.
pub const PERCENTILES_CSV: &str = "percentiles.csv";

/// Parses a percentile CSV as ab writes it: a heading, then the rows 0 to 100.
fn percentiles(directory: &Path) -> Result<Vec<f64>, String> {
    let text = std::fs::read_to_string(directory.join(PERCENTILES_CSV))
        .map_err(|error| format!("its percentiles cannot be read: {error}"))?;
    parse_percentiles(&text)
        .ok_or_else(|| format!("{PERCENTILES_CSV} does not have the 101 rows that ab writes"))
}

fn parse_percentiles(text: &str) -> Option<Vec<f64>> {
    let rows = text.lines().skip(1).map(|line| {
        let (percent, time) = line.split_once(',')?;
        Some((percent.trim().parse::<usize>().ok()?, time.trim().parse::<f64>().ok()?))
    });
    let rows: Vec<(usize, f64)> = rows.collect::<Option<_>>()?;
    let whole = rows.len() == 101 && rows.iter().enumerate().all(|(index, (percent, _))| index == *percent);
    whole.then(|| rows.into_iter().map(|(_, time)| time).collect())
}

/// Converts the words of a command line.
fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

/// Returns the options that send a body with POST, and writes the body's file; no options without a body. The
/// file is hidden, so it is not kept with the figures.
fn body_options(task: &Task<'_>, options: &[&str], file_option: &str) -> std::io::Result<Vec<OsString>> {
    if task.client.body_bytes == 0 {
        return Ok(Vec::new());
    }
    let file = task.directory.join(".body");
    let length = usize::try_from(task.client.body_bytes).unwrap_or(usize::MAX);
    std::fs::write(&file, vec![b'x'; length])?;
    let mut words = words(options);
    words.extend([file_option.into(), file.into()]);
    Ok(words)
}

/// Returns the options for a number of requests or a duration, as ab and similar clients take them.
fn amount_options(amount: Amount) -> Vec<OsString> {
    match amount {
        Amount::Requests(requests) => words(&["-n", &requests.to_string()]),
        // `-t` sets the number of requests to 50,000. The `-n` after it raises that and only bounds ab's
        // memory.
        Amount::For(duration) => words(&["-t", &duration.as_secs().to_string(), "-n", "50000000"]),
    }
}

#[cfg(test)]
mod tests;

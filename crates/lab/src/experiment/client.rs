//! Load clients: how each is asked, and how its answer is read.

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
    /// `egret bench`: all that the others can, and an open model.
    #[default]
    Bench,
    /// Apache's ab: HTTP/1.0, one thread; percentiles.
    Ab,
    /// siege: a thread for each connection; no percentiles, times in hundredths of a second.
    Siege,
    /// wrk: kept connections only, for a time.
    Wrk,
    /// oha: keeps the times of all requests, of which percentiles are taken here.
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

/// One run of a client.
#[derive(Debug)]
pub struct Task<'a> {
    /// How it asks.
    pub client: &'a Client,
    /// How much; differs from the client's for the warm-up.
    pub amount: Amount,
    /// What it asks for.
    pub url: &'a str,
    /// Where it leaves its files.
    pub directory: &'a Path,
}

/// What a client saw.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
pub struct Figures {
    /// Requests that were answered.
    pub requests: u64,
    /// Requests that failed, as the client counts them: not connected, cut off, not 2xx.
    pub failed: u64,
    /// How long it took, in seconds.
    pub duration_s: f64,
    /// Answers in a second.
    pub requests_per_second: f64,
    /// The mean response time, where the client tells.
    pub mean_ms: Option<f64>,
    /// Response times in milliseconds, one for each whole percentile from 0 to 100; empty where the client tells none.
    pub percentiles_ms: Vec<f64>,
    /// The 99.9th percentile, where the client tells.
    pub p99_9_ms: Option<f64>,
    /// Whether the client was itself the bottleneck, where it tells.
    pub client_saturated: Option<bool>,
}

impl ClientKind {
    /// The program's name; `None` for Egret's own.
    pub fn program(self) -> Option<&'static str> {
        match self {
            Self::Bench => None,
            Self::Ab => Some("ab"),
            Self::Siege => Some("siege"),
            Self::Wrk => Some("wrk"),
            Self::Oha => Some("oha"),
        }
    }

    /// Its arguments; writes what they refer to into the task's directory.
    pub fn arguments(self, task: &Task<'_>) -> std::io::Result<Vec<OsString>> {
        match self {
            Self::Bench => bench::arguments(task),
            Self::Ab => ab::arguments(task),
            Self::Siege => siege::arguments(task),
            Self::Wrk => wrk::arguments(task),
            Self::Oha => oha::arguments(task),
        }
    }

    /// Reads what it printed and left behind; the error says what is not as it should be.
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
            Some(figure) => Err(format!("a figure is {figure}")),
            None => Ok(figures),
        }
    }
}

/// The file that percentiles are written into, as ab's `-e` does.
pub const PERCENTILES_CSV: &str = "percentiles.csv";

/// Reads a percentile CSV as ab writes it: a heading, then 0 to 100.
fn percentiles(directory: &Path) -> Result<Vec<f64>, String> {
    let text = std::fs::read_to_string(directory.join(PERCENTILES_CSV))
        .map_err(|error| format!("its percentiles cannot be read: {error}"))?;
    parse_percentiles(&text).ok_or_else(|| format!("{PERCENTILES_CSV} has not the 101 rows that ab writes"))
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

/// The words of a command line.
fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

/// Options that make requests a POST with a file that is written for it, where the task is to have a body; none otherwise. It is
/// hidden, so that it is not kept with the figures.
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

/// A number of requests or a time, as the options that ab and its like take.
fn amount_options(amount: Amount) -> Vec<OsString> {
    match amount {
        Amount::Requests(requests) => words(&["-n", &requests.to_string()]),
        // Behind -t, which would set it to 50,000, -n is only the bound of ab's memory.
        Amount::For(duration) => words(&["-t", &duration.as_secs().to_string(), "-n", "50000000"]),
    }
}

#[cfg(test)]
mod tests;

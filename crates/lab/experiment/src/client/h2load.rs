//! h2load: logs a row for each request, from which percentiles are computed. The other figures are from its
//! report.

use std::path::Path;

use egret_measure::statistics::real;

use super::count;
use super::grpc;
use super::output_error::OutputError;
use super::task::{ClientCommand, ClientTask, words};
use crate::client_settings::{Amount, Protocol};
use crate::figures::Figures;

/// Name of the log.
const LOG: &str = "h2load.tsv";

/// Builds the command line.
pub(crate) fn command(task: &ClientTask<'_>) -> ClientCommand {
    let client = task.client;
    let mut command =
        ClientCommand::new(&["-c", &client.concurrency.to_string(), "-m", &client.streams.to_string()]);
    command.add(match task.amount {
        Amount::Requests(requests) => words(&["-n", &requests.to_string()]),
        Amount::For(duration) => words(&["-D", &duration.as_secs().to_string()]),
    });
    if client.threads > 1 {
        command.add(["-t", &client.threads.to_string()]);
    }
    command.add_fields(task, "-H");
    let content_type = if client.protocol == Protocol::Grpc {
        command.add(["-H", grpc::TRAILERS_FIELD]);
        grpc::CONTENT_TYPE
    } else {
        "application/octet-stream"
    };
    command.add_body(task, &["-H", &format!("content-type: {content_type}")], "-d");
    command.add(["--log-file".into(), task.directory.join(LOG).into_os_string(), task.url().into()]);
    command
}

/// Parses the report, and the rows of the log: start, status and time, both times in microseconds.
pub(crate) fn figures(directory: &Path, printed: &str) -> Result<Figures, OutputError> {
    let rate = "finished in";
    let requests_per_second = number_before(printed, rate, " req/s").ok_or(OutputError::NoLine(rate))?;
    let log = std::fs::read_to_string(directory.join(LOG)).map_err(OutputError::Log)?;
    let rows: Vec<(u16, f64)> = log
        .lines()
        .map(|line| row(line).ok_or_else(|| OutputError::InvalidRow(line.to_owned())))
        .collect::<Result<_, _>>()?;
    let (requests, done) = ("requests:", real(rows.len() as u64));
    let unanswered: f64 = ["errored", "timeout"]
        .iter()
        .map(|word| {
            number_before(printed, requests, &format!(" {word}")).ok_or(OutputError::NoLine(requests))
        })
        .sum::<Result<_, _>>()?;
    let refused = rows.iter().filter(|(status, _)| status / 100 != 2).count() as u64;
    Ok(Figures {
        failed: refused + count(unanswered),
        duration_s: if requests_per_second > 0.0 { done / requests_per_second } else { 0.0 },
        requests_per_second,
        ..Figures::of_times(rows.iter().map(|(_, time_us)| time_us / 1e3).collect())
    })
}

/// The number before a word in the line that begins with `label`.
fn number_before(printed: &str, label: &str, word: &str) -> Option<f64> {
    let line = printed.lines().find(|line| line.starts_with(label))?;
    let before = &line[..line.find(word)?];
    before.rsplit([' ', ',']).next()?.parse().ok()
}

/// Parses status and time. Rows of requests without a response have -1 as status.
fn row(line: &str) -> Option<(u16, f64)> {
    let mut columns = line.split('\t').skip(1);
    let status: i32 = columns.next()?.parse().ok()?;
    let time_us = columns.next()?.parse().ok()?;
    Some((u16::try_from(status).unwrap_or(0), time_us))
}

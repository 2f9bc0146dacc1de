//! oha: prints a CSV row for each request, from which percentiles and rate are computed.

use egret_measure::statistics::real;

use super::output_error::OutputError;
use super::task::{ClientCommand, ClientTask, words};
use crate::client_settings::Amount;
use crate::figures::Figures;

/// Builds the command line.
pub(crate) fn command(task: &ClientTask<'_>) -> ClientCommand {
    let mut command = ClientCommand::new(&["--no-tui", "--output-format", "csv", "--redirect", "0"]);
    command.add(["-c", &task.client.concurrency.to_string()]);
    command.add(match task.amount {
        Amount::Requests(requests) => words(&["-n", &requests.to_string()]),
        Amount::For(duration) => words(&["-z", &format!("{}s", duration.as_secs())]),
    });
    if !task.client.keep_alive {
        command.add(["--disable-keepalive"]);
    }
    command.add_fields(task, "-H");
    command.add_body(task, &["-m", "POST", "-T", "application/octet-stream"], "-D");
    command.add([task.url()]);
    command
}

/// A CSV row.
struct Row {
    start_s: f64,
    duration_s: f64,
    status: u16,
}

/// Parses the output.
pub(crate) fn figures(printed: &str) -> Result<Figures, OutputError> {
    let mut lines = printed.lines().skip_while(|line| !line.starts_with("request-start,"));
    let heading = lines.next().ok_or(OutputError::NoRows)?;
    let column = |name: &'static str| {
        let found = heading.split(',').position(|column| column == name);
        found.ok_or(OutputError::NoColumn(name))
    };
    let columns = [column("request-start")?, column("request-duration")?, column("status")?];
    let rows: Vec<Row> = lines
        .map(|line| row(line, columns).ok_or_else(|| OutputError::InvalidRow(line.to_owned())))
        .collect::<Result<_, _>>()?;
    let first = rows.iter().map(|row| row.start_s).fold(f64::INFINITY, f64::min);
    let last = rows.iter().map(|row| row.start_s + row.duration_s).fold(first, f64::max);
    let duration_s = if rows.is_empty() { 0.0 } else { last - first };
    let rate = if duration_s > 0.0 { real(rows.len() as u64) / duration_s } else { 0.0 };
    Ok(Figures {
        failed: rows.iter().filter(|row| row.status / 100 != 2).count() as u64,
        duration_s,
        requests_per_second: rate,
        ..Figures::of_times(rows.iter().map(|row| row.duration_s * 1e3).collect())
    })
}

/// Parses start, duration and status from a row. Returns `None` unless all are numbers.
fn row(line: &str, columns: [usize; 3]) -> Option<Row> {
    let cells: Vec<&str> = line.split(',').collect();
    let [start, duration, status] = columns.map(|column| cells.get(column).copied().unwrap_or_default());
    Some(Row {
        start_s: start.parse().ok()?,
        duration_s: duration.parse().ok()?,
        status: status.parse().ok()?,
    })
}

//! Apache's ab: percentiles come from its CSV, the other figures from its report.

use std::path::Path;

use super::count;
use super::output_error::OutputError;
use super::percentiles::{PERCENTILES_CSV, percentiles};
use super::task::{ClientCommand, ClientTask, amount_options};
use crate::figures::Figures;

/// Builds the command line.
pub(crate) fn command(task: &ClientTask<'_>) -> ClientCommand {
    // `-l`: lengths may vary, as those of an echo do. `-r`: a reset counts as a failure instead of ending the
    // run.
    let mut command = ClientCommand::new(&["-q", "-l", "-r", "-c", &task.client.concurrency.to_string()]);
    command.add(amount_options(task.amount));
    if task.client.keep_alive {
        command.add(["-k"]);
    }
    command.add_fields(task, "-H");
    command.add_body(task, &["-T", "application/octet-stream"], "-p");
    command.add(["-e".into(), task.directory.join(PERCENTILES_CSV).into_os_string(), task.url().into()]);
    command
}

/// Parses the output.
pub(crate) fn figures(directory: &Path, printed: &str) -> Result<Figures, OutputError> {
    let line = |label: &str| {
        let line = printed.lines().find_map(|line| line.strip_prefix(label))?;
        line.split_ascii_whitespace().next()?.parse::<f64>().ok()
    };
    let figure = |label: &'static str| line(label).ok_or(OutputError::NoLine(label));
    let requests = count(figure("Complete requests:")?);
    let failed =
        ["Failed requests:", "Non-2xx responses:"].iter().filter_map(|label| line(label)).map(count).sum();
    let duration_s = figure("Time taken for tests:")?;
    Ok(Figures {
        requests,
        failed,
        duration_s,
        requests_per_second: figure("Requests per second:")?,
        percentiles_ms: percentiles(directory)?,
        ..Figures::default()
    })
}

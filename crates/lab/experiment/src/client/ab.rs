//! Apache's ab: percentiles come from its CSV, the other figures from its report.

use std::ffi::OsString;
use std::path::Path;

use super::output_error::OutputError;
use super::percentiles::{PERCENTILES_CSV, percentiles};
use super::task::{ClientTask, amount_options, body_options, words};
use crate::figures::Figures;

/// Builds the command line.
pub(crate) fn arguments(task: &ClientTask<'_>) -> std::io::Result<Vec<OsString>> {
    // `-l`: lengths may vary, as those of an echo do. `-r`: a reset counts as a failure instead of ending the
    // run.
    let mut arguments = words(&["-q", "-l", "-r", "-c", &task.client.concurrency.to_string()]);
    arguments.extend(amount_options(task.amount));
    if task.client.keep_alive {
        arguments.push("-k".into());
    }
    arguments.extend(body_options(task, &["-T", "application/octet-stream"], "-p")?);
    arguments.extend(["-e".into(), task.directory.join(PERCENTILES_CSV).into(), task.url.into()]);
    Ok(arguments)
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

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "ab prints whole counts; the cast saturates"
)]
fn count(figure: f64) -> u64 {
    figure as u64
}

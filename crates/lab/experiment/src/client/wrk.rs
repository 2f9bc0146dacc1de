//! wrk: a Lua script makes it print its figures, percentiles included, as JSON.

use egret_measure::statistics::real;
use serde::Deserialize;

use super::output_error::OutputError;
use super::task::{ClientCommand, ClientTask};
use crate::client_settings::Amount;
use crate::figures::Figures;

/// Name of the script in the task's directory.
const SCRIPT: &str = "figures.lua";

/// Duration of the warm-up: wrk does not support a number of requests.
const WARM_UP_S: u64 = 1;

/// Builds the command line.
pub(crate) fn command(task: &ClientTask<'_>) -> ClientCommand {
    let script = task.directory.join(SCRIPT);
    let seconds = match task.amount {
        Amount::For(duration) => duration.as_secs(),
        Amount::Requests(_) => WARM_UP_S,
    };
    let threads = format!("-t{}", task.client.threads);
    let (connections, seconds) = (format!("-c{}", task.client.concurrency), format!("-d{seconds}s"));
    let mut command = ClientCommand::new(&[&threads, &connections, &seconds]);
    command.files.push((SCRIPT, include_bytes!("wrk/figures.lua").to_vec()));
    command.add_fields(task, "-H");
    command.add(["-s".into(), script.into_os_string(), task.url().into()]);
    command.add(["--", &task.client.body_bytes.to_string()]);
    command
}

#[derive(Deserialize)]
struct Printed {
    requests: u64,
    duration_us: u64,
    failed: u64,
    mean_us: f64,
    percentiles_us: Vec<f64>,
    p99_9_us: f64,
}

/// Parses the output.
pub(crate) fn figures(printed: &str) -> Result<Figures, OutputError> {
    let last = printed.lines().last().unwrap_or_default();
    let seen: Printed = serde_json::from_str(last).map_err(|error| OutputError::Json {
        expected: "its last line is not the JSON of its script",
        error,
    })?;
    let duration_s = real(seen.duration_us) / 1e6;
    Ok(Figures {
        requests: seen.requests,
        failed: seen.failed,
        duration_s,
        requests_per_second: if duration_s > 0.0 { real(seen.requests) / duration_s } else { 0.0 },
        mean_ms: Some(seen.mean_us / 1e3),
        percentiles_ms: seen.percentiles_us.iter().map(|time| time / 1e3).collect(),
        p99_9_ms: Some(seen.p99_9_us / 1e3),
        ..Figures::default()
    })
}

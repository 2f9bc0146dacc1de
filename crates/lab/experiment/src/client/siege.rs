//! siege: runs with its own settings file, so no user's `~/.siege` influences the measurement. Figures come
//! from its JSON.

use serde::Deserialize;

use super::output_error::OutputError;
use super::task::{ClientCommand, ClientTask, words};
use crate::client_settings::Amount;
use crate::figures::Figures;

/// Name of the settings file in the task's directory.
const SETTINGS: &str = "siegerc";

/// Builds the command line.
pub(crate) fn command(task: &ClientTask<'_>) -> ClientCommand {
    let settings = task.directory.join(SETTINGS);
    let connection = if task.client.keep_alive { "keep-alive" } else { "close" };
    // `limit` caps the concurrency at 255 by default. `failures` is the number of failures after which siege
    // aborts; here failures are only counted.
    let text = format!(
        "verbose = false\nlogging = false\nprotocol = HTTP/1.1\nparser = false\nconnection = {connection}\nlimit = {}\nfailures = 1000000000\n",
        task.client.concurrency.max(255)
    );
    let concurrency = task.client.concurrency;
    let mut command = ClientCommand::new(&["-b", "-j", "-c", &concurrency.to_string()]);
    command.files.push((SETTINGS, text.into_bytes()));
    command.add(match task.amount {
        Amount::For(duration) => words(&["-t", &format!("{}S", duration.as_secs())]),
        Amount::Requests(requests) => words(&["-r", &requests.div_ceil(u64::from(concurrency)).to_string()]),
    });
    command.add_fields(task, "-H");
    command.add(["-R".into(), settings.into_os_string(), task.url().into()]);
    command
}

#[derive(Deserialize)]
struct Printed {
    transactions: u64,
    /// Transactions with a status code below 400, or with 401 or 407.
    successful_transactions: u64,
    failed_transactions: u64,
    elapsed_time: f64,
    response_time: f64,
    transaction_rate: f64,
}

/// Parses the output. Some versions print a heading or a banner before the JSON.
pub(crate) fn figures(printed: &str) -> Result<Figures, OutputError> {
    let json = printed.find('{').map_or("", |start| &printed[start..]);
    let json = json.rfind('}').map_or("", |end| &json[..=end]);
    let seen: Printed = serde_json::from_str(json)
        .map_err(|error| OutputError::Json { expected: "its report is not the JSON of `-j`", error })?;
    Ok(Figures {
        requests: seen.transactions,
        failed: seen.failed_transactions + seen.transactions.saturating_sub(seen.successful_transactions),
        duration_s: seen.elapsed_time,
        requests_per_second: seen.transaction_rate,
        mean_ms: Some(seen.response_time * 1e3),
        ..Figures::default()
    })
}

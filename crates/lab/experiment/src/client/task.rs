//! A run of a load client, and the words of its command line.

use std::ffi::OsString;
use std::path::Path;

use crate::client_settings::{Amount, ClientSettings};

/// A run of a client.
#[derive(Debug)]
pub(crate) struct ClientTask<'a> {
    /// The client's settings.
    pub client: &'a ClientSettings,
    /// Amount of work; differs from the client's settings during the warm-up.
    pub amount: Amount,
    /// The URL to request.
    pub url: &'a str,
    /// The directory for its files.
    pub directory: &'a Path,
}

/// Converts the words of a command line.
pub(crate) fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

/// Returns the options that send a body with POST, and writes the body's file; no options without a body. The
/// file is hidden, so it is not kept with the figures.
pub(crate) fn body_options(
    task: &ClientTask<'_>,
    options: &[&str],
    file_option: &str,
) -> std::io::Result<Vec<OsString>> {
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
pub(crate) fn amount_options(amount: Amount) -> Vec<OsString> {
    match amount {
        Amount::Requests(requests) => words(&["-n", &requests.to_string()]),
        // `-t` sets the number of requests to 50,000. The `-n` after it raises that and only bounds ab's
        // memory.
        Amount::For(duration) => words(&["-t", &duration.as_secs().to_string(), "-n", "50000000"]),
    }
}

//! A run of a load client, and the words of its command line.

use std::ffi::OsString;
use std::path::Path;

use super::grpc;
use crate::client_settings::{Amount, ClientSettings, Protocol};

/// Name of the file with the body.
const BODY: &str = ".body";

/// A run of a client.
#[derive(Debug)]
pub(crate) struct ClientTask<'a> {
    /// The client's settings.
    pub client: &'a ClientSettings,
    /// Amount of work; differs from the client's settings during the warm-up.
    pub amount: Amount,
    /// The URLs to request; at least one. Only `bench` requests more than the first.
    pub urls: &'a [String],
    /// `HOST:PORT` of the proxy that is asked for tunnels to the URLs, if there is one. Only `bench` uses it.
    pub proxy: Option<&'a str>,
    /// Additional field lines of each request, `name: value`.
    pub fields: &'a [String],
    /// The directory for its files, on the client's machine.
    pub directory: &'a Path,
}

/// The command line of a client.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientCommand {
    /// The arguments.
    pub arguments: Vec<OsString>,
    /// Files that the arguments refer to: names in the task's directory, and contents.
    pub files: Vec<(&'static str, Vec<u8>)>,
}

impl ClientTask<'_> {
    /// The body of each request, if they have one.
    fn body(&self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.client.body_bytes).unwrap_or(usize::MAX);
        if let Some(json) = &self.client.json {
            return Some(json.clone().into_bytes());
        }
        match self.client.protocol {
            Protocol::Grpc => Some(grpc::body(length)),
            Protocol::Http1 | Protocol::Http2 => (length > 0).then(|| vec![b'x'; length]),
        }
    }

    /// The first URL.
    pub fn url(&self) -> &str {
        self.urls.first().map_or("", String::as_str)
    }
}

impl ClientCommand {
    /// A command line that starts with these words.
    pub fn new(first: &[&str]) -> Self {
        Self { arguments: words(first), files: Vec::new() }
    }

    /// Adds words.
    pub fn add(&mut self, more: impl IntoIterator<Item = impl Into<OsString>>) {
        self.arguments.extend(more.into_iter().map(Into::into));
    }

    /// Adds the options that send a body with POST; nothing without a body. The body's file is hidden, so it
    /// is not kept with the figures.
    pub fn add_body(&mut self, task: &ClientTask<'_>, options: &[&str], file_option: &str) {
        if let Some(body) = task.body() {
            self.files.push((BODY, body));
            self.add(options);
            self.arguments.extend([file_option.into(), task.directory.join(BODY).into()]);
        }
    }

    /// Adds an option for each additional field line.
    pub fn add_fields(&mut self, task: &ClientTask<'_>, option: &str) {
        task.fields.iter().for_each(|field| self.add([option, field]));
    }
}

/// Converts the words of a command line.
pub(crate) fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
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

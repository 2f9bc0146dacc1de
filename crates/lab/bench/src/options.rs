//! The options of `egret bench`: ab's, siege's time format, and additional ones.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use crate::threshold::Threshold;

/// Maximum weight of a target.
const WEIGHT_MAX: u32 = 1_000;

/// A URL to request and its weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The URL.
    pub url: String,
    /// Share of the requests, relative to the weights of the other targets.
    pub weight: u32,
}

/// The reason why a text is not a target with a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The text has no `=`.
    #[error("write WEIGHT=URL, like 3=http://127.0.0.1:9000/get")]
    Form,
    /// The weight is not a whole number, or out of bounds.
    #[error("the weight must be a whole number from 1 to {WEIGHT_MAX}")]
    Weight,
}

impl FromStr for Target {
    type Err = TargetError;

    /// Parses `WEIGHT=URL`.
    fn from_str(text: &str) -> Result<Self, TargetError> {
        let (weight, url) = text.split_once('=').ok_or(TargetError::Form)?;
        let weight = weight.parse().ok().filter(|weight| (1..=WEIGHT_MAX).contains(weight));
        let weight = weight.ok_or(TargetError::Weight)?;
        Ok(Self { url: url.to_owned(), weight })
    }
}

/// The options of `egret bench`.
#[derive(Debug, Clone, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of ab's or ours, and they are independent"
)]
pub struct Options {
    /// The URL to send requests to: `[http[s]://]HOST[:PORT][/PATH]`.
    #[arg(value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Number of requests. Without -t the default is 1.
    #[arg(short = 'n', value_name = "REQUESTS")]
    pub(crate) requests: Option<u64>,
    /// Number of concurrent requests.
    #[arg(short = 'c', value_name = "CONCURRENCY", default_value_t = 1)]
    pub(crate) concurrency: usize,
    /// Duration of the run: seconds, or siege's `10S`, `5M`, `1H`, or `500ms`. With -n the run ends at the
    /// first limit reached.
    #[arg(short = 't', value_name = "TIME", value_parser = time)]
    pub(crate) time: Option<Duration>,
    /// Timeout for opening a connection, and for each request: seconds, or a time like that of -t.
    #[arg(short = 's', value_name = "TIMEOUT", value_parser = time, default_value = "30")]
    pub(crate) timeout: Duration,
    /// Socket buffer size in bytes. `-b` without a number is accepted for siege compatibility and ignored.
    #[arg(short = 'b', value_name = "BYTES", num_args = 0..=1, default_missing_value = "")]
    pub(crate) buffer: Option<String>,
    /// The local address to connect from.
    #[arg(short = 'B', value_name = "ADDRESS")]
    pub(crate) bind: Option<IpAddr>,
    /// File to send as the body of POST requests. Use `-m` for another method.
    #[arg(short = 'p', value_name = "FILE", conflicts_with_all = ["put", "body_lines"])]
    pub(crate) post: Option<PathBuf>,
    /// File to send as the body of PUT requests.
    #[arg(short = 'u', value_name = "FILE", conflicts_with = "body_lines")]
    pub(crate) put: Option<PathBuf>,
    /// The `Content-Type` of request bodies.
    #[arg(short = 'T', value_name = "TYPE", default_value = "text/plain")]
    pub(crate) content_type: String,
    /// Verbosity per exchange: 2 prints heads, 3 also status codes, 4 also bodies.
    #[arg(short = 'v', value_name = "LEVEL", default_value_t = 0)]
    pub(crate) verbosity: u8,
    /// Print the report as an HTML table.
    #[arg(short = 'w')]
    pub(crate) html: bool,
    /// Send HEAD requests.
    #[arg(short = 'i')]
    pub(crate) head: bool,
    /// Attributes of the `table` tag; implies -w.
    #[arg(short = 'x', value_name = "ATTRIBUTES", allow_hyphen_values = true)]
    pub(crate) table_attributes: Option<String>,
    /// Attributes of the `tr` tag; implies -w.
    #[arg(short = 'y', value_name = "ATTRIBUTES", allow_hyphen_values = true)]
    pub(crate) row_attributes: Option<String>,
    /// Attributes of the `td` and `th` tags; implies -w.
    #[arg(short = 'z', value_name = "ATTRIBUTES", allow_hyphen_values = true)]
    pub(crate) cell_attributes: Option<String>,
    /// Cookie to send, `NAME=VALUE`; may be repeated.
    #[arg(short = 'C', value_name = "COOKIE")]
    pub(crate) cookies: Vec<String>,
    /// Header field to send, `Name: value`; replaces a default one of that name; may be repeated.
    #[arg(short = 'H', value_name = "LINE")]
    pub(crate) fields: Vec<String>,
    /// Credentials for basic authentication with the target.
    #[arg(short = 'A', value_name = "USER:PASSWORD")]
    pub(crate) authorization: Option<String>,
    /// Credentials for basic authentication with the proxy.
    #[arg(short = 'P', value_name = "USER:PASSWORD")]
    pub(crate) proxy_authorization: Option<String>,
    /// Proxy to use. `https` targets are reached through a CONNECT tunnel.
    #[arg(short = 'X', value_name = "HOST[:PORT]")]
    pub(crate) proxy: Option<String>,
    /// Reuse connections (keep-alive).
    #[arg(short = 'k')]
    pub(crate) keep_alive: bool,
    /// Do not print the table of percentiles.
    #[arg(short = 'd')]
    pub(crate) no_percentiles: bool,
    /// Do not print medians, standard deviations and warnings about them.
    #[arg(short = 'S')]
    pub(crate) no_confidence: bool,
    /// Do not print progress.
    #[arg(short = 'q')]
    pub(crate) quiet: bool,
    /// Accept responses whose bodies differ in length.
    #[arg(short = 'l')]
    pub(crate) variable_length: bool,
    /// Write each request to a tab-separated file for gnuplot.
    #[arg(short = 'g', value_name = "FILE")]
    pub(crate) tsv: Option<PathBuf>,
    /// Write the percentiles to a comma-separated file.
    #[arg(short = 'e', value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Continue after connection errors (default; only needed with --ab-compat).
    #[arg(short = 'r')]
    pub(crate) receive_errors_are_fine: bool,
    /// The request method. With --http2 a number: that of streams on each connection, 1 to 1000.
    #[arg(short = 'm', value_name = "METHOD")]
    pub(crate) method: Option<String>,
    /// Do not send the server name (SNI) in the TLS handshake.
    #[arg(short = 'I')]
    pub(crate) no_server_name: bool,
    /// TLS cipher suites, separated by colons.
    #[arg(short = 'Z', value_name = "SUITES")]
    pub(crate) ciphers: Option<String>,
    /// TLS version: TLS1.2, TLS1.3 or ALL. Older versions are not supported.
    #[arg(short = 'f', value_name = "PROTOCOL")]
    pub(crate) protocol: Option<String>,
    /// PEM file with a client certificate and its key.
    #[arg(short = 'E', value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    /// Print the version of the report format.
    #[arg(short = 'V')]
    pub(crate) ab_version: bool,
    /// Number of threads. Each has an event loop and its share of the concurrency.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub(crate) threads: usize,
    /// Send this many requests per second, however fast the target responds: `500`, or `100..2000`, which
    /// rises evenly over -t. Latency is measured from the scheduled time of a request, so a stall shows in
    /// every request that it delays (no coordinated omission).
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) rate: Option<(f64, f64)>,
    /// Open the connections evenly over this time.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "0")]
    pub(crate) ramp_up: Duration,
    /// Duration of a warm-up that is not measured.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "0")]
    pub(crate) warmup: Duration,
    /// Increase the load step by step until the target no longer keeps up; -t is the duration of a step.
    #[arg(long, conflicts_with = "vs")]
    pub(crate) find_knee: bool,
    /// Compare with this URL: alternate short measurements of both, and print a verdict.
    #[arg(long, value_name = "URL_B")]
    pub(crate) vs: Option<String>,
    /// Additional target with a weight; the main URL has weight 1. May be repeated.
    #[arg(long = "target", value_name = "WEIGHT=URL")]
    pub(crate) targets: Vec<Target>,
    /// Send the requests of a HAR file in its order, over and over; to the host of URL, if one is given.
    #[arg(long, value_name = "FILE")]
    pub(crate) har: Option<PathBuf>,
    /// Send the lines of a file, one after the other, as bodies of POST requests.
    #[arg(long, value_name = "FILE")]
    pub(crate) body_lines: Option<PathBuf>,
    /// Speak HTTP/2, by prior knowledge to `http` targets and by ALPN to `https` ones. Connections are always
    /// reused: -c connections carry -m requests each at a time.
    #[arg(long, conflicts_with_all = ["ab_compat", "chunked"])]
    pub(crate) http2: bool,
    /// Send request bodies with chunked transfer coding.
    #[arg(long)]
    pub(crate) chunked: bool,
    /// Measure the delay of each event of a stream: from the moment in its comment `: sent NANOSECONDS`, on
    /// the monotonic clock of this machine, to its arrival. A response without one fails. `egret provider`
    /// writes them with `stamp=true`.
    #[arg(long, conflicts_with = "http2")]
    pub(crate) events: bool,
    /// Status codes that responses must have, like `200,3xx`.
    #[arg(long, value_name = "LIST")]
    pub(crate) check_status: Option<String>,
    /// Text that response bodies must contain.
    #[arg(long, value_name = "TEXT")]
    pub(crate) check_body: Option<String>,
    /// Header field that responses must have, `Name: text in its value`; may be repeated.
    #[arg(long = "check-field", value_name = "LINE")]
    pub(crate) check_fields: Vec<String>,
    /// Exit with code 1 if this condition is true, like `p99>10ms`, `errors>1%`, `non_2xx>0` or `rps<500`;
    /// may be repeated.
    #[arg(long, value_name = "CONDITION")]
    pub(crate) fail_if: Vec<Threshold>,
    /// Write the result to a JSON file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Print the JSON Schema of the JSON result.
    #[arg(long)]
    pub(crate) json_schema: bool,
    /// Write the latency histograms to a log file for the `HdrHistogram` tools.
    #[arg(long, value_name = "FILE")]
    pub(crate) hdr: Option<PathBuf>,
    /// PEM file with a certificate authority to trust in addition to the system's.
    #[arg(long, value_name = "FILE")]
    pub(crate) cacert: Option<PathBuf>,
    /// Accept any certificate.
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Resume TLS sessions on new connections. Without it, each connection makes a full handshake.
    #[arg(long)]
    pub(crate) resume: bool,
    /// Behave exactly like ab, including its known bugs.
    #[arg(long)]
    pub(crate) ab_compat: bool,
    /// Confirm that the owner of a remote target has agreed to the load.
    #[arg(long)]
    pub(crate) yes: bool,
}

impl Options {
    /// Returns the options with the URL in its place if siege's `-b`, which has no value, precedes it.
    pub(crate) fn settled(mut self) -> Self {
        if self.url.is_none() && self.buffer.as_ref().is_some_and(|text| text.contains(['/', ':'])) {
            self.url = self.buffer.take();
        }
        self
    }

    /// Number of streams on each connection, if the run speaks HTTP/2. `-m` gives it, unless it is a method.
    pub(crate) fn streams(&self) -> Option<usize> {
        let is_number = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
        let number = self.method.as_deref().filter(is_number);
        // A number that no integer holds is too many in any case.
        self.http2.then(|| number.map_or(1, |text| text.parse().unwrap_or(usize::MAX)))
    }

    /// The request method, if one is given.
    pub(crate) fn method(&self) -> Option<&str> {
        let is_streams = |text: &&str| self.http2 && text.bytes().all(|byte| byte.is_ascii_digit());
        self.method.as_deref().filter(|text| !is_streams(text))
    }

    /// The targets; none if a recording has them.
    pub(crate) fn targets(&self) -> Vec<Target> {
        let first = self.url.iter().map(|url| Target { url: url.clone(), weight: 1 });
        first.chain(self.targets.iter().cloned()).collect()
    }

    /// Returns `true` if the report is read by a person alone: no program gets a file, ab's report or HTML.
    pub(crate) fn is_for_readers(&self) -> bool {
        !self.has_files() && !self.ab_compat && !self.wants_html()
    }

    /// Returns `true` if the report is wanted as HTML.
    pub(crate) fn wants_html(&self) -> bool {
        let attributes = [&self.table_attributes, &self.row_attributes, &self.cell_attributes];
        self.html || attributes.iter().any(|given| given.is_some())
    }

    /// Returns `true` if the result is written to files.
    pub(crate) fn has_files(&self) -> bool {
        [&self.csv, &self.tsv, &self.json, &self.hdr].iter().any(|file| file.is_some())
    }

    /// The file with the bodies, or with a body in each line.
    pub(crate) fn body_file(&self) -> Option<&Path> {
        self.post.as_deref().or(self.put.as_deref()).or(self.body_lines.as_deref())
    }
}

/// Parses a time: seconds, or a number with a unit: `ms`, siege's `S`, `M` and `H`, or their lower case.
fn time(text: &str) -> Result<Duration, TimeError> {
    let digits = text.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" | "S" => 1.0,
        "m" | "M" => 60.0,
        "h" | "H" => 3_600.0,
        _ => return Err(TimeError::Unit),
    };
    let number: f64 = number.parse().map_err(|_| TimeError::Number)?;
    // No run takes longer than a day; larger values are typing errors.
    let time = Duration::try_from_secs_f64(number * seconds).ok().filter(|time| time.as_secs() <= 86_400);
    time.ok_or(TimeError::Range)
}

/// A text that is not a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum TimeError {
    #[error("expected a number of seconds, or a number with a unit: 500ms, 10S, 5M, 1H")]
    Unit,
    #[error("expected a number of seconds, like 10")]
    Number,
    #[error("must be between 0 and 24H")]
    Range,
}

/// A text that is neither a rate nor a range of rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected requests per second, like 500 or 100..2000")]
struct RateError;

/// Parses a rate, or a range of rates.
fn rate(text: &str) -> Result<(f64, f64), RateError> {
    let number = |text: &str| {
        let text = text.strip_suffix("/s").unwrap_or(text);
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        number.ok_or(RateError)
    };
    match text.split_once("..") {
        Some((from, to)) => Ok((number(from)?, number(to)?)),
        None => number(text).map(|rate| (rate, rate)),
    }
}

#[cfg(test)]
mod tests;

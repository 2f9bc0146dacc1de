//! `egret bench`: the options of ab, siege's time format, and additional options, passed to the load client.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use clap::Args;
use egret_bench::{
    Attributes, BodySource, Console, Error, Mode, Options, OutputOptions, Style, Target, Threshold,
    TlsOptions,
};
use egret_measure::streams;
use egret_service::events::{self, Event, Events};
use egret_settings::failure::Failure;
use egret_settings::output::print;

/// The options of `egret bench`.
#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of ab's or ours, and they are independent"
)]
pub struct BenchArgs {
    /// The URL to send requests to: `[http[s]://]HOST[:PORT][/PATH]`.
    #[arg(value_name = "URL")]
    url: Option<String>,
    /// Number of requests. Without -t the default is 1.
    #[arg(short = 'n', value_name = "REQUESTS")]
    requests: Option<u64>,
    /// Number of concurrent requests.
    #[arg(short = 'c', value_name = "CONCURRENCY", default_value_t = 1)]
    concurrency: usize,
    /// Duration of the run: seconds, or siege's `10S`, `5M`, `1H`, or `500ms`. With -n the run ends at the
    /// first limit reached.
    #[arg(short = 't', value_name = "TIME", value_parser = time)]
    time: Option<Duration>,
    /// Timeout for opening a connection, and for each request: seconds, or a time like that of -t.
    #[arg(short = 's', value_name = "TIMEOUT", value_parser = time, default_value = "30")]
    timeout: Duration,
    /// Socket buffer size in bytes. `-b` without a number is accepted for siege compatibility and ignored.
    #[arg(short = 'b', value_name = "BYTES", num_args = 0..=1, default_missing_value = "")]
    buffer: Option<String>,
    /// The local address to connect from.
    #[arg(short = 'B', value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// File to send as the body of POST requests. Use `-m` for another method.
    #[arg(short = 'p', value_name = "FILE", conflicts_with_all = ["put", "body_lines"])]
    post: Option<PathBuf>,
    /// File to send as the body of PUT requests.
    #[arg(short = 'u', value_name = "FILE", conflicts_with = "body_lines")]
    put: Option<PathBuf>,
    /// The `Content-Type` of request bodies.
    #[arg(short = 'T', value_name = "TYPE", default_value = "text/plain")]
    content_type: String,
    /// Verbosity per exchange: 2 prints heads, 3 also status codes, 4 also bodies.
    #[arg(short = 'v', value_name = "LEVEL", default_value_t = 0)]
    verbosity: u8,
    /// Print the report as an HTML table.
    #[arg(short = 'w')]
    html: bool,
    /// Send HEAD requests.
    #[arg(short = 'i')]
    head: bool,
    /// Attributes of the `table` tag; implies -w.
    #[arg(short = 'x', value_name = "ATTRIBUTES", allow_hyphen_values = true)]
    table_attributes: Option<String>,
    /// Attributes of the `tr` tag; implies -w.
    #[arg(short = 'y', value_name = "ATTRIBUTES", allow_hyphen_values = true)]
    row_attributes: Option<String>,
    /// Attributes of the `td` and `th` tags; implies -w.
    #[arg(short = 'z', value_name = "ATTRIBUTES", allow_hyphen_values = true)]
    cell_attributes: Option<String>,
    /// Cookie to send, `NAME=VALUE`; may be repeated.
    #[arg(short = 'C', value_name = "COOKIE")]
    cookies: Vec<String>,
    /// Header field to send, `Name: value`; replaces a default one of that name; may be repeated.
    #[arg(short = 'H', value_name = "LINE")]
    fields: Vec<String>,
    /// Credentials for basic authentication with the target.
    #[arg(short = 'A', value_name = "USER:PASSWORD")]
    authorization: Option<String>,
    /// Credentials for basic authentication with the proxy.
    #[arg(short = 'P', value_name = "USER:PASSWORD")]
    proxy_authorization: Option<String>,
    /// Proxy to use. `https` targets are reached through a CONNECT tunnel.
    #[arg(short = 'X', value_name = "HOST[:PORT]")]
    proxy: Option<String>,
    /// Reuse connections (keep-alive).
    #[arg(short = 'k')]
    keep_alive: bool,
    /// Do not print the table of percentiles.
    #[arg(short = 'd')]
    no_percentiles: bool,
    /// Do not print medians, standard deviations and warnings about them.
    #[arg(short = 'S')]
    no_confidence: bool,
    /// Do not print progress.
    #[arg(short = 'q')]
    quiet: bool,
    /// Accept responses whose bodies differ in length.
    #[arg(short = 'l')]
    variable_length: bool,
    /// Write each request to a tab-separated file for gnuplot.
    #[arg(short = 'g', value_name = "FILE")]
    tsv: Option<PathBuf>,
    /// Write the percentiles to a comma-separated file.
    #[arg(short = 'e', value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Continue after connection errors (default; only needed with --ab-compat).
    #[arg(short = 'r')]
    receive_errors_are_fine: bool,
    /// The request method.
    #[arg(short = 'm', value_name = "METHOD")]
    method: Option<String>,
    /// Do not send the server name (SNI) in the TLS handshake.
    #[arg(short = 'I')]
    no_server_name: bool,
    /// TLS cipher suites, separated by colons.
    #[arg(short = 'Z', value_name = "SUITES")]
    ciphers: Option<String>,
    /// TLS version: TLS1.2, TLS1.3 or ALL. Older versions are not supported.
    #[arg(short = 'f', value_name = "PROTOCOL")]
    protocol: Option<String>,
    /// PEM file with a client certificate and its key.
    #[arg(short = 'E', value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Print the version of the report format.
    #[arg(short = 'V')]
    ab_version: bool,
    /// Number of threads. Each has an event loop and its share of the concurrency.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    threads: usize,
    /// Send this many requests per second, however fast the target responds: `500`, or `100..2000`, which
    /// rises evenly over -t. Latency is measured from the scheduled time of a request, so a stall shows in
    /// every request that it delays (no coordinated omission).
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<(f64, f64)>,
    /// Open the connections evenly over this time.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "0")]
    ramp_up: Duration,
    /// Duration of a warm-up that is not measured.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "0")]
    warmup: Duration,
    /// Increase the load step by step until the target no longer keeps up; -t is the duration of a step.
    #[arg(long, conflicts_with = "vs")]
    find_knee: bool,
    /// Compare with this URL: alternate short measurements of both, and print a verdict.
    #[arg(long, value_name = "URL_B")]
    vs: Option<String>,
    /// Additional target with a weight; the main URL has weight 1. May be repeated.
    #[arg(long = "target", value_name = "WEIGHT=URL")]
    targets: Vec<Target>,
    /// Send the requests of a HAR file in its order, over and over; to the host of URL, if one is given.
    #[arg(long, value_name = "FILE")]
    har: Option<PathBuf>,
    /// Send the lines of a file, one after the other, as bodies of POST requests.
    #[arg(long, value_name = "FILE")]
    body_lines: Option<PathBuf>,
    /// Send request bodies with chunked transfer coding.
    #[arg(long)]
    chunked: bool,
    /// Status codes that responses must have, like `200,3xx`.
    #[arg(long, value_name = "LIST")]
    check_status: Option<String>,
    /// Text that response bodies must contain.
    #[arg(long, value_name = "TEXT")]
    check_body: Option<String>,
    /// Header field that responses must have, `Name: text in its value`; may be repeated.
    #[arg(long = "check-field", value_name = "LINE")]
    check_fields: Vec<String>,
    /// Exit with code 1 if this condition is true, like `p99>10ms`, `errors>1%`, `non_2xx>0` or `rps<500`;
    /// may be repeated.
    #[arg(long, value_name = "CONDITION")]
    fail_if: Vec<Threshold>,
    /// Write the result to a JSON file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print the JSON Schema of the JSON result.
    #[arg(long)]
    json_schema: bool,
    /// Write the latency histograms to a log file for the `HdrHistogram` tools.
    #[arg(long, value_name = "FILE")]
    hdr: Option<PathBuf>,
    /// PEM file with a certificate authority to trust in addition to the system's.
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// Accept any certificate.
    #[arg(long)]
    insecure: bool,
    /// Resume TLS sessions on new connections. Without it, each connection makes a full handshake.
    #[arg(long)]
    resume: bool,
    /// Behave exactly like ab, including its known bugs.
    #[arg(long)]
    ab_compat: bool,
    /// Confirm that the owner of a remote target has agreed to the load.
    #[arg(long)]
    yes: bool,
}

/// Runs the measurement.
pub fn run(mut args: BenchArgs) -> Result<(), Failure> {
    if args.json_schema {
        return print(&egret_bench::schema());
    }
    if args.ab_version {
        return print(concat!(
            "This is egret bench, Version ",
            env!("CARGO_PKG_VERSION"),
            ", with the options and reports of ApacheBench 2.3\n"
        ));
    }
    let buffer_bytes = args.buffer_bytes()?;
    let wanted = args.wanted();
    let options = args.options(buffer_bytes);
    let interrupted = interruption()?;
    let mut console = Console { out: &mut streams::Stdout, interrupted: &interrupted };
    match egret_bench::run(&options, &wanted, &mut console) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::Failed("The run failed.".to_owned())),
        Err(error) if error.is_misuse() => Err(misused(&error)),
        Err(error) => Err(Failure::Failed(format!("egret bench: {error}"))),
    }
}

fn misused(error: &Error) -> Failure {
    Failure::Misused(format!("egret bench: {error}\n`egret bench --help` lists the options."))
}

/// Returns a flag that becomes true on SIGINT or SIGTERM, when the run has to end.
fn interruption() -> Result<Arc<AtomicBool>, Failure> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupted);
    let runtime = events::runtime()?;
    let mut events = runtime.block_on(async { Events::start(None) })?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            while !matches!(events.next().await, Event::Stop(_)) {}
            flag.store(true, Relaxed);
        });
    });
    Ok(interrupted)
}

impl BenchArgs {
    /// Parses `-b`: a size for ab, a switch without a value for siege, which may precede the URL.
    fn buffer_bytes(&mut self) -> Result<Option<usize>, Failure> {
        let Some(text) = self.buffer.take().filter(|text| !text.is_empty()) else { return Ok(None) };
        if let Ok(bytes) = text.parse::<usize>() {
            return Ok(Some(bytes));
        }
        if self.url.is_none() && (text.contains('/') || text.contains(':')) {
            self.url = Some(text);
            return Ok(None);
        }
        Err(Failure::Misused(format!("egret bench: -b {text}: expected a number of bytes, or no value")))
    }

    fn wanted(&mut self) -> OutputOptions {
        let given = [&self.table_attributes, &self.row_attributes, &self.cell_attributes];
        let html = (self.html || given.iter().any(|attributes| attributes.is_some())).then(|| {
            let default = Attributes::default();
            Attributes {
                table: self.table_attributes.take().unwrap_or(default.table),
                row: self.row_attributes.take().unwrap_or(default.row),
                cell: self.cell_attributes.take().unwrap_or(default.cell),
            }
        });
        let mode = match self.vs.take() {
            Some(url) => Mode::Comparison(url),
            None if self.find_knee => Mode::Saturation,
            None => Mode::Once,
        };
        OutputOptions {
            style: Style {
                html,
                no_percentiles: self.no_percentiles,
                no_confidence: self.no_confidence,
                quiet: self.quiet,
                ab_compat: self.ab_compat,
            },
            csv: self.csv.take(),
            // Not taken: the presence of the file also decides whether samples are kept.
            tsv: self.tsv.clone(),
            json: self.json.take(),
            hdr: self.hdr.take(),
            fail_if: std::mem::take(&mut self.fail_if),
            mode,
        }
    }

    fn options(self, buffer_bytes: Option<usize>) -> Options {
        let keep_samples = self.tsv.is_some();
        let body = match (self.post, self.put, self.body_lines) {
            (Some(file), ..) => BodySource::Post(file),
            (_, Some(file), _) => BodySource::Put(file),
            (.., Some(file)) => BodySource::Lines(file),
            (None, None, None) => BodySource::None,
        };
        let first = self.url.map(|url| Target { url, weight: 1 });
        Options {
            targets: first.into_iter().chain(self.targets).collect(),
            har: self.har,
            requests: self.requests,
            time: self.time,
            concurrency: self.concurrency,
            threads: self.threads,
            timeout: self.timeout,
            warmup: self.warmup,
            ramp_up: self.ramp_up,
            rate: self.rate,
            keep_alive: self.keep_alive,
            method: self.method,
            head: self.head,
            body,
            content_type: self.content_type,
            chunked: self.chunked,
            fields: self.fields,
            cookies: self.cookies,
            authorization: self.authorization,
            proxy_authorization: self.proxy_authorization,
            proxy: self.proxy,
            bind: self.bind,
            buffer_bytes,
            tls: TlsOptions {
                insecure: self.insecure,
                authorities: self.cacert,
                protocol: self.protocol,
                ciphers: self.ciphers,
                identity: self.identity,
                no_server_name: self.no_server_name,
                resume: self.resume,
            },
            check_status: self.check_status,
            check_body: self.check_body,
            check_fields: self.check_fields,
            variable_length: self.variable_length,
            receive_errors_are_fine: self.receive_errors_are_fine,
            ab_compat: self.ab_compat,
            keep_samples,
            verbosity: self.verbosity,
            yes: self.yes,
        }
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeError {
    Unit,
    Number,
    Range,
}

impl fmt::Display for TimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unit => "expected a number of seconds, or a number with a unit: 500ms, 10S, 5M, 1H",
            Self::Number => "expected a number of seconds, like 10",
            Self::Range => "must be between 0 and 24H",
        })
    }
}

impl std::error::Error for TimeError {}

/// A text that is neither a rate nor a range of rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RateError;

impl fmt::Display for RateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected requests per second, like 500 or 100..2000")
    }
}

impl std::error::Error for RateError {}

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
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn args(line: &str) -> Result<BenchArgs, clap::Error> {
        let words = ["egret", "bench"].into_iter().chain(line.split_ascii_whitespace());
        let cli = Cli::try_parse_from(words)?;
        let Command::Bench(args) = cli.command else { panic!("not bench") };
        Ok(*args)
    }

    fn options(line: &str) -> Options {
        let mut args = args(line).unwrap();
        let buffer_bytes = args.buffer_bytes().unwrap();
        args.options(buffer_bytes)
    }

    #[test]
    fn abs_options_are_taken_bundled_and_apart() {
        let options = options(
            "-kqn100 -c10 -lr -H X-A:1 -H X-B:2 -C a=b -A u:p -P v:q -X p:1 -T a/b -p f -s 5 http://h/",
        );
        assert_eq!((options.requests, options.concurrency, options.keep_alive), (Some(100), 10, true));
        assert_eq!(
            (options.fields.len(), options.cookies.len(), options.content_type.as_str()),
            (2, 1, "a/b")
        );
        assert_eq!((options.body, options.timeout), (BodySource::Post("f".into()), Duration::from_secs(5)));
        assert!(options.variable_length && options.receive_errors_are_fine);
    }

    #[test]
    fn siege_and_ab_both_have_their_b() {
        assert_eq!(options("-b 8192 http://h/").buffer_bytes, Some(8_192));
        let siege = options("-b -t 10S http://h/");
        assert_eq!((siege.buffer_bytes, siege.time), (None, Some(Duration::from_secs(10))));
        assert_eq!(options("-c 25 -t10S -b http://h/x").targets[0].url, "http://h/x");
        assert!(args("-b x http://h/").unwrap().buffer_bytes().is_err());
    }

    #[test]
    fn times_have_units_of_both() {
        for (text, millis) in [
            ("10", 10_000),
            ("0.5", 500),
            ("250ms", 250),
            ("10S", 10_000),
            ("2M", 120_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(time(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "x", "-1", "10D", "25H", "NaN", "1e300"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_stay_or_change() {
        assert_eq!(rate("500"), Ok((500.0, 500.0)));
        assert_eq!(rate("100..2000/s"), Ok((100.0, 2_000.0)));
        assert!(rate("fast").is_err() && rate("1..").is_err() && rate("inf").is_err());
    }

    #[test]
    fn wrong_lines_are_refused() {
        for line in [
            "-c x http://h/",
            "-n -1 http://h/",
            "-p a -u b http://h/",
            "--vs a --find-knee b",
            "-Q http://h/",
            "--fail-if p99 http://h/",
        ] {
            assert!(args(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_file_of_requests_has_each_kept() {
        let mut args = args("-g file http://h/").unwrap();
        assert!(args.wanted().tsv.is_some() && args.options(None).keep_samples);
        assert!(!options("http://h/").keep_samples);
    }

    #[test]
    fn attributes_imply_html() {
        let mut plain = args("http://h/").unwrap();
        assert_eq!(plain.wanted().style.html, None);
        let attributes = args("-x border=1 http://h/").unwrap().wanted().style.html.unwrap();
        assert_eq!((attributes.table.as_str(), attributes.cell.as_str()), ("border=1", "bgcolor=white"));
    }
}

//! `egret provider`: the built-in provider alone, with all its options.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use egret_config::{QuantityError, Size};
use egret_provider::{
    Delay, DurationError, Fault, Options, Playback, Provider, RateLimit, StartError, UnknownFault,
    parse_duration,
};
use egret_service::events::{Event, Events, runtime};
use egret_service::logging::Logging;
use egret_service::run::overrides::address;
use egret_settings::config::LogConfig;
use egret_settings::failure::Failure;
use egret_settings::output::print;

/// Returns the reference page of the provider's endpoints.
pub fn reference() -> String {
    egret_provider::reference()
}

/// Its default address.
pub const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9000);

/// Prefix of the environment variables that `/env` shows.
const ENVIRONMENT: &str = "HTTPBIN_ENV_";

/// Maximum number of threads.
const THREADS_MAX: u16 = 256;

/// The options of `egret provider`.
#[derive(Debug, Args)]
pub struct ProviderArguments {
    /// The address to listen on; with port 0 the system chooses a free port.
    #[arg(long, value_name = "ADDRESS", default_value_t = ADDRESS, value_parser = address)]
    listen: SocketAddr,
    /// Number of threads; default: one per core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(THREADS_MAX)))]
    threads: Option<u16>,
    /// Delay of every response: `150ms`, `normal:150ms,20ms` (mean, standard deviation),
    /// `lognormal:150ms,0.5` (median, sigma) or `percentiles:50=100ms,90=200ms,99=1s`.
    #[arg(long, value_name = "DELAY")]
    delay: Option<Delay>,
    /// Maximum number of concurrent calls; the rest wait in a queue. Together with a constant delay it sets
    /// the provider's capacity: 4 concurrent calls of 10 ms each are 400 calls per second.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    parallel: Option<u16>,
    /// Random seed: with the same seed the nth call has the same delay and fault in every run.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Simulated round-trip time to the provider; it also delays handshakes.
    #[arg(long, value_name = "DURATION", value_parser = rtt)]
    rtt: Option<Duration>,
    /// Simulated bandwidth per connection and direction in bytes per second, like `64KiB`.
    #[arg(long, value_name = "SIZE", value_parser = bandwidth)]
    bandwidth: Option<Size>,
    /// A fault and its probability, like `reset=0.01`; may be repeated. The sum of all probabilities is at
    /// most 1. The kinds are those of `/fault/{kind}`.
    #[arg(long = "fault", value_name = "KIND=PROBABILITY", value_parser = fault)]
    faults: Vec<(Fault, f64)>,
    /// Rate limit, like `100/1s`; calls above it get 429. A window begins with its first call; with
    /// `100/1s@clock` windows follow the clock. `/counters` shows the counts.
    #[arg(long, value_name = "LIMIT/WINDOW")]
    rate_limit: Option<RateLimit>,
    /// HAR file whose responses are replayed, selected by method, path and query. Other requests get the
    /// usual responses.
    #[arg(long, value_name = "FILE")]
    har: Option<PathBuf>,
    /// Replay responses with their recorded durations.
    #[arg(long, requires = "har")]
    har_times: bool,
    /// Use TLS, with a certificate for `localhost` and the address, created at startup.
    #[arg(long)]
    tls: bool,
    /// File to which the certificate authority is written, for clients to trust.
    #[arg(long, value_name = "FILE", default_value = "egret-data/provider-ca.pem", requires = "tls")]
    tls_ca: PathBuf,
    /// Maximum size of a request or response body.
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = body_size)]
    max_body_size: Size,
    /// Maximum duration that a request may ask a response to take.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    max_duration: Duration,
    /// Timeout for a client to send a request head. An idle connection is closed after the same time.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = head_timeout)]
    head_timeout: Duration,
    /// Prefix of every path, such as `/v1`.
    #[arg(long, value_name = "PATH", value_parser = prefix)]
    prefix: Option<String>,
    /// Header fields that are not shown, separated by commas; `*` matches any text.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    exclude_headers: Vec<String>,
    /// Hosts that `/redirect-to` may name, separated by commas; default: any.
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    allowed_redirect_domains: Vec<String>,
}

/// Upper limit of `--max-body-size`: responses are created in memory.
const BODY_SIZE_MAX: u64 = 1 << 30;

/// The reason why the value of an option is not valid.
#[derive(Debug, thiserror::Error)]
enum OptionError {
    #[error("{0}")]
    Duration(DurationError),
    #[error("{0}")]
    Size(QuantityError),
    /// It is above the maximum.
    #[error("must be at most {0}")]
    AtMost(&'static str),
    /// It is below the minimum.
    #[error("must be at least {0}")]
    AtLeast(&'static str),
    #[error("must be from 1B to 1GiB")]
    BodySize,
    #[error("expected KIND=PROBABILITY, like reset=0.01")]
    FaultForm,
    #[error("{0}")]
    Fault(UnknownFault),
    #[error("expected a probability from 0 to 1")]
    Probability,
    #[error("must begin with a slash, not end with one, and not contain `?`, `#` or spaces")]
    Prefix,
}

fn duration(text: &str) -> Result<Duration, OptionError> {
    parse_duration(text).map_err(OptionError::Duration)
}

fn rtt(text: &str) -> Result<Duration, OptionError> {
    let rtt = duration(text)?;
    if rtt > Duration::from_mins(1) { Err(OptionError::AtMost("1m")) } else { Ok(rtt) }
}

fn head_timeout(text: &str) -> Result<Duration, OptionError> {
    let timeout = duration(text)?;
    if timeout < Duration::from_millis(1) { Err(OptionError::AtLeast("1ms")) } else { Ok(timeout) }
}

fn bandwidth(text: &str) -> Result<Size, OptionError> {
    let size: Size = text.parse().map_err(OptionError::Size)?;
    if size.bytes() == 0 { Err(OptionError::AtLeast("1B")) } else { Ok(size) }
}

fn body_size(text: &str) -> Result<Size, OptionError> {
    let size: Size = text.parse().map_err(OptionError::Size)?;
    if (1..=BODY_SIZE_MAX).contains(&size.bytes()) { Ok(size) } else { Err(OptionError::BodySize) }
}

fn fault(text: &str) -> Result<(Fault, f64), OptionError> {
    let (kind, probability) = text.split_once('=').ok_or(OptionError::FaultForm)?;
    let kind = kind.parse().map_err(OptionError::Fault)?;
    let probability = probability.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    Ok((kind, probability.ok_or(OptionError::Probability)?))
}

fn prefix(text: &str) -> Result<String, OptionError> {
    let is_prefix = text.starts_with('/') && !text.ends_with('/') && !text.contains(['?', '#', ' ']);
    if is_prefix { Ok(text.to_owned()) } else { Err(OptionError::Prefix) }
}

impl ProviderArguments {
    fn options(self) -> Result<Options, Failure> {
        if self.faults.iter().map(|(_, probability)| probability).sum::<f64>() > 1.0 {
            return Err(Failure::Misused(
                "the probabilities of all --fault options add up to more than 1".to_owned(),
            ));
        }
        let cores = || std::thread::available_parallelism().map_or(1, NonZero::get);
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Ok(Options {
            threads: self.threads.map_or_else(cores, usize::from),
            body_bytes_max: usize::try_from(self.max_body_size.bytes()).unwrap_or(usize::MAX),
            duration_max: self.max_duration,
            prefix: self.prefix.unwrap_or_default(),
            hidden_fields: self.exclude_headers,
            redirect_hosts: self.allowed_redirect_domains,
            delay: self.delay,
            parallel: self.parallel.map(usize::from),
            seed: self.seed,
            bandwidth: self.bandwidth.map(Size::bytes),
            rtt: self.rtt.unwrap_or_default(),
            faults: self.faults,
            rate_limit: self.rate_limit,
            playback: self.har.map(|file| Playback { file, paced: self.har_times }),
            tls: self.tls.then_some(self.tls_ca),
            head_timeout: self.head_timeout,
            environment: variables.filter(|(name, _)| name.starts_with(ENVIRONMENT)).collect(),
        })
    }
}

/// Serves until stopped by a signal.
pub fn run(arguments: ProviderArguments) -> Result<(), Failure> {
    let listen = arguments.listen;
    let options = arguments.options()?;
    let _logging = Logging::start(LogConfig::default())?;
    let runtime = runtime()?;
    let authority = options.tls.clone();
    let provider = Provider::start(listen, options).map_err(|error| match error {
        StartError::Listen(error) => Failure::Failed(format!(
            "the provider cannot listen on {listen}: {error}; choose another address with --listen"
        )),
        error @ StartError::Recording { .. } => Failure::Misused(error.to_string()),
        error => Failure::Failed(error.to_string()),
    })?;
    let address = provider.address();
    print(&match authority {
        None => format!("The provider runs on http://{address}\n"),
        Some(file) => {
            let (file, port) = (file.display(), address.port());
            format!(
                "The provider runs on https://localhost:{port}, with the certificate authority {file}:\n\
                 curl --cacert {file} https://localhost:{port}/get\n"
            )
        }
    })?;
    runtime.block_on(async {
        let mut events = Events::start(None)?;
        while !matches!(events.next().await, Event::Stop(_)) {}
        provider.stop();
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_bounds_say_what_is_expected() {
        let message = |error: OptionError| error.to_string();
        assert_eq!(message(rtt("2m").unwrap_err()), "must be at most 1m");
        assert_eq!(message(head_timeout("0s").unwrap_err()), "must be at least 1ms");
        assert_eq!(message(bandwidth("0B").unwrap_err()), "must be at least 1B");
        assert_eq!(message(body_size("2GiB").unwrap_err()), "must be from 1B to 1GiB");
        assert!(message(body_size("1 MB").unwrap_err()).contains("is not a size"));
        assert_eq!(message(fault("reset").unwrap_err()), "expected KIND=PROBABILITY, like reset=0.01");
        assert_eq!(message(fault("reset=2").unwrap_err()), "expected a probability from 0 to 1");
        for text in ["v1", "/v1/", "/v 1", "/v1?"] {
            assert!(prefix(text).is_err(), "{text}");
        }
        assert_eq!(fault("reset=0.5").unwrap().1.to_string(), "0.5");
    }
}

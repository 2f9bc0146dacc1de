//! `egret provider`: the built-in provider by itself, with all that it can be told.

use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use egret_config::Size;
use egret_lab::provider::{Delay, Fault, Options, Playback, Provider, RateLimit, StartError, parse_duration};

use crate::config::LogConfig;
use crate::demo::PROVIDER_ADDRESS;
use crate::events::{Event, Events, runtime};
use crate::logging::Logging;
use crate::{Failure, cli};

/// Environment variables that `/env` shows begin with this.
const ENVIRONMENT: &str = "HTTPBIN_ENV_";

/// Threads at most.
const THREADS_MAX: u16 = 256;

/// How the provider listens and behaves.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The address to listen on; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value_t = PROVIDER_ADDRESS)]
    listen: SocketAddr,
    /// Threads that serve; one for each core where not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(THREADS_MAX)))]
    threads: Option<u16>,
    /// How long every answer waits: `150ms`, `0.15`, `normal:150ms,20ms` (mean, deviation), `lognormal:150ms,0.5` (median, sigma)
    /// or `percentiles:50=100ms,90=200ms,99=1s`.
    #[arg(long, value_name = "DELAY")]
    delay: Option<Delay>,
    /// Calls served at a time; the rest wait in line. With a constant delay it makes a provider of known capacity: 4 at a time that take
    /// 10 ms each are 400 a second.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    parallel: Option<u16>,
    /// Seed of all that is random: with the same seed the nth call has the same delay and fault again.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How far away the provider seems to be, there and back: handshakes take it too.
    #[arg(long, value_name = "DURATION", value_parser = rtt)]
    rtt: Option<Duration>,
    /// What a connection carries in a second, each way, as `64KiB`.
    #[arg(long, value_name = "SIZE", value_parser = bandwidth)]
    bandwidth: Option<Size>,
    /// A fault and its probability, as `reset=0.01`. May be given several times; together they are at most 1. The kinds are those of `/fault/{kind}`.
    #[arg(long = "fault", value_name = "KIND=PROBABILITY", value_parser = fault)]
    faults: Vec<(Fault, f64)>,
    /// Calls admitted in a window, as `100/1s`; the rest get 429. Windows begin with the first call; by the
    /// clock with `100/1s@clock`. `/counters` tells how many.
    #[arg(long, value_name = "LIMIT/WINDOW")]
    rate_limit: Option<RateLimit>,
    /// A HAR file whose answers are given again, by method, path and query. What it does not hold is answered as ever.
    #[arg(long, value_name = "FILE")]
    har: Option<PathBuf>,
    /// Have recorded answers take as long as they took when they were recorded.
    #[arg(long, requires = "har")]
    har_times: bool,
    /// Speak TLS, with a certificate for `localhost` and the address, made at the start.
    #[arg(long)]
    tls: bool,
    /// Where the authority of that certificate is written, for clients to trust.
    #[arg(long, value_name = "FILE", default_value = "egret-data/provider-ca.pem", requires = "tls")]
    tls_ca: PathBuf,
    /// The largest content that is taken or made.
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = body_size)]
    max_body_size: Size,
    /// The longest time that an answer may be asked to take.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration_text)]
    max_duration: Duration,
    /// How long a client may take to send a head. A kept connection on which none comes for so long is closed.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = head_timeout)]
    head_timeout: Duration,
    /// What every path begins with, such as `/v1`.
    #[arg(long, value_name = "PATH", value_parser = prefix)]
    prefix: Option<String>,
    /// Header fields that are not shown, parted by commas; `*` stands for anything.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    exclude_headers: Vec<String>,
    /// Hosts that `/redirect-to` may name, parted by commas; any where not given.
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    allowed_redirect_domains: Vec<String>,
}

/// The largest content that may be allowed: answers are made in memory.
const BODY_SIZE_MAX: u64 = 1 << 30;

fn parse_duration_text(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

fn rtt(text: &str) -> Result<Duration, String> {
    let rtt = parse_duration_text(text)?;
    if rtt > Duration::from_mins(1) { Err("at most 1m".to_owned()) } else { Ok(rtt) }
}

fn head_timeout(text: &str) -> Result<Duration, String> {
    let timeout = parse_duration_text(text)?;
    if timeout < Duration::from_millis(1) { Err("at least 1ms".to_owned()) } else { Ok(timeout) }
}

fn bandwidth(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    if size.bytes() == 0 { Err("at least 1B".to_owned()) } else { Ok(size) }
}

fn body_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    if (1..=BODY_SIZE_MAX).contains(&size.bytes()) { Ok(size) } else { Err("from 1B to 1GiB".to_owned()) }
}

fn fault(text: &str) -> Result<(Fault, f64), String> {
    let (kind, probability) = text.split_once('=').ok_or("write KIND=PROBABILITY like reset=0.01")?;
    let kind = kind.parse().map_err(|error: egret_lab::provider::UnknownFault| error.to_string())?;
    let probability = probability.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    Ok((kind, probability.ok_or("write a probability from 0 to 1")?))
}

fn prefix(text: &str) -> Result<String, String> {
    let well = text.starts_with('/') && !text.ends_with('/') && !text.contains(['?', '#', ' ']);
    if well { Ok(text.to_owned()) } else { Err("begin with a slash, and end without one".to_owned()) }
}

impl Arguments {
    fn options(self) -> Result<Options, Failure> {
        if self.faults.iter().map(|(_, probability)| probability).sum::<f64>() > 1.0 {
            return Err(Failure::Misused("the probabilities of --fault come to more than 1".to_owned()));
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

/// Serves until told to stop.
pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let listen = arguments.listen;
    let options = arguments.options()?;
    let _logging = Logging::start(LogConfig::default())?;
    let runtime = runtime()?;
    let authority = options.tls.clone();
    let provider = Provider::start(listen, options).map_err(|error| match error {
        StartError::Listen(error) => Failure::Failed(format!(
            "the provider cannot listen on {listen}: {error}; name another address with --listen"
        )),
        error @ StartError::Recording { .. } => Failure::Misused(error.to_string()),
        error => Failure::Failed(error.to_string()),
    })?;
    let address = provider.address();
    cli::print(&match authority {
        None => format!("The provider runs on http://{address}\n"),
        Some(file) => {
            let (file, port) = (file.display(), address.port());
            format!(
                "The provider runs on https://localhost:{port}, and {file} is its authority:\n\
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

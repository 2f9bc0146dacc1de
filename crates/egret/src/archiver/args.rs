//! HARchiver's options.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use egret_config::Secret;

/// Environment variable with the token if the command line has none. Everyone on the machine can read the
/// command line.
pub(super) const TOKEN_VARIABLE: &str = "EGRET_SERVICE_TOKEN";

/// Default port of a collector.
const COLLECTOR_PORT: u16 = 5500;

/// Maximum timeout, in seconds.
const TIMEOUT_S_MAX: f64 = 86_400.0;

/// HARchiver's options, and from `--bind` on additional ones.
#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of HARchiver's, and they are independent"
)]
pub struct ArchiverArgs {
    /// The port for HTTP; with 0 the system chooses a free port.
    #[arg(value_name = "PORT", required_unless_present_any = ["version", "build_info"])]
    pub(super) listen_port: Option<u16>,
    /// The service token for requests that do not carry one. Everyone on this machine can read it on the
    /// command line; use the environment variable `EGRET_SERVICE_TOKEN` to keep it private.
    #[arg(value_name = "SERVICE_TOKEN", value_parser = secret)]
    pub(super) service_token: Option<Secret>,
    /// Also listen for HTTPS on this port, with `cert.pem` and `key.pem` from the current directory.
    #[arg(long, value_name = "PORT")]
    pub(super) https: Option<u16>,
    /// Send every request to this target, `host[:port]`, instead of the host that it names. The prefix
    /// `https://` selects TLS.
    #[arg(long, value_name = "TARGET")]
    pub(super) reverse: Option<String>,
    /// The environment for requests that do not carry one, such as `production`.
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub(super) env: Option<String>,
    /// Print a line for each exchange, and each document after it was delivered to the collector.
    #[arg(long)]
    pub(super) debug: bool,
    /// Maximum number of concurrent requests; further ones get 429.
    #[arg(short = 'c', value_name = "N", default_value = "500")]
    pub(super) concurrency: NonZeroU32,
    /// Seconds to wait for a connection, and then for the response to begin; after that the response is 504.
    #[arg(short = 't', value_name = "SECONDS", default_value = "6", value_parser = seconds)]
    pub(super) timeout: Duration,
    /// Also record bodies, up to 1 MiB of each.
    #[arg(long)]
    pub(super) replays: bool,
    /// Do not record requests whose `User-Agent` matches this regular expression, ignoring case.
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true)]
    pub(super) filter_ua: Option<String>,
    /// The host of the collector, which has a ZeroMQ PULL socket. Without it, exchanges are archived as HAR
    /// files.
    #[arg(long, value_name = "HOST")]
    pub(super) host: Option<String>,
    /// The collector's port.
    #[arg(long, value_name = "PORT", default_value_t = COLLECTOR_PORT)]
    pub(super) port: u16,
    /// Print the version.
    #[arg(long)]
    pub(super) version: bool,
    /// Print build information.
    #[arg(long)]
    pub(super) build_info: bool,
    /// The address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    pub(super) bind: IpAddr,
    /// A private address or range that requests may be sent to even if other machines can reach this port:
    /// `10.1.0.0/16`; may be repeated.
    #[arg(long, value_name = "NET")]
    pub(super) allow: Vec<String>,
    /// Archive exchanges as HAR files in this directory, in addition to a collector.
    #[arg(long, value_name = "DIRECTORY")]
    pub(super) har: Option<PathBuf>,
    /// Values that recordings replace with pseudonyms.
    #[arg(long, value_enum, default_value_t = Obfuscate::Secrets)]
    pub(super) obfuscate: Obfuscate,
    /// Directory for all data, such as documents that wait for the collector [default:
    /// ./egret-data/archiver-PORT].
    #[arg(long, value_name = "DIRECTORY")]
    pub(super) data_dir: Option<PathBuf>,
    /// The address of the control port, with health checks and metrics.
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))]
    pub(super) control: SocketAddr,
    /// Print the equivalent config for `egret run`, and exit.
    #[arg(long)]
    pub(super) print_config: bool,
}

/// Values to replace with pseudonyms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Obfuscate {
    /// Every value.
    All,
    /// Values that look like a secret, or whose name says that they are one.
    Secrets,
    /// Nothing.
    None,
}

/// Wraps the token. Only its source in a config is ever shown.
#[expect(clippy::unnecessary_wraps, reason = "clap requires a Result")]
pub(super) fn secret(token: &str) -> Result<Secret, Infallible> {
    Ok(Secret::from_value(format!("${{env:{TOKEN_VARIABLE}}}"), token.to_owned()))
}

fn seconds(text: &str) -> Result<Duration, SecondsError> {
    match text.parse() {
        Ok(seconds) if (0.001..=TIMEOUT_S_MAX).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(SecondsError),
    }
}

/// A text that is not a timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a number of seconds from 0.001 to 86400")]
struct SecondsError;

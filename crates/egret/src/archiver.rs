//! `egret archiver`: HARchiver's command line on Egret's engine. It is translated into an ordinary config,
//! which is then run.

mod translation;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, ValueEnum};
use egret_config::Secret;

use crate::Failure;
use crate::archiver::translation::Translation;
use crate::cli::{self, Cli};
use crate::run::{Origin, Run};

/// The subcommand. Only the program's name precedes it.
pub const NAME: &str = "archiver";

/// Environment variable with the token if the command line has none. Everyone on the machine can read the
/// command line.
pub const TOKEN_VARIABLE: &str = "EGRET_SERVICE_TOKEN";

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
    listen_port: Option<u16>,
    /// The service token for requests that do not carry one. Everyone on this machine can read it on the
    /// command line; use the environment variable `EGRET_SERVICE_TOKEN` to keep it private.
    #[arg(value_name = "SERVICE_TOKEN", value_parser = secret)]
    service_token: Option<Secret>,
    /// Also listen for HTTPS on this port, with `cert.pem` and `key.pem` from the current directory.
    #[arg(long, value_name = "PORT")]
    https: Option<u16>,
    /// Send every request to this target, `host[:port]`, instead of the host that it names. The prefix
    /// `https://` selects TLS.
    #[arg(long, value_name = "TARGET")]
    reverse: Option<String>,
    /// The environment for requests that do not carry one, such as `production`.
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    env: Option<String>,
    /// Print a line for each exchange, and each document after it was delivered to the collector.
    #[arg(long)]
    debug: bool,
    /// Maximum number of concurrent requests; further ones get 429.
    #[arg(short = 'c', value_name = "N", default_value = "500")]
    concurrency: NonZeroU32,
    /// Seconds to wait for a connection, and then for the response to begin; after that the response is 504.
    #[arg(short = 't', value_name = "SECONDS", default_value = "6", value_parser = seconds)]
    timeout: Duration,
    /// Also record bodies, up to 1 MiB of each.
    #[arg(long)]
    replays: bool,
    /// Do not record requests whose `User-Agent` matches this regular expression, ignoring case.
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true)]
    filter_ua: Option<String>,
    /// The host of the collector, which has a ZeroMQ PULL socket. Without it, exchanges are archived as HAR
    /// files.
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// The collector's port.
    #[arg(long, value_name = "PORT", default_value_t = COLLECTOR_PORT)]
    port: u16,
    /// Print the version.
    #[arg(long)]
    version: bool,
    /// Print build information.
    #[arg(long)]
    build_info: bool,
    /// The address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    bind: IpAddr,
    /// A private address or range that requests may be sent to even if other machines can reach this port:
    /// `10.1.0.0/16`; may be repeated.
    #[arg(long, value_name = "NET")]
    allow: Vec<String>,
    /// Archive exchanges as HAR files in this directory, in addition to a collector.
    #[arg(long, value_name = "DIRECTORY")]
    har: Option<PathBuf>,
    /// Values that recordings replace with pseudonyms.
    #[arg(long, value_enum, default_value_t = Obfuscate::Secrets)]
    obfuscate: Obfuscate,
    /// Directory for all data, such as documents that wait for the collector [default:
    /// ./egret-data/archiver-PORT].
    #[arg(long, value_name = "DIRECTORY")]
    data_dir: Option<PathBuf>,
    /// The address of the control port, with health checks and metrics.
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))]
    control: SocketAddr,
    /// Print the equivalent config for `egret run`, and exit.
    #[arg(long)]
    print_config: bool,
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
fn secret(token: &str) -> Result<Secret, String> {
    Ok(Secret::given(format!("${{env:{TOKEN_VARIABLE}}}"), token.to_owned()))
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=TIMEOUT_S_MAX).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected a number of seconds from 0.001 to 86400".to_owned()),
    }
}

impl ArchiverArgs {
    /// Runs the command.
    pub fn obey(&self) -> Result<(), Failure> {
        if self.version || self.build_info {
            let version = env!("CARGO_PKG_VERSION");
            let printed = if self.version { version.to_owned() } else { format!("egret {version}") };
            return cli::print(&format!("{printed}\n"));
        }
        let in_environment = || std::env::var(TOKEN_VARIABLE).ok().and_then(|token| secret(&token).ok());
        let token = self.service_token.clone().or_else(in_environment);
        let token = token.filter(|token| !token.expose().is_empty());
        let translation = Translation { arguments: self, token };
        translation.check().map_err(Failure::Misused)?;
        if self.print_config {
            return cli::print(&translation.yaml());
        }
        let config = translation.config().map_err(Failure::Misused)?;
        cli::print(&translation.banner())?;
        Run { origin: Origin::Made(Box::new(config)), demo: false }.run()
    }
}

/// Converts the command line for clap: HARchiver's long options have one dash, clap's have two.
pub fn with_two_dashes(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    if arguments.get(1).is_none_or(|name| name != NAME) {
        return arguments;
    }
    let mut is_value = false;
    for argument in &mut arguments[2..] {
        let Some(text) = argument.to_str().filter(|_| !is_value) else {
            is_value = false;
            continue;
        };
        if let Some(word) = text.strip_prefix('-').filter(|word| is_word(word)) {
            *argument = format!("--{word}").into();
        }
        is_value = takes_value(argument.to_str().unwrap_or_default());
    }
    arguments
}

/// Returns `true` for more than one character, the first of them a letter.
fn is_word(text: &str) -> bool {
    text.len() > 1 && text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic())
}

/// Returns `true` if the next argument is the value of this one.
fn takes_value(argument: &str) -> bool {
    let cli = Cli::command();
    let Some(archiver) = cli.find_subcommand(NAME) else { return false };
    let is_it = |known: &clap::Arg| match argument.strip_prefix("--") {
        // Long options may be abbreviated.
        Some(word) => known.get_long().is_some_and(|long| long.starts_with(word)),
        None => known
            .get_short()
            .is_some_and(|short| argument.strip_prefix('-') == Some(short.encode_utf8(&mut [0; 4]))),
    };
    archiver.get_arguments().find(|known| is_it(known)).is_some_and(|known| known.get_action().takes_values())
}

#[cfg(test)]
mod tests;

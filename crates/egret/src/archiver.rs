//! `egret archiver`: HARchiver's command line on Egret's engine. It is translated into an ordinary config, which is then run.

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

/// The subcommand, before which nothing but the program's name stands.
pub const NAME: &str = "archiver";

/// Where the token is looked for that is not on the command line, which everybody on the machine can read.
pub const TOKEN_VARIABLE: &str = "EGRET_SERVICE_TOKEN";

/// The port of a collector whose host alone is named.
const COLLECTOR_PORT: u16 = 5500;

/// The longest that anything may be waited for: `-t` is for answers, not for ever.
const TIMEOUT_S_MAX: f64 = 86_400.0;

/// HARchiver's options, and below `--bind` those that it lacks.
#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of HARchiver's, and they are independent"
)]
pub struct ArchiverArgs {
    /// The port for HTTP; 0 takes a free one.
    #[arg(value_name = "PORT", required_unless_present_any = ["version", "build_info"])]
    listen_port: Option<u16>,
    /// The service token of requests that bring none of their own. Everybody on this machine can read it here: `EGRET_SERVICE_TOKEN` in the
    /// environment keeps it to the process.
    #[arg(value_name = "SERVICE_TOKEN", value_parser = secret)]
    service_token: Option<Secret>,
    /// Listen for HTTPS on this port as well, with `cert.pem` and `key.pem` of the current directory.
    #[arg(long, value_name = "PORT")]
    https: Option<u16>,
    /// Send every request to this target, `host[:port]`, instead of the host that it names. With `https://` before it by TLS.
    #[arg(long, value_name = "TARGET")]
    reverse: Option<String>,
    /// The environment of requests that bring none of their own, such as `production`.
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    env: Option<String>,
    /// Print a line for each exchange, and each document once the collector has it.
    #[arg(long)]
    debug: bool,
    /// Requests under way at once; more are answered 429.
    #[arg(short = 'c', value_name = "N", default_value = "500")]
    concurrency: NonZeroU32,
    /// Seconds to wait for a connection, and then for an answer to begin; 504 after that.
    #[arg(short = 't', value_name = "SECONDS", default_value = "6", value_parser = seconds)]
    timeout: Duration,
    /// Record bodies too, up to 1 MiB of each.
    #[arg(long)]
    replays: bool,
    /// Do not record requests whose `User-Agent` fits this regular expression, whatever its case.
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true)]
    filter_ua: Option<String>,
    /// The collector's host, with a PULL socket of ZeroMQ. Without one, exchanges are archived as HAR files.
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// The collector's port.
    #[arg(long, value_name = "PORT", default_value_t = COLLECTOR_PORT)]
    port: u16,
    /// Print the version.
    #[arg(long)]
    version: bool,
    /// Print what this was built from.
    #[arg(long)]
    build_info: bool,
    /// The address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    bind: IpAddr,
    /// A private address or range that requests may go to though others than this machine can send some: `10.1.0.0/16`; may be repeated.
    #[arg(long, value_name = "NET")]
    allow: Vec<String>,
    /// Archive exchanges as HAR files in this directory, beside the collector if there is one.
    #[arg(long, value_name = "DIRECTORY")]
    har: Option<PathBuf>,
    /// What is replaced by pseudonyms in what is recorded.
    #[arg(long, value_enum, default_value_t = Obfuscate::Secrets)]
    obfuscate: Obfuscate,
    /// Where everything is kept, such as documents while the collector is away [default: ./egret-data/archiver-PORT].
    #[arg(long, value_name = "DIRECTORY")]
    data_dir: Option<PathBuf>,
    /// The address of the control port: health and metrics.
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))]
    control: SocketAddr,
    /// Print the config that the options amount to, for `egret run`, and end.
    #[arg(long)]
    print_config: bool,
}

/// What is replaced by pseudonyms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Obfuscate {
    /// Every value.
    All,
    /// What looks like a secret, or is one by its name.
    Secrets,
    /// Nothing.
    None,
}

/// The token, of which nothing but where a config finds it is ever shown.
#[expect(clippy::unnecessary_wraps, reason = "clap asks so")]
fn secret(token: &str) -> Result<Secret, String> {
    Ok(Secret::given(format!("${{env:{TOKEN_VARIABLE}}}"), token.to_owned()))
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=TIMEOUT_S_MAX).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("a number of seconds from 0.001 to 86400".to_owned()),
    }
}

impl ArchiverArgs {
    /// Does what the options say.
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

/// The command line as clap reads it: HARchiver's options have one dash and whole words, clap's have two.
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

/// Whether it is more than a letter, and no number.
fn is_word(text: &str) -> bool {
    text.len() > 1 && text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic())
}

/// Whether the next argument belongs to this one.
fn takes_value(argument: &str) -> bool {
    let cli = Cli::command();
    let Some(archiver) = cli.find_subcommand(NAME) else { return false };
    let is_it = |known: &clap::Arg| match argument.strip_prefix("--") {
        // A word may be cut short.
        Some(word) => known.get_long().is_some_and(|long| long.starts_with(word)),
        None => known
            .get_short()
            .is_some_and(|short| argument.strip_prefix('-') == Some(short.encode_utf8(&mut [0; 4]))),
    };
    archiver.get_arguments().find(|known| is_it(known)).is_some_and(|known| known.get_action().takes_values())
}

#[cfg(test)]
mod tests;

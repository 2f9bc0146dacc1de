//! The command line: every command and option, with the help that users read.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use egret_lab::streams;

use crate::Failure;
use crate::bench::BenchArgs;

/// Egret carries an application's calls to third-party APIs.
///
/// It runs beside the application, which reaches it in any of five ways: as a forward proxy, through a base URL, by header,
/// by Host header, or on a listener of its own for one provider.
#[derive(Debug, Parser)]
#[command(name = "egret", version, propagate_version = false, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What `egret` can be asked to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the gateway and its control port.
    ///
    /// SIGTERM or SIGINT drains: no new connections, exchanges in flight end; a second one stops at once. A changed config file is
    /// applied as soon as it is saved, and on SIGHUP: all of it, or nothing and the log says why.
    Run {
        /// The config file. Without one every key has its default: traffic is passed on and counted.
        #[arg(long, short, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Also run the built-in provider, configured as `demo`, and print lines to paste: traffic without the Internet.
        #[arg(long)]
        demo: bool,
    },
    /// Validate a config file.
    ///
    /// Everything that is wrong is shown at once, each with file, line, column, what was expected and what was probably meant.
    /// Secrets are read, and neither they nor the files they come from are shown.
    Check {
        /// The config file to validate.
        file: PathBuf,
    },
    /// Say which flows would be for a request, why the others would not, and what their remedies would do.
    ///
    /// Nothing is sent. Exit code 1 where the gateway would send the request nowhere.
    Explain(crate::explain::Arguments),
    /// Print the JSON Schema of the config, for editors.
    ///
    /// Save it and name it in the first line of a config: `# yaml-language-server: $schema=egret.schema.json`
    Schema,
    /// Run the built-in provider alone: an API to call that answers as httpbin does, as slowly and as badly as it is asked to.
    ///
    /// Its own page, `/`, lists what it answers.
    Provider(Box<crate::provider::Arguments>),
    /// Measure what Egret, or any other proxy, adds to the response time.
    #[command(subcommand)]
    Lab(crate::lab::Lab),
    /// Obfuscate, check, sum up, merge and split HAR archives, whoever recorded them.
    #[command(subcommand)]
    Har(crate::har::HarCommand),
    /// Put a target under load and measure it: ab's options and ab's report, and what ab lacks.
    ///
    /// `docs/reference/bench.md` explains. Exit code 1 also where a `--fail-if` holds, a run was given up, or every request failed.
    #[command(disable_version_flag = true)]
    Bench(Box<BenchArgs>),
    /// Run in HARchiver's place: its command line, header fields and answers.
    ///
    /// Words may have one dash, as HARchiver's have, and may be cut short: `egret archiver 15000 TOKEN -https 15001 -rev api.example`.
    /// `docs/how-to/replace-harchiver.md` says what differs.
    #[command(name = crate::archiver::NAME, infer_long_args = true)]
    Archiver(Box<crate::archiver::ArchiverArgs>),
    /// Print a page of the reference, as Markdown.
    Reference {
        /// Which page.
        #[arg(value_enum, default_value_t = Page::Config)]
        page: Page,
    },
    /// Print the version.
    Version,
}

/// A page of the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Page {
    /// Every key of the config.
    Config,
    /// Every command and option.
    Cli,
    /// What the built-in provider answers.
    Provider,
}

/// Prints to standard output.
pub fn print(text: &str) -> Result<(), Failure> {
    streams::print(text).map_err(|error| Failure::Failed(format!("cannot write to standard output: {error}")))
}

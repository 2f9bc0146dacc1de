//! `egret import`: another product's config as Egret's, with a report of what was lost.

use std::fmt::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use egret_measure::streams::say;
use egret_settings::config::Config;
use egret_settings::failure::Failure;
use egret_settings::output::print;

use crate::archiver::ArchiverArgs;

/// Translate another product's config into Egret's.
#[derive(Debug, Subcommand)]
pub enum Import {
    /// Translate a config of Lunar: policies.yaml, flows, quotas, path parameters and gateway config.
    ///
    /// The config goes to standard output, the report to standard error: every item as translated,
    /// translated with a difference, or not translated, with the reason and what to do instead. Secrets that
    /// stand in the files are not repeated: the report names environment variables for them.
    Lunar(Lunar),
    /// Print the config that a command line of HARchiver stands for.
    ///
    /// Takes the arguments of `egret archiver`. Long options may have a single dash.
    #[command(infer_long_args = true)]
    Harchiver(Box<ArchiverArgs>),
}

/// Arguments of `egret import lunar`.
#[derive(Debug, Args)]
pub struct Lunar {
    /// The directory with Lunar's files, such as policies.yaml and flows/.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Write the report to this file instead of standard error.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Exit with code 1 if anything was not translated.
    #[arg(long)]
    strict: bool,
}

impl Import {
    /// Runs the command.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Lunar(lunar) => lunar.run(),
            Self::Harchiver(arguments) => arguments.print(),
        }
    }
}

impl Lunar {
    fn run(self) -> Result<(), Failure> {
        let translation = egret_import::lunar::import(&self.directory).map_err(Failure::misused)?;
        let mut report = translation.report();
        if let Err(problems) = Config::parse("the translation", &translation.config) {
            report.push_str("\nto do before it can run:\n");
            for problem in problems.summaries() {
                let _ = writeln!(report, "  {problem}");
            }
        }
        match &self.report {
            Some(file) => std::fs::write(file, &report).map_err(|error| {
                Failure::Failed(format!("{}: cannot write the file: {error}", file.display()))
            })?,
            None => say(report.trim_end()),
        }
        print(&translation.config)?;
        if self.strict && translation.is_lossy() {
            return Err(Failure::failed("not everything was translated, see the report"));
        }
        Ok(())
    }
}

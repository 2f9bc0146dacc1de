//! `egret check`: validates a config file.

mod diff;
mod fixes;
mod sarif;

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use egret_config::{LocatedProblem, Report, without_secrets};
use egret_control::Checked;
use egret_measure::streams::say;
use egret_service::interception;
use egret_settings::advice::{budgets, presets};
use egret_settings::config::Config;
use egret_settings::config_draft::Draft;
use egret_settings::config_file::{self, ConfigFileError, ConfigSources};
use egret_settings::config_path;
use egret_settings::failure::Failure;
use egret_settings::output::{print, print_json};

/// The name of standard input.
const STANDARD_INPUT: &str = "-";

/// The arguments of `egret check`.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
pub struct CheckArguments {
    /// The config files to validate, or `-` for standard input. Default: `egret.yaml` in the working
    /// directory.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print problems and warnings as JSON, as the control API does: short for `--format json`.
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// The format of the output.
    #[arg(long, value_enum, default_value_t = CheckFormat::Text)]
    format: CheckFormat,
    /// Do not read secrets, run no commands for them, and check everything else.
    #[arg(long)]
    no_secrets: bool,
    /// Exit with code 1 if there are warnings.
    #[arg(long)]
    deny_warnings: bool,
    /// Fix obvious mistakes in the file, print what was changed, and check the result: misspelt words, tabs,
    /// a missing space after a colon, numbers in quotes, a quota outside of its retry. Comments are kept.
    #[arg(long)]
    fix: bool,
}

/// The format of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum CheckFormat {
    /// Lines for people: errors and warnings on standard error.
    #[default]
    Text,
    /// One JSON object with `valid`, `problems` and `warnings`.
    Json,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
}

/// The result of a check.
struct CheckOutcome {
    name: String,
    /// Numbers of listeners and providers of a valid config, or the problems of an invalid one.
    config: Result<(usize, usize), Report>,
    /// Warnings about a valid config.
    warnings: Option<Report>,
    /// Advice about the authority of intercepted hosts, which is in the data directory, presets, budgets
    /// and exporters.
    advice: Vec<String>,
}

impl CheckArguments {
    /// Checks the file, and prints the result.
    pub fn run(&self) -> Result<(), Failure> {
        if self.no_secrets { without_secrets(|| self.check()) } else { self.check() }
    }

    fn check(&self) -> Result<(), Failure> {
        let outcomes: Vec<CheckOutcome> = match &self.files[..] {
            [] => vec![self.outcome(&config_path::required(None)?)?],
            files => files.iter().map(|file| self.outcome(file)).collect::<Result<_, _>>()?,
        };
        match if self.json { CheckFormat::Json } else { self.format } {
            CheckFormat::Text => outcomes.iter().try_for_each(CheckOutcome::print_text)?,
            CheckFormat::Json => {
                for outcome in &outcomes {
                    let json = serde_json::to_value(outcome.checked()).unwrap_or_default();
                    print_json(&format!("{json:#}\n"))?;
                }
            }
            CheckFormat::Sarif => {
                let problems: Vec<_> = outcomes.iter().flat_map(CheckOutcome::problems).collect();
                print_json(&format!("{:#}\n", sarif::log(&problems)))?;
            }
        }
        verdict(outcomes, self.deny_warnings)
    }

    /// Checks a file.
    fn outcome(&self, file: &Path) -> Result<CheckOutcome, Failure> {
        let mut sources = read(file).map_err(Failure::misused)?;
        if self.fix {
            if is_standard_input(file) {
                return Err(Failure::misused("--fix changes a file, so it does not take `-`"));
            }
            sources = fix(file, sources)?;
        }
        Ok(CheckOutcome::of(&sources))
    }
}

/// Fails if a config is invalid, and for warnings if `denies_warnings`. The messages are those of all files.
fn verdict(outcomes: Vec<CheckOutcome>, denies_warnings: bool) -> Result<(), Failure> {
    let failures = outcomes.into_iter().filter_map(|outcome| outcome.verdict(denies_warnings).err());
    let all = failures.reduce(|first, second| {
        let is_misused = [&first, &second].iter().any(|failure| matches!(failure, Failure::Misused(_)));
        let message = format!("{}\n{second}", first.to_string().trim_end());
        if is_misused { Failure::Misused(message) } else { Failure::Failed(message) }
    });
    all.map_or(Ok(()), Err)
}

fn is_standard_input(file: &Path) -> bool {
    file == Path::new(STANDARD_INPUT)
}

fn read(file: &Path) -> Result<ConfigSources, ConfigFileError> {
    if is_standard_input(file) { config_file::read_standard_input() } else { config_file::read(file) }
}

impl CheckOutcome {
    fn of(sources: &ConfigSources) -> Self {
        let name = sources.set.main.name.clone();
        match sources.load() {
            Ok(loaded) => {
                let Config { gateway, providers, .. } = &loaded.config;
                let config = Ok((gateway.listen.len(), providers.len()));
                let mut advice = interception::advice(&loaded.config);
                advice.extend(presets::advise(&loaded.config));
                advice.extend(budgets::forgotten(&loaded.config));
                advice.extend(egret_export::advise(&loaded.config.exporters));
                Self { name, config, warnings: Some(loaded.warnings), advice }
            }
            Err(report) => Self { name, config: Err(report), warnings: None, advice: Vec::new() },
        }
    }

    fn warnings(&self) -> Vec<LocatedProblem> {
        self.warnings.as_ref().map(Report::problems).unwrap_or_default()
    }

    /// All problems, errors first.
    fn problems(&self) -> Vec<LocatedProblem> {
        let errors = self.config.as_ref().err().map(Report::problems).unwrap_or_default();
        errors.into_iter().chain(self.warnings()).collect()
    }

    fn checked(&self) -> Checked {
        let problems = self.config.as_ref().err().map(Report::problems).unwrap_or_default();
        Checked { valid: self.config.is_ok(), problems, warnings: self.warnings() }
    }

    /// Prints the warnings and what is good; the problems follow as a failure.
    fn print_text(&self) -> Result<(), Failure> {
        let Ok((listeners, providers)) = self.config else { return Ok(()) };
        if let Some(warnings) = self.warnings.as_ref().filter(|warnings| !warnings.findings.is_empty()) {
            say(warnings);
        }
        let name = &self.name;
        let counts = (counted(listeners, "listener"), counted(providers, "provider"));
        let report = format!("{name}: OK ({}, {})\n", counts.0, counts.1);
        let lines = self.advice.iter().map(|advice| format!("{name}: {advice}\n"));
        print(&lines.fold(report, |report, line| report + &line))
    }

    /// Fails if the config is invalid, and for warnings if `denies_warnings`.
    fn verdict(self, denies_warnings: bool) -> Result<(), Failure> {
        let (name, warnings) = (&self.name, self.warnings().len());
        match self.config {
            Err(report) => Err(Failure::misused(report)),
            Ok(_) if denies_warnings && warnings > 0 => {
                let message =
                    format!("{name}: {}, which `--deny-warnings` refuses", counted(warnings, "warning"));
                Err(Failure::Failed(message))
            }
            Ok(_) => Ok(()),
        }
    }
}

/// Fixes the file, prints the difference, and returns the new texts.
fn fix(file: &Path, sources: ConfigSources) -> Result<ConfigSources, Failure> {
    let before = &sources.set.main.text;
    let after = fixes::fix_text(file, before);
    if after == *before {
        say(format_args!("{}: nothing to fix", file.display()));
        return Ok(sources);
    }
    let written = Draft::write(file, &after).and_then(Draft::commit);
    let failed = |error| Failure::Failed(format!("{}: cannot write the file: {error}", file.display()));
    written.map_err(failed)?;
    print(&diff::unified(&sources.set.main.name, before, &after))?;
    Ok(ConfigSources::of(file, after))
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

//! `egret check`: validates a config file.

use std::path::Path;

use egret_config::Report;
use egret_control::Checked;

use crate::config::Config;
use crate::config_file;
use crate::failure::Failure;
use crate::output::print;

/// The result for a valid file.
#[derive(Debug)]
pub struct CheckedFile {
    /// The text for standard output, with a line end.
    pub report: String,
    /// Warnings for standard error, each with its position.
    pub warnings: Vec<String>,
}

/// Validates a file.
pub fn check(file: &Path) -> Result<CheckedFile, Failure> {
    let text = config_file::read(file).map_err(Failure::misused)?;
    let name = file.display().to_string();
    let config = Config::parse(&name, &text).map_err(Failure::misused)?;
    let warnings = egret_config::load(&name, &text, Config::warnings)
        .map_or_else(|report| report.summaries(), |_: Config| Vec::new());
    let (listeners, providers) = (config.gateway.listen.len(), config.providers.len());
    let report = format!(
        "{name}: OK ({listeners} listener{}, {providers} provider{})\n",
        plural(listeners),
        plural(providers)
    );
    Ok(CheckedFile { report, warnings })
}

/// Prints the result as JSON: `valid`, `problems` and `warnings`. An invalid file is wrong usage.
pub fn print_json(file: &Path) -> Result<(), Failure> {
    let text = config_file::read(file).map_err(Failure::misused)?;
    let name = file.display().to_string();
    let parsed = Config::parse(&name, &text);
    let problems = parsed.as_ref().err().map(Report::problems).unwrap_or_default();
    let warned = egret_config::load::<Config>(&name, &text, Config::warnings);
    let warnings = if parsed.is_ok() { warned.err().map(|report| report.problems()) } else { None };
    let checked = Checked { valid: parsed.is_ok(), problems, warnings: warnings.unwrap_or_default() };
    print(&format!("{:#}\n", serde_json::to_value(&checked).unwrap_or_default()))?;
    let count = checked.problems.len();
    parsed
        .map(drop)
        .map_err(|_| Failure::Misused(format!("{name}: invalid: {count} problem{}", plural(count))))
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

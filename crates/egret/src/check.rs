//! `egret check`: validates a config file.

use std::path::Path;

use crate::config::Config;
use crate::config_file;
use crate::failure::Failure;

/// The result for a valid file.
#[derive(Debug)]
pub struct Checked {
    /// The text for standard output, with a line end.
    pub report: String,
    /// Warnings for standard error, each with its position.
    pub warnings: Vec<String>,
}

/// Validates a file.
pub fn check(file: &Path) -> Result<Checked, Failure> {
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
    Ok(Checked { report, warnings })
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

//! The config as a whole: each room's part under its key, and reading it from a file.

use std::io::Read;
use std::path::{Path, PathBuf};

use egret_config::{CONFIG_BYTES_MAX, Problem, Report};
use egret_control::ControlConfig;
use egret_gateway::config::{GatewayConfig, Providers};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Failure;

/// Egret's config. Every key has a default: with an empty file Egret passes traffic on and counts it.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where the gateway listens and how it treats connections.
    pub gateway: GatewayConfig,
    /// Health, metrics and the API.
    pub control: ControlConfig,
    /// Directory of everything that Egret keeps. Made when first needed.
    pub data_dir: PathBuf,
    /// What Egret tells of itself, on standard error.
    pub log: LogConfig,
    /// The third-party APIs that are called, by name. The name is what the base URL starts with: `/<name>/rest`.
    pub providers: Providers,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            gateway: GatewayConfig::default(),
            control: ControlConfig::default(),
            data_dir: "./egret-data".into(),
            log: LogConfig::default(),
            providers: Providers::new(),
        }
    }
}

/// What Egret tells of itself, on standard error. What it tells of exchanges is `gateway.access_log`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// The least important that is told.
    pub level: LogLevel,
    /// How a line looks.
    pub format: LogFormat,
}

/// How important a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Something that was asked for could not be done.
    Error,
    /// Something is off that somebody should look at.
    Warn,
    /// Egret starts, reloads and stops.
    #[default]
    Info,
    /// What led to an answer that the gateway made itself.
    Debug,
    /// Everything, libraries included.
    Trace,
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One line of text.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl Config {
    /// Reads a config text; `name` is what problems are reported under.
    pub fn parse(name: &str, text: &str) -> Result<Self, Report> {
        egret_config::load(name, text, Self::problems)
    }

    /// What the types cannot say: dangling names, contradictions.
    fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let control = &self.control;
        if control.token.is_none() && !control.listen.ip().to_canonical().is_loopback() {
            let message = format!(
                "`{}` is not on loopback: everybody could read the control port, set `control.token`",
                control.listen
            );
            problems.push(Problem::new("control.listen", message));
        }
        problems
    }
}

/// Reads a config file's text. The error says what to do.
pub fn read(file: &Path) -> Result<String, String> {
    let name = file.display();
    let opened = std::fs::File::open(file).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("{name}: there is no such file"),
        _ => format!("{name}: cannot be opened: {error}"),
    })?;
    let mut bytes = Vec::new();
    // One byte more than allowed tells a file that is too long; a device without end cannot fill the memory.
    let limit = u64::try_from(CONFIG_BYTES_MAX + 1).unwrap_or(u64::MAX);
    opened.take(limit).read_to_end(&mut bytes).map_err(|error| format!("{name}: cannot be read: {error}"))?;
    if bytes.len() > CONFIG_BYTES_MAX {
        return Err(format!("{name}: longer than {CONFIG_BYTES_MAX} bytes, which no config may be"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].split(|byte| *byte == b'\n').count();
        format!("{name}:{line}: not UTF-8 from here on")
    })
}

/// Validates a file; what to print when it is good.
pub fn check(file: &Path) -> Result<String, Failure> {
    let text = read(file).map_err(Failure::Misused)?;
    let name = file.display().to_string();
    let config = Config::parse(&name, &text).map_err(|report| Failure::Misused(report.to_string()))?;
    let (listeners, providers) = (config.gateway.listen.len(), config.providers.len());
    Ok(format!(
        "{name}: good ({listeners} listener{}, {providers} provider{})\n",
        plural(listeners),
        plural(providers)
    ))
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

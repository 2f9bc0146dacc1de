//! Prepares the provider and the proxy of a turn: finds their programs and fills in their templates.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::config::{Experiment, ProviderConfig, ProviderKind, ScenarioConfig};
use super::process::Launch;
use super::template::{self, Values};

/// Directories for daemons on Debian, which a user's PATH may omit.
const SYSTEM_DIRECTORIES: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

/// Finds a program. A path is relative to the experiment's file; a plain name is searched in PATH.
pub fn locate(program: &str, here: &Path) -> Option<PathBuf> {
    if program.contains('/') {
        let file = here.join(program);
        return file.is_file().then_some(file);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = SYSTEM_DIRECTORIES.map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(system)
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}

/// The file name under which a template is stored in the results.
pub fn config_name(part: &str, template: &Path) -> String {
    let ending = template.extension().unwrap_or_default().to_string_lossy();
    format!("{part}.{ending}")
}

/// Reads all templates of an experiment.
pub fn read_configs(experiment: &Experiment, here: &Path) -> Result<BTreeMap<String, String>, String> {
    let provider = experiment.provider.config.as_deref().map(|file| ("provider", file));
    let scenarios = experiment.scenarios.iter();
    let scenarios = scenarios.filter_map(|scenario| Some((scenario.name.as_str(), scenario.template()?)));
    let mut configs = BTreeMap::new();
    for (part, file) in provider.into_iter().chain(scenarios) {
        let located = here.join(file);
        let text =
            super::config::read_text(&located).map_err(|error| format!("{}: {error}", located.display()))?;
        configs.insert(config_name(part, file), text);
    }
    Ok(configs)
}

/// The program of a scenario's proxy as the file names it; `None` for the direct way and for Egret.
pub fn proxy_program(scenario: &ScenarioConfig) -> Option<&str> {
    scenario.command.first().map(String::as_str)
}

/// The program of the provider as the file names it; `None` for Egret's own.
pub fn provider_program(provider: &ProviderConfig) -> Option<&str> {
    match provider.kind {
        ProviderKind::Egret => None,
        ProviderKind::GoHttpbin => Some("go-httpbin"),
        ProviderKind::Command => provider.command.first().map(String::as_str),
    }
}

/// The option that prints a program's version. A program without such an option prints an error, which serves
/// as well.
pub fn version_option(program: &Path) -> &'static str {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    match name.as_ref() {
        "nginx" | "haproxy" | "wrk" => "-v",
        "ab" | "siege" => "-V",
        "egret" => "version",
        _ => "--version",
    }
}

/// Everything needed to prepare the processes of a turn.
#[derive(Debug)]
pub struct Workshop<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// The directory of the experiment's file.
    pub here: &'a Path,
    /// Contents of the templates.
    pub configs: &'a BTreeMap<String, String>,
    /// Folder of the turn.
    pub directory: &'a Path,
    /// Placeholder values that all processes share.
    pub shared: Values,
}

/// The reason why a process cannot be started.
pub type Trouble = String;

impl Workshop<'_> {
    /// Prepares the provider to listen on `port`.
    pub fn provider(&self, port: u16, core: Option<usize>) -> Result<Launch, Trouble> {
        let config = &self.experiment.provider;
        let listen = format!("127.0.0.1:{port}");
        let mut words: Vec<String> = match config.kind {
            ProviderKind::Egret => vec!["@{egret}".into(), "provider".into(), "--listen".into(), listen],
            ProviderKind::GoHttpbin => {
                ["go-httpbin", "-host", "127.0.0.1", "-port", &port.to_string(), "-log-level", "ERROR"]
                    .map(Into::into)
                    .to_vec()
            }
            ProviderKind::Command => config.command.clone(),
        };
        words.extend(config.arguments.iter().cloned());
        let template = config.config.as_deref().map(|file| config_name("provider", file));
        let launch = self.launch("provider", "the provider", &words, template, port, core)?;
        for (name, size) in &config.files {
            let file = launch.directory.join(name);
            let length = usize::try_from(size.bytes()).unwrap_or(usize::MAX);
            std::fs::write(&file, vec![b'x'; length])
                .map_err(|error| format!("{}: {error}", file.display()))?;
        }
        Ok(launch)
    }

    /// Prepares the scenario's proxy to listen on `port`. Returns `None` for the direct way.
    pub fn proxy(
        &self,
        scenario: &ScenarioConfig,
        port: u16,
        core: Option<usize>,
    ) -> Result<Option<Launch>, Trouble> {
        if scenario.is_direct() {
            return Ok(None);
        }
        let words = match scenario.egret {
            Some(_) => ["@{egret}", "run", "--config", "@{config}"].map(String::from).to_vec(),
            None => scenario.command.clone(),
        };
        let template = scenario.template().map(|file| config_name(&scenario.name, file));
        let name = format!("the proxy of `{}`", scenario.name);
        self.launch("proxy", &name, &words, template, port, core).map(Some)
    }

    fn launch(
        &self,
        part: &str,
        name: &str,
        words: &[String],
        template: Option<String>,
        port: u16,
        core: Option<usize>,
    ) -> Result<Launch, Trouble> {
        let directory = self.directory.join(part);
        std::fs::create_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let mut values = self.shared.clone();
        values.insert("port", port.to_string());
        values.insert("directory", directory.display().to_string());
        if let Some(template) = template {
            let text = self.configs.get(&template);
            let text = text.ok_or_else(|| format!("the config {template} is missing from the results"))?;
            let file = self.directory.join(format!("{part}-{template}"));
            std::fs::write(&file, fill(text, &values, name)?)
                .map_err(|error| format!("{}: {error}", file.display()))?;
            values.insert("config", file.display().to_string());
        }
        let (program, arguments) = words.split_first().ok_or_else(|| format!("{name} has no command"))?;
        let program = fill(program, &values, name)?;
        let located =
            locate(&program, self.here).ok_or_else(|| format!("{name}: {program} is not installed"))?;
        let log = self.directory.join(format!("{part}.log"));
        Ok(Launch {
            name: name.to_owned(),
            program: located,
            arguments: arguments
                .iter()
                .map(|word| fill(word, &values, name).map(OsString::from))
                .collect::<Result<_, _>>()?,
            home: directory.clone(),
            directory,
            stdout: log.clone(),
            stderr: log,
            core,
        })
    }
}

fn fill(text: &str, values: &Values, name: &str) -> Result<String, Trouble> {
    template::fill(text, values).map_err(|unknown| format!("`@{{{}}}` has no value for {name}", unknown.name))
}

//! Prepares the provider and the proxy of a turn: finds their programs and fills in their templates.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use crate::config::{Experiment, ProviderConfig, ProviderKind, ScenarioConfig};
use crate::process::Launch;
use crate::template::{self, Values};
use crate::text_file::{TextFileError, read_text};

/// Directories for daemons on Debian, which a user's PATH may omit.
const SYSTEM_DIRECTORIES: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

/// Finds a program. A path is relative to the experiment's file; a plain name is searched in PATH.
pub(crate) fn locate(program: &str, here: &Path) -> Option<PathBuf> {
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
pub(crate) fn config_name(part: &str, template: &Path) -> String {
    let ending = template.extension().unwrap_or_default().to_string_lossy();
    format!("{part}.{ending}")
}

/// Reads all templates of an experiment.
pub(crate) fn read_configs(
    experiment: &Experiment,
    here: &Path,
) -> Result<BTreeMap<String, String>, UnreadableConfig> {
    let provider = experiment.provider.config.as_deref().map(|file| ("provider", file));
    let scenarios = experiment.scenarios.iter();
    let scenarios = scenarios.filter_map(|scenario| Some((scenario.name.as_str(), scenario.template()?)));
    let mut configs = BTreeMap::new();
    for (part, file) in provider.into_iter().chain(scenarios) {
        let located = here.join(file);
        let text = read_text(&located).map_err(|error| UnreadableConfig { file: located, error })?;
        configs.insert(config_name(part, file), text);
    }
    Ok(configs)
}

/// The program of a scenario's proxy as the file names it; `None` for the direct way and for Egret.
pub(crate) fn proxy_program(scenario: &ScenarioConfig) -> Option<&str> {
    scenario.command.first().map(String::as_str)
}

/// The program of the provider as the file names it; `None` for Egret's own.
pub(crate) fn provider_program(provider: &ProviderConfig) -> Option<&str> {
    match provider.kind {
        ProviderKind::Egret => None,
        ProviderKind::GoHttpbin => Some("go-httpbin"),
        ProviderKind::Command => provider.command.first().map(String::as_str),
    }
}

/// The option that prints a program's version. A program without such an option prints an error, which serves
/// as well.
pub(crate) fn version_option(program: &Path) -> &'static str {
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
pub(crate) struct TurnFiles<'a> {
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

/// The reason why the files or the command of a process cannot be prepared.
#[derive(Debug)]
pub(crate) enum StartProblem {
    /// A file or directory cannot be written.
    Io(PathBuf, io::Error),
    /// The results lack this config.
    ConfigMissing(String),
    /// The part of this name has no command.
    NoCommand(String),
    /// The program that the named part needs is not installed.
    NotInstalled {
        /// Name of the part.
        name: String,
        /// The program.
        program: String,
    },
    /// A placeholder has no value for the named part.
    NoValue {
        /// Name of the placeholder.
        placeholder: String,
        /// Name of the part.
        name: String,
    },
}

impl fmt::Display for StartProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::ConfigMissing(config) => write!(f, "the config {config} is missing from the results"),
            Self::NoCommand(name) => write!(f, "{name} has no command"),
            Self::NotInstalled { name, program } => write!(f, "{name}: {program} is not installed"),
            Self::NoValue { placeholder, name } => write!(f, "`@{{{placeholder}}}` has no value for {name}"),
        }
    }
}

impl std::error::Error for StartProblem {}

/// A config template that cannot be read.
#[derive(Debug)]
pub(crate) struct UnreadableConfig {
    file: PathBuf,
    error: TextFileError,
}

impl fmt::Display for UnreadableConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.error)
    }
}

impl std::error::Error for UnreadableConfig {}

impl TurnFiles<'_> {
    /// Prepares the provider to listen on `port`.
    pub fn provider(&self, port: u16, core: Option<usize>) -> Result<Launch, StartProblem> {
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
                .map_err(|error| StartProblem::Io(file.clone(), error))?;
        }
        Ok(launch)
    }

    /// Prepares the scenario's proxy to listen on `port`. Returns `None` for the direct way.
    pub fn proxy(
        &self,
        scenario: &ScenarioConfig,
        port: u16,
        core: Option<usize>,
    ) -> Result<Option<Launch>, StartProblem> {
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
    ) -> Result<Launch, StartProblem> {
        let directory = self.directory.join(part);
        std::fs::create_dir(&directory).map_err(|error| StartProblem::Io(directory.clone(), error))?;
        let mut values = self.shared.clone();
        values.insert("port", port.to_string());
        values.insert("directory", directory.display().to_string());
        if let Some(template) = template {
            let text = self.configs.get(&template);
            let text = text.ok_or_else(|| StartProblem::ConfigMissing(template.clone()))?;
            let file = self.directory.join(format!("{part}-{template}"));
            std::fs::write(&file, fill(text, &values, name)?)
                .map_err(|error| StartProblem::Io(file.clone(), error))?;
            values.insert("config", file.display().to_string());
        }
        let (program, arguments) =
            words.split_first().ok_or_else(|| StartProblem::NoCommand(name.to_owned()))?;
        let program = fill(program, &values, name)?;
        let located = locate(&program, self.here)
            .ok_or_else(|| StartProblem::NotInstalled { name: name.to_owned(), program: program.clone() })?;
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

fn fill(text: &str, values: &Values, name: &str) -> Result<String, StartProblem> {
    template::fill(text, values)
        .map_err(|unknown| StartProblem::NoValue { placeholder: unknown.name, name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "title: t\nprovider: { kind: command, command: [/bin/sh, '@{config}', '@{port}'], config: p.conf, files: { f: 5B } }\n\
        scenarios: [{ name: direct }, { name: x, command: [/bin/sh, -c, '@{provider_port} @{config}'], config: x.conf }]\n";

    /// The files of a turn whose templates are `configs`, in an experiment in the directory.
    fn prepared<T>(
        directory: &Path,
        configs: &BTreeMap<String, String>,
        prepare: impl FnOnce(&TurnFiles<'_>) -> T,
    ) -> T {
        for file in ["p.conf", "x.conf"] {
            std::fs::write(directory.join(file), "").unwrap();
        }
        let experiment = Experiment::parse("e.yaml", TEXT, directory).unwrap();
        let turn = directory.join("turn");
        std::fs::create_dir_all(&turn).unwrap();
        let shared = Values::from([("provider_port", "7".to_owned())]);
        prepare(&TurnFiles { experiment: &experiment, here: directory, configs, directory: &turn, shared })
    }

    fn words(launch: &Launch) -> Vec<&str> {
        launch.arguments.iter().map(|word| word.to_str().unwrap()).collect()
    }

    #[test]
    fn provider_and_proxy_get_their_filled_in_files() {
        let root = tempfile::tempdir().unwrap();
        let turn = root.path().join("turn");
        let configs = BTreeMap::from([
            ("provider.conf".to_owned(), "listen @{port}".to_owned()),
            ("x.conf".to_owned(), "to @{provider_port} in @{directory}".to_owned()),
        ]);
        let [provider, proxy] = prepared(root.path(), &configs, |files| {
            assert!(
                files.proxy(&files.experiment.scenarios[0], 8, None).unwrap().is_none(),
                "the direct way"
            );
            let proxy = files.proxy(&files.experiment.scenarios[1], 8, Some(1)).unwrap().unwrap();
            [files.provider(7, None).unwrap(), proxy]
        });
        let config = turn.join("provider-provider.conf");
        assert_eq!(words(&provider), [config.to_str().unwrap(), "7"]);
        assert_eq!(std::fs::read_to_string(config).unwrap(), "listen 7");
        assert_eq!(std::fs::read(provider.directory.join("f")).unwrap(), b"xxxxx");
        let config = turn.join("proxy-x.conf");
        assert_eq!(words(&proxy), ["-c", &format!("7 {}", config.display())]);
        let expected = format!("to 7 in {}", proxy.directory.display());
        assert_eq!(std::fs::read_to_string(config).unwrap(), expected);
        assert_eq!((proxy.core, proxy.name.as_str()), (Some(1), "the proxy of `x`"));
    }

    #[test]
    fn what_is_missing_is_named() {
        let root = tempfile::tempdir().unwrap();
        let problem = |configs: BTreeMap<String, String>| {
            let _ = std::fs::remove_dir_all(root.path().join("turn"));
            prepared(root.path(), &configs, |files| files.provider(7, None).unwrap_err().to_string())
        };
        assert_eq!(problem(BTreeMap::new()), "the config provider.conf is missing from the results");
        let unset = BTreeMap::from([("provider.conf".to_owned(), "@{delay_s}".to_owned())]);
        assert_eq!(problem(unset), "`@{delay_s}` has no value for the provider");
        let problem = StartProblem::NotInstalled { name: "the proxy".into(), program: "x".into() };
        assert_eq!(problem.to_string(), "the proxy: x is not installed");
    }

    #[test]
    fn programs_are_found_beside_the_experiment_or_in_the_path() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("tool"), "").unwrap();
        assert_eq!(locate("./tool", root.path()), Some(root.path().join("./tool")));
        assert_eq!(locate("./none", root.path()), None);
        assert!(locate("sh", root.path()).is_some_and(|path| path.is_absolute()));
        assert_eq!(locate("no-such-program", root.path()), None);
        for (program, option) in
            [("/usr/sbin/nginx", "-v"), ("ab", "-V"), ("egret", "version"), ("envoy", "--version")]
        {
            assert_eq!(version_option(Path::new(program)), option);
        }
    }
}

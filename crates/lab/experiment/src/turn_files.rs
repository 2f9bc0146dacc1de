//! Prepares the provider and the proxy of a turn: finds their programs and fills in their templates.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::certificate;
use crate::config::{Experiment, ProviderConfig, ProviderKind, ScenarioConfig};
use crate::host::{Host, HostError, Hosts};
use crate::http::{authority, bracketed};
use crate::process::Launch;
use crate::template::{self, Values};
use crate::text_file::{TextFileError, read_text};

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

/// The programs of a scenario's proxy and services as the file names them. Egret is not among them.
pub(crate) fn scenario_programs(experiment: &Experiment, scenario: &ScenarioConfig) -> Vec<String> {
    let services = scenario.services.iter().filter_map(|name| experiment.services.get(name));
    let services = services.filter_map(|service| service.command().into_iter().next());
    scenario.command.first().cloned().into_iter().chain(services).collect()
}

/// The program of the provider as the file names it; `None` for Egret's own.
pub(crate) fn provider_program(provider: &ProviderConfig) -> Option<&str> {
    match provider.kind {
        ProviderKind::Egret => None,
        ProviderKind::GoHttpbin => Some("go-httpbin"),
        ProviderKind::Command => provider.command.first().map(String::as_str),
    }
}

/// Directories for the files of a turn. On this machine they are the turn's folder in the results.
#[derive(Debug, Clone)]
pub(crate) struct TurnDirectories {
    /// On the client's machine.
    pub client: PathBuf,
    /// On the proxy's machine.
    pub proxy: PathBuf,
    /// On the provider's machine.
    pub provider: PathBuf,
}

/// File in a turn's directory for the certificate of the provider's authority.
pub(crate) const PROVIDER_CA: &str = "provider-ca.pem";

/// The placeholders for which a certificate is made.
const CERTIFICATE_KEYS: [&str; 2] = ["@{certificate}", "@{key}"];

/// Everything needed to prepare the processes of a turn.
#[derive(Debug)]
pub(crate) struct TurnFiles<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// The machines.
    pub hosts: &'a Hosts,
    /// Contents of the templates.
    pub configs: &'a BTreeMap<String, String>,
    /// Directories for the files of the turn, on the machine of each part.
    pub directories: &'a TurnDirectories,
    /// Placeholder values that all processes share.
    pub shared: Values,
}

/// The reason why the files or the command of a process cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartProblem {
    /// A file or directory cannot be written, or the machine cannot be reached.
    #[error("{0}")]
    Host(#[from] HostError),
    /// The results lack this config.
    #[error("the config {0} is missing from the results")]
    ConfigMissing(String),
    /// The part of this name has no command.
    #[error("{0} has no command")]
    NoCommand(String),
    /// The program that the named part needs is not installed.
    #[error("{name}: {program} is not installed")]
    NotInstalled {
        /// Name of the part.
        name: String,
        /// The program.
        program: String,
    },
    /// No certificate can be made.
    #[error("no certificate can be made: {0}")]
    Certificate(rcgen::Error),
    /// A placeholder has no value for the named part.
    #[error("`@{{{placeholder}}}` has no value for {name}")]
    NoValue {
        /// Name of the placeholder.
        placeholder: String,
        /// Name of the part.
        name: String,
    },
}

/// The ports and the core of a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessPlace {
    /// The port on which it listens.
    pub port: u16,
    /// One more free port.
    pub control_port: u16,
    /// The core to which it is pinned.
    pub core: Option<usize>,
}

/// A part whose process is prepared.
struct PreparedPart<'a> {
    /// Name of its files: `provider`, `proxy-2`.
    kind: &'a str,
    /// Name for messages.
    name: &'a str,
    host: &'a Host,
    /// Directory for the files of the turn.
    directory: &'a Path,
    place: ProcessPlace,
    /// Number of the instance, from 1.
    instance: u32,
}

/// A config template that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {error}")]
pub(crate) struct UnreadableConfig {
    file: PathBuf,
    error: TextFileError,
}

impl TurnFiles<'_> {
    /// Prepares the provider.
    pub fn provider(&self, place: ProcessPlace) -> Result<Launch, StartProblem> {
        let (config, host) = (&self.experiment.provider, &self.hosts.provider);
        let (address, number) = (host.listen.to_string(), place.port.to_string());
        let mut words: Vec<String> = match config.kind {
            ProviderKind::Egret => {
                vec!["@{egret}".into(), "provider".into(), "--listen".into(), authority(&address, place.port)]
            }
            ProviderKind::GoHttpbin => {
                ["go-httpbin", "-host", &address, "-port", &number, "-log-level", "ERROR"]
                    .map(Into::into)
                    .to_vec()
            }
            ProviderKind::Command => config.command.clone(),
        };
        words.extend(config.arguments.iter().cloned());
        let template = config.config.as_deref().map(|file| config_name("provider", file));
        let directory = &self.directories.provider;
        let part =
            PreparedPart { kind: "provider", name: "the provider", host, directory, place, instance: 1 };
        let launch = self.launch(&part, &words, template)?;
        for (name, size) in &config.files {
            let length = usize::try_from(size.bytes()).unwrap_or(usize::MAX);
            host.write(&launch.directory.join(name), &vec![b'x'; length])?;
        }
        Ok(launch)
    }

    /// Prepares an instance of the scenario's proxy.
    pub fn proxy(
        &self,
        scenario: &ScenarioConfig,
        instance: u32,
        place: ProcessPlace,
    ) -> Result<Launch, StartProblem> {
        let words = match scenario.egret {
            Some(_) => ["@{egret}", "run", "--config", "@{config}"].map(String::from).to_vec(),
            None => scenario.command.clone(),
        };
        let template = scenario.template().map(|file| config_name(&scenario.name, file));
        let (kind, name) = match scenario.instances {
            1 => ("proxy".to_owned(), format!("the proxy of `{}`", scenario.name)),
            _ => (format!("proxy-{instance}"), format!("proxy {instance} of `{}`", scenario.name)),
        };
        let (host, directory) = (&self.hosts.proxy, &self.directories.proxy);
        let part = PreparedPart { kind: &kind, name: &name, host, directory, place, instance };
        self.launch(&part, &words, template)
    }

    /// Prepares a service, which runs where the proxies do.
    pub fn service(&self, name: &str, place: ProcessPlace) -> Result<Launch, StartProblem> {
        let (host, directory) = (&self.hosts.proxy, &self.directories.proxy);
        let config = self.experiment.services.get(name);
        let config = config.ok_or_else(|| StartProblem::NoCommand(name.to_owned()))?;
        let part = PreparedPart { kind: name, name, host, directory, place, instance: 1 };
        let mut launch = self.launch(&part, &config.command(), None)?;
        let values = self.values(&part);
        for (variable, value) in &config.environment {
            launch.environment.insert(variable.clone(), fill(value, &values, name)?);
        }
        Ok(launch)
    }

    fn values(&self, part: &PreparedPart<'_>) -> Values {
        let PreparedPart { host, place, .. } = part;
        let mut values = self.shared.clone();
        values.extend(template::values([
            ("listen", bracketed(&host.listen.to_string())),
            ("port", place.port.to_string()),
            ("control_port", place.control_port.to_string()),
            ("instance", part.instance.to_string()),
            ("directory", part.directory.join(part.kind).display().to_string()),
            ("provider_ca", part.directory.join(PROVIDER_CA).display().to_string()),
            ("here", host.about.here.display().to_string()),
            ("egret", host.about.egret.display().to_string()),
            ("user", host.about.user.clone()),
        ]));
        values
    }

    /// The field lines that each request to a scenario's proxy carries.
    pub fn fields(&self, scenario: &ScenarioConfig) -> Result<Vec<String>, StartProblem> {
        let lines = scenario
            .headers
            .iter()
            .map(|(name, value)| Ok(format!("{name}: {}", fill(value, &self.shared, "the headers")?)));
        lines.collect()
    }

    fn launch(
        &self,
        part: &PreparedPart<'_>,
        words: &[String],
        template: Option<String>,
    ) -> Result<Launch, StartProblem> {
        let PreparedPart { kind, name, host, place, .. } = *part;
        let directory = part.directory.join(kind);
        host.empty_directory(&directory)?;
        let mut values = self.values(part);
        let text = template.as_ref().map(|template| {
            self.configs.get(template).ok_or_else(|| StartProblem::ConfigMissing(template.clone()))
        });
        let text = text.transpose()?;
        if words.iter().chain(text).any(|text| CERTIFICATE_KEYS.iter().any(|key| text.contains(key))) {
            values.extend(write_certificate(host, &directory)?);
        }
        if let Some((template, text)) = template.zip(text) {
            let file = part.directory.join(format!("{kind}-{template}"));
            host.write(&file, fill(text, &values, name)?.as_bytes())?;
            values.insert("config".into(), file.display().to_string());
        }
        let (program, arguments) =
            words.split_first().ok_or_else(|| StartProblem::NoCommand(name.to_owned()))?;
        let program = fill(program, &values, name)?;
        let located = host
            .locate(&program)?
            .ok_or_else(|| StartProblem::NotInstalled { name: name.to_owned(), program: program.clone() })?;
        let log = part.directory.join(format!("{kind}.log"));
        Ok(Launch {
            name: name.to_owned(),
            program: located,
            arguments: arguments
                .iter()
                .map(|word| fill(word, &values, name).map(OsString::from))
                .collect::<Result<_, _>>()?,
            environment: BTreeMap::new(),
            home: directory.clone(),
            directory,
            stdout: log.clone(),
            stderr: log,
            core: place.core,
        })
    }
}

/// Writes a certificate for `localhost` with its key into a directory. Returns the placeholders of the files.
fn write_certificate(host: &Host, directory: &Path) -> Result<Values, StartProblem> {
    let made = certificate::make(&host.address).map_err(StartProblem::Certificate)?;
    // HAProxy takes no path of a key: it finds the key beside the certificate under this name.
    let (certificate, key) = (directory.join("certificate.pem"), directory.join("certificate.pem.key"));
    host.write(&certificate, made.certificate.as_bytes())?;
    host.write(&key, made.key.as_bytes())?;
    Ok(template::values([
        ("certificate", certificate.display().to_string()),
        ("key", key.display().to_string()),
    ]))
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
        let shared = template::values([("provider_port", "7".to_owned())]);
        let hosts = Hosts::connect(&experiment.on, Path::new("/egret"), directory).unwrap();
        let directories = TurnDirectories { client: turn.clone(), proxy: turn.clone(), provider: turn };
        prepare(&TurnFiles {
            experiment: &experiment,
            hosts: &hosts,
            configs,
            directories: &directories,
            shared,
        })
    }

    fn place(port: u16, core: Option<usize>) -> ProcessPlace {
        ProcessPlace { port, control_port: port + 100, core }
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
            ("x.conf".to_owned(), "to @{provider_port} in @{directory} on @{listen}".to_owned()),
        ]);
        let [provider, proxy] = prepared(root.path(), &configs, |files| {
            let proxy = files.proxy(&files.experiment.scenarios[1], 1, place(8, Some(1))).unwrap();
            [files.provider(place(7, None)).unwrap(), proxy]
        });
        let config = turn.join("provider-provider.conf");
        assert_eq!(words(&provider), [config.to_str().unwrap(), "7"]);
        assert_eq!(std::fs::read_to_string(config).unwrap(), "listen 7");
        assert_eq!(std::fs::read(provider.directory.join("f")).unwrap(), b"xxxxx");
        let config = turn.join("proxy-x.conf");
        assert_eq!(words(&proxy), ["-c", &format!("7 {}", config.display())]);
        let expected = format!("to 7 in {} on 127.0.0.1", proxy.directory.display());
        assert_eq!(std::fs::read_to_string(config).unwrap(), expected);
        assert_eq!((proxy.core, proxy.name.as_str()), (Some(1), "the proxy of `x`"));
    }

    #[test]
    fn a_certificate_is_made_where_a_template_asks_for_it() {
        let root = tempfile::tempdir().unwrap();
        let configs = BTreeMap::from([
            ("provider.conf".to_owned(), "listen".to_owned()),
            ("x.conf".to_owned(), "tls @{certificate} @{key}".to_owned()),
        ]);
        let [provider, proxy] = prepared(root.path(), &configs, |files| {
            let proxy = files.proxy(&files.experiment.scenarios[1], 1, place(8, None)).unwrap();
            [files.provider(place(7, None)).unwrap(), proxy]
        });
        let filled = std::fs::read_to_string(root.path().join("turn/proxy-x.conf")).unwrap();
        let paths: Vec<&str> = filled.split(' ').skip(1).collect();
        for (path, kind) in paths.iter().zip(["CERTIFICATE", "PRIVATE KEY"]) {
            // In the working directory, which does not outlive the turn.
            assert!(Path::new(path).starts_with(&proxy.directory), "{path}");
            assert!(std::fs::read_to_string(path).unwrap().contains(kind), "{path}");
        }
        assert!(!provider.directory.join("certificate.pem.key").exists());
    }

    #[test]
    fn instances_and_services_have_files_and_ports_of_their_own() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("x.conf"), "store @{redis_port}").unwrap();
        let text = "title: t\nprovider: {}\n\
            services: { redis: { kind: redis }, sums: { command: [/bin/sh, '@{instance}'], environment: { P: '@{port}' } } }\n\
            scenarios: [{ name: x, command: [/bin/sh, '@{instance}', '@{control_port}', '@{config}'], config: x.conf, \
              instances: 2, services: [redis, sums] }]\n";
        let experiment = Experiment::parse("e.yaml", text, root.path()).unwrap();
        let hosts = Hosts::connect(&experiment.on, Path::new("/egret"), root.path()).unwrap();
        let turn = root.path().to_owned();
        let directories = TurnDirectories { client: turn.clone(), proxy: turn.clone(), provider: turn };
        let configs = BTreeMap::from([("x.conf".to_owned(), "store @{redis_port}".to_owned())]);
        let files = TurnFiles {
            experiment: &experiment,
            hosts: &hosts,
            configs: &configs,
            directories: &directories,
            shared: template::values([("redis_port", "6379".to_owned())]),
        };
        let proxy = files.proxy(&experiment.scenarios[0], 2, place(8, None)).unwrap();
        let config = root.path().join("proxy-2-x.conf");
        assert_eq!(words(&proxy), ["2", "108", config.to_str().unwrap()]);
        assert_eq!(std::fs::read_to_string(config).unwrap(), "store 6379");
        assert_eq!(proxy.stderr, root.path().join("proxy-2.log"));
        let sums = files.service("sums", place(9, Some(0))).unwrap();
        assert_eq!((words(&sums), sums.environment["P"].as_str(), sums.core), (vec!["1"], "9", Some(0)));
        assert_eq!(
            scenario_programs(&experiment, &experiment.scenarios[0]),
            ["/bin/sh", "redis-server", "/bin/sh"]
        );
    }

    #[test]
    fn a_missing_config_or_value_is_named() {
        let root = tempfile::tempdir().unwrap();
        let problem = |configs: BTreeMap<String, String>| {
            let _ = std::fs::remove_dir_all(root.path().join("turn"));
            prepared(root.path(), &configs, |files| files.provider(place(7, None)).unwrap_err().to_string())
        };
        assert_eq!(problem(BTreeMap::new()), "the config provider.conf is missing from the results");
        let unset = BTreeMap::from([("provider.conf".to_owned(), "@{delay_s}".to_owned())]);
        assert_eq!(problem(unset), "`@{delay_s}` has no value for the provider");
        let problem = StartProblem::NotInstalled { name: "the proxy".into(), program: "x".into() };
        assert_eq!(problem.to_string(), "the proxy: x is not installed");
    }
}

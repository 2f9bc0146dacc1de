//! `egret exec`: runs a program whose calls go through Egret.
//!
//! The program replaces this process (execve(2)), so its process id, terminal, job control, signals and exit
//! code are its own, and nothing has to be passed on. A parent in between would have to imitate all of them.
//! Before that it finds a gateway, or starts one that watches the process, and sets environment variables.
#![warn(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic if the stream is closed: see `egret_measure::streams`"
)]

mod base_urls;
mod client;
mod environment;
mod find;
mod formats;
mod inherited;
mod interception;
#[cfg(target_os = "linux")]
mod isolation;
#[cfg(target_os = "linux")]
mod netlink;
mod no_proxy;
pub mod serve;
mod start;
#[cfg(target_os = "linux")]
mod system_calls;
mod trust;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use client::ClientProof;
use egret_ca::CaDirectory;
use egret_config::{Duration, noting_secret_variables, without_secrets};
use egret_control::InterceptionInfo;
use egret_measure::streams::say;
use egret_service::exec_directory::ExecDirectory;
use egret_service::gateway_info;
#[cfg(target_os = "linux")]
use egret_service::run::attached::AttachedReport;
use egret_settings::config::Config;
use egret_settings::failure::Failure;
use egret_settings::location::Location;
use egret_settings::output::print_exact;
use egret_settings::{config_file, config_path, data_dir};
use environment::Environment;
use find::Gateway;
use formats::VariableFormat;
use inherited::Inherited;
use interception::Wanted;
use start::Start;
use trust::Trust;

/// The subcommand. Only the program's name precedes it.
pub const NAME: &str = "exec";

/// Exit code if `egret exec` itself fails, as env(1) has it.
pub const FAILED: u8 = 125;
/// Exit code if the command is found but cannot be run.
const NOT_EXECUTABLE: u8 = 126;
/// Exit code if the command is not found.
const NOT_FOUND: u8 = 127;

/// Arguments of `egret exec`.
#[derive(Debug, Args)]
pub struct ExecArguments {
    /// The config file. Default: `egret.yaml` in the working directory, else the default of every key, as in
    /// `egret run`.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Intercept HTTPS, so that flows apply to it: to these hosts, separated by commas, and to those that the
    /// config intercepts, its providers included. The program is made to trust the gateway's authority.
    #[arg(
        long,
        value_name = "HOSTS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        value_delimiter = ','
    )]
    intercept: Option<Vec<String>>,
    /// Let the command reach the network through Egret only, whatever it does: it runs in a network namespace
    /// of its own. Connections to the ports 80 and 443 of any host arrive at Egret, without proxy variables
    /// as well; DNS is answered by Egret's resolver, and everything else is refused. Fails where the system
    /// forbids such namespaces.
    #[arg(long, conflicts_with = "print_env")]
    isolate: bool,
    /// Also set SDK base URLs, such as `OPENAI_BASE_URL`, for providers that are known by their URL. Such
    /// calls need no interception.
    #[arg(long)]
    base_urls: bool,
    /// Client name to authenticate with, if the gateway's listener has `clients`. The token comes from the
    /// config or `EGRET_CLIENT_TOKEN`; name and token are passed in the proxy URL.
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// Keep the gateway running this long after the command ends, for programs that it leaves running.
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    linger: Duration,
    /// Print the variables instead of running a command. The gateway must run by itself.
    #[arg(
        long,
        value_name = "FORMAT",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "shell",
        conflicts_with = "command"
    )]
    print_env: Option<VariableFormat>,
    /// Print which gateway is used and which of your variables were kept, on standard error.
    #[arg(short)]
    verbose: bool,
    /// The command and its arguments.
    #[arg(required_unless_present = "print_env", trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl ExecArguments {
    /// Runs the command in place of this process. Returns only if that fails, or after printing variables.
    pub fn run(&self) -> Result<(), Failure> {
        let failed_by = |failure: Failure| failed(&failure.to_string());
        let (environment, isolation) = self.environment().map_err(failed_by)?;
        if let Some(isolation) = isolation {
            isolation.enter().map_err(failed_by)?;
        }
        match self.print_env {
            Some(format) => {
                print_exact(&format.render(environment.changes())).map_err(|error| failed(&error.to_string()))
            }
            None => self.execute(&environment),
        }
    }

    /// Finds or starts a gateway. Returns the environment of the command, and its isolation to come.
    fn environment(&self) -> Result<(Environment, Option<Isolation>), Failure> {
        let file = config_path::named_or_found(self.config.clone())?;
        let file = file.as_deref();
        let location = Location::read(file)?;
        data_dir::check(&location.data_dir)?;
        let (config, mut secrets) = noting_secret_variables(|| read_config(file));
        if config.is_err() {
            secrets.extend(whole_values(file));
        }
        let wanted = match &self.intercept {
            Some(hosts) => Wanted::new(Some(hosts), &config?).map_err(Failure::misused)?,
            None => None,
        };
        let inherited = Inherited::read().withhold(secrets);
        if let Some(environment) = self.unchanged(&inherited)? {
            return Ok((environment, None));
        }
        let (mut gateway, isolation) = self.gateway(file, &location, &inherited, wanted.as_ref())?;
        if gateway.asks_for_token && isolation.is_none() {
            let config = if ClientProof::is_given() { Config::default() } else { read_config(file)? };
            let proof = ClientProof::find(self.client.as_deref(), &config).map_err(Failure::misused)?;
            gateway.proof = Some(proof);
        } else if let Some(name) = self.client.as_ref().filter(|_| !gateway.asks_for_token) {
            say(format_args!(
                "egret exec: `--client {name}` has no effect: the gateway has no `clients` to ask for a proof"
            ));
        }
        let trust = match &gateway.info.interception {
            Some(interception) => Some(trust(&location.data_dir, interception)?),
            None => None,
        };
        let mut environment = Environment::new(inherited);
        environment.send_to(&gateway, wanted.as_ref());
        if let Some(trust) = &trust {
            environment.trust(trust).map_err(Failure::failed)?;
        }
        if self.base_urls && gateway.proof.is_some() {
            self.say("no base URLs are set, because such a URL cannot carry the client's token");
        } else if self.base_urls {
            environment.set_base_urls(&gateway);
        }
        environment.mark(isolation.is_none().then_some(gateway.control), &gateway.data_dir);
        environment.kept().for_each(|line| self.say(line));
        Ok((environment, isolation))
    }

    /// Returns the environment as it is if this command runs inside of `egret exec --isolate`, whose gateway
    /// serves it already, but cannot be asked for more.
    fn unchanged(&self, inherited: &Inherited) -> Result<Option<Environment>, Failure> {
        // The mark alone proves nothing: environments are copied.
        if !inherited.is_isolated() || !is_isolated() {
            return Ok(None);
        }
        if self.intercept.is_some() || self.base_urls || self.print_env.is_some() {
            let reason = "this runs inside of `egret exec --isolate`, whose gateway cannot be asked for more: give the options \
                 to the outer command";
            return Err(Failure::misused(reason));
        }
        self.say("the gateway of the outer `egret exec --isolate` is used as it is");
        Ok(Some(Environment::new(inherited.clone())))
    }

    fn gateway(
        &self,
        file: Option<&Path>,
        location: &Location,
        inherited: &Inherited,
        wanted: Option<&Wanted>,
    ) -> Result<(Gateway, Option<Isolation>), Failure> {
        let absolute =
            |data_dir: &Path| std::path::absolute(data_dir).map_err(|error| unknown(data_dir, &error));
        let own = absolute(&location.data_dir)?;
        let of_config = location.data_dirs().into_iter().map(|data_dir| (location.control(), data_dir));
        let outer =
            inherited.outer().map(|(control, data_dir)| (control, data_dir.unwrap_or(&own).to_owned()));
        // A gateway that runs already cannot be handed the sockets of an isolated command.
        let running = outer.into_iter().chain(of_config).filter(|_| !self.isolate);
        for (control, data_dir) in running {
            match find::at(control, &data_dir, wanted) {
                Ok(gateway) => {
                    self.say(format_args!("the gateway at {} is used", gateway.proxy));
                    return Ok((Gateway { data_dir: absolute(&data_dir)?, ..gateway }, None));
                }
                Err(reason) => self.say(format_args!("no gateway at {control} is used: {reason}")),
            }
        }
        // Its mistakes are shown here, and its secrets are read by the gateway alone.
        let config = read_config(file)?;
        if self.print_env.is_some() {
            return Ok((Gateway { data_dir: own, ..self.configured(&config)? }, None));
        }
        let start = Start {
            config: file,
            directory: &directory(&config.data_dir)?,
            intercept: wanted.map(Wanted::hosts),
            linger: self.linger.get(),
            isolated: self.isolate,
            program: self
                .command
                .first()
                .map(|program| program.to_string_lossy().into_owned())
                .unwrap_or_default(),
            removed: inherited.set_by_outer(),
        };
        let started = start.gateway().map_err(Failure::failed)?;
        self.say(format_args!(
            "a gateway was started at {}{}",
            started.gateway.proxy,
            started.log.map(|log| format!(", its log is {}", log.display())).unwrap_or_default()
        ));
        let proxy = started.gateway.proxy;
        let isolation = self.isolate.then_some(Isolation { channel: started.channel, proxy });
        Ok((Gateway { data_dir: own, ..started.gateway }, isolation))
    }

    /// Returns the gateway of the config, which does not run yet.
    fn configured(&self, config: &Config) -> Result<Gateway, Failure> {
        let addresses: Vec<_> = config.gateway.listen.iter().map(|listener| listener.address).collect();
        let mut info = gateway_info::describe(config, &addresses);
        if self.intercept.is_some() || config.interception.is_some() {
            info.interception = Some(kept_authority(config)?);
        }
        let gateway = Gateway::new(info, config.control.listen).filter(|gateway| gateway.proxy.port() != 0);
        gateway.ok_or_else(|| {
            Failure::misused("no gateway runs, and `gateway.listen` has no plain listener with a fixed port")
        })
    }

    fn execute(&self, environment: &Environment) -> Result<(), Failure> {
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(failed("the command is missing"));
        };
        let mut command = Command::new(program);
        command.args(arguments);
        environment.withheld().for_each(|name| {
            command.env_remove(name);
        });
        command.envs(environment.changes().iter().map(|change| (&change.name, &change.value)));
        let error = command.exec();
        let (reason, code) = match error.kind() {
            ErrorKind::NotFound => ("command not found".to_owned(), NOT_FOUND),
            _ => (error.to_string(), NOT_EXECUTABLE),
        };
        Err(Failure::NotRun(format!("egret exec: {}: {reason}", program.display()), code))
    }

    fn say(&self, line: impl Display) {
        if self.verbose {
            say(format_args!("egret exec: {line}"));
        }
    }
}

/// The isolation of the command, with the gateway to hand its sockets to.
#[derive(Debug)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only Linux has namespaces"))]
struct Isolation {
    channel: UnixStream,
    proxy: SocketAddr,
}

impl Isolation {
    /// Isolates this process, which becomes the command. Returns once the gateway serves its sockets.
    #[cfg(target_os = "linux")]
    fn enter(self) -> Result<(), Failure> {
        isolation::isolate(&self.channel, self.proxy).map_err(Failure::failed)?;
        let report = start::read_report(&self.channel)
            .map_err(|error| Failure::Failed(format!("cannot read the gateway's report: {error}")))?;
        match report {
            Some(AttachedReport::Serving) => isolation::forbid_calls().map_err(Failure::failed),
            Some(AttachedReport::Failed(reason)) => {
                Err(Failure::Failed(format!("the gateway failed: {reason}")))
            }
            Some(AttachedReport::Started { .. }) | None => {
                Err(Failure::Failed("the gateway ended before it served the command's sockets".to_owned()))
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn enter(self) -> Result<(), Failure> {
        Err(Failure::Failed("--isolate needs the namespaces of Linux".to_owned()))
    }
}

#[cfg(target_os = "linux")]
use isolation::is_isolated;

#[cfg(not(target_os = "linux"))]
fn is_isolated() -> bool {
    false
}

/// Reads the config, without its secrets.
fn read_config(file: Option<&Path>) -> Result<Config, Failure> {
    let Some(file) = file else { return Ok(Config::default()) };
    without_secrets(|| config_file::load(file)).map(|loaded| loaded.config)
}

fn trust(data_dir: &Path, interception: &InterceptionInfo) -> Result<Trust, Failure> {
    Trust::new(&directory(data_dir)?, &interception.certificate).map_err(Failure::failed)
}

fn directory(data_dir: &Path) -> Result<ExecDirectory, Failure> {
    ExecDirectory::of(data_dir).map_err(|error| unknown(data_dir, &error))
}

fn unknown(data_dir: &Path, error: &io::Error) -> Failure {
    Failure::Failed(format!("{}: {error}", data_dir.display()))
}

fn failed(message: &str) -> Failure {
    Failure::NotRun(format!("egret exec: {message}"), FAILED)
}

/// Returns the names of the variables that are whole values in a config which cannot be read, since a running
/// gateway may be used without some of its variables. Secrets are always whole values.
fn whole_values(file: Option<&Path>) -> BTreeSet<String> {
    let text = file.and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
    let is_bound = |bound: Option<char>| bound.is_none_or(|c| c.is_whitespace() || "'\",{}[]".contains(c));
    let references = text.match_indices("${env:");
    let name = |(at, prefix): (usize, &str)| {
        let (name, after) = text[at + prefix.len()..].split_once('}')?;
        let is_whole = is_bound(text[..at].chars().next_back()) && is_bound(after.chars().next());
        is_whole.then(|| name.to_owned())
    };
    references.filter_map(name).collect()
}

/// Describes interception with the authority in the data directory.
fn kept_authority(config: &Config) -> Result<InterceptionInfo, Failure> {
    let root = CaDirectory::new(&config.data_dir).root().map_err(Failure::failed)?;
    let root = root.ok_or_else(|| {
        Failure::misused(
            "no gateway runs whose authority the program could trust: start it, or make an authority with `egret ca init`",
        )
    })?;
    Ok(InterceptionInfo { hosts: Vec::new(), tunnel: Vec::new(), certificate: root.pem() })
}

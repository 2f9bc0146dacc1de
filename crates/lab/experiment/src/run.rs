//! Runs an experiment: runs every turn in order and stores it as soon as it is complete.

mod progress;
mod setup;
mod turn;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use egret_config::{Duration, Report};
use progress::Progress;
use setup::TurnSetup;
use turn::TurnError;

use crate::client_settings::ClientKind;
use crate::config::{Experiment, MachineConfig, ScenarioConfig};
use crate::host::{Host, HostError, Hosts};
use crate::interrupt::Interrupt;
use crate::machine::{self, Machine};
use crate::plan::{self, PlannedTurn};
use crate::results::{Metadata, PartMachine, Results, ResultsError, Turn};
use crate::{clock, process, programs, turn_files};

/// An experiment ready to start or resume.
#[derive(Debug)]
pub struct Run {
    results: Results,
    configs: BTreeMap<String, String>,
    hosts: Hosts,
}

/// Changes to an experiment from the command line.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Uses the quick profile.
    pub quick: bool,
    /// Number of rounds.
    pub rounds: Option<u32>,
    /// Names of the cases to keep; all if empty.
    pub cases: Vec<String>,
    /// Duration in seconds of the turns that have a duration.
    pub seconds: Option<u32>,
    /// A file with the machines of the parts, instead of the experiment's.
    pub machines: Option<PathBuf>,
}

/// A case on the command line that the experiment does not have.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no case `{name}`; the cases are {known}")]
struct UnknownCase {
    name: String,
    known: String,
}

impl Changes {
    /// Applies the changes to an experiment.
    fn apply_to(&self, mut experiment: Experiment) -> Result<Experiment, UnknownCase> {
        let names: Vec<&str> = experiment.cases.iter().map(|case| case.name.as_str()).collect();
        if let Some(unknown) = self.cases.iter().find(|name| !names.contains(&name.as_str())) {
            return Err(UnknownCase { name: unknown.clone(), known: names.join(", ") });
        }
        if !self.cases.is_empty() {
            experiment.cases.retain(|case| self.cases.contains(&case.name));
            // Cases requested by name are also run in the quick profile.
            experiment.quick.cases.clear();
        }
        if self.quick {
            experiment = experiment.quick();
        }
        experiment.rounds = self.rounds.unwrap_or(experiment.rounds);
        if let Some(seconds) = self.seconds {
            experiment.set_duration(Duration::from_secs(seconds.into()));
        }
        Ok(experiment)
    }
}

/// The reason why a run did not complete.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The request does not fit the experiment.
    #[error("{0}")]
    Misused(String),
    /// The experiment's file is invalid.
    #[error("{0}")]
    File(#[from] Report),
    /// A requirement of the experiment is missing.
    #[error("{0}")]
    Missing(String),
    /// A process failed during a turn.
    #[error("{turn}: {error}\n{partial}")]
    Turn {
        /// The turn.
        turn: String,
        /// The failure, with the output of the process.
        error: String,
        /// The results so far.
        partial: PartialResults,
    },
    /// The results cannot be written or read.
    #[error("{0}")]
    Results(#[from] ResultsError),
    /// Results cannot be written any longer.
    #[error("{error}\n{partial}")]
    Stuck {
        /// The cause.
        error: ResultsError,
        /// The results so far.
        partial: PartialResults,
    },
    /// The run was interrupted.
    #[error("Stopped: {0}")]
    Interrupted(PartialResults),
}

/// The results of an incomplete run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartialResults {
    /// The results folder.
    pub directory: PathBuf,
    /// Number of completed turns.
    pub turns: usize,
    /// Number of planned turns.
    pub planned: usize,
}

impl fmt::Display for PartialResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { directory, turns, planned } = self;
        let directory = directory.display();
        write!(f, "{turns} of {planned} turns are stored; continue with: egret lab run --resume {directory}")
    }
}

impl From<HostError> for RunError {
    fn from(error: HostError) -> Self {
        Self::Missing(error.to_string())
    }
}

impl Run {
    /// Prepares a run of an experiment's file, with a new results folder.
    ///
    /// The folder is `out`, or a folder in `./results` named after the experiment, its profile, the time and
    /// Egret's version. `egret` is the path of Egret's program.
    pub fn new(
        file: &Path,
        changes: &Changes,
        out: Option<&Path>,
        egret: &Path,
        version: &str,
    ) -> Result<Self, RunError> {
        let (experiment, text) = Experiment::read(file)?;
        let quick = changes.quick;
        let mut experiment =
            changes.apply_to(experiment).map_err(|error| RunError::Misused(error.to_string()))?;
        let here = absolute(file.parent().unwrap_or(Path::new(".")));
        let configs = turn_files::read_configs(&experiment, &here)
            .map_err(|error| RunError::Missing(error.to_string()))?;
        if let Some(file) = &changes.machines {
            experiment.set_machines(file)?;
        }
        experiment
            .resolve_urls()
            .map_err(|(scenario, error)| RunError::Misused(format!("the scenario `{scenario}`: {error}")))?;
        let hosts = Hosts::connect(&experiment.on, egret, &here)?;
        let left_out = leave_out(&mut experiment, &hosts)?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let now = SystemTime::now();
        let profile = if quick { "-quick" } else { "" };
        let default =
            || Path::new("results").join(format!("{name}{profile}-{}-egret-{version}", clock::stamp(now)));
        let directory = absolute(&out.map_or_else(default, Path::to_owned));
        let metadata = Metadata {
            version: Metadata::VERSION,
            name,
            quick,
            started: vec![clock::iso(now)],
            ended: None,
            command: command_line(),
            commit: commit(&here),
            versions: versions(&experiment, &hosts, version)?,
            egret: describe(egret),
            left_out,
            machine: Machine::detect(),
            machines: machines(&experiment, &hosts),
            pinned: pinned(&experiment, &hosts),
            load_average_before: machine::load_average(),
            here,
            experiment,
        };
        let results = Results::create(&directory, metadata, &text, &configs)?;
        Ok(Self { results, configs, hosts })
    }

    /// Prepares to resume a run, with the experiment and configs stored at its start.
    pub fn resume(directory: &Path, egret: &Path) -> Result<Self, RunError> {
        let mut results = Results::open(&absolute(directory))?;
        let metadata = &mut results.metadata;
        let hosts = Hosts::connect(&metadata.experiment.on, egret, &metadata.here)?;
        leave_out(&mut metadata.experiment, &hosts)?;
        metadata.started.push(clock::iso(SystemTime::now()));
        metadata.machines = machines(&metadata.experiment, &hosts);
        metadata.pinned = pinned(&metadata.experiment, &hosts);
        let configs = results.configs()?;
        Ok(Self { results, configs, hosts })
    }

    /// Runs the remaining turns. Writes a line to `output` for each; `live` is `true` if `output` is a
    /// terminal.
    pub fn execute(
        mut self,
        interrupt: &Interrupt,
        output: &mut dyn Write,
        live: bool,
    ) -> Result<Results, RunError> {
        process::allow_many_files();
        let left: Vec<PlannedTurn> = plan::planned_turns(&self.results.metadata.experiment)
            .into_iter()
            .filter(|planned| !self.has(*planned))
            .collect();
        let estimate = plan::estimate(&self.results.metadata.experiment, &left);
        let mut progress = Progress::start(output, live, &self.results, left.len(), estimate);
        for planned in left {
            match self.run_turn(planned, interrupt, &mut progress) {
                Ok(turn) => progress.turn(&turn),
                Err(error) => return Err(self.failure(planned, error)),
            }
        }
        progress.end();
        self.results.metadata.ended = Some(clock::iso(SystemTime::now()));
        self.results.write_metadata()?;
        Ok(self.results)
    }

    fn has(&self, planned: PlannedTurn) -> bool {
        let experiment = &self.results.metadata.experiment;
        self.results.has(
            planned.round,
            &experiment.cases[planned.case].name,
            &experiment.scenarios[planned.scenario].name,
        )
    }

    fn run_turn(
        &mut self,
        planned: PlannedTurn,
        interrupt: &Interrupt,
        progress: &mut Progress<'_>,
    ) -> Result<Turn, TurnError> {
        let metadata = &self.results.metadata;
        let experiment = &metadata.experiment;
        let (case, scenario) = (&experiment.cases[planned.case], &experiment.scenarios[planned.scenario]);
        let directory = self.results.start_turn(planned.round, &case.name, &scenario.name)?;
        let setup = TurnSetup {
            experiment,
            case,
            scenario,
            round: planned.round,
            hosts: &self.hosts,
            configs: &self.configs,
            directory: &directory,
            pinned: &metadata.pinned,
        };
        progress.turn_started(&setup);
        let turn = turn::run(&setup, interrupt, progress)?;
        self.results.keep_turn(&directory, turn.clone())?;
        Ok(turn)
    }

    fn failure(&self, planned: PlannedTurn, error: TurnError) -> RunError {
        let experiment = &self.results.metadata.experiment;
        let partial = PartialResults {
            directory: self.results.directory.clone(),
            turns: self.results.turns.len(),
            planned: self.results.turns_planned(),
        };
        match error {
            TurnError::Interrupted(_) => RunError::Interrupted(partial),
            TurnError::Results(error) => RunError::Stuck { error, partial },
            error => {
                let (case, scenario) =
                    (&experiment.cases[planned.case].name, &experiment.scenarios[planned.scenario].name);
                RunError::Turn {
                    turn: format!("round {}, {case}, {scenario}", planned.round),
                    error: error.to_string(),
                    partial,
                }
            }
        }
    }
}

/// Leaves out optional scenarios whose program is missing, and returns them. Any other missing program is an
/// error.
fn leave_out(experiment: &mut Experiment, hosts: &Hosts) -> Result<BTreeMap<String, String>, RunError> {
    let mut left_out = BTreeMap::new();
    let installed = |host: &Host, program: &str| -> Result<bool, HostError> {
        Ok(program.contains("@{") || host.locate(program)?.is_some())
    };
    let missing = |what: &str, program: &str| {
        RunError::Missing(format!("{what} needs `{program}`, which is not installed or not in PATH"))
    };
    let baseline = experiment.baseline().to_owned();
    for scenario in &experiment.scenarios {
        for program in turn_files::scenario_programs(experiment, scenario) {
            if installed(&hosts.proxy, &program)? {
                continue;
            }
            if !scenario.optional || scenario.name == baseline {
                return Err(missing(&format!("the scenario `{}`", scenario.name), &program));
            }
            left_out.insert(scenario.name.clone(), format!("`{program}` is not installed"));
        }
    }
    experiment.scenarios.retain(|scenario| !left_out.contains_key(&scenario.name));
    if let Some(program) = turn_files::provider_program(&experiment.provider)
        && !installed(&hosts.provider, program)?
    {
        return Err(missing("the provider", program));
    }
    for program in client_programs(experiment) {
        if !installed(&hosts.client, program)? {
            return Err(missing("the client", program));
        }
    }
    Ok(left_out)
}

/// Names of the programs that an experiment needs with these changes, those of optional scenarios included,
/// each once. Egret is not among them, nor a program that is named by its path.
pub fn needs(file: &Path, changes: &Changes) -> Result<BTreeSet<String>, RunError> {
    let (experiment, _) = Experiment::read(file)?;
    let experiment = changes.apply_to(experiment).map_err(|error| RunError::Misused(error.to_string()))?;
    let proxies = experiment.scenarios.iter();
    let proxies = proxies.flat_map(|scenario| turn_files::scenario_programs(&experiment, scenario));
    let provider = turn_files::provider_program(&experiment.provider).map(str::to_owned);
    let clients = client_programs(&experiment).into_iter().map(str::to_owned);
    Ok(proxies.chain(provider).chain(clients).filter(|program| !program.contains(['/', '@'])).collect())
}

/// Names of the clients' programs, each once.
fn client_programs(experiment: &Experiment) -> BTreeSet<&'static str> {
    let kinds = experiment.pairs().map(|(case, scenario)| experiment.client(case, scenario).kind);
    kinds.filter_map(ClientKind::program).collect()
}

/// Describes the machine of each part; none if all run on the lab's.
fn machines(experiment: &Experiment, hosts: &Hosts) -> BTreeMap<String, PartMachine> {
    let on = &experiment.on;
    if [&on.client, &on.proxy, &on.provider].into_iter().flatten().all(|machine| machine.ssh.is_none()) {
        return BTreeMap::new();
    }
    let described = hosts.all().into_iter().zip([&on.client, &on.proxy, &on.provider]);
    let part = |host: &Host, machine: &Option<MachineConfig>| PartMachine {
        ssh: machine.as_ref().and_then(|machine| machine.ssh.clone()),
        address: host.address.clone(),
        egret: format!("{}, egret {}", host.about.egret.display(), host.about.version),
        machine: host.about.machine.clone(),
        load_average_before: host.about.load_average,
    };
    described.map(|((name, host), machine)| (name.to_owned(), part(host, machine))).collect()
}

/// Assigns a core to each part. The parts of a machine with three or more cores have one each; services that
/// find none left are on the provider's. With two cores the proxy has its own, or the provider if there is no
/// proxy on that machine.
fn pinned(experiment: &Experiment, hosts: &Hosts) -> BTreeMap<String, usize> {
    let has_proxy = experiment.scenarios.iter().any(ScenarioConfig::starts_proxy);
    let has_services = experiment.scenarios.iter().any(|scenario| !scenario.services.is_empty());
    let parts = hosts.all().into_iter().filter(|(name, _)| has_proxy || *name != "proxy");
    let parts = parts.chain(has_services.then_some(("services", &hosts.proxy)));
    let mut by_machine: BTreeMap<&str, Vec<(&str, &[usize])>> = BTreeMap::new();
    for (name, host) in parts {
        by_machine.entry(&host.about.boot_id).or_default().push((name, &host.about.cores));
    }
    by_machine.values().flat_map(|parts| pinned_together(parts)).collect()
}

/// Assigns cores to the parts of one machine. If the machine has one core, none is assigned.
fn pinned_together(parts: &[(&str, &[usize])]) -> Vec<(String, usize)> {
    let cores = parts.first().map_or(&[][..], |(_, cores)| *cores);
    let has = |name: &str| parts.iter().any(|(part, _)| *part == name);
    let all = has("client") && has("proxy") && has("provider");
    let of = |part: &str| match (cores, part) {
        ([] | [_], _) => None,
        (_, "client") => Some(cores[0]),
        // With two cores, client and provider share one if a proxy is there.
        ([load, _], "provider") if all => Some(*load),
        ([load, _], "services") => Some(*load),
        ([_, own], _) => Some(*own),
        (_, "provider") => Some(cores[1]),
        (_, "services") => Some(*cores.get(3).unwrap_or(&cores[1])),
        _ => Some(cores[2]),
    };
    parts.iter().filter_map(|(part, _)| Some(((*part).to_owned(), of(part)?))).collect()
}

/// Versions of all programs, by file name.
fn versions(
    experiment: &Experiment,
    hosts: &Hosts,
    version: &str,
) -> Result<BTreeMap<String, String>, HostError> {
    let provider =
        turn_files::provider_program(&experiment.provider).map(|program| (&hosts.provider, program));
    let scenarios = experiment.scenarios.iter();
    let proxies: Vec<String> =
        scenarios.flat_map(|scenario| turn_files::scenario_programs(experiment, scenario)).collect();
    let proxies = proxies.iter().map(|program| (&hosts.proxy, program.as_str()));
    let clients = client_programs(experiment).into_iter().map(|program| (&hosts.client, program));
    let mut versions = BTreeMap::from([("egret".to_owned(), format!("egret {version}"))]);
    for (host, program) in provider.into_iter().chain(proxies).chain(clients) {
        let Some(located) = host.locate(program)? else { continue };
        let name = located.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Entry::Vacant(entry) = versions.entry(name) {
            entry.insert(host.version(&located)?.unwrap_or_default());
        }
    }
    Ok(versions)
}

/// The commit checked out in the experiment's directory.
fn commit(here: &Path) -> Option<String> {
    let git = programs::locate("git", here)?;
    programs::version_output(&git, &["describe", "--always", "--dirty", "--abbrev=12"], here)
        .filter(|line| !line.starts_with("fatal"))
}

fn describe(program: &Path) -> String {
    let path = program.display();
    match std::fs::metadata(program) {
        Ok(file) => {
            let changed = file.modified().map(clock::iso).unwrap_or_default();
            format!("{path}, {} bytes, built {changed}", file.len())
        }
        Err(_) => path.to_string(),
    }
}

fn command_line() -> String {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

fn absolute(path: &Path) -> PathBuf {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests;

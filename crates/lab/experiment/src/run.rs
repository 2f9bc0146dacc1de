//! Runs an experiment: runs every turn in order and stores it as soon as it is complete.

mod progress;
mod setup;
mod turn;

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use egret_config::{Duration, Report};
use progress::Progress;
use setup::TurnSetup;
use turn::TurnError;

use crate::config::Experiment;
use crate::interrupt::Interrupt;
use crate::machine::{self, Machine};
use crate::plan::{self, PlannedTurn};
use crate::results::{Metadata, Results, ResultsError, Turn};
use crate::{clock, process, turn_files};

/// Maximum number of characters kept of a program's version output.
const VERSION_CHARS_MAX: usize = 200;

/// An experiment ready to start or resume.
#[derive(Debug)]
pub struct Run {
    results: Results,
    configs: BTreeMap<String, String>,
    egret: PathBuf,
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
}

/// A case on the command line that the experiment does not have.
#[derive(Debug, PartialEq, Eq)]
struct UnknownCase {
    name: String,
    known: String,
}

impl fmt::Display for UnknownCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no case `{}`; the cases are {}", self.name, self.known)
    }
}

impl std::error::Error for UnknownCase {}

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
#[derive(Debug)]
pub enum RunError {
    /// The request does not fit the experiment.
    Misused(String),
    /// The experiment's file is invalid.
    File(Report),
    /// A requirement of the experiment is missing.
    Missing(String),
    /// A process failed during a turn.
    Turn {
        /// The turn.
        turn: String,
        /// The failure, with the output of the process.
        error: String,
        /// The results so far.
        partial: PartialResults,
    },
    /// The results cannot be written or read.
    Results(ResultsError),
    /// Results cannot be written any longer.
    Stuck {
        /// The cause.
        error: ResultsError,
        /// The results so far.
        partial: PartialResults,
    },
    /// The run was interrupted.
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

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(report) => report.fmt(f),
            Self::Missing(message) | Self::Misused(message) => f.write_str(message),
            Self::Turn { turn, error, partial } => write!(f, "{turn}: {error}\n{partial}"),
            Self::Results(error) => error.fmt(f),
            Self::Stuck { error, partial } => write!(f, "{error}\n{partial}"),
            Self::Interrupted(partial) => write!(f, "Stopped: {partial}"),
        }
    }
}

impl std::error::Error for RunError {}

impl From<Report> for RunError {
    fn from(report: Report) -> Self {
        Self::File(report)
    }
}

impl From<ResultsError> for RunError {
    fn from(error: ResultsError) -> Self {
        Self::Results(error)
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
        egret: PathBuf,
        version: &str,
    ) -> Result<Self, RunError> {
        let (experiment, text) = Experiment::read(file)?;
        let quick = changes.quick;
        let mut experiment =
            changes.apply_to(experiment).map_err(|error| RunError::Misused(error.to_string()))?;
        let here = absolute(file.parent().unwrap_or(Path::new(".")));
        let configs = turn_files::read_configs(&experiment, &here)
            .map_err(|error| RunError::Missing(error.to_string()))?;
        let left_out = leave_out(&mut experiment, &here)?;
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
            versions: versions(&experiment, &here, version),
            egret: describe(&egret),
            left_out,
            machine: Machine::detect(),
            pinned: pinned(&experiment),
            load_average_before: machine::load_average(),
            here,
            experiment,
        };
        let results = Results::create(&directory, metadata, &text, &configs)?;
        Ok(Self { results, configs, egret })
    }

    /// Prepares to resume a run, with the experiment and configs stored at its start.
    pub fn resume(directory: &Path, egret: PathBuf) -> Result<Self, RunError> {
        let mut results = Results::open(&absolute(directory))?;
        leave_out(&mut results.metadata.experiment, &results.metadata.here)?;
        results.metadata.started.push(clock::iso(SystemTime::now()));
        results.metadata.pinned = pinned(&results.metadata.experiment);
        let configs = results.configs()?;
        Ok(Self { results, configs, egret })
    }

    /// Runs the remaining turns. Writes a line to `output` for each; `live` is `true` if `output` is a
    /// terminal.
    pub fn execute(
        mut self,
        interrupt: &Interrupt,
        output: &mut dyn Write,
        live: bool,
    ) -> Result<Results, RunError> {
        allow_many_files();
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
        let directory =
            self.results.start_turn(planned.round, &case.name, &scenario.name).map_err(TurnError::Results)?;
        let setup = TurnSetup {
            experiment,
            case,
            scenario,
            round: planned.round,
            here: &metadata.here,
            egret: &self.egret,
            configs: &self.configs,
            directory: &directory,
            pinned: &metadata.pinned,
        };
        progress.turn_started(&setup);
        let turn = turn::run(&setup, interrupt, progress)?;
        self.results.keep_turn(&directory, turn.clone()).map_err(TurnError::Results)?;
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
            TurnError::Interrupted => RunError::Interrupted(partial),
            TurnError::Results(error) => RunError::Stuck { error, partial },
            TurnError::Failed(error) => {
                let (case, scenario) =
                    (&experiment.cases[planned.case].name, &experiment.scenarios[planned.scenario].name);
                RunError::Turn {
                    turn: format!("round {}, {case}, {scenario}", planned.round),
                    error,
                    partial,
                }
            }
        }
    }
}

/// Leaves out optional scenarios whose program is missing, and returns them. Any other missing program is an
/// error.
fn leave_out(experiment: &mut Experiment, here: &Path) -> Result<BTreeMap<String, String>, RunError> {
    let mut left_out = BTreeMap::new();
    let installed = |program: &str| program.contains("@{") || turn_files::locate(program, here).is_some();
    let missing = |what: &str, program: &str| {
        RunError::Missing(format!("{what} needs `{program}`, which is not installed or not in PATH"))
    };
    let baseline = experiment.baseline().to_owned();
    for scenario in &experiment.scenarios {
        match turn_files::proxy_program(scenario) {
            Some(program) if !installed(program) && scenario.optional && scenario.name != baseline => {
                left_out.insert(scenario.name.clone(), format!("`{program}` is not installed"));
            }
            Some(program) if !installed(program) => {
                return Err(missing(&format!("the scenario `{}`", scenario.name), program));
            }
            _ => {}
        }
    }
    experiment.scenarios.retain(|scenario| !left_out.contains_key(&scenario.name));
    if let Some(program) =
        turn_files::provider_program(&experiment.provider).filter(|program| !installed(program))
    {
        return Err(missing("the provider", program));
    }
    for (case, scenario) in experiment.pairs() {
        if let Some(program) =
            experiment.client(case, scenario).kind.program().filter(|program| !installed(program))
        {
            return Err(missing("the client", program));
        }
    }
    Ok(left_out)
}

/// Assigns a core to each process. With two cores the proxy has its own, or the provider if there is no
/// proxy; with three or more each process has its own.
fn pinned(experiment: &Experiment) -> BTreeMap<String, usize> {
    let cores = process::cores();
    let has_proxy = experiment.scenarios.iter().any(|scenario| !scenario.is_direct());
    let given = match cores.as_slice() {
        [] | [_] => return BTreeMap::new(),
        [client, provider] if !has_proxy => [("client", client), ("provider", provider), ("proxy", provider)],
        [load, proxy] => [("client", load), ("provider", load), ("proxy", proxy)],
        [client, provider, proxy, ..] => [("client", client), ("provider", provider), ("proxy", proxy)],
    };
    given.into_iter().map(|(part, core)| (part.to_owned(), *core)).collect()
}

fn versions(experiment: &Experiment, here: &Path, version: &str) -> BTreeMap<String, String> {
    let provider = turn_files::provider_program(&experiment.provider);
    let proxies = experiment.scenarios.iter().filter_map(turn_files::proxy_program);
    let clients =
        experiment.pairs().filter_map(|(case, scenario)| experiment.client(case, scenario).kind.program());
    let mut versions = BTreeMap::from([("egret".to_owned(), format!("egret {version}"))]);
    for program in provider.into_iter().chain(proxies).chain(clients) {
        if let Some(located) = turn_files::locate(program, here) {
            let name = located.file_name().unwrap_or_default().to_string_lossy().into_owned();
            versions.entry(name).or_insert_with(|| {
                version_output(&located, &[turn_files::version_option(&located)], here).unwrap_or_default()
            });
        }
    }
    versions
}

/// The commit checked out in the experiment's directory.
fn commit(here: &Path) -> Option<String> {
    let git = turn_files::locate("git", here)?;
    version_output(&git, &["describe", "--always", "--dirty", "--abbrev=12"], here)
        .filter(|line| !line.starts_with("fatal"))
}

/// The first line with a digit in a program's output, on either stream: its version.
fn version_output(program: &Path, arguments: &[&str], directory: &Path) -> Option<String> {
    // siege would write its settings file into the caller's home.
    let home = std::env::temp_dir().join(format!("egret-lab-home-{}", std::process::id()));
    std::fs::create_dir_all(&home).ok()?;
    let mut command = Command::new(program);
    let output =
        command.args(arguments).env("HOME", &home).current_dir(directory).stdin(Stdio::null()).output();
    // If this fails, a few files remain in the temporary directory.
    let _ = std::fs::remove_dir_all(&home);
    let output = output.ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let of_home = home.display().to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.contains(&of_home));
    let line = lines.find(|line| line.contains(|c: char| c.is_ascii_digit()))?;
    Some(line.chars().take(VERSION_CHARS_MAX).collect())
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

/// Raises the limit of open files for this process and its children, as far as the system permits.
fn allow_many_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If this fails, a high concurrency fails visibly in the client.
    let _ = setrlimit(Resource::Nofile, limit);
}

#[cfg(test)]
mod tests;

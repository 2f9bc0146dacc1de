//! Carrying an experiment out: every turn in its order, kept as soon as it is whole.

mod progress;
mod turn;

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use egret_config::{Duration, Report};

use super::config::Experiment;
use super::interrupt::Interrupt;
use super::machine::{self, Machine};
use super::plan::{self, Step};
use super::results::{Metadata, Results, ResultsError, Turn};
use super::{clock, parts, process};
use progress::Progress;
use turn::{Setup, TurnError};

/// What is kept of what a program says of its version.
const VERSION_CHARS_MAX: usize = 200;

/// An experiment that is about to run, or to go on.
#[derive(Debug)]
pub struct Run {
    results: Results,
    configs: BTreeMap<String, String>,
    egret: PathBuf,
}

/// How a run differs from what the experiment's file says.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Whether it is the quick profile.
    pub quick: bool,
    /// Rounds.
    pub rounds: Option<u32>,
    /// The cases that are kept, by name; all where none is named.
    pub cases: Vec<String>,
    /// How many seconds each turn lasts, where turns last for a time.
    pub seconds: Option<u32>,
}

impl Changes {
    /// The experiment with these changes; what they say wrongly otherwise.
    fn made_to(&self, mut experiment: Experiment) -> Result<Experiment, String> {
        let names: Vec<&str> = experiment.cases.iter().map(|case| case.name.as_str()).collect();
        if let Some(unknown) = self.cases.iter().find(|name| !names.contains(&name.as_str())) {
            return Err(format!("there is no case `{unknown}`: there are {}", names.join(", ")));
        }
        if !self.cases.is_empty() {
            experiment.cases.retain(|case| self.cases.contains(&case.name));
            // Those that are asked for are also wanted in the quick profile.
            experiment.quick.cases.clear();
        }
        if self.quick {
            experiment = experiment.quick();
        }
        experiment.rounds = self.rounds.unwrap_or(experiment.rounds);
        if let Some(seconds) = self.seconds {
            experiment.lasting(Duration::from_secs(seconds.into()));
        }
        Ok(experiment)
    }
}

/// Why a run did not come to its end.
#[derive(Debug)]
pub enum RunError {
    /// It was asked for what the experiment has not.
    Misused(String),
    /// The experiment's file is wrong.
    File(Report),
    /// What the experiment needs is not there.
    Missing(String),
    /// A part failed, and how far the run had come.
    Turn {
        /// Which turn.
        turn: String,
        /// What happened, and what the part said.
        error: String,
        /// What is kept.
        kept: Kept,
    },
    /// The results cannot be written or read.
    Results(ResultsError),
    /// The results cannot be written any more.
    Stuck {
        /// Why.
        error: ResultsError,
        /// What is kept.
        kept: Kept,
    },
    /// Somebody wanted it to stop.
    Interrupted(Kept),
}

/// What a run leaves behind that did not come to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Where.
    pub directory: PathBuf,
    /// Turns that were taken.
    pub turns: usize,
    /// Turns that the experiment has.
    pub planned: usize,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { directory, turns, planned } = self;
        let directory = directory.display();
        write!(f, "{turns} of {planned} turns are kept; go on with: egret lab run --resume {directory}")
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(report) => report.fmt(f),
            Self::Missing(message) | Self::Misused(message) => f.write_str(message),
            Self::Turn { turn, error, kept } => write!(f, "{turn}: {error}\n{kept}"),
            Self::Results(error) => error.fmt(f),
            Self::Stuck { error, kept } => write!(f, "{error}\n{kept}"),
            Self::Interrupted(kept) => write!(f, "Stopped: {kept}"),
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
    /// A run of an experiment's file, into a new folder: `out`, or one in `./results` that is named after the experiment, its
    /// profile, the time and Egret's version. `egret` is Egret's own program.
    pub fn new(
        file: &Path,
        changes: &Changes,
        out: Option<&Path>,
        egret: PathBuf,
        version: &str,
    ) -> Result<Self, RunError> {
        let (experiment, text) = Experiment::read(file)?;
        let quick = changes.quick;
        let mut experiment = changes.made_to(experiment).map_err(RunError::Misused)?;
        let here = absolute(file.parent().unwrap_or(Path::new(".")));
        let configs = parts::read_configs(&experiment, &here).map_err(RunError::Missing)?;
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
            machine: Machine::look(),
            pinned: pinned(&experiment),
            load_average_before: machine::load_average(),
            here,
            experiment,
        };
        let results = Results::create(&directory, metadata, &text, &configs)?;
        Ok(Self { results, configs, egret })
    }

    /// A run that goes on where it was stopped, with the experiment and the configs as they were then.
    pub fn resume(directory: &Path, egret: PathBuf) -> Result<Self, RunError> {
        let mut results = Results::open(&absolute(directory))?;
        leave_out(&mut results.metadata.experiment, &results.metadata.here)?;
        results.metadata.started.push(clock::iso(SystemTime::now()));
        results.metadata.pinned = pinned(&results.metadata.experiment);
        let configs = results.configs()?;
        Ok(Self { results, configs, egret })
    }

    /// Takes the turns that are left. `told` gets a line for each; `live` says whether it is a terminal.
    pub fn go(
        mut self,
        interrupt: &Interrupt,
        told: &mut dyn Write,
        live: bool,
    ) -> Result<Results, RunError> {
        allow_many_files();
        let left: Vec<Step> = plan::steps(&self.results.metadata.experiment)
            .into_iter()
            .filter(|step| !self.has(*step))
            .collect();
        let estimate = plan::estimate(&self.results.metadata.experiment, &left);
        let mut progress = Progress::start(told, live, &self.results, left.len(), estimate);
        for step in left {
            match self.take(step, interrupt, &mut progress) {
                Ok(turn) => progress.turn(&turn),
                Err(error) => return Err(self.ended_by(step, error)),
            }
        }
        progress.end();
        self.results.metadata.ended = Some(clock::iso(SystemTime::now()));
        self.results.write_metadata()?;
        Ok(self.results)
    }

    fn has(&self, step: Step) -> bool {
        let experiment = &self.results.metadata.experiment;
        self.results.has(
            step.round,
            &experiment.cases[step.case].name,
            &experiment.scenarios[step.scenario].name,
        )
    }

    fn take(
        &mut self,
        step: Step,
        interrupt: &Interrupt,
        progress: &mut Progress<'_>,
    ) -> Result<Turn, TurnError> {
        let metadata = &self.results.metadata;
        let experiment = &metadata.experiment;
        let (case, scenario) = (&experiment.cases[step.case], &experiment.scenarios[step.scenario]);
        let directory =
            self.results.start_turn(step.round, &case.name, &scenario.name).map_err(TurnError::Results)?;
        let setup = Setup {
            experiment,
            case,
            scenario,
            round: step.round,
            here: &metadata.here,
            egret: &self.egret,
            configs: &self.configs,
            directory: &directory,
            pinned: &metadata.pinned,
        };
        progress.starts(&setup);
        let turn = turn::take(&setup, interrupt, progress)?;
        self.results.keep_turn(&directory, turn.clone()).map_err(TurnError::Results)?;
        Ok(turn)
    }

    fn ended_by(&self, step: Step, error: TurnError) -> RunError {
        let experiment = &self.results.metadata.experiment;
        let kept = Kept {
            directory: self.results.directory.clone(),
            turns: self.results.turns.len(),
            planned: self.results.turns_planned(),
        };
        match error {
            TurnError::Interrupted => RunError::Interrupted(kept),
            TurnError::Results(error) => RunError::Stuck { error, kept },
            TurnError::Failed(error) => {
                let (case, scenario) =
                    (&experiment.cases[step.case].name, &experiment.scenarios[step.scenario].name);
                RunError::Turn { turn: format!("round {}, {case}, {scenario}", step.round), error, kept }
            }
        }
    }
}

/// Leaves out optional scenarios whose program is not there, and says which; any other missing program is an error.
fn leave_out(experiment: &mut Experiment, here: &Path) -> Result<BTreeMap<String, String>, RunError> {
    let mut left_out = BTreeMap::new();
    let installed = |program: &str| program.contains("@{") || parts::locate(program, here).is_some();
    let missing = |what: &str, program: &str| {
        RunError::Missing(format!("{what} needs `{program}`, which is not installed or not on the PATH"))
    };
    let baseline = experiment.baseline().to_owned();
    for scenario in &experiment.scenarios {
        match parts::proxy_program(scenario) {
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
    if let Some(program) = parts::provider_program(&experiment.provider).filter(|program| !installed(program))
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

/// Which core each part gets: with two the proxy has its own, or the provider where there is none; with more everybody has.
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
    let provider = parts::provider_program(&experiment.provider);
    let proxies = experiment.scenarios.iter().filter_map(parts::proxy_program);
    let clients =
        experiment.pairs().filter_map(|(case, scenario)| experiment.client(case, scenario).kind.program());
    let mut versions = BTreeMap::from([("egret".to_owned(), format!("egret {version}"))]);
    for program in provider.into_iter().chain(proxies).chain(clients) {
        if let Some(located) = parts::locate(program, here) {
            let name = located.file_name().unwrap_or_default().to_string_lossy().into_owned();
            versions.entry(name).or_insert_with(|| {
                said(&located, &[parts::version_option(&located)], here).unwrap_or_default()
            });
        }
    }
    versions
}

/// The commit that is checked out where the experiment is.
fn commit(here: &Path) -> Option<String> {
    let git = parts::locate("git", here)?;
    said(&git, &["describe", "--always", "--dirty", "--abbrev=12"], here)
        .filter(|line| !line.starts_with("fatal"))
}

/// The first line with a number that a program prints, wherever it prints it: what it says of its version.
fn said(program: &Path, arguments: &[&str], directory: &Path) -> Option<String> {
    // siege would leave its settings with whoever asks.
    let home = std::env::temp_dir().join(format!("egret-lab-home-{}", std::process::id()));
    std::fs::create_dir_all(&home).ok()?;
    let mut command = Command::new(program);
    let output =
        command.args(arguments).env("HOME", &home).current_dir(directory).stdin(Stdio::null()).output();
    // Failing, a few files stay in the system's place for such.
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

/// Raises the limit of open files for all that is started from here, as far as the system lets it.
fn allow_many_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Without, a high concurrency fails loudly in the client.
    let _ = setrlimit(Resource::Nofile, limit);
}

//! The results folder: its layout, and writing it so that no incomplete file or folder looks complete.
//!
//! ```text
//! NAME.partial/            while the experiment runs; renamed to NAME when it is complete
//!   experiment.yaml        the file as it was read
//!   configs/               the templates as they were read
//!   metadata.json          the test setup: versions, machine, load, times
//!   turns/01-CASE-SCENARIO/  a turn: turn.json, percentiles.csv, samples.csv, the output of every process
//!   percentiles/           the medians over the rounds, for each scenario, in ab's format
//!   turns.csv              every figure of every turn, one row per turn
//!   summary.json           the evaluation of all turns
//!   report.html, charts/   the same for people
//! ```

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use egret_measure::statistics::real;
use serde::{Deserialize, Serialize};

use crate::config::Experiment;
use crate::counters::{ProviderCounters, RateLimitCounters};
use crate::figures::Figures;
use crate::machine::Machine;

/// Share of the cores in use before the run, above which figures are doubtful.
const LOAD_SHARE_MAX: f64 = 0.5;

/// The parts of a turn that are not services.
const PARTS: [&str; 3] = ["client", "provider", "proxy"];

/// Suffix of an incomplete folder or file.
const PARTIAL: &str = ".partial";

/// Maximum size of a JSON file that is read back.
const JSON_BYTES_MAX: u64 = 16 << 20;

/// The exact test setup.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Metadata {
    /// Version of this file format: 1.
    pub version: u32,
    /// Name of the experiment: its file name without the extension.
    pub name: String,
    /// `true` for the quick profile.
    pub quick: bool,
    /// Times at which the run was started and resumed.
    pub started: Vec<String>,
    /// End of the last turn.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended: Option<String>,
    /// The command line of the run.
    pub command: String,
    /// Directory of the experiment's file, against which its programs and files are resolved.
    pub here: PathBuf,
    /// The commit checked out there, if it is a git repository.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub commit: Option<String>,
    /// Version output of each program.
    pub versions: BTreeMap<String, String>,
    /// Egret's program: path, size, and time of the last change.
    pub egret: String,
    /// Scenarios that were left out, with the reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub left_out: BTreeMap<String, String>,
    /// The machine.
    pub machine: Machine,
    /// The machines of the parts, by part; empty if all run on `machine`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub machines: BTreeMap<String, PartMachine>,
    /// The core of each process; empty if all share one core.
    pub pinned: BTreeMap<String, usize>,
    /// Load average before the experiment started.
    pub load_average_before: f64,
    /// The experiment as it was run, the quick profile applied.
    pub experiment: Experiment,
}

/// The machine of a part.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct PartMachine {
    /// Destination for ssh; `None` for the machine of the lab.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ssh: Option<String>,
    /// Name or address under which the other parts reach it; the client's has no meaning.
    pub address: String,
    /// Path and version of Egret's program there.
    pub egret: String,
    /// The machine.
    #[serde(flatten)]
    pub machine: Machine,
    /// Load average before the experiment started.
    pub load_average_before: f64,
}

/// One case through one scenario in one round.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Turn {
    /// Number of the round, from 1.
    pub round: u32,
    /// Name of the case.
    pub case: String,
    /// Name of the scenario.
    pub scenario: String,
    /// Start of the measured requests.
    pub started: String,
    /// The client's figures.
    #[serde(flatten)]
    pub figures: Figures,
    /// Resources used by `client`, `provider`, `proxy` and each service during the measured requests. All
    /// instances of a proxy are one part.
    pub processes: BTreeMap<String, ProcessFigures>,
    /// The provider's counters for the measured requests, if it has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<ProviderCounters>,
    /// Calls that the stores of the proxies received during the measured requests, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_calls: Option<u64>,
    /// Longest time that the gateway's control API took to respond, in milliseconds, if the proxy is Egret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_slowest_ms: Option<f64>,
    /// Load average at the end of the turn, which includes the measured processes.
    pub load_average: f64,
}

/// Resources used by a process group during the measured requests of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
pub struct ProcessFigures {
    /// User and system time, in seconds.
    pub cpu_s: f64,
    /// User and system time per completed request, in microseconds.
    pub cpu_us_per_request: f64,
    /// Highest sampled memory use: proportional set size.
    pub memory_bytes_max: u64,
    /// Memory use in the last sample.
    pub memory_bytes_end: u64,
}

impl Turn {
    /// CPU time of the proxy per request, in microseconds.
    pub fn proxy_cpu_us(&self) -> Option<f64> {
        self.processes.get("proxy").map(|proxy| proxy.cpu_us_per_request)
    }

    /// CPU time of the proxy per megabyte of response bodies, in microseconds.
    pub fn proxy_cpu_us_per_mb(&self) -> Option<f64> {
        let bytes = self.figures.bytes_body.filter(|bytes| *bytes > 0)?;
        self.processes.get("proxy").map(|proxy| proxy.cpu_s * 1e12 / real(bytes))
    }

    /// Highest memory use of the proxy, in MiB.
    pub fn proxy_memory_mib(&self) -> Option<f64> {
        self.processes.get("proxy").map(|proxy| mebibytes(proxy.memory_bytes_max))
    }

    /// Failed requests as a share of the completed ones.
    pub fn failed_share(&self) -> f64 {
        real(self.figures.failed) / real(self.figures.requests.max(1))
    }

    /// Requests per second that did not fail.
    pub fn goodput(&self) -> f64 {
        real(self.figures.requests.saturating_sub(self.figures.failed)) / self.figures.duration_s.max(1e-3)
    }

    /// Calls received by the provider per completed request.
    pub fn calls_per_request(&self) -> Option<f64> {
        Some(real(self.counted?.calls) / real(self.figures.requests.max(1)))
    }

    /// Counters of the provider's rate limits, if it has any.
    pub fn rate_limit(&self) -> Option<RateLimitCounters> {
        self.counted?.rate_limit
    }

    /// Calls admitted by the provider, as a share of the calls that its rate limits allow in that time. The
    /// share exceeds 1 if the turn ended soon after the start of a window whose quota was used up at once.
    pub fn allowance_used(&self) -> Option<f64> {
        let limited = self.rate_limit()?;
        let allowed = limited.allowed_per_second * self.figures.duration_s;
        (allowed > 0.0).then(|| real(limited.admitted) / allowed)
    }

    /// Calls in the busiest window of the provider's rate limits, as a multiple of the limit.
    pub fn busiest_window(&self) -> Option<f64> {
        self.rate_limit()?.busiest_window
    }

    /// Completed requests per second of the proxy's CPU time.
    pub fn requests_per_cpu_second(&self) -> Option<f64> {
        self.proxy_cpu_us().filter(|us| *us > 0.0).map(|us| 1e6 / us)
    }

    /// Connections that resumed a TLS session per completed request.
    pub fn resumed_share(&self) -> Option<f64> {
        Some(real(self.figures.resumed?) / real(self.figures.requests.max(1)))
    }

    /// Calls received by the stores of the proxies per completed request.
    pub fn store_calls_per_request(&self) -> Option<f64> {
        Some(real(self.store_calls?) / real(self.figures.requests.max(1)))
    }

    /// CPU time of each service per request, in microseconds.
    pub fn services_cpu_us(&self) -> impl Iterator<Item = (&str, f64)> {
        let services = self.processes.iter().filter(|(part, _)| !PARTS.contains(&part.as_str()));
        services.map(|(service, figures)| (service.as_str(), figures.cpu_us_per_request))
    }

    /// The response time at this percentile, 0 to 100.
    pub fn percentile_ms(&self, percent: usize) -> Option<f64> {
        self.figures.percentiles_ms.get(percent).copied()
    }
}

fn mebibytes(bytes: u64) -> f64 {
    real(bytes) / f64::from(1 << 20)
}

/// A results folder, complete or partial.
#[derive(Debug, Clone, PartialEq)]
pub struct Results {
    /// Path of the folder.
    pub directory: PathBuf,
    /// The test setup.
    pub metadata: Metadata,
    /// The completed turns, in the order in which they ran.
    pub turns: Vec<Turn>,
}

/// An error in a results folder.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// A file or folder that cannot be read or written.
    #[error("{path}: {}", reason(.error))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The folder to be created already exists.
    #[error("{0} already exists: choose another folder with --out, or continue with --resume")]
    Exists(PathBuf),
    /// The folder is not a results folder.
    #[error("{0}: not a results folder (it has no metadata.json)")]
    NotThere(PathBuf),
    /// A file that this version has not written.
    #[error("{path}: {why}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The problem.
        why: String,
    },
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull => "the disk is full".into(),
        _ => error.to_string(),
    }
}

impl Results {
    /// Creates the folder for a run. It is renamed to `directory` when the run is complete.
    pub fn create(
        directory: &Path,
        metadata: Metadata,
        text: &str,
        configs: &BTreeMap<String, String>,
    ) -> Result<Self, ResultsError> {
        let partial = partial(directory);
        for taken in [directory, &partial] {
            // An empty folder may be reused.
            if taken.exists() && std::fs::remove_dir(taken).is_err() {
                return Err(ResultsError::Exists(taken.to_owned()));
            }
        }
        make_directory(&partial.join("turns"))?;
        make_directory(&partial.join("configs"))?;
        write_whole(&partial.join("experiment.yaml"), text)?;
        for (name, config) in configs {
            write_whole(&partial.join("configs").join(name), config)?;
        }
        let results = Self { directory: partial, metadata, turns: Vec::new() };
        results.write_metadata()?;
        Ok(results)
    }

    /// Reads a folder. If only its partial version exists, reads that.
    pub fn open(directory: &Path) -> Result<Self, ResultsError> {
        let partial = partial(directory);
        let directory = if directory.exists() || !partial.exists() { directory } else { &partial };
        let metadata = directory.join("metadata.json");
        if !metadata.is_file() {
            return Err(ResultsError::NotThere(directory.to_owned()));
        }
        let metadata: Metadata = read_json(&metadata)?;
        if metadata.version != Metadata::VERSION {
            let why = format!("has version {}, which this version of egret cannot read", metadata.version);
            return Err(ResultsError::Malformed { path: directory.join("metadata.json"), why });
        }
        let mut turns = Vec::new();
        for file in turn_files(&directory.join("turns"))? {
            turns.push(read_json(&file)?);
        }
        turns.sort_by(|a: &Turn, b: &Turn| a.started.cmp(&b.started).then(a.round.cmp(&b.round)));
        Ok(Self { directory: directory.to_owned(), metadata, turns })
    }

    /// Reads the configs stored at the start of the run, by name.
    pub fn configs(&self) -> Result<BTreeMap<String, String>, ResultsError> {
        let directory = self.directory.join("configs");
        let mut configs = BTreeMap::new();
        for entry in std::fs::read_dir(&directory).map_err(failed(&directory))? {
            let path = entry.map_err(failed(&directory))?.path();
            let text = std::fs::read_to_string(&path).map_err(failed(&path))?;
            configs.insert(path.file_name().unwrap_or_default().to_string_lossy().into_owned(), text);
        }
        Ok(configs)
    }

    /// Returns `true` if every turn is complete.
    pub fn is_whole(&self) -> bool {
        self.turns.len() == self.turns_planned()
    }

    /// Number of turns of the experiment.
    pub fn turns_planned(&self) -> usize {
        let experiment = &self.metadata.experiment;
        let rounds = usize::try_from(experiment.rounds).unwrap_or(usize::MAX);
        experiment.pairs().count() * rounds
    }

    /// Returns `true` if a turn is complete.
    pub fn has(&self, round: u32, case: &str, scenario: &str) -> bool {
        self.turns.iter().any(|turn| turn.round == round && turn.case == case && turn.scenario == scenario)
    }

    /// Creates an empty folder for a turn. Deletes the files of an earlier attempt.
    pub fn start_turn(&self, round: u32, case: &str, scenario: &str) -> Result<PathBuf, ResultsError> {
        let directory = partial(&self.turn_directory(round, case, scenario));
        if directory.exists() {
            std::fs::remove_dir_all(&directory).map_err(failed(&directory))?;
        }
        make_directory(&directory)?;
        Ok(directory)
    }

    /// Stores a successful turn.
    pub fn keep_turn(&mut self, directory: &Path, turn: Turn) -> Result<(), ResultsError> {
        write_json(&directory.join("turn.json"), &turn)?;
        let kept = self.turn_directory(turn.round, &turn.case, &turn.scenario);
        std::fs::rename(directory, &kept).map_err(failed(&kept))?;
        self.turns.push(turn);
        Ok(())
    }

    /// Writes the metadata again.
    pub fn write_metadata(&self) -> Result<(), ResultsError> {
        write_json(&self.directory.join("metadata.json"), &self.metadata)
    }

    /// Renames a complete folder to its final name.
    pub fn finish(mut self) -> Result<Self, ResultsError> {
        let name = self.directory.as_os_str().to_string_lossy();
        if let Some(whole) = name.strip_suffix(PARTIAL).map(PathBuf::from) {
            std::fs::rename(&self.directory, &whole).map_err(failed(&whole))?;
            self.directory = whole;
        }
        Ok(self)
    }

    fn turn_directory(&self, round: u32, case: &str, scenario: &str) -> PathBuf {
        self.directory.join("turns").join(format!("{round:02}-{case}-{scenario}"))
    }
}

impl Metadata {
    /// The version of the format that is written.
    pub const VERSION: u32 = 1;

    /// The highest load average of any machine before the run started.
    pub fn load_average_highest(&self) -> f64 {
        self.machines.values().map(|part| part.load_average_before).fold(self.load_average_before, f64::max)
    }

    /// Returns `true` if a machine was in use before the run started, which makes the figures doubtful.
    pub fn machine_was_busy(&self) -> bool {
        let is_busy = |load: f64, machine: &Machine| {
            load > LOAD_SHARE_MAX * f64::from(u32::try_from(machine.cores).unwrap_or(u32::MAX))
        };
        is_busy(self.load_average_before, &self.machine)
            || self.machines.values().any(|part| is_busy(part.load_average_before, &part.machine))
    }
}

/// Name of a folder or file while it is incomplete.
fn partial(directory: &Path) -> PathBuf {
    let mut name = directory.as_os_str().to_owned();
    name.push(PARTIAL);
    name.into()
}

/// Lists the `turn.json` of every completed turn.
fn turn_files(turns: &Path) -> Result<Vec<PathBuf>, ResultsError> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(turns).map_err(failed(turns))? {
        let path = entry.map_err(failed(turns))?.path();
        let ended = path.extension().is_none_or(|ending| ending != "partial");
        if ended && path.is_dir() {
            files.push(path.join("turn.json"));
        }
    }
    files.sort();
    Ok(files)
}

fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T, ResultsError> {
    let size = std::fs::metadata(path).map_err(failed(path))?.len();
    if size > JSON_BYTES_MAX {
        return Err(ResultsError::Malformed {
            path: path.to_owned(),
            why: format!("{size} bytes, which is too large"),
        });
    }
    let text = std::fs::read_to_string(path).map_err(failed(path))?;
    serde_json::from_str(&text).map_err(|error| ResultsError::Malformed {
        path: path.to_owned(),
        why: format!("not in the format of `egret lab run`: {error}"),
    })
}

/// Writes a value as indented JSON.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), ResultsError> {
    let json = serde_json::to_string_pretty(value)
        .map_err(|error| ResultsError::Malformed { path: path.to_owned(), why: error.to_string() })?;
    write_whole(path, &(json + "\n"))
}

/// Writes a file under a temporary name and renames it, so it exists completely or not at all.
pub(crate) fn write_whole(path: &Path, content: &str) -> Result<(), ResultsError> {
    let draft = partial(path);
    let written = std::fs::File::create(&draft).and_then(|mut file| {
        file.write_all(content.as_bytes())?;
        file.sync_data()
    });
    if let Err(error) = written.and_then(|()| std::fs::rename(&draft, path)) {
        // On a full disk, the temporary file only wastes space.
        let _ = std::fs::remove_file(&draft);
        return Err(ResultsError::Io { path: path.to_owned(), error });
    }
    Ok(())
}

/// Creates a directory and its parents.
pub(crate) fn make_directory(path: &Path) -> Result<(), ResultsError> {
    std::fs::create_dir_all(path).map_err(failed(path))
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> ResultsError + '_ {
    |error| ResultsError::Io { path: path.to_owned(), error }
}

#[cfg(test)]
mod tests;

//! The results folder: what is in it, and writing it so that nothing half-written looks whole.
//!
//! ```text
//! NAME.partial/            while the experiment runs; NAME once it is whole
//!   experiment.yaml        the file as it was read
//!   configs/               the templates as they were read
//!   metadata.json          what was under test: versions, machine, load, times
//!   turns/01-CASE-SCENARIO/  a turn: turn.json, percentiles.csv, samples.csv, what every part printed
//!   percentiles/           the median of the rounds, for each scenario, as ab writes it
//!   turns.csv              every figure of every turn, a row each
//!   summary.json           what all of it says
//!   report.html, charts/   the same to look at
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::client::Figures;
use super::config::Experiment;
use super::counted::{Counted, RateLimited};
use super::machine::Machine;

/// Above this share of the cores in use beforehand, figures are doubtful.
const LOAD_SHARE_MAX: f64 = 0.5;

/// What a folder's name ends in while it is not whole.
const PARTIAL: &str = ".partial";

/// The largest JSON file that is read back.
const JSON_BYTES_MAX: u64 = 16 << 20;

/// What exactly was under test.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Metadata {
    /// The version of this file's shape: 1.
    pub version: u32,
    /// The experiment's name: its file's, without the ending.
    pub name: String,
    /// Whether it was the quick profile.
    pub quick: bool,
    /// When it was started, and started again.
    pub started: Vec<String>,
    /// When the last turn ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended: Option<String>,
    /// What was typed.
    pub command: String,
    /// The directory of the experiment's file: where its programs and files are.
    pub here: PathBuf,
    /// The commit that was checked out there, where it is a git repository.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub commit: Option<String>,
    /// What each program says of its version.
    pub versions: BTreeMap<String, String>,
    /// Egret's program: path, size, and time of the last change.
    pub egret: String,
    /// Scenarios without their program, and why.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub left_out: BTreeMap<String, String>,
    /// The machine.
    pub machine: Machine,
    /// The core that each part was pinned to; empty where there was one for all.
    pub pinned: BTreeMap<String, usize>,
    /// Threads that wanted to run before the experiment started.
    pub load_average_before: f64,
    /// The experiment as it was run, the quick profile applied.
    pub experiment: Experiment,
}

/// One case through one scenario in one round.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Turn {
    /// From 1.
    pub round: u32,
    /// The case's name.
    pub case: String,
    /// The scenario's name.
    pub scenario: String,
    /// When the measured requests started.
    pub started: String,
    /// What the client saw.
    #[serde(flatten)]
    pub figures: Figures,
    /// What `client`, `provider` and `proxy` used meanwhile.
    pub processes: BTreeMap<String, ProcessFigures>,
    /// What the provider counted meanwhile, where it tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counted>,
    /// Threads that wanted to run when the turn ended, the measured ones among them.
    pub load_average: f64,
}

/// What a part used during a turn's measured requests, all its processes together.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
pub struct ProcessFigures {
    /// User and system time, in seconds.
    pub cpu_s: f64,
    /// The same for each answered request, in microseconds.
    pub cpu_us_per_request: f64,
    /// The most memory seen in a sample: proportional set size.
    pub memory_bytes_max: u64,
    /// The memory in the last sample.
    pub memory_bytes_end: u64,
}

impl Turn {
    /// CPU time of the proxy for each request, in microseconds.
    pub fn proxy_cpu_us(&self) -> Option<f64> {
        self.processes.get("proxy").map(|proxy| proxy.cpu_us_per_request)
    }

    /// The most memory that the proxy had, in MiB.
    pub fn proxy_memory_mib(&self) -> Option<f64> {
        self.processes.get("proxy").map(|proxy| mebibytes(proxy.memory_bytes_max))
    }

    /// Failed requests as a share of the answered ones.
    pub fn failed_share(&self) -> f64 {
        real(self.figures.failed) / real(self.figures.requests.max(1))
    }

    /// Calls that the provider got for each answered request.
    pub fn calls_per_request(&self) -> Option<f64> {
        Some(real(self.counted?.calls) / real(self.figures.requests.max(1)))
    }

    /// What the provider's rate limits let through, where it has any.
    pub fn rate_limit(&self) -> Option<RateLimited> {
        self.counted?.rate_limit
    }

    /// What the provider let through, as a share of what its rate limits allow in that time. Above 1 where the turn ended soon after a
    /// window began that was used up at once.
    pub fn allowance_used(&self) -> Option<f64> {
        let limited = self.rate_limit()?;
        let allowed = limited.allowed_per_second * self.figures.duration_s;
        (allowed > 0.0).then(|| real(limited.admitted) / allowed)
    }

    /// The response time below which this share of requests was answered, 0 to 100.
    pub fn percentile_ms(&self, percent: usize) -> Option<f64> {
        self.figures.percentiles_ms.get(percent).copied()
    }
}

fn mebibytes(bytes: u64) -> f64 {
    real(bytes) / f64::from(1 << 20)
}

#[expect(clippy::cast_precision_loss, reason = "counts of requests and bytes are far below 2^52")]
pub(crate) fn real(count: u64) -> f64 {
    count as f64
}

/// A results folder, whole or partial.
#[derive(Debug, Clone, PartialEq)]
pub struct Results {
    /// Where it is.
    pub directory: PathBuf,
    /// What was under test.
    pub metadata: Metadata,
    /// The turns so far, in the order in which they were taken.
    pub turns: Vec<Turn>,
}

/// What went wrong with a results folder.
#[derive(Debug)]
pub enum ResultsError {
    /// A file or folder that cannot be read or written.
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A folder to be made is there already.
    Exists(PathBuf),
    /// There is no results folder of that name.
    NotThere(PathBuf),
    /// A file that is not what this version writes.
    Malformed {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

impl fmt::Display for ResultsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, error } if error.kind() == io::ErrorKind::StorageFull => {
                write!(f, "{}: the disk is full", path.display())
            }
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Exists(path) => {
                write!(
                    f,
                    "{} is there already: name another with --out, or go on with --resume",
                    path.display()
                )
            }
            Self::NotThere(path) => {
                write!(f, "{}: no results folder (it has no metadata.json)", path.display())
            }
            Self::Malformed { path, why } => write!(f, "{}: {why}", path.display()),
        }
    }
}

impl std::error::Error for ResultsError {}

impl Results {
    /// Makes the folder for a run that will be called `directory` once it is whole.
    pub fn create(
        directory: &Path,
        metadata: Metadata,
        text: &str,
        configs: &BTreeMap<String, String>,
    ) -> Result<Self, ResultsError> {
        let partial = partial(directory);
        for taken in [directory, &partial] {
            // An empty folder made beforehand is as good as none.
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

    /// Reads a folder, whole or partial; takes the partial one where only that is there.
    pub fn open(directory: &Path) -> Result<Self, ResultsError> {
        let partial = partial(directory);
        let directory = if directory.exists() { directory } else { &partial };
        let metadata = directory.join("metadata.json");
        if !metadata.is_file() {
            return Err(ResultsError::NotThere(directory.to_owned()));
        }
        let metadata: Metadata = read_json(&metadata)?;
        if metadata.version != Metadata::VERSION {
            let why = format!("is of version {}, which this egret does not read", metadata.version);
            return Err(ResultsError::Malformed { path: directory.join("metadata.json"), why });
        }
        let mut turns = Vec::new();
        for file in turn_files(&directory.join("turns"))? {
            turns.push(read_json(&file)?);
        }
        turns.sort_by(|a: &Turn, b: &Turn| a.started.cmp(&b.started).then(a.round.cmp(&b.round)));
        Ok(Self { directory: directory.to_owned(), metadata, turns })
    }

    /// The configs that were read when the run started, by name.
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

    /// Whether every turn was taken.
    pub fn is_whole(&self) -> bool {
        self.turns.len() == self.turns_planned()
    }

    /// How many turns the experiment has.
    pub fn turns_planned(&self) -> usize {
        let experiment = &self.metadata.experiment;
        let rounds = usize::try_from(experiment.rounds).unwrap_or(usize::MAX);
        experiment.cases.len() * experiment.scenarios.len() * rounds
    }

    /// Whether a turn was taken.
    pub fn has(&self, round: u32, case: &str, scenario: &str) -> bool {
        self.turns.iter().any(|turn| turn.round == round && turn.case == case && turn.scenario == scenario)
    }

    /// An empty folder for a turn under way; what an earlier try left in it is gone.
    pub fn start_turn(&self, round: u32, case: &str, scenario: &str) -> Result<PathBuf, ResultsError> {
        let directory = partial(&self.turn_directory(round, case, scenario));
        if directory.exists() {
            std::fs::remove_dir_all(&directory).map_err(failed(&directory))?;
        }
        make_directory(&directory)?;
        Ok(directory)
    }

    /// Keeps a turn that ended well.
    pub fn keep_turn(&mut self, directory: &Path, turn: Turn) -> Result<(), ResultsError> {
        write_json(&directory.join("turn.json"), &turn)?;
        let kept = self.turn_directory(turn.round, &turn.case, &turn.scenario);
        std::fs::rename(directory, &kept).map_err(failed(&kept))?;
        self.turns.push(turn);
        Ok(())
    }

    /// Writes the metadata anew.
    pub fn write_metadata(&self) -> Result<(), ResultsError> {
        write_json(&self.directory.join("metadata.json"), &self.metadata)
    }

    /// Gives a whole folder its name.
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
    /// The version that is written.
    pub const VERSION: u32 = 1;

    /// Whether others used the machine before the run started, so that figures are doubtful.
    pub fn machine_was_busy(&self) -> bool {
        self.load_average_before
            > LOAD_SHARE_MAX * f64::from(u32::try_from(self.machine.cores).unwrap_or(u32::MAX))
    }
}

/// The folder's name while it is not whole.
fn partial(directory: &Path) -> PathBuf {
    let mut name = directory.as_os_str().to_owned();
    name.push(PARTIAL);
    name.into()
}

/// The `turn.json` of every turn that ended.
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
            why: format!("is of {size} bytes, too long"),
        });
    }
    let text = std::fs::read_to_string(path).map_err(failed(path))?;
    serde_json::from_str(&text).map_err(|error| ResultsError::Malformed {
        path: path.to_owned(),
        why: format!("is not as `egret lab run` writes it: {error}"),
    })
}

/// Writes a value as JSON that people can read too.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), ResultsError> {
    let json = serde_json::to_string_pretty(value)
        .map_err(|error| ResultsError::Malformed { path: path.to_owned(), why: error.to_string() })?;
    write_whole(path, &(json + "\n"))
}

/// Writes a file under another name first: under its own it is there in full or not at all.
pub fn write_whole(path: &Path, content: &str) -> Result<(), ResultsError> {
    let draft = partial(path);
    let written = std::fs::File::create(&draft).and_then(|mut file| {
        file.write_all(content.as_bytes())?;
        file.sync_data()
    });
    if let Err(error) = written.and_then(|()| std::fs::rename(&draft, path)) {
        // On a full disk the draft only takes room.
        let _ = std::fs::remove_file(&draft);
        return Err(ResultsError::Io { path: path.to_owned(), error });
    }
    Ok(())
}

/// Makes a directory and those above it.
pub fn make_directory(path: &Path) -> Result<(), ResultsError> {
    std::fs::create_dir_all(path).map_err(failed(path))
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> ResultsError + '_ {
    |error| ResultsError::Io { path: path.to_owned(), error }
}

//! The `Diagnosis` trait. A diagnosis is one file under `diagnoses/` and one line in
//! [`registry`](crate::diagnoses).

use std::any::Any;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use egret_clock::Timestamp;
use egret_config::Problem;
use egret_har::Key;
use egret_har::sink::{Content, Sink};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::discovered::Discovered;
use crate::finished::Finished;
use egret_match::matching::MatchConfig;

/// An observer of finished exchanges.
///
/// A diagnosis receives an exchange that is over and read-only, so it cannot affect the client or the
/// provider. All methods except [`metrics`](Self::metrics) and [`discovered`](Self::discovered) run on one
/// low-priority thread that no exchange waits for. A panic there loses one exchange for one diagnosis. A
/// diagnosis must bound the state it keeps.
pub trait Diagnosis: Debug + Send + Sync + Sized + 'static {
    /// Its config.
    type Config;

    /// Creates the diagnosis from its config. Pushes at least one problem when it returns `None`.
    fn compile(config: &Self::Config, context: &mut CompileContext<'_>) -> Option<Self>;

    /// Describes the diagnosis for people: `archives exchanges to kept, obfuscated`.
    fn describe(&self) -> String;

    /// Returns `true` if the diagnosis wants copies of bodies.
    fn wants_bodies(&self) -> bool {
        false
    }

    /// Number of bytes wanted from the beginning of a body with that media type.
    fn wanted_bytes(&self, _media_type: &[u8]) -> usize {
        0
    }

    /// Processes a finished exchange.
    fn see(&self, exchange: &Finished<'_>);

    /// Does periodic work. Called a few times per second, and once at the end.
    fn tick(&self, _tick: Tick) {}

    /// Returns the metrics of the diagnosis. The label `flow` is put before the labels of each sample.
    fn metrics(&self) -> Vec<Family> {
        Vec::new()
    }

    /// Returns the endpoints that the diagnosis has found, for the control API.
    fn discovered(&self) -> Option<Discovered> {
        None
    }
}

/// Argument of [`Diagnosis::tick`].
#[derive(Debug, Clone, Copy)]
pub struct Tick {
    /// The current time.
    pub now: Timestamp,
    /// `true` on the last call.
    pub is_last: bool,
}

/// Storage for state that outlives the process. Called on a low-priority thread, so it may block on disk.
pub trait StateStore: Debug + Send + Sync {
    /// Loads the bytes last saved under `name`, if any.
    fn load(&self, name: &str) -> Option<Vec<u8>>;

    /// Saves `bytes` under `name`, replacing earlier ones. On failure it logs the error and keeps the earlier
    /// bytes.
    fn save(&self, name: &str, bytes: &[u8]);
}

/// Behaviour when the diagnosis thread is behind and its queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnPressure {
    /// The exchange goes on, the diagnosis does not see it, and the drop is counted.
    #[default]
    Drop,
    /// The exchange waits for room before it is sent to the provider, for ten seconds at most.
    Wait,
}

impl OnPressure {
    /// Returns the word used in the config.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Wait => "wait",
        }
    }
}

/// Metrics of one name, as in Prometheus.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Name, including the prefix `egret_` and the unit.
    pub name: String,
    /// Help text.
    pub help: String,
    /// Type of the metric.
    pub kind: FamilyKind,
    /// Samples.
    pub samples: Vec<Sample>,
}

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyKind {
    /// A value that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// Counts by bucket.
    Histogram,
}

impl FamilyKind {
    /// Returns the word used by Prometheus.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One sample of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Labels: names and values.
    pub labels: Vec<(&'static str, String)>,
    /// Value.
    pub value: SampleValue,
}

/// The value of a sample.
#[derive(Debug, Clone, PartialEq)]
pub enum SampleValue {
    /// A number.
    Number(f64),
    /// A histogram.
    Histogram {
        /// Upper bounds of the buckets; the last bucket has none.
        bounds: Arc<[f64]>,
        /// Number of observations per bucket. It has one element more than `bounds`.
        counts: Vec<u64>,
        /// Sum of all observations.
        sum: f64,
    },
}

/// External resources that diagnoses need: exporters, the pseudonym key, and storage.
#[derive(Debug, Clone, Default)]
pub struct Exports {
    /// Sinks by the names of their exporters in the config.
    pub sinks: HashMap<String, Arc<dyn Sink>>,
    /// Key of the pseudonyms; `None` while a config is only checked.
    pub key: Option<Arc<Key>>,
    /// Storage for state that outlives the process; `None` while a config is only checked.
    pub state_store: Option<Arc<dyn StateStore>>,
}

/// The context in which a diagnosis is compiled.
#[derive(Debug)]
pub struct CompileContext<'a> {
    /// The match of the flow.
    pub matching: &'a MatchConfig,
    /// Exporters, the pseudonym key, and storage.
    pub exports: &'a Exports,
    /// Names of fields and parameters that hold the secrets of the config's accounts.
    pub secret_names: &'a Arc<[Box<str>]>,
    /// Path in the config: `flows[0].diagnoses[1].har`.
    pub path: String,
    /// Problems found so far.
    pub problems: &'a mut Vec<Problem>,
    pub identity: Identity,
    pub before: Option<&'a KeptStates>,
    pub kept: &'a mut KeptStates,
}

/// Identity of a diagnosis across reloads: its flow, its kind, and its ordinal among diagnoses of that kind
/// in the flow.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub flow: String,
    pub diagnosis: &'static str,
    pub ordinal: usize,
}

/// State that diagnoses carry over from one config to the next.
pub(crate) type KeptStates = HashMap<Identity, Arc<dyn Any + Send + Sync>>;

impl CompileContext<'_> {
    /// Adds a problem for `key` of this diagnosis.
    pub fn problem(&mut self, key: &str, message: impl Into<String>) {
        self.problems.push(Problem::new(format!("{}.{key}", self.path), message));
    }

    /// Returns the sink of the exporter that `key` of this diagnosis names. Adds a problem if there is none
    /// or it does not accept `content`.
    pub fn sink(&mut self, key: &str, name: &str, content: Content) -> Option<Arc<dyn Sink>> {
        let path = format!("{}.{key}", self.path);
        let Some(sink) = self.exports.sinks.get(name) else {
            let problem = Problem::new(path, format!("no exporter is called `{name}`"));
            self.problems.push(problem.suggest(name, self.exports.sinks.keys().map(String::as_str)));
            return None;
        };
        if !sink.takes(content) {
            let (what, types) = match content {
                Content::Entries => ("HAR entries", "`har`, `ndjson`, `alf`, `s3` or `stdout`"),
                Content::Lines => ("lines", "`lines` or `stdout`"),
                Content::Telemetry => ("spans and metrics", "`otlp`"),
            };
            let message =
                format!("the exporter `{name}` does not accept {what}: use one of the type {types}");
            self.problems.push(Problem::new(path, message));
            return None;
        }
        Some(Arc::clone(sink))
    }

    /// Returns `true` if the flow has an earlier diagnosis of the same kind.
    pub fn is_another(&self) -> bool {
        self.identity.ordinal > 1
    }

    /// Name of the flow.
    pub fn flow(&self) -> &str {
        &self.identity.flow
    }

    /// Returns state that outlives a reload: the state that the same diagnosis had under the previous config,
    /// if it `fits`, otherwise a new one. A diagnosis keeps one state.
    pub fn keep<State: Any + Send + Sync>(
        &mut self,
        fits: impl FnOnce(&State) -> bool,
        make: impl FnOnce() -> State,
    ) -> Arc<State> {
        let before = self.before.and_then(|before| before.get(&self.identity));
        let before = before.and_then(|state| Arc::clone(state).downcast::<State>().ok());
        let state = before.filter(|state| fits(state)).unwrap_or_else(|| Arc::new(make()));
        let kept: Arc<dyn Any + Send + Sync> = Arc::<State>::clone(&state);
        self.kept.insert(self.identity.clone(), kept);
        state
    }
}

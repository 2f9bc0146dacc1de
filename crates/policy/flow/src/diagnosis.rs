//! What a diagnosis is: one file under `diagnoses/`, and one line in [`registry`](crate::diagnoses).

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

use crate::diagnoses::discovery::Discovered;
use crate::finished::Finished;
use crate::matching::MatchConfig;

/// What sees finished exchanges and makes something of them.
///
/// It is given an exchange that is over, to be looked at: nothing that it could do would reach the client or the provider. All of it but
/// [`figures`](Self::figures) and [`discovered`](Self::discovered) is called on one thread of low priority, which no exchange waits for; a panic
/// there costs that diagnosis that exchange. What a diagnosis keeps has to be bounded.
pub trait Diagnosis: Debug + Send + Sync + Sized + 'static {
    /// Its keys in the config.
    type Config;

    /// Makes it from its config. Pushes at least one problem where it returns none.
    fn compile(config: &Self::Config, site: &mut Site<'_>) -> Option<Self>;

    /// What it does, for people: `archives exchanges to kept, obfuscated`.
    fn describe(&self) -> String;

    /// Whether it wants copies of bodies at all.
    fn wants_bodies(&self) -> bool {
        false
    }

    /// How many bytes it wants of the beginning of a body of that media type.
    fn wanted_bytes(&self, _media_type: &[u8]) -> usize {
        0
    }

    /// An exchange is over.
    fn see(&self, exchange: &Finished<'_>);

    /// Called a few times each second, and at the end.
    fn tick(&self, _tick: Tick) {}

    /// What it has counted, for the metrics. The label `flow` is put before those of each sample.
    fn figures(&self) -> Vec<Family> {
        Vec::new()
    }

    /// The endpoints that it has found, for the control API.
    fn discovered(&self) -> Option<Discovered> {
        None
    }
}

/// What diagnoses are told from time to time.
#[derive(Debug, Clone, Copy)]
pub struct Tick {
    /// What time it is.
    pub now: Timestamp,
    /// Whether it is the last time.
    pub is_last: bool,
}

/// Where diagnoses keep what has to outlive the process. Called by one thread of low priority, which may wait for a disk.
pub trait Keeper: Debug + Send + Sync {
    /// What was saved last under that name, if anything was.
    fn load(&self, name: &str) -> Option<Vec<u8>>;

    /// Saves it in the place of what was there. Where that fails it is told in the log, and what was there stays.
    fn save(&self, name: &str, bytes: &[u8]);
}

/// What becomes of an exchange that a diagnosis has no place for, since the thread that makes the diagnoses is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnPressure {
    /// It goes on, the diagnosis does not see it, and that is counted.
    #[default]
    Drop,
    /// It waits for a place before it is sent to the provider, for ten seconds at most.
    Wait,
}

impl OnPressure {
    /// As the config has it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Wait => "wait",
        }
    }
}

/// Figures of one name, as Prometheus has them.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// The name, `egret_` and a unit included.
    pub name: String,
    /// What they are.
    pub help: String,
    /// How they move.
    pub kind: FamilyKind,
    /// The figures.
    pub samples: Vec<Sample>,
}

/// How figures move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyKind {
    /// Up alone.
    Counter,
    /// Up and down.
    Gauge,
    /// Counts by classes.
    Histogram,
}

impl FamilyKind {
    /// As Prometheus has it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// What tells it from the others of its name: names and values.
    pub labels: Vec<(&'static str, String)>,
    /// The figure.
    pub value: Figure,
}

/// A figure.
#[derive(Debug, Clone, PartialEq)]
pub enum Figure {
    /// A number.
    Number(f64),
    /// A histogram.
    Histogram {
        /// The upper bounds of the classes; the last class has none.
        bounds: Arc<[f64]>,
        /// How many fell into each class, one more than there are bounds.
        counts: Vec<u64>,
        /// The sum of all that was counted.
        sum: f64,
    },
}

/// What stands outside of flows and diagnoses need: where recorded exchanges go, and the key of their pseudonyms.
#[derive(Debug, Clone, Default)]
pub struct Exports {
    /// By the names that exporters have in the config.
    pub sinks: HashMap<String, Arc<dyn Sink>>,
    /// The key; none while a config is only checked.
    pub key: Option<Arc<Key>>,
    /// Where diagnoses keep what has to outlive the process; nowhere while a config is only checked.
    pub keeper: Option<Arc<dyn Keeper>>,
}

/// A diagnosis' place in the config, and what it may ask while it is compiled.
#[derive(Debug)]
pub struct Site<'a> {
    /// Which exchanges the flow is for.
    pub matching: &'a MatchConfig,
    /// Where recorded exchanges go, and the key of their pseudonyms.
    pub exports: &'a Exports,
    /// Names of fields and parameters in which the config's accounts have their secrets.
    pub secret_names: &'a Arc<[Box<str>]>,
    /// Where in the config: `flows[0].diagnoses[1].har`.
    pub path: String,
    /// What is wrong so far.
    pub problems: &'a mut Vec<Problem>,
    pub(crate) identity: Identity,
    pub(crate) before: Option<&'a KeptStates>,
    pub(crate) kept: &'a mut KeptStates,
}

/// Names a diagnosis across reloads: its flow, its kind, and the how manieth of that kind it is there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub flow: String,
    pub diagnosis: &'static str,
    pub ordinal: usize,
}

/// What diagnoses keep from one config to the next.
pub(crate) type KeptStates = HashMap<Identity, Arc<dyn Any + Send + Sync>>;

impl Site<'_> {
    /// Notes that `key` of this diagnosis is wrong.
    pub fn problem(&mut self, key: &str, message: impl Into<String>) {
        self.problems.push(Problem::new(format!("{}.{key}", self.path), message));
    }

    /// The sink of the exporter that `key` of this diagnosis names and that takes `content`; a problem where there is none.
    pub fn sink(&mut self, key: &str, name: &str, content: Content) -> Option<Arc<dyn Sink>> {
        let path = format!("{}.{key}", self.path);
        let Some(sink) = self.exports.sinks.get(name) else {
            let problem = Problem::new(path, format!("no exporter is called `{name}`"));
            self.problems.push(problem.suggest(name, self.exports.sinks.keys().map(String::as_str)));
            return None;
        };
        if !sink.takes(content) {
            let (what, types) = match content {
                Content::Entries => ("entries of HAR", "`har`, `ndjson`, `alf`, `s3` or `stdout`"),
                Content::Lines => ("lines", "`lines` or `stdout`"),
                Content::Telemetry => ("spans and metrics", "`otlp`"),
            };
            let message = format!("the exporter `{name}` takes no {what}: name one of the type {types}");
            self.problems.push(Problem::new(path, message));
            return None;
        }
        Some(Arc::clone(sink))
    }

    /// Whether there is one of the kind before it in its flow.
    pub fn is_another(&self) -> bool {
        self.identity.ordinal > 1
    }

    /// The name of the flow.
    pub fn flow(&self) -> &str {
        &self.identity.flow
    }

    /// State that outlives a reload: what the same diagnosis had under the config before, if that `fits`, or else a new one. A diagnosis
    /// keeps one state.
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

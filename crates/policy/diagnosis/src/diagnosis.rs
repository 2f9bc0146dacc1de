//! The `Diagnosis` trait. A diagnosis is one file under `diagnoses/` and one line in
//! [`registry`](crate::diagnoses).

use std::fmt::Debug;

use egret_clock::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::CompileContext;
use crate::discovered::Discovered;
use crate::family::Family;
use crate::finished::Finished;
use crate::spend::Spent;

/// An observer of finished exchanges.
///
/// A diagnosis receives an exchange that is over and read-only, so it cannot affect the client or the
/// provider. All methods except [`metrics`](Self::metrics) and [`discovered`](Self::discovered) run on one
/// low-priority thread that no exchange waits for. A panic there loses one exchange for one diagnosis. A
/// diagnosis must bound the state it keeps.
pub trait Diagnosis: Debug + Send + Sync + Sized + 'static {
    /// Its config.
    type Config;

    /// Returns the name of the exporter that it sends its output to.
    fn exporter(_config: &Self::Config) -> Option<&str> {
        None
    }

    /// Creates the diagnosis from its config. Pushes at least one problem when it returns `None`.
    fn compile(config: &Self::Config, context: &mut CompileContext<'_>) -> Option<Self>;

    /// Describes the diagnosis for people: `archives exchanges to kept, obfuscated`.
    fn describe(&self) -> String;

    /// Returns `true` if the diagnosis wants copies of bodies.
    fn wants_bodies(&self) -> bool {
        false
    }

    /// Returns `true` if the diagnosis wants to know the usage that responses report.
    fn wants_usage(&self) -> bool {
        false
    }

    /// Number of bytes wanted from the beginning of a body with that media type.
    fn wanted_bytes(&self, _media_type: &[u8]) -> usize {
        0
    }

    /// Processes a finished exchange.
    fn see(&self, exchange: &Finished<'_>);

    /// Takes what the exchange that was seen last has cost, if the diagnosis knows it.
    fn take_spent(&self) -> Option<Spent> {
        None
    }

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

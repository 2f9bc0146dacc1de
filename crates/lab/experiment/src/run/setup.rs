//! The parameters of a turn.

use std::collections::BTreeMap;
use std::path::Path;

use crate::config::{CaseConfig, Experiment, ScenarioConfig};
use crate::host::Hosts;

/// The parameters of a turn.
#[derive(Debug)]
pub(crate) struct TurnSetup<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// The case.
    pub case: &'a CaseConfig,
    /// The scenario.
    pub scenario: &'a ScenarioConfig,
    /// Number of the round, from 1.
    pub round: u32,
    /// The machines.
    pub hosts: &'a Hosts,
    /// Contents of the templates.
    pub configs: &'a BTreeMap<String, String>,
    /// Folder of the turn.
    pub directory: &'a Path,
    /// The core of each process.
    pub pinned: &'a BTreeMap<String, usize>,
}

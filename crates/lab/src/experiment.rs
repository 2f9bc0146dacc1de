//! Experiments: a YAML file that describes a measurement, and the run that carries it out.
//!
//! An experiment sends the same work (a *case*) to one provider in several ways (*scenarios*): directly,
//! through Egret, or through another proxy. Each *turn* is one case through one scenario, with every process
//! restarted. A *round* is one turn of each, in an order that changes from round to round. Figures are
//! compared within rounds, so a machine whose speed drifts affects all scenarios alike.

mod client;
mod clock;
mod config;
mod counted;
mod interrupt;
mod listing;
mod machine;
mod parts;
mod plan;
mod process;
mod ready;
mod results;
mod run;
mod template;

pub use client::{ClientKind, Figures};
pub use config::{
    CaseConfig, ClientConfig, Experiment, Figure, HoldConfig, ProviderConfig, ProviderKind, QuickConfig,
    ScenarioConfig, TableConfig, Within,
};
pub use counted::{Counted, RateLimited};
pub use interrupt::{Interrupt, Interrupter};
pub use listing::list;
pub use machine::Machine;
pub use results::{Metadata, ProcessFigures, Results, ResultsError, Turn};
pub(crate) use results::{make_directory, real, write_json, write_whole};
pub use run::{Changes, Run, RunError};

//! Experiments: a YAML file that describes a measurement, the run that carries it out, and the report on it.
//!
//! An experiment sends the same work (a *case*) to one provider in several ways (*scenarios*): directly,
//! through Egret, or through another proxy. Each *turn* is one case through one scenario, with every process
//! restarted. A *round* is one turn of each, in an order that changes from round to round. Figures are
//! compared within rounds, so a machine whose speed drifts affects all scenarios alike.
//!
//! This crate starts programs and reads their output. It knows nothing of how Egret, the provider or a load
//! client work inside.

#![warn(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic if the reader has closed the stream: see `egret_measure::streams`"
)]

mod affinity;
mod certificate;
mod client;
mod client_settings;
mod clock;
mod config;
mod counters;
mod external_url;
mod figures;
#[cfg(test)]
mod fixture;
mod host;
mod http;
mod interrupt;
mod listing;
mod machine;
pub mod part;
mod plan;
mod process;
mod programs;
mod redis;
pub mod report;
mod results;
mod run;
mod template;
mod text_file;
mod turn_files;

pub use config::MachinesConfig;
pub use host::serve;
pub use interrupt::{Interrupt, Interrupter};
pub use listing::list;
pub use results::{Results, ResultsError};
pub use run::{Changes, PartialResults, Run, RunError, needs};

//! The control port: health, metrics, the running config, statistics, and the page that shows them.
//!
//! It runs beside the data path: its own thread reads the counters of the workers. Everyone who can reach the
//! port learns which hosts the application calls. It therefore listens on loopback unless there is a token,
//! and rejects requests that a foreign web page may have caused (see `guard`).
//!
//! It knows no connection of the data path and no exchange: whatever it shows comes from a [`Source`].

mod config;
mod connection;
mod flows;
mod guard;
mod metrics;
mod paths;
mod problem;
mod process;
mod routes;
mod server;
mod source;

pub use config::ControlConfig;
pub use server::{Control, ControlError};
pub use source::Source;

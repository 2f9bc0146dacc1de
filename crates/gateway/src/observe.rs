//! The traces that exchanges leave: counters, access log, and records for diagnoses.

pub(crate) mod access_log;
pub(crate) mod counters;
pub(crate) mod recorder;
pub(crate) mod ring;
pub mod stats;

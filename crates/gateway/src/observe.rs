//! The traces that exchanges leave: counters, and records for diagnoses.

pub(crate) mod counters;
pub(crate) mod failures;
pub(crate) mod hosts;
pub(crate) mod loops;
pub(crate) mod notice;
pub(crate) mod recorder;
pub(crate) mod refusals;
pub(crate) mod ring;
pub mod stats;

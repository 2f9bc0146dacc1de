//! The traces that exchanges leave: errors and the responses that tell them, counters, statistics, and the
//! ring that carries records to the diagnoses.

pub mod counters;
pub mod endpoint_stats;
pub mod failure;
pub mod hosts;
pub mod loops;
pub mod notice;
pub mod provider_errors;
pub mod refusals;
pub mod ring;
pub mod stats;

mod sync;

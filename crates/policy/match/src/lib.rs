//! Matching: the provider that a request belongs to, the rules that select exchanges for a flow, the
//! expressions and templates of the config, and the router that finds the flows of a request.
//!
//! The crate sees messages as views over the received bytes. It knows no remedy and no quota.

mod capturing_patterns;
mod compat;
mod event_stream;
pub mod expression;
pub mod form;
pub mod matching;
pub mod named_fields;
mod parameters;
pub mod providers;
pub mod rewrite;
pub mod router;
pub mod routing_fields;
pub mod routing_query;
pub mod target;
pub mod template;
mod visible_body;

pub use capturing_patterns::CapturingPatterns;
pub use compat::{Compat, OtherProduct};
pub use event_stream::{EventScan, is_event_stream, merged_events};
pub use parameters::Parameters;
pub use visible_body::seen_at_end;

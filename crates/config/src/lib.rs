//! What every room's config structs are made from: durations, sizes and secrets as people write them.
//!
//! The structs themselves stand in the rooms that obey them. Each type here knows how to be parsed, printed and described
//! in the JSON Schema, so that one definition of a config key yields the parser, the message, the schema and the default.

mod secret;
mod units;

pub use secret::Secret;
pub use units::{Duration, Size};

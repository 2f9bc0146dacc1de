//! What every room's config structs are made from: durations, sizes and secrets as people write them; and how
//! they are read.
//!
//! The structs themselves stand in the rooms that obey them. Each type here knows how to be parsed, printed
//! and described in the JSON Schema, so that one definition of a config key yields the parser, the message,
//! the schema and the default.

mod document;
mod file;
mod problem;
mod read;
mod report;
mod secret;
mod tree;
mod units;

pub use document::{CONFIG_BYTES_MAX, load};
pub use file::{CERTIFICATES_BYTES_MAX, read_file};
pub use problem::{Problem, suggest};
pub use report::{Finding, Report};
pub use secret::Secret;
pub use tree::Position;
pub use units::{Duration, Size};

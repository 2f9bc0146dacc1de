//! Building blocks of all config structs: durations, sizes and secrets as people write them, and the loader.
//!
//! The structs themselves are defined in the crates that use them. Each type here can be parsed, printed and
//! described in the JSON Schema. One definition of a config key therefore yields the parser, the message, the
//! schema and the default. The room knows YAML and positions in a text; it never knows a key of the config.

mod document;
mod entry_kind;
mod file;
mod problem;
mod read;
pub mod reload;
mod report;
mod secret;
mod tree;
mod units;

pub use document::{CONFIG_BYTES_MAX, Hint, load, load_with_hints};
pub use entry_kind::EntryKind;
pub use file::{CERTIFICATES_BYTES_MAX, read_file};
pub use problem::{Problem, suggest};
pub use report::{Finding, Report};
pub use secret::{Secret, SecretError};
pub use tree::{Entry, Mapping, ParseError, Position, YamlNode, YamlValue, parse as parse_yaml};
pub use units::{Duration, QuantityError, Size};

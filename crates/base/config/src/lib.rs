//! Building blocks of all config structs: durations, sizes, secrets and regular expressions as people write
//! them, and the loader.
//!
//! The structs themselves are defined in the crates that use them. Each type here can be parsed, printed and
//! described in the JSON Schema. One definition of a config key therefore yields the parser, the message, the
//! schema and the default. The room knows YAML and positions in a text; it never knows a key of the config.

mod document;
mod entry_kind;
mod file;
mod fix;
mod include;
mod join;
mod keys;
mod node;
mod position;
mod problem;
mod read;
mod regex;
pub mod reload;
mod report;
mod secret;
mod short_form;
mod slips;
mod source;
mod text_file;
mod text_values;
mod tree;
mod units;
mod unix_name;
mod variables;
mod yaml_mistake;

pub use document::{CONFIG_BYTES_MAX, Document, Hint, Loaded, load};
pub use entry_kind::EntryKind;
pub use file::{CERTIFICATES_BYTES_MAX, read_file, reason};
pub use fix::{fix_text, move_behind};
pub use include::{INCLUDED_FILES_MAX, Includes};
pub use node::Node;
pub use problem::{Problem, suggest};
pub use regex::{Case, RegexError, WholeRegex};
pub use report::{Finding, LocatedProblem, Place, Report, Severity, shown_line};
pub use secret::{
    FetchedSecret, FetchedSecrets, SECRET_BYTES_MAX, Secret, SecretError, are_secrets_read, credential_path,
    noting_secret_variables, without_secrets,
};
pub use short_form::{or_number, or_text};
pub use source::{SourceSet, SourceText};
pub use text_file::TextFile;
#[doc(hidden)]
pub use text_values::read_text;
pub use tree::{Mapping, ParseError, Position, YamlEntry, YamlNode, YamlValue, parse as parse_yaml};
pub use units::{ByteRate, Duration, QuantityError, Size, kib, secs, yes};
pub use unix_name::{UnixName, UnixNameError};
pub use variables::{VariableError, variable, verbatim};

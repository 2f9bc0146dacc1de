//! HAR 1.2 files: reads, writes, validates and obfuscates them, because recordings hold other people's
//! secrets.
//!
//! This crate knows no gateway, flow or socket. It reads and writes only the bytes that its callers pass in.

pub mod alf;
pub mod archive;
pub mod base64;
mod body;
mod charset;
pub mod detect;
mod exclusions;
#[cfg(test)]
mod fixture;
pub mod gzip;
pub mod har;
pub mod key;
mod masks;
mod media;
mod media_obfuscation;
mod memo;
pub mod multipart;
mod named;
mod names;
pub mod obfuscate;
pub mod observed;
mod parameters;
mod personal;
mod pseudonym;
pub mod recorder;
pub mod recording;
mod redact;
pub mod replay;
mod rewrite;
pub mod scan;
mod secret_remover;
pub mod sink;
mod url;
pub mod validate;

pub use body::Body;
pub use exclusions::{ExclusionError, Exclusions, PATHS_MAX, PathMistake, STEPS_MAX};
pub use har::Har;
pub use key::Key;
pub use obfuscate::Obfuscator;
pub use pseudonym::Pseudonym;
pub use recorder::{Mask, Recorder};
pub use recording::{Recording, RecordingConfig};

//! HAR 1.2 files: reading, writing, validating, and obfuscating them before anybody else sees them.
//! Recordings hold other people's secrets.
//!
//! This crate knows no gateway, flow or socket. It reads and writes only the bytes that its callers pass in.

pub mod alf;
pub mod archive;
pub mod base64;
mod body;
mod charset;
pub mod detect;
pub mod exclusions;
#[cfg(test)]
mod fixture;
mod guard;
pub mod har;
pub mod key;
mod media;
mod memo;
mod multipart;
mod named;
mod names;
pub mod obfuscate;
pub mod observed;
pub mod otlp;
mod parameters;
pub mod pseudonym;
pub mod recorder;
pub mod recording;
mod rewrite;
pub mod scan;
pub mod sink;
mod url;
pub mod validate;

pub use body::Body;
pub use exclusions::Exclusions;
pub use har::Har;
pub use key::Key;
pub use obfuscate::Obfuscator;
pub use recorder::{Mask, Recorder};
pub use recording::{Recording, RecordingConfig};

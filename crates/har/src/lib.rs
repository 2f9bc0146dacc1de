//! HAR 1.2 as data, and what has to happen to it before anybody else may see it: what it records is other people's secrets.
//!
//! The room knows no gateway, flow or socket, and reads and writes only what its callers hand it.

mod base64;
pub mod date;
#[cfg(test)]
mod fixture;
pub mod har;
pub mod json;
pub mod key;
pub mod pseudonym;
pub mod validate;

pub use har::Har;
pub use key::Key;

//! Clients that prove who they are, on listeners that ask for it.
//!
//! A client proves its name by a token that each of its requests carries, or by the certificate of its
//! connection. The name becomes the consumer of the request. The request is then rewritten as if the client
//! had only named itself: without the token, and with the proven name in place of any other. So nothing
//! behind this crate sees a token, and nothing can mistake a name that was only claimed for a proven one.

mod certificate;
mod config;
mod given;
mod head;
mod proof;
mod tokens;

pub use config::{ClientsConfig, NameFrom};
pub use given::TOKEN_FIELD;
pub use head::{ADDED_BYTES_MAX, ADDED_FIELDS_MAX, settle};
pub use proof::{Clients, Proven, Unproven};

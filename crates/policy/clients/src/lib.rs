//! Clients that prove who they are, on listeners that ask for it.
//!
//! A client proves its name by a token that each of its requests carries, one of the config or a JSON Web
//! Token of an issuer, by the certificate of its connection, or by the user who has connected to a Unix
//! socket. The name becomes the consumer of the request. The request is then rewritten as if the client had
//! only named itself: without the token, and with the proven name in place of any other. So nothing behind
//! this crate sees a token, and nothing can mistake a name that was only claimed for a proven one.

mod certificate;
mod config;
mod given;
mod head;
mod issuer;
mod jwk;
mod jwt;
mod jwt_config;
mod proof;
mod proven;
mod strict_json;
mod tokens;
mod unproven;
mod users;

pub use config::{ClientsConfig, NameFrom};
pub use given::TOKEN_FIELD;
pub use head::{ADDED_BYTES_MAX, ADDED_FIELDS_MAX, settle};
pub use issuer::{Issuer, JwtMemory};
pub use jwk::KeySetError;
pub use jwt_config::{JwtConfig, KeySource};
pub use proof::Clients;
pub use proven::Proven;
pub use unproven::Unproven;

//! The local certificate authority: what HTTPS interception shows to a client in place of a provider's
//! certificate.
//!
//! An [`Authority`] has two certificates. Clients trust the root, whose key is dropped as soon as it has
//! signed the second one, the issuing certificate. The key of that one signs a certificate for each host.
//! Both certificates carry the same [`Constraints`]: a thief of the key can impersonate the configured hosts
//! to the clients that trust the root, and no other host.
//!
//! The room knows certificates and files. It knows no connection and no request.

mod authority;
mod bundle;
mod ca_directory;
mod constraints;
mod generations;
mod interception_config;
pub mod jks;
mod mint;
mod pem;
mod root;
mod server_configs;

pub use authority::{Authority, AuthorityError, IN_MEMORY_DAYS, INIT_DAYS, Owner};
pub use bundle::{Bundle, BundleError, BundleSource};
pub use ca_directory::{CaDirectory, CaError};
pub use constraints::{Constraints, ConstraintsError};
pub use interception_config::{Interception, InterceptionConfig, OnRefusal, UnknownProtocol};
pub use mint::{Mint, MintError};
pub use root::Root;
pub use server_configs::ServerConfigs;

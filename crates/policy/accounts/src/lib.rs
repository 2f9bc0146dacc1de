//! Accounts: named credentials for providers.
//!
//! A remedy selects an account by its number. The gateway adds the secret to the request at the last moment,
//! and only if the request is sent to one of the account's own providers. So no remedy, expression, key or
//! record sees a secret, and a call to another provider never carries it.
//!
//! The crate sends nothing and reads no clock; it knows no remedy and no connection.

mod account;
mod accounts;
mod config;
mod cooling;
mod credential;
mod echo;
mod ending;
mod find;
mod handed_account;
mod identity;
mod in_force;
mod outgoing;
mod placeholder;
mod shared_cooling;
mod sigv4;
mod snapshot;
mod state;
pub mod token;
mod unusable;

pub use account::{Account, EchoError};
pub use accounts::Accounts;
pub use config::{AccountConfig, AccountConfigs, ApiKeyConfig, BasicConfig, BearerConfig, CertificateConfig};
pub use cooling::{CoolDown, CoolingSnapshot};
pub use echo::{PatternMask, SecretLengthError, SecretPatterns, is_unsearchable_charset};
pub use ending::Ending;
pub use handed_account::HandedAccount;
pub use identity::CloudIdentity;
pub use in_force::SecretsInForce;
pub use outgoing::{Applied, Outgoing};
pub use placeholder::{PlaceholderConfig, RequestPart};
pub use sigv4::Sigv4Config;
pub use snapshot::AccountSnapshot;
pub use state::{AccountState, AccountUse, RefusedCall, reported_pause, wanted_pause};
pub use unusable::Unusable;

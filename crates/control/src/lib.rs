//! The control port: health, metrics, the running config, statistics, and the page that shows them.
//!
//! It runs beside the data path: its own thread reads the counters of the workers. Everyone who can reach the
//! port learns which hosts the application calls. It therefore listens on loopback unless there is a token,
//! and rejects requests that a foreign web page may have caused (see `guard`).
//!
//! It knows no connection of the data path and no exchange: whatever it shows comes from a [`Source`].

mod changes;
mod cluster;
mod config;
mod config_paths;
mod connection;
mod faults;
mod findings;
mod flows;
mod gateway_info;
mod guard;
mod history;
mod identity;
mod metrics;
mod observed;
mod paths;
mod problem;
mod process;
mod resend;
mod routes;
mod server;
mod source;
mod spend;
mod traffic;
mod trusted_proxy;

pub use changes::{
    Applied, CALLS_MAX, ChangeRefusal, Checked, ConfigAccess, ConfigCall, ConfigFile, ConfigFiles,
    ConfigReply, ConfigRequest, EntityTags, Version,
};
pub use config::{ConfigChanges, ControlConfig};
pub use gateway_info::{GatewayInfo, InterceptionInfo, ListenerInfo, ProviderInfo};
pub use identity::{ControlKey, Ends, Identity, NONCE_FIELD, PROOF_FIELD};
pub use server::{Control, ControlError};
pub use source::{ConfigRefusal, FetchFailure, FetchStatus, Source};
pub use trusted_proxy::TrustedProxyConfig;

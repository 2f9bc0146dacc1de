//! Shared parts of the end-to-end scenarios: Egret on free ports, real and scripted peers, exact bytes, and
//! waiting.
//!
//! Everything here panics if its claim is false or does not become true in time: that is how a scenario
//! fails.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test that cannot continue panics with the reason"
)]

pub mod alerts;
pub mod allowance;
pub mod archiver;
pub mod arrival;
pub mod authority;
pub mod aws;
pub mod bench;
pub mod browser;
pub mod built_in;
pub mod cached;
pub mod clients;
pub mod clock;
pub mod closed_port;
pub mod coded;
pub mod config_api;
pub mod counted;
pub mod direct;
pub mod distance;
pub mod dns;
pub mod egret;
pub mod exec;
pub mod failing;
pub mod found;
pub mod grpc;
pub mod hostile_store;
pub mod http;
pub mod http2;
pub mod http2_attacks;
pub mod http2_provider;
pub mod imported;
pub mod impostor;
pub mod intercepted;
pub mod issuer;
pub mod lab;
pub mod load;
pub mod managed;
pub mod members;
pub mod metered;
pub mod namespace;
pub mod node;
pub mod peers;
pub mod permits;
pub mod pki;
pub mod process;
pub mod provider;
pub mod provider_pair;
pub mod random;
pub mod recorded;
pub mod recorder;
pub mod redis;
pub mod redis_sets;
pub mod refusals;
pub mod relay;
pub mod rotating;
pub mod secrets;
pub mod sockets;
pub mod socks;
pub mod spending;
pub mod steps;
pub mod supervised;
pub mod time_spent;
pub mod timeline;
pub mod traffic;
pub mod trend;
pub mod wait;

//! The movement of bytes: event loop, sockets, buffers, deadlines, name resolution, dialling, egress policy,
//! proxies, SOCKS and TLS.
//!
//! The crate knows no HTTP message, no flow and no worker.

pub mod budget;
pub mod buffer;
pub mod config;
pub mod counter;
pub mod deadline;
pub mod descriptors;
pub mod dial;
pub mod dns;
pub mod event_loop;
pub mod histogram;
pub mod listen;
pub mod os;
pub mod pace;
pub mod policy;
pub mod proxy;
pub mod socks;
pub mod stream;
pub mod tls;

mod sync;

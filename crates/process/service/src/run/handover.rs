//! The hand-over of a running Egret to a new process, so that a restart loses no exchange.
//!
//! The new process connects to a socket in the data directory. It gets the listening sockets and builds
//! everything that it needs. Then it asks for the state: the old process stops accepting, sends its counts,
//! and drains. Until the old one has ended, the two share the quotas: the new one counts, and lends units to
//! the old one. The two speak only if both belong to the same user, and see the same network.

pub mod channel;
pub mod lender;
pub mod message;
pub mod offer;
mod peer;
pub mod predecessor;
mod state;
pub mod successor;

use std::path::{Path, PathBuf};

/// Name of the socket in the data directory.
const SOCKET_NAME: &str = "handover.sock";

/// Returns the path of the socket in `data_dir`.
fn socket_path(data_dir: &Path) -> PathBuf {
    data_dir.join(SOCKET_NAME)
}

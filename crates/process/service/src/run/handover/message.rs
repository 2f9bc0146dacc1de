//! The messages of a hand-over. Each is one JSON document behind its length.

use egret_gateway::HandedState;
use egret_quota::{Balance, Lending};
use serde::{Deserialize, Serialize};

/// The version of the messages. Processes with different versions do not understand each other's state.
pub const VERSION: u32 = 1;

/// Maximum length of a message, in bytes.
pub const BYTES_MAX: usize = 64 * 1024 * 1024;

/// A message. `Hello` and `Refused` stay as they are in all versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandoverMessage {
    /// Either process introduces itself. The old one sends its listening sockets along, that of the control
    /// port last.
    Hello {
        /// The version of its messages.
        version: u32,
        /// Its process id.
        pid: i32,
    },
    /// The old process goes on as before.
    Refused {
        /// The reason, for people.
        reason: String,
    },
    /// The new process is ready for the state.
    Take,
    /// The state. From now on the old process accepts no clients.
    State(Box<HandedState>),
    /// The new process accepts clients.
    Serving,
    /// The old process reports the use of units that the new one holds for it.
    Report {
        /// The changes since the last report.
        balances: Vec<Balance>,
        /// `true` once the old process uses no file in the data directory.
        has_released: bool,
    },
    /// The new process has counted a report.
    Lent {
        /// Units that the old process may use in addition.
        lendings: Vec<Lending>,
    },
}

impl HandoverMessage {
    /// Reads a message.
    pub fn parse(bytes: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(bytes)
    }

    /// Writes the message.
    pub fn to_bytes(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }
}

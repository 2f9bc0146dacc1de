//! An end of a connection, the gateway's or a peer's.

use std::collections::VecDeque;
use std::net::SocketAddr;

use rustix::io::Errno;

/// Number of an end. Numbers are not used again in a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndId(pub(crate) usize);

/// The progress of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Unconnected,
    Connecting,
    Connected,
    /// It was refused or reset.
    Broken,
}

/// An end of a connection.
#[derive(Debug)]
pub(crate) struct End {
    /// The file of the gateway, by its place among the open ones. `None` for a peer's end.
    pub file: Option<usize>,
    /// The other end, until one of both is gone.
    pub peer: Option<EndId>,
    pub stage: Stage,
    pub local: Option<SocketAddr>,
    pub remote: Option<SocketAddr>,
    /// Received bytes that have not been read.
    pub received: VecDeque<u8>,
    /// Maximum number of them.
    pub room: usize,
    /// The peer sends no more.
    pub has_ended: bool,
    /// This end sends no more.
    pub is_shut: bool,
    /// An error that has not been reported.
    pub error: Option<Errno>,
    /// The last send found too little room, so its owner wants to be told of more.
    pub waits_for_room: bool,
    /// Closing resets the connection.
    pub resets: bool,
    pub is_closed: bool,
    /// Number of bytes that this end has sent.
    pub sent: u64,
}

impl End {
    pub fn new(file: Option<usize>, room: usize) -> Self {
        Self {
            file,
            peer: None,
            stage: Stage::Unconnected,
            local: None,
            remote: None,
            received: VecDeque::new(),
            room,
            has_ended: false,
            is_shut: false,
            error: None,
            waits_for_room: false,
            resets: false,
            is_closed: false,
            sent: 0,
        }
    }

    /// Number of bytes that it could receive.
    pub fn free(&self) -> usize {
        self.room.saturating_sub(self.received.len())
    }
}

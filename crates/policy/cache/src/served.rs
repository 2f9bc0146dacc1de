//! A stored response that is being sent to a client.

use std::sync::Arc;

use egret_store::entries::{StoredBody, StoredEntry};

use super::reply::{Piece, Reply};
use super::status::CacheStatus;
use super::stored::Stored;

/// A stored response, in the form for one request. All clients share its body.
#[derive(Debug, Clone)]
pub struct Served {
    entry: Arc<StoredEntry<Stored>>,
    reply: Reply,
    status: CacheStatus,
}

impl PartialEq for Served {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.entry, &other.entry) && self.reply == other.reply && self.status == other.status
    }
}

impl Eq for Served {}

impl Served {
    /// Combines the stored `entry`, the form to send, and the value of `Cache-Status`.
    pub fn new(entry: Arc<StoredEntry<Stored>>, reply: Reply, status: CacheStatus) -> Self {
        Self { entry, reply, status }
    }

    /// The status code.
    pub fn status(&self) -> u16 {
        self.reply.status(&self.entry.value)
    }

    /// The stored body, which may still be arriving.
    pub fn body(&self) -> &Arc<StoredBody> {
        &self.entry.body
    }

    /// Returns `true` if a body is sent, even an empty one.
    pub fn has_body(&self) -> bool {
        self.reply.has_body && !matches!(self.status(), 204 | 304)
    }

    /// Length of the body, also for a HEAD; `None` while it is unknown, or for a status without a body.
    pub fn content_length(&self) -> Option<u64> {
        let stored = &self.entry.value;
        let len = self.entry.body.len().or(stored.declared_len)?;
        self.reply.content_length(stored, len)
    }

    /// Returns `true` if responses with this status may have a `Content-Length` (RFC 9110 §8.6).
    pub fn may_have_length(&self) -> bool {
        !matches!(self.status(), 204 | 304)
    }

    /// Appends the header fields, including `Age` and `Cache-Status`, without those that frame the message.
    pub fn write_fields(&self, out: &mut Vec<u8>) {
        let stored = &self.entry.value;
        self.reply.write_fields(stored, self.entry.body.len().unwrap_or_default(), out);
        out.extend_from_slice(b"cache-status: ");
        self.status.write(out);
        out.extend_from_slice(b"\r\n");
    }

    /// Returns the pieces of the body, in order; `None` if the stored body is sent unchanged.
    pub fn pieces(&self) -> Option<Vec<Piece>> {
        self.reply.pieces(&self.entry.value, self.entry.body.len().unwrap_or_default())
    }
}

//! A stored answer on its way to a client.

use std::sync::Arc;

use egret_store::entries::{Body, Entry};

use super::{CacheStatus, Piece, Reply, Stored};

/// A stored answer, as a request gets it. Its body is shared with all who get it.
#[derive(Debug, Clone)]
pub struct Served {
    entry: Arc<Entry<Stored>>,
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
    /// What `reply` takes of `entry`, with what the cache says of it.
    pub fn new(entry: Arc<Entry<Stored>>, reply: Reply, status: CacheStatus) -> Self {
        Self { entry, reply, status }
    }

    /// The status.
    pub fn status(&self) -> u16 {
        self.reply.status(&self.entry.kept)
    }

    /// The stored body, which may still be coming.
    pub fn body(&self) -> &Arc<Body> {
        &self.entry.body
    }

    /// Whether a body is sent, even if it is an empty one.
    pub fn has_body(&self) -> bool {
        self.reply.has_body && !matches!(self.status(), 204 | 304)
    }

    /// The length of the body that is sent, or would be to a GET; none where that is not known yet, or there never is one.
    pub fn content_length(&self) -> Option<u64> {
        let stored = &self.entry.kept;
        let len = self.entry.body.len().or(stored.declared_len)?;
        self.reply.content_length(stored, len)
    }

    /// Whether a body of a status like this one has a length that can be told (RFC 9110 §8.6).
    pub fn may_have_length(&self) -> bool {
        !matches!(self.status(), 204 | 304)
    }

    /// Appends the fields, `Age` and `Cache-Status` among them; not those that frame the message.
    pub fn write_fields(&self, out: &mut Vec<u8>) {
        let stored = &self.entry.kept;
        self.reply.write_fields(stored, self.entry.body.len().unwrap_or_default(), out);
        out.extend_from_slice(b"cache-status: ");
        self.status.write(out);
        out.extend_from_slice(b"\r\n");
    }

    /// What is sent of the body, in order; nothing where that is the stored body as it is.
    pub fn pieces(&self) -> Option<Vec<Piece>> {
        self.reply.pieces(&self.entry.kept, self.entry.body.len().unwrap_or_default())
    }
}

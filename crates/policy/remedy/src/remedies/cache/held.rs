//! The state that a cache keeps for one exchange: its waits, and the request that it has forwarded.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use egret_cache::{CacheRequest, CacheStatus, Form, FwdReason, Reply, Stored, Validation};
use egret_clock::Timestamp;
use egret_store::coalescer::{Leader, Waiter};
use egret_store::entries::{Loading, StoredBody, StoredEntry};
use smallvec::SmallVec;

use crate::exchange::{Checkpoint, Exchange};

/// Maximum time for which a request waits for responses of unknown length that are still arriving. After it,
/// the request streams such a response. The wait helps because the response may turn out to be too large to
/// store, and a request that has received part of it then cannot get the rest.
pub(super) const BODY_WAIT_MAX: Duration = Duration::from_secs(1);

/// The entries stored under a key.
pub(super) type Found = SmallVec<[Arc<StoredEntry<Stored>>; 2]>;

/// State of one exchange.
#[derive(Debug, Default)]
pub struct CacheRun {
    pub(super) forwarded: Option<Box<ForwardedRequest>>,
    pub(super) waiting: Option<Waiter>,
    /// Start of the wait for another request, and the reason.
    pub(super) waited: Option<(Timestamp, FwdReason)>,
    /// `true` if the wait for another request has ended, so the request does not wait again.
    pub(super) has_waited: bool,
    /// The body of unknown length that the request waits for.
    pub(super) awaited_body: Option<Arc<StoredBody>>,
    /// End of the time for such bodies, since the first wait. Another response may follow one that is gone.
    body_wait_until: Option<Timestamp>,
    pub(super) disk_fetch: DiskFetch,
}

/// The state of a request's lookup on the disk.
#[derive(Debug, Default)]
pub(super) enum DiskFetch {
    /// Not started, or nothing is on the disk.
    #[default]
    None,
    /// In progress; the request waits until this time.
    InProgress(Loading, Timestamp),
    /// Finished: everything that can be loaded is in memory.
    Done,
    /// Abandoned: the disk may have an entry that the request does not know of.
    Abandoned,
}

/// A request that was forwarded to the provider.
#[derive(Debug)]
pub(super) struct ForwardedRequest {
    /// `None` if the request bypasses the cache.
    pub cache_request: Option<CacheRequest>,
    pub status: CacheStatus,
    pub validation: Option<Validation>,
    /// The entries stored when it was forwarded.
    pub found: Found,
    pub sent: Timestamp,
    /// Present if other requests may wait for the response.
    pub leader: Option<Leader>,
    /// Checkpoint of the pending changes when the cache saw the request.
    pub checkpoint: Checkpoint,
    /// `true` if the disk may have an entry that is not in `found`.
    pub is_blind: bool,
}

impl CacheRun {
    /// Makes a request wait, at most [`BODY_WAIT_MAX`] in all, for a response that is still arriving. Ready
    /// when the response is complete or gone; `None` if the request may stream it.
    pub(super) fn wait_for_body(
        &mut self,
        exchange: &mut Exchange<'_>,
        entry: &Arc<StoredEntry<Stored>>,
        reply: &Reply,
        cx: &Context<'_>,
    ) -> Option<Poll<()>> {
        let body = &entry.body;
        if body.poll_ended(cx).is_ready() {
            return Some(Poll::Ready(()));
        }
        if entry.value.declared_len.is_some() || !reply.has_body || reply.form == Form::NotModified {
            return None;
        }
        let until = *self.body_wait_until.get_or_insert(exchange.now + BODY_WAIT_MAX);
        if exchange.now >= until {
            self.awaited_body = None;
            return None;
        }
        self.awaited_body = Some(Arc::clone(body));
        exchange.poll_at(until);
        Some(Poll::Pending)
    }

    /// Returns `true` if the request waits for the disk.
    pub(super) fn still_loads(&mut self, exchange: &mut Exchange<'_>, cx: &Context<'_>) -> bool {
        let DiskFetch::InProgress(loading, until) = &mut self.disk_fetch else { return false };
        self.disk_fetch = match loading.poll(cx) {
            Poll::Ready(()) => DiskFetch::Done,
            Poll::Pending if exchange.now < *until => {
                exchange.poll_at(*until);
                return true;
            }
            Poll::Pending => DiskFetch::Abandoned,
        };
        false
    }
}

//! A body that has been gathered before it is forwarded.

use std::sync::Arc;

use egret_http1::Span;
use egret_net::budget::{Budget, Exhausted, Share};
use egret_net::buffer::BUFFER_BYTES;

/// Memory is allocated in multiples of this.
pub(crate) const PAGE_BYTES: usize = 4096;

/// A gathered body.
#[derive(Debug, Default)]
pub(crate) struct GatheredBody {
    /// Its position among the received bytes, if it arrived in one piece.
    pub(crate) place: Option<Span>,
    /// The received part without framing, if it arrived in chunks.
    pub(crate) decoded: Vec<u8>,
    /// The share of the budget for gathered bodies that `decoded` takes.
    pub(crate) share: Share,
    pub is_whole: bool,
    /// Length of the received body with its framing, once it is complete.
    pub framed_len: usize,
}

impl GatheredBody {
    /// Returns the whole body, if it is complete. `received` is the message as received.
    pub fn whole<'a>(&'a self, received: &'a [u8]) -> Option<&'a [u8]> {
        let body = match self.place {
            Some(place) => place.of(received),
            None => &self.decoded,
        };
        self.is_whole.then_some(body)
    }

    /// Returns the whole body mutably, if it is complete.
    pub fn whole_mut<'a>(&'a mut self, received: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let body = match self.place {
            Some(place) => received.get_mut(place.range()).unwrap_or_default(),
            None => &mut self.decoded,
        };
        self.is_whole.then_some(body)
    }

    /// Drops the body and releases its share of the budget.
    pub fn clear(&mut self) {
        self.place = None;
        self.decoded.clear();
        self.decoded.shrink_to(BUFFER_BYTES);
        self.share.release();
        self.is_whole = false;
        self.framed_len = 0;
    }

    /// Makes room for `len` more bytes.
    pub fn reserve(&mut self, len: usize, budget: &Arc<Budget>) -> Result<(), Exhausted> {
        let (held, needed) = (self.decoded.capacity(), self.decoded.len() + len);
        if needed > held {
            let bytes = needed.max(2 * held).next_multiple_of(PAGE_BYTES);
            self.share.cover(budget, bytes)?;
            self.decoded.reserve_exact(bytes - self.decoded.len());
        }
        Ok(())
    }
}

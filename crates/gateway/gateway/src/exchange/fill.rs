//! Fills a cache entry: receives the rest of a response at the provider's pace, in a task of its own. The
//! exchange whose response it is reads the entry as all others do, and may end before.
//!
//! A worker receives at most as many responses whose exchange has ended as it reads on without a client.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use egret_clock::Moment;
use egret_http1::{ResponseFraming, ResponseHead};
use tracing::debug;

use crate::downstream::connection::ClientConnection;
use egret_body::Filling;
use egret_upstream::{Connection, Upstream, View};

/// The bounds that a provider sets to the reuse of its connection.
pub(super) struct Reuse {
    timeout_s: Option<u32>,
    requests_left: Option<u32>,
}

impl Reuse {
    /// Returns the bounds, if the connection can carry another response after this one.
    pub fn after(response: &ResponseHead) -> Option<Self> {
        let is_kept = response.persistent && response.framing != ResponseFraming::UntilClose;
        let (timeout_s, requests_left) = (response.keep_alive_timeout_s, response.keep_alive_max);
        is_kept.then_some(Self { timeout_s, requests_left })
    }
}

/// A response whose body is being stored.
pub(super) struct Fill {
    pub filling: Filling,
    pub connection: Box<Connection>,
    pub upstream: Rc<Upstream>,
    pub view: Rc<View>,
    /// The client's connection counts as open until the body is stored.
    pub client: Rc<ClientConnection>,
    /// Maximum time until the next byte, and the end of the whole exchange.
    pub idle: Option<Duration>,
    pub total: Moment,
    /// `Some` if the connection can carry another response.
    pub reuse: Option<Reuse>,
}

impl Fill {
    /// Receives and stores the rest of the body.
    pub async fn run(mut self) {
        let is_whole = self.receive().await;
        let Self {
            filling: Filling { mut pipe, mut buffer, lead, .. }, connection, upstream, client, ..
        } = self;
        pipe.add_stages().stop_storing();
        let worker = &client.worker;
        match self.reuse {
            // Bytes after the response were not requested.
            Some(Reuse { timeout_s, requests_left }) if is_whole && buffer.filled().is_empty() => {
                upstream.keep(connection, Moment::now(), timeout_s, requests_left);
                worker.has_kept();
            }
            // It is closed before the lead releases what its exchange held.
            _ => drop(connection),
        }
        worker.pools.buffers.take_back(&mut buffer);
        if lead.has_left() {
            debug!(provider = upstream.plan.stats.name(), is_whole, "stored a response without its client");
        }
        upstream.counters().received_bytes.add(lead.received_bytes.take());
    }

    /// Returns `true` if the whole body has been received.
    async fn receive(&mut self) -> bool {
        let Self { filling, connection, view, client, idle, total, .. } = self;
        let shared = (&client.worker.pools.buffers, &view.plan.trailers);
        let timer = client.worker.timers.timer();
        let mut until = filling.provider_deadline(*idle, Moment::now().after(*idle));
        let (mut has_waited, mut is_left) = (false, false);
        let received = poll_fn(|cx| {
            let before = filling.pipe.read_bytes;
            if let Poll::Ready(received) = filling.poll(cx, &mut connection.leg, shared) {
                return Poll::Ready(received.is_ok());
            }
            if filling.lead.has_left() && !is_left {
                is_left = client.worker.take_left_response();
                if !is_left {
                    debug!("a client has left, and too many such responses are read already");
                    return Poll::Ready(false);
                }
            }
            if has_waited || filling.pipe.read_bytes != before {
                let so_far = if has_waited { Moment::now().after(*idle) } else { until };
                until = filling.provider_deadline(*idle, so_far);
            }
            has_waited = filling.waits_for_lead;
            let deadline = if has_waited { *total } else { until.min(*total) };
            timer.set_at(deadline);
            if timer.poll_expired(cx) && deadline <= Moment::now() {
                return Poll::Ready(false);
            }
            Poll::Pending
        })
        .await;
        if is_left {
            client.worker.has_read_left_response();
        }
        received && filling.pipe.is_received()
    }
}

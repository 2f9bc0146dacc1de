//! Tunnels: bytes relayed in both directions without being parsed. CONNECT opens one, and so does an upgrade
//! that the provider accepts.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use egret_clock::Moment;
use egret_diagnosis::{TalliedCall, TalliedOrigin};
use egret_export::access_log::LogLine;
use egret_http1::{Method, ResponseFraming};
use egret_leg::{Framing, Leg};
use egret_message::authority::Authority;
use egret_message::{RequestId, default_port};
use egret_observe::failure::Failure;
use egret_plan::UpstreamPlan;
use tracing::warn;

use crate::downstream::connection::ClientLeg;
use crate::state::request::{RequestState, ResponseState};
use crate::worker::Worker;
use egret_body::{Kept, Pipe};
use egret_upstream::{Connection, Network, Upstream, View};

/// Returns the response to a CONNECT that has opened a tunnel.
pub(crate) fn established(request_id: &RequestId) -> Vec<u8> {
    let mut message = b"HTTP/1.1 200 Connection Established\r\nx-egret-generated: true\r\n".to_vec();
    message.extend_from_slice(request_id.response_line());
    message.extend_from_slice(b"\r\n");
    message
}

/// Creates the upstream of a tunnel to `authority`, where `provider` is configured if there is one.
pub(crate) fn upstream(
    view: &View,
    authority: Authority,
    provider: Option<&Arc<UpstreamPlan>>,
    worker: usize,
) -> Rc<Upstream> {
    let plan = view.plan.other_hosts.tunnel(authority, provider);
    Rc::new(Upstream::new(Arc::new(plan), worker))
}

/// Opens the connection of a tunnel. The provider's idle connections make room for it.
pub(crate) async fn open(
    upstream: &Upstream,
    view: &View,
    provider: Option<&Arc<UpstreamPlan>>,
    network: &Network,
) -> Result<Box<Connection>, Failure> {
    if let Some(pooled) = provider.and_then(|provider| view.upstream_of(provider)) {
        pooled.make_room(network).await;
    }
    Ok(upstream.open(network).await?.0)
}

/// Adds a tunnel to the list of called endpoints: its host, and the time until it was open.
pub(crate) fn tally(worker: &Worker, state: &RequestState, upstream: &Upstream, begun: Moment) {
    let now = Moment::now();
    let tallied = TalliedCall {
        origin: upstream.plan.tally_number,
        method: Method::Connect,
        target: b"",
        status: 200,
        has_retry_after: false,
        consumer: state.consumer.of(state.input.filled()),
        time_us: now.nanos_since(begun) / 1000,
        ended: now,
    };
    // The content of a tunnel is unknown, but nearly everything on this port is TLS.
    let tls = upstream.plan.origin.authority.port == default_port(true);
    let origin = || TalliedOrigin { tls, ..upstream.plan.tallied_origin() };
    worker.shared.tallies.count(worker.number, &tallied, &worker.shared.clock, origin);
}

/// Notes that a tunnel leads to a configured provider: nothing of the provider's config but its timeouts
/// applies to it, which is easily overlooked. For a host in `interception.tunnel`, somebody has thought of
/// it.
pub(crate) fn note_bypass(worker: &Worker, view: &View, upstream: &Upstream) {
    worker.counters().provider_tunnels.add(1);
    let host = &upstream.plan.origin.authority;
    let intercepts = view.plan.interception.as_ref().map(|plan| plan.is_for(&host.host, true));
    if intercepts == Some(false) || !upstream.plan.stats.bypassed.is_due(Moment::now()) {
        return;
    }
    let provider = upstream.plan.stats.name();
    if intercepts.is_none() {
        warn!(
            provider,
            %host,
            "a tunnel leads to a configured provider, so its flows do not apply: let the client use the provider's base URL, \
             or intercept the host (`interception`)"
        );
    } else {
        warn!(
            provider,
            %host,
            "a tunnel to a configured provider passes unread, so its flows do not apply: its client offers no version of HTTP \
             that is served, or has refused the certificate, or the authority was not made for the host: let the client use \
             the provider's base URL, or list the host in `interception.tunnel`"
        );
    }
}

/// Relays the bytes of a tunnel that CONNECT has opened, and logs its end.
pub(crate) async fn serve(
    client: &mut ClientLeg,
    state: &mut RequestState,
    connection: Connection,
    upstream: &Upstream,
    begun: Moment,
) {
    let target = state.request.target.of(state.input.filled()).to_vec();
    let consumer = state.consumer.of(state.input.filled()).to_vec();
    // Bytes that the client sent ahead are relayed only now that the tunnel is open.
    state.input.remove(0, state.request.len);
    let mut leg = connection.leg;
    relay(client, state, &mut leg, upstream).await;
    client.connection.worker.log_access(|| LogLine {
        client: client.peer_address(),
        provider: upstream.plan.stats.name(),
        host: &upstream.plan.host_field,
        consumer: Some(&*consumer).filter(|consumer| !consumer.is_empty()),
        request_id: state.request_id.text(),
        method: b"CONNECT",
        target: &target,
        status: 200,
        duration: Moment::now().since(begun),
        sent_bytes: state.response_state.down.moved_bytes,
        upstream_sent_bytes: state.up.moved_bytes,
        upstream_received_bytes: state.response_state.down.read_bytes,
        ..LogLine::default()
    });
}

/// Relays bytes in both directions until both sides have closed, one connection fails, or the tunnel is idle
/// for too long.
pub(crate) async fn relay(
    client: &mut ClientLeg,
    state: &mut RequestState,
    provider: &mut Leg,
    upstream: &Upstream,
) {
    let worker = Rc::clone(&client.connection.worker);
    let counters = upstream.counters();
    counters.tunnels.add(1);
    worker.counters().tunnels.add(1);
    state.up.reset(ResponseFraming::UntilClose, Framing::UntilClose);
    state.take_response_state(&worker.pools);
    state.response_state.down.start(ResponseFraming::UntilClose, Framing::UntilClose);
    provider.start(Framing::UntilClose);
    client.leg.start(Framing::UntilClose);
    let (sent_before, idle) = (state.response_state.down.moved_bytes, upstream.plan.timeouts.idle);
    client.timer.set(Moment::now(), idle);
    let mut ways = Ways { up_open: true, down_open: true, moved_bytes: 0 };
    poll_fn(|cx| ways.poll(cx, client, state, provider, idle)).await;
    worker.counters().received_bytes.add(state.up.read_bytes);
    worker.counters().sent_bytes.add(state.response_state.down.moved_bytes - sent_before);
    counters.sent_bytes.add(state.up.moved_bytes);
    counters.received_bytes.add(state.response_state.down.read_bytes);
    worker.counters().tunnels.sub(1);
}

struct Ways {
    up_open: bool,
    down_open: bool,
    moved_bytes: u64,
}

impl Ways {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut ClientLeg,
        state: &mut RequestState,
        provider: &mut Leg,
        idle: Option<std::time::Duration>,
    ) -> Poll<()> {
        let RequestState { input, up, response_state, .. } = state;
        let ResponseState { output, down, .. } = &mut **response_state;
        let view = client.connection.worker.view();
        let shared = (&client.connection.worker.pools.buffers, &view.plan.trailers);
        if self.up_open {
            let polled = up.poll(cx, &mut client.leg, input, &mut Kept::first(0), provider, shared);
            match end_of_way(cx, polled.map_err(drop), provider) {
                Ok(ended) => self.up_open = !ended,
                Err(()) => return Poll::Ready(()),
            }
        }
        if self.down_open {
            let polled = down.poll(cx, provider, output, &mut Kept::first(0), &mut client.leg, shared);
            match end_of_way(cx, polled.map_err(drop), &mut client.leg) {
                Ok(ended) => self.down_open = !ended,
                Err(()) => return Poll::Ready(()),
            }
        }
        if !self.up_open && !self.down_open {
            return Poll::Ready(());
        }
        // A stream that has ended one direction can still be reset, which nobody who reads it would see.
        let is_reset = (!self.up_open && client.leg.poll_reset(cx).is_ready())
            || (!self.down_open && provider.poll_reset(cx).is_ready());
        if is_reset {
            return Poll::Ready(());
        }
        let moved_bytes = moved(up, down);
        if moved_bytes != self.moved_bytes {
            self.moved_bytes = moved_bytes;
            client.timer.set(Moment::now(), idle);
        }
        if client.timer.poll_expired(cx) { Poll::Ready(()) } else { Poll::Pending }
    }
}

fn moved(up: &Pipe, down: &Pipe) -> u64 {
    up.moved_bytes + down.moved_bytes
}

/// Forwards the end of one direction: shuts down the other side's socket for writing. Returns `true` once
/// that is done.
fn end_of_way(cx: &mut Context<'_>, polled: Poll<Result<(), ()>>, sink: &mut Leg) -> Result<bool, ()> {
    match polled {
        Poll::Pending => Ok(false),
        Poll::Ready(Err(())) => Err(()),
        Poll::Ready(Ok(())) => match sink.poll_finish(cx) {
            Poll::Ready(ended) => ended.map(|()| true).map_err(drop),
            Poll::Pending => Ok(false),
        },
    }
}

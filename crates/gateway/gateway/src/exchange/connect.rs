//! Requests that are not forwarded: those that cannot be routed or admitted are refused, and CONNECT opens a
//! tunnel, or is answered in the destination's place.

use std::rc::Rc;
use std::sync::Arc;

use egret_clock::Moment;
use egret_http1::Span;
use egret_message::authority::Authority;
use egret_net::policy::{EgressTarget, Verdict};
use egret_observe::failure::{ErrorKind, Failure};
use egret_remedy::AnyRun;
use rustls::ServerConfig;
use tracing::debug;

use crate::downstream::connection::{ClientLeg, End};
use crate::downstream::intercept::{self, Start};
use crate::exchange::call::Call;
use crate::exchange::reply::{Ended, Then, respond_with_error};
use crate::exchange::serve::{Closing, close, finish_recording};
use crate::exchange::{flows, tunnel};
use crate::state::request::RequestState;
use crate::worker::ExchangeSlot;
use egret_upstream::{CallTarget, Connection, Upstream, View};

/// Relays bytes between the client and the provider, which have agreed on another protocol.
pub(super) async fn relay(
    client: &mut ClientLeg,
    state: &mut RequestState,
    connection: Box<Connection>,
    upstream: Rc<Upstream>,
    held: Vec<AnyRun>,
) -> End {
    let mut leg = connection.leg;
    tunnel::relay(client, state, &mut leg, &upstream).await;
    // The call is over at the provider, and what the remedies hold for it is free.
    drop((leg, held));
    End::Close
}

/// Responds with an error to a request that could not be routed or admitted.
pub(super) async fn refuse(
    client: &mut ClientLeg,
    state: &mut RequestState,
    view: &Rc<View>,
    failure: &Failure,
    target: Option<&CallTarget>,
    begun: Moment,
) -> End {
    let unrouted = Rc::clone(&view.unrouted);
    if client.connection.has_sent_no_connect() {
        return fail_silently(client, state, view, unrouted, failure, begun).await;
    }
    let mut call = Call::new(client, state, Rc::clone(view), unrouted, begun);
    if let Some(target) = target {
        call.answer_for(target);
    }
    if call.client.leg.is_stream() {
        call.note_grpc();
    }
    flows::record_only(&mut call, target);
    let ended = respond_with_error(&mut call, failure).await;
    match close(&mut call, target, None, ended) {
        Closing::End(end) => end,
        Closing::Relay { .. } => End::Close,
    }
}

/// Serves CONNECT: serves the requests inside the tunnel, or opens a connection to `authority` and relays
/// bytes in both directions.
pub(super) async fn connect(
    client: &mut ClientLeg,
    state: &mut RequestState,
    view: &Rc<View>,
    authority: Authority,
    begun: Moment,
) -> End {
    let provider = view.plan.table.by_authority(&authority).map(|number| &view.plan.providers[number]);
    let config = intercept::tls_for(client, view, &authority, provider.is_some());
    let is_intercepted = config.is_some();
    if is_intercepted && client.leg.is_stream() {
        let detail = "the tunnel is to be intercepted, for which HTTP/1.1 is needed outside of it";
        let failure = Failure::new(ErrorKind::ConnectNotAllowed, detail);
        return refuse(client, state, view, &failure, None, begun).await;
    }
    let started = match config {
        Some(config) => {
            let target = EgressTarget { authority: &authority, configured: provider.is_some() };
            Box::pin(start_inside(client, state, view, &target, config)).await
        }
        None => Ok(Start::Relay),
    };
    let upstream = match started {
        Ok(Start::Requests) if client.leg.begins_http2() => return End::Http2,
        Ok(Start::Requests) => return End::Persist,
        Ok(Start::End(end)) => return end,
        Ok(Start::Relay) | Err(_) => {
            tunnel::upstream(view, authority, provider, client.connection.worker.number)
        }
    };
    if let Err(failure) = started {
        let target = CallTarget::whole(upstream, Span::default());
        return refuse(client, state, view, &failure, Some(&target), begun).await;
    }
    let opened = async {
        let slot = ExchangeSlot::take(&client.connection.worker, view.plan.limits.exchanges)?;
        let connection =
            tunnel::open(&upstream, view, provider, &client.connection.worker.shared.network).await?;
        Ok::<_, Failure>((slot, connection))
    };
    let (_slot, connection) = match opened.await {
        Ok(opened) => opened,
        Err(failure) if is_intercepted || client.connection.has_sent_no_connect() => {
            return fail_silently(client, state, view, upstream, &failure, begun).await;
        }
        Err(failure) => {
            let target = CallTarget::whole(upstream, Span::default());
            return refuse(client, state, view, &failure, Some(&target), begun).await;
        }
    };
    let own_end = || connection.leg.socket().and_then(|socket| socket.local_addr().ok());
    let _noted = client
        .connection
        .has_sent_no_connect()
        .then(|| client.connection.worker.shared.loops.note(own_end()));
    upstream.counters().exchange(state.request.method, 200);
    if view.plan.discovers {
        tunnel::tally(&client.connection.worker, state, &upstream, begun);
    }
    if provider.is_some() {
        tunnel::note_bypass(&client.connection.worker, view, &upstream);
    }
    let established = tunnel::established(&state.request_id);
    let is_established =
        is_intercepted || client.connection.has_sent_no_connect() || client.send_all(&established).await;
    let mut call = Call::new(&mut *client, &mut *state, Rc::clone(view), Rc::clone(&upstream), begun);
    // The tunnel's contents are not inspected.
    flows::record_only(&mut call, Some(&CallTarget::whole(Rc::clone(&upstream), Span::default())));
    let now = Moment::now();
    call.note_established(&connection, &established, now);
    finish_recording(&mut call, None, None, 200, now);
    if !is_established {
        return End::Close;
    }
    tunnel::serve(client, state, *connection, &upstream, begun).await;
    End::Close
}

/// Opens the inside of a tunnel to `target`, unless the policy denies the host. Addresses are checked once
/// a request is sent there.
async fn start_inside(
    client: &mut ClientLeg,
    state: &mut RequestState,
    view: &View,
    target: &EgressTarget<'_>,
    config: Arc<ServerConfig>,
) -> Result<Start, Failure> {
    if let Verdict::Deny(reason) = view.plan.other_hosts.policy().check_host(target) {
        return Err(client.connection.worker.shared.network.denied(
            client.connection.worker.number,
            target,
            reason,
        ));
    }
    if !client.connection.has_sent_no_connect()
        && !client.send_all(&tunnel::established(&state.request_id)).await
    {
        return Ok(Start::End(End::Close));
    }
    Ok(intercept::start(client, state, target.authority.clone(), config).await)
}

/// Ends a tunnel that cannot be opened although its client has received a 200, or thinks that it is talking
/// to the destination: it waits for bytes of the destination, so no error response can be sent.
async fn fail_silently(
    client: &mut ClientLeg,
    state: &mut RequestState,
    view: &Rc<View>,
    upstream: Rc<Upstream>,
    failure: &Failure,
    begun: Moment,
) -> End {
    debug!(error = failure.kind.slug(), "a tunnel cannot be relayed: {}", failure.detail);
    if client.connection.has_sent_no_connect() && failure.kind == ErrorKind::EgressDenied {
        intercept::deny(client, state).await;
    }
    let target = CallTarget::whole(Rc::clone(&upstream), Span::default());
    let mut call = Call::new(client, state, Rc::clone(view), upstream, begun);
    flows::record_only(&mut call, Some(&target));
    call.note_failed(failure.kind);
    close(&mut call, Some(&target), None, Ended { status: 0, at: Moment::now(), then: Then::Close });
    End::Close
}

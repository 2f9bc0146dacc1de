//! Clients that have to prove who they are: each request is judged, and goes on under the name that its
//! client has proven.

use std::sync::Arc;

use egret_clients::{ADDED_BYTES_MAX, ADDED_FIELDS_MAX, Clients, JwtMemory, Proven, Unproven};
use egret_clock::Timestamp;
use egret_http1::Method;
use egret_match::routing_query;
use egret_net::event_loop::now;
use egret_observe::failure::{ErrorKind, Failure};
use egret_plan::{ListenerPlan, Plan};
use tracing::debug;

use crate::downstream::connection::ClientLeg;
use crate::exchange::query;
use crate::exchange::rewritten::{self, Added};
use crate::state::request::{Pools, RequestState};

/// Returns the client that has sent the request in `state`, or the response that it gets if it has not proven
/// who it is.
///
/// A request proves its client by itself, for each has its own token. The connection proves it where the
/// client has shown a certificate or is the user of a Unix socket, and inside a tunnel, for which its CONNECT
/// has proven it. What a connection has proven is judged again for each request, so a reload takes it back.
pub(super) fn prove(
    client: &ClientLeg,
    state: &mut RequestState,
    clients: &Clients,
) -> Result<Arc<Proven>, Failure> {
    let is_inside = client.connection.inside().is_some();
    let worker = &client.connection.worker;
    let now = worker.shared.clock.timestamp(now::turned());
    let mut jwts = worker.pools.jwts.borrow_mut();
    let by_request = if is_inside {
        None
    } else {
        clients.of_request(&state.request, state.input.filled(), &mut jwts, now)
    };
    let by_connection_only = by_request.is_none();
    let judged = by_request.unwrap_or_else(|| by_connection(client, clients, &mut jwts, now));
    drop(jwts);
    // A stream shares its connection with requests of which each proves its client by itself.
    if !is_inside && state.request.method == Method::Connect && !client.leg.is_stream() {
        client.connection.set_proven(judged.as_ref().ok().map(Arc::clone));
    }
    judged.map_err(|why| {
        client.connection.worker.counters().unproven(why);
        debug!(reason = why.slug(), "a client has not proven who it is");
        // Nothing that follows on the connection can prove more.
        state.request.persistent &= !by_connection_only;
        unproven(clients, why)
    })
}

/// Returns the response to a client that has not proven who it is.
pub(crate) fn unproven(clients: &Clients, why: Unproven) -> Failure {
    let challenges = clients.challenges().iter();
    let fields = challenges.map(|challenge| (&b"Proxy-Authenticate"[..], challenge.as_bytes()));
    Failure::new(ErrorKind::ClientUnproven, why.to_string()).with_fields(fields)
}

/// Replaces the head of a request on a listener that asks its clients for a proof: it names the client that
/// is `proven`, if any, and holds no token and no routing parameters. Fails if nothing is proven. The request
/// is inside a tunnel if `is_inside`.
pub(crate) fn admit(
    pools: &Pools,
    state: &mut RequestState,
    plan: &Plan,
    listener: Option<&ListenerPlan>,
    is_inside: bool,
    proven: Result<Option<&str>, &Failure>,
) -> Result<(), Failure> {
    // Without a proof, parameters stay as they are; fields of excluded products are removed in any case.
    let routed = query::apply(pools, state, listener, plan, is_inside || proven.is_err());
    settle(pools, state, plan, proven.ok().flatten())?;
    proven.map_err(Failure::clone)?;
    routed
}

fn by_connection(
    client: &ClientLeg,
    clients: &Clients,
    jwts: &mut JwtMemory,
    now: Timestamp,
) -> Result<Arc<Proven>, Unproven> {
    let proven = client.connection.proven().ok_or(clients.without_proof())?;
    clients.confirm(&proven, jwts, now)?;
    Ok(proven)
}

/// Replaces the head of the request by one that names the `proven` client, and holds no token.
fn settle(pools: &Pools, state: &mut RequestState, plan: &Plan, proven: Option<&str>) -> Result<(), Failure> {
    if let Err(failure) = replace(pools, state, plan, proven) {
        // Without an addition it is shorter than what was received, and no token is recorded.
        state.request.persistent = false;
        return replace(pools, state, plan, None).and(Err(failure));
    }
    Ok(())
}

fn replace(
    pools: &Pools,
    state: &mut RequestState,
    plan: &Plan,
    proven: Option<&str>,
) -> Result<(), Failure> {
    let RequestState { input, request, .. } = state;
    let (received_len, persistent) = (request.len, request.persistent);
    let head = egret_clients::settle(request, input.filled(), proven, &mut pools.edits.borrow_mut());
    // Routing parameters may have been replaced before.
    let added = Added {
        bytes: routing_query::ADDED_BYTES_MAX + ADDED_BYTES_MAX,
        fields: routing_query::ADDED_FIELDS_MAX + ADDED_FIELDS_MAX,
    };
    let mut parsed = rewritten::parse(&head, &plan.head_limits, added, "the request cannot be rewritten")?;
    parsed.persistent = persistent;
    *request = parsed;
    pools.buffers.replace_front(input, received_len, &head);
    Ok(())
}

//! Clients that have to prove who they are: each request is judged.

use std::sync::Arc;

use egret_clients::{Clients, JwtMemory, Proven, Unproven};
use egret_clock::Timestamp;
use egret_http1::Method;
use egret_net::event_loop::now;
use egret_observe::failure::{ErrorKind, Failure};
use tracing::debug;

use crate::downstream::connection::ClientLeg;
use crate::state::request::RequestState;

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

//! Clients that have to prove who they are: each request is judged, and goes on under the name that its
//! client has proven.

use std::sync::Arc;

use egret_clients::{ADDED_BYTES_MAX, ADDED_FIELDS_MAX, Clients, Proven, Unproven};
use egret_clock::Moment;
use egret_http1::Method;
use egret_match::routing_query;
use tracing::debug;

use crate::downstream::connection::Client;
use crate::exchange::rewritten::{self, Added};
use crate::failure::{ErrorKind, Failure};
use crate::state::request::RequestState;
use crate::view::View;

/// Returns the client that has sent the request in `state`, or the response that it gets if it has not proven
/// who it is.
///
/// A request proves its client by itself, for each has its own token. The connection proves it where the
/// client has shown a certificate, and inside a tunnel, for which its CONNECT has proven it. What a
/// connection has proven is judged again for each request, so a reload takes it back.
pub(super) fn prove(
    client: &mut Client,
    state: &mut RequestState,
    clients: &Clients,
) -> Result<Arc<Proven>, Failure> {
    let is_inside = client.inside.is_some();
    let by_request = if is_inside { None } else { clients.of_request(&state.request, state.input.filled()) };
    let by_connection_only = by_request.is_none();
    let judged = match by_request {
        Some(judged) => judged.map(Arc::clone),
        None => by_connection(client, clients),
    };
    if !is_inside && state.request.method == Method::Connect {
        client.proven = judged.as_ref().ok().map(Arc::clone);
    }
    judged.map_err(|unproven| {
        client.worker.counters().unproven(unproven);
        debug!(reason = unproven.slug(), "a client has not proven who it is");
        // Nothing that follows on the connection can prove more.
        state.request.persistent &= !by_connection_only;
        let challenges = clients.challenges().iter();
        let fields = challenges.map(|challenge| (&b"Proxy-Authenticate"[..], challenge.as_bytes()));
        Failure::new(ErrorKind::ClientUnproven, unproven.to_string()).with_fields(fields)
    })
}

fn by_connection(client: &Client, clients: &Clients) -> Result<Arc<Proven>, Unproven> {
    let proven = client.proven.as_ref().ok_or(Unproven::Withdrawn)?;
    clients.confirm(proven, client.worker.shared.clock.timestamp(Moment::now()))?;
    Ok(Arc::clone(proven))
}

/// Replaces the head of the request by one that names the `proven` client, and holds no token.
pub(super) fn settle(
    client: &Client,
    state: &mut RequestState,
    view: &View,
    proven: Option<&str>,
) -> Result<(), Failure> {
    if let Err(failure) = replace(client, state, view, proven) {
        // Without an addition it is shorter than what was received, and no token is recorded.
        state.request.persistent = false;
        return replace(client, state, view, None).and(Err(failure));
    }
    Ok(())
}

fn replace(
    client: &Client,
    state: &mut RequestState,
    view: &View,
    proven: Option<&str>,
) -> Result<(), Failure> {
    let RequestState { input, request, .. } = state;
    let (received_len, persistent) = (request.len, request.persistent);
    let pools = &client.worker.pools;
    let head = egret_clients::settle(request, input.filled(), proven, &mut pools.edits.borrow_mut());
    // Routing parameters may have been replaced before.
    let added = Added {
        bytes: routing_query::ADDED_BYTES_MAX + ADDED_BYTES_MAX,
        fields: routing_query::ADDED_FIELDS_MAX + ADDED_FIELDS_MAX,
    };
    let mut parsed =
        rewritten::parse(&head, &view.plan.head_limits, added, "the request cannot be rewritten")?;
    parsed.persistent = persistent;
    *request = parsed;
    pools.buffers.replace_front(input, received_len, &head);
    Ok(())
}

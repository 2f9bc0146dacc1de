//! Requests whose head the gateway has written in place of the received one: such that name their provider by
//! query parameters, and those of clients that have proven who they are.

use egret_clients as clients;
use egret_http1::{HeadLimits, Progress, RequestHead};
use egret_match::routing_query::{self, Rewritten, rewrite};
use egret_observe::failure::{ErrorKind, Failure};
use egret_plan::{ListenerPlan, ListenerRouting, Plan};

use crate::state::request::{Pools, RequestState};

/// Removes the fields of products that `gateway.compat` excludes from the request in `state`. Replaces its
/// routing parameters if its `listener` has them and it `is_inside` no tunnel. Nothing sees either before.
pub(super) fn route_by_query(
    pools: &Pools,
    state: &mut RequestState,
    listener: Option<&ListenerPlan>,
    plan: &Plan,
    is_inside: bool,
) -> Result<(), Failure> {
    let by_query =
        !is_inside && listener.is_some_and(|listener| matches!(listener.routing, ListenerRouting::WithQuery));
    let RequestState { input, request, .. } = state;
    let received_len = request.len;
    let found = rewrite(request, input.filled(), plan.named_fields.compat(), by_query);
    let Some(Rewritten { head, outcome }) = found else { return Ok(()) };
    let added = Added { bytes: routing_query::ADDED_BYTES_MAX, fields: routing_query::ADDED_FIELDS_MAX };
    // Parsed aside: if it fails, the request is refused as it was received.
    *request = parse(&head, &plan.head_limits, added, "the query parameters for routing are invalid")?;
    pools.buffers.replace_front(input, received_len, &head);
    outcome.map_err(|error| Failure::new(ErrorKind::BadRequest, error.to_string()))
}

/// Replaces the head of a request on a listener that asks its clients for a proof: it names the client that
/// is `proven`, if any, and holds no token and no routing parameters. Fails if nothing is proven. The request
/// is inside a tunnel if `is_inside`.
pub(super) fn admit(
    pools: &Pools,
    state: &mut RequestState,
    plan: &Plan,
    listener: Option<&ListenerPlan>,
    is_inside: bool,
    proven: Result<Option<&str>, &Failure>,
) -> Result<(), Failure> {
    // Without a proof, parameters stay as they are; fields of excluded products are removed in any case.
    let routed = route_by_query(pools, state, listener, plan, is_inside || proven.is_err());
    settle(pools, state, plan, proven.ok().flatten())?;
    proven.map_err(Failure::clone)?;
    routed
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
    let head = clients::settle(request, input.filled(), proven, &mut pools.edits.borrow_mut());
    // Routing parameters may have been replaced before.
    let added = Added {
        bytes: routing_query::ADDED_BYTES_MAX + clients::ADDED_BYTES_MAX,
        fields: routing_query::ADDED_FIELDS_MAX + clients::ADDED_FIELDS_MAX,
    };
    let mut parsed = parse(&head, &plan.head_limits, added, "the request cannot be rewritten")?;
    parsed.persistent = persistent;
    *request = parsed;
    pools.buffers.replace_front(input, received_len, &head);
    Ok(())
}

/// The part of a head that the gateway has added, and that the limits for clients do not count.
#[derive(Debug, Clone, Copy)]
struct Added {
    bytes: usize,
    fields: usize,
}

/// Parses the whole of `head`. Fails with the `detail` if it is not one head.
fn parse(
    head: &[u8],
    limits: &HeadLimits,
    added: Added,
    detail: &'static str,
) -> Result<RequestHead, Failure> {
    let limits =
        HeadLimits { head: limits.head + added.bytes, fields: limits.fields + added.fields, ..*limits };
    let mut request = RequestHead::new();
    match request.parse(head, &limits).map_err(Failure::bad_request)? {
        Progress::Complete if request.len == head.len() => Ok(request),
        _ => Err(Failure::new(ErrorKind::BadRequest, detail)),
    }
}

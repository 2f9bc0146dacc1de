//! Routing by query parameters: makes a request of it that names its provider by header fields.

use egret_http1::HeadLimits;
use egret_match::routing_query::{ADDED_BYTES_MAX, ADDED_FIELDS_MAX, Rewritten, rewrite};
use egret_observe::failure::{ErrorKind, Failure};
use egret_plan::{ListenerPlan, ListenerRouting};

use crate::exchange::rewritten::{self, Added};
use crate::state::request::{Pools, RequestState};

/// Replaces the routing parameters of the request in `state` if its `listener` has them, before anything else
/// sees them.
pub(crate) fn apply(
    pools: &Pools,
    state: &mut RequestState,
    listener: Option<&ListenerPlan>,
    limits: &HeadLimits,
) -> Result<(), Failure> {
    if !listener.is_some_and(|listener| matches!(listener.routing, ListenerRouting::WithQuery)) {
        return Ok(());
    }
    let RequestState { input, request, .. } = state;
    let received_len = request.len;
    let Some(Rewritten { head, outcome }) = rewrite(request, input.filled()) else { return Ok(()) };
    let added = Added { bytes: ADDED_BYTES_MAX, fields: ADDED_FIELDS_MAX };
    // Parsed aside: if it fails, the request is refused as it was received.
    *request = rewritten::parse(&head, limits, added, "the query parameters for routing are invalid")?;
    pools.buffers.replace_front(input, received_len, &head);
    outcome.map_err(|error| Failure::new(ErrorKind::BadRequest, error.to_string()))
}

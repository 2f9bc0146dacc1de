//! Routing by query parameters: makes a request of it that names its provider by header fields.

use egret_match::routing_query::{ADDED_BYTES_MAX, ADDED_FIELDS_MAX, Rewritten, rewrite};
use egret_observe::failure::{ErrorKind, Failure};
use egret_plan::{ListenerPlan, ListenerRouting, Plan};

use crate::exchange::rewritten::{self, Added};
use crate::state::request::{Pools, RequestState};

/// Removes the fields of products that `gateway.compat` excludes from the request in `state`. Replaces its
/// routing parameters if its `listener` has them and it `is_inside` no tunnel. Nothing sees either before.
pub(crate) fn apply(
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
    let added = Added { bytes: ADDED_BYTES_MAX, fields: ADDED_FIELDS_MAX };
    // Parsed aside: if it fails, the request is refused as it was received.
    *request =
        rewritten::parse(&head, &plan.head_limits, added, "the query parameters for routing are invalid")?;
    pools.buffers.replace_front(input, received_len, &head);
    outcome.map_err(|error| Failure::new(ErrorKind::BadRequest, error.to_string()))
}

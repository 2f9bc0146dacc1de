//! Routing by query parameters: makes a request of it that names its provider by header fields.

use egret_http1::{HeadLimits, RequestHead};
use egret_match::routing_query::{ADDED_BYTES_MAX, ADDED_FIELDS_MAX, Rewritten, rewrite};

use crate::exchange::rewritten::{self, Added};
use crate::failure::{ErrorKind, Failure};
use crate::plan::{ListenerPlan, ListenerRouting};
use crate::state::request::{Pools, RequestState};

/// A request whose routing parameters have been replaced.
pub(crate) struct Translated {
    /// The head without the parameters. It replaces the received one.
    pub head: Vec<u8>,
    /// The error, if the parameters are wrong.
    pub outcome: Result<(), Failure>,
}

/// Replaces the routing parameters of the request in `state`, before anything else sees them.
pub(crate) fn apply(
    pools: &Pools,
    state: &mut RequestState,
    listener: Option<&ListenerPlan>,
    limits: &HeadLimits,
) -> Result<(), Failure> {
    let RequestState { input, request, .. } = state;
    let received_len = request.len;
    let translated = translate(listener, request, input.filled(), limits)?;
    let Some(Translated { head, outcome }) = translated else { return Ok(()) };
    pools.buffers.replace_front(input, received_len, &head);
    outcome
}

/// Replaces the routing parameters of a request that `listener` has received, whose head is at the start of
/// `bytes`. Parses the new head into `request`. Returns `None` if there is nothing to replace.
pub(crate) fn translate(
    listener: Option<&ListenerPlan>,
    request: &mut RequestHead,
    bytes: &[u8],
    limits: &HeadLimits,
) -> Result<Option<Translated>, Failure> {
    if !listener.is_some_and(|listener| matches!(listener.routing, ListenerRouting::WithQuery)) {
        return Ok(None);
    }
    let Some(Rewritten { head, outcome }) = rewrite(request, bytes) else { return Ok(None) };
    let added = Added { bytes: ADDED_BYTES_MAX, fields: ADDED_FIELDS_MAX };
    // Parsed aside: if it fails, the request is refused as it was received.
    *request = rewritten::parse(&head, limits, added, "the query parameters for routing are invalid")?;
    let outcome = outcome.map_err(|error| Failure::new(ErrorKind::BadRequest, error.to_string()));
    Ok(Some(Translated { head, outcome }))
}

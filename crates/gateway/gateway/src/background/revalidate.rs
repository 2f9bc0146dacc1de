//! Background calls that refresh a stored response for later requests. They are exchanges like any other,
//! with a client that ignores the response.

use std::rc::Rc;

use egret_clock::Moment;
use tracing::debug;

use crate::background::internal_call::InternalClient;
use crate::exchange::call::Call;
use crate::exchange::flows;
use crate::state::follow_up::Revalidation;
use crate::worker::Worker;

/// Makes the call that `order` has, on `worker`.
pub(crate) async fn revalidate(order: Revalidation, worker: Rc<Worker>) {
    let has_run = run(order, &worker).await;
    debug!(has_run, "a background revalidation has ended");
    worker.has_revalidated();
}

/// Makes the call. Returns `true` if it was made.
async fn run(order: Revalidation, worker: &Rc<Worker>) -> bool {
    let Revalidation { view, target, request, listener, client: peer, matches, background, outer } = order;
    // The request was parsed and accepted before.
    let limits = &view.plan.head_limits;
    let named = &view.plan.named_fields;
    let Some(mut internal) = InternalClient::new(worker, named, limits, &request, listener, peer) else {
        return false;
    };
    drop(request);
    let upstream = Rc::clone(&target.upstream);
    let InternalClient { client, state } = &mut internal;
    let call = Call::new(client, state, view, upstream, Moment::now());
    let has_run = flows::revalidate(call, &target, matches, background, &outer).await;
    internal.end(worker);
    has_run
}

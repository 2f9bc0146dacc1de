//! Background calls that refresh a stored response for later requests. They are exchanges like any other,
//! with a client that ignores the response.

use std::rc::Rc;

use egret_clock::Moment;
use tracing::debug;

use crate::background::internal_call::InternalClient;
use crate::exchange::call::Call;
use crate::exchange::flows;
use crate::exchange::serve::close;
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
    let has_run = {
        let InternalClient { client, state } = &mut internal;
        let mut call = Call::new(client, state, view, upstream, Moment::now());
        let ended = flows::revalidate(&mut call, &target, matches, background, &outer).await;
        let has_run = ended.is_some();
        if let Some((run, ended)) = ended {
            close(&mut call, None, Some(run), ended);
        }
        has_run
    };
    internal.end(worker);
    has_run
}

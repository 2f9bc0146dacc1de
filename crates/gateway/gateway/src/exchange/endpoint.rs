//! The endpoint of a call, if its provider has several: chooses it, and learns from what came of the call.

use std::borrow::Cow;
use std::rc::Rc;
use std::time::Duration;

use egret_accounts::wanted_pause;
use egret_clock::Moment;
use egret_message::grpc::GrpcStatus;
use egret_message::{ErrorKind, FailureKind, Fields, Response};
use egret_upstream::{CallTarget, Connection, EndpointCall};

use crate::exchange::call::Call;
use crate::exchange::stop::Stop;
use crate::state::flow_run::FlowRun;

/// Chooses the endpoint of the call to `target`. A host that the client has chosen, or a path below another
/// provider's URL, belongs to the provider's own URL.
pub(crate) fn choose<'t>(run: &mut FlowRun, target: Cow<'t, CallTarget>) -> Cow<'t, CallTarget> {
    if !target.upstream.has_endpoints() || target.kept_host.is_some() || target.based_on.is_some() {
        return target;
    }
    let roll = run.draft.random.draw();
    let Some(endpoint) = EndpointCall::choose(&target.upstream, &run.tried_endpoints, roll, Moment::now())
    else {
        return target;
    };
    let upstream = Rc::clone(endpoint.upstream());
    run.tried_endpoints.push(Rc::clone(&upstream));
    run.endpoint = Some(endpoint);
    if Rc::ptr_eq(&upstream, &target.upstream) {
        return target;
    }
    Cow::Owned(CallTarget { upstream, new_target: true, has_own_host: false, ..target.into_owned() })
}

/// Notes for the endpoint of a call what came of it. Returns `true` if nothing was sent because there was no
/// connection, and another endpoint is left to try.
pub(crate) fn is_left(call: &Call<'_>, run: &mut FlowRun, called: &Result<Box<Connection>, Stop>) -> bool {
    let Some(endpoint) = run.endpoint.take() else { return false };
    let (now, asked) = (Moment::now(), call.clock.sent.max(call.clock.uploaded));
    let failure = match called {
        Ok(_) => {
            let is_failed_grpc = call.grpc_outcome().status().is_some_and(GrpcStatus::is_failure);
            let status = if is_failed_grpc { 500 } else { call.state.response_state.response.status };
            let latency = call.clock.first_byte.since(asked);
            endpoint.note_response(status, latency, pause(call, run, now), now);
            return false;
        }
        Err(Stop::Failure(failure)) => failure,
        Err(stop) => {
            match stop {
                Stop::ClientGone if !call.is_uploading() => endpoint.note_given_up(asked, now),
                // Nothing came of the call, and that is not the endpoint's fault.
                Stop::Stale | Stop::NotPermitted => drop(run.tried_endpoints.pop()),
                _ => {}
            }
            return false;
        }
    };
    let is_unreachable = failure.kind.is_before_sending() || failure.kind == ErrorKind::EgressDenied;
    match failure.kind.failure() {
        FailureKind::Refused if failure.kind == ErrorKind::TotalTimeout => {
            if !call.is_uploading() {
                endpoint.note_given_up(asked, now);
            }
            return false;
        }
        FailureKind::Refused if !is_unreachable => return false,
        _ => {}
    }
    let has_other = endpoint.has_other();
    let is_late = failure.kind.failure() == FailureKind::Timeout && !is_unreachable;
    endpoint.note_failure(is_unreachable, if is_late { now.since(asked) } else { Duration::ZERO }, now);
    is_unreachable && has_other && call.upload.is_repeatable()
}

/// Returns the time for which the endpoint wants no further calls, if its response says so.
fn pause(call: &Call<'_>, run: &FlowRun, now: Moment) -> Option<Duration> {
    let (head, output) = (&call.state.response_state.response, &call.state.response_state.output);
    let fields = Fields::received(&head.fields, output.filled());
    let asks = matches!(head.status, 429 | 503) && fields.get(b"retry-after").is_some();
    if !asks && run.draft.call.account.is_some() {
        // The allowance that it tells is that of the account.
        return None;
    }
    let response = Response { status: head.status, fields, body: None };
    let readers = run.conventions(&call.view.plan.flows).map(|known| &known.readers);
    let now = call.client.connection.worker.shared.clock.timestamp(now);
    Some(wanted_pause(&response, readers, now)?.since(now))
}

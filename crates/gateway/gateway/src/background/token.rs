//! Fetches the tokens of accounts, some in several steps. A token endpoint is reached like a provider, with
//! the gateway's name resolution, egress policy, TLS and timeouts, but without flows.

use std::rc::Rc;

use egret_accounts::token::{Fetch, FetchedResponse, RESPONSE_BYTES_MAX, TokenError};
use egret_clock::Moment;
use egret_http1::{HeadLimits, RequestFraming};
use egret_match::named_fields::NamedFields;
use egret_message::{Fields, ListenAddress};
use egret_observe::failure::ErrorKind;
use egret_plan::token_origin;
use zeroize::Zeroizing;

use crate::background::internal_call::InternalClient;
use crate::exchange::call::Call;
use crate::exchange::gather::gather_response;
use crate::exchange::reply::{Ended, Then};
use crate::exchange::serve::close;
use crate::exchange::stop::Stop;
use crate::state::request::{RequestState, ResponseState};
use crate::worker::{UnfinishedCall, Worker};
use egret_body::GatheredBody;
use egret_upstream::{CallTarget, Upstream, View};

/// Fetches a token, unless another gateway of the cluster has, and reports it or the reason why there is
/// none.
pub(crate) async fn fetch_token(fetch: Fetch, worker: Rc<Worker>, view: Rc<View>, listener: ListenAddress) {
    let mut next = fetch.admitted(|| worker.shared.clock.timestamp(Moment::now())).await;
    // The other gateways wait for the outcome, and nobody else may use the refresh token.
    let is_shared = next.as_ref().is_some_and(Fetch::is_shared);
    let _ending = is_shared.then(|| UnfinishedCall::new(Rc::clone(&worker)));
    while let Some(fetch) = next {
        let fetched = run(&fetch, &worker, &view, listener).await;
        let response = fetched.as_ref().map(FetchedResponse::borrowed);
        let now = worker.shared.clock.timestamp(Moment::now());
        next = fetch.end(now, response.map_err(|trouble| *trouble));
    }
}

/// Returns the configured provider at the endpoint, or an upstream for the endpoint itself.
fn upstream(fetch: &Fetch, worker: &Worker, view: &View) -> Option<Rc<Upstream>> {
    // The endpoint was validated with the config.
    let origin = token_origin(fetch.endpoint()).ok()?;
    let plan = &view.plan;
    let is_of_machine = fetch.is_of_machine();
    let provider = plan.table.origin_number(&origin).and_then(|number| plan.table.owners(number).widest());
    if let Some(number) = provider.filter(|_| !is_of_machine) {
        return Some(Rc::clone(&view.upstreams[number]));
    }
    let endpoint = plan.other_hosts.endpoint(origin, is_of_machine);
    Some(Rc::new(Upstream::new(endpoint.into(), worker.number)))
}

/// Makes the call.
async fn run(
    fetch: &Fetch,
    worker: &Rc<Worker>,
    view: &Rc<View>,
    listener: ListenAddress,
) -> Result<FetchedResponse, TokenError> {
    let timeout_at = Moment::now() + fetch.timeout();
    let unreachable = || TokenError::Unreachable(ErrorKind::ConnectFailed.slug());
    let upstream = upstream(fetch, worker, view).ok_or_else(unreachable)?;
    let request = fetch.request()?;
    // No limits or fields of the config, which must neither reject the gateway's own request nor change it.
    let (named, limits) = (NamedFields::default(), HeadLimits::default());
    let internal = InternalClient::new(worker, &named, &limits, &request, listener, None);
    let mut internal = internal.ok_or_else(unreachable)?;
    drop(request);
    let is_whole = !matches!(internal.state.request.framing, RequestFraming::Chunked);
    let fetched = if is_whole {
        let target = CallTarget::whole(Rc::clone(&upstream), internal.state.request.target);
        let InternalClient { client, state } = &mut internal;
        let mut call = Call::new(client, state, Rc::clone(view), upstream, Moment::now());
        call.end_at(call.deadlines.total.min(timeout_at));
        let fetched = async {
            // Over a new connection, because a reused one may be dead and the request must not be repeated.
            let mut connection = call.obtain_response(&target, true).await.map_err(token_error)?;
            let mut body = GatheredBody::default();
            let max = RESPONSE_BYTES_MAX;
            let gathered = gather_response(&mut call, &mut body, None, &mut connection, max).await;
            gathered.map_err(|_| TokenError::CutShort)?;
            response(call.state, &body)
        }
        .await;
        let status = fetched.as_ref().map_or(0, |response| response.status);
        close(&mut call, None, None, Ended { status, at: Moment::now(), then: Then::Close });
        fetched
    } else {
        Err(unreachable())
    };
    internal.end(worker);
    fetched
}

/// Returns the error of a fetch without a response.
fn token_error(stop: Stop) -> TokenError {
    match stop {
        Stop::Failure(failure) => TokenError::Unreachable(failure.kind.slug()),
        Stop::ClientGone | Stop::Stale | Stop::NotPermitted | Stop::Refused => TokenError::CutShort,
    }
}

/// Returns the response in `state`, whose `body` was gathered.
fn response(state: &RequestState, body: &GatheredBody) -> Result<FetchedResponse, TokenError> {
    let ResponseState { output, response, .. } = &*state.response_state;
    let bytes = output.filled();
    let body = body.whole(bytes).ok_or(TokenError::TooLong)?;
    let retry_after = Fields::received(&response.fields, bytes).get(b"retry-after").map(<[u8]>::to_vec);
    Ok(FetchedResponse { status: response.status, retry_after, body: Zeroizing::new(body.to_vec()) })
}

//! The use of an account for an exchange: its token, and the outcome of its call.

use std::task::{Context, Poll};

use egret_accounts::token::{TokenTurn, TokenWaiter};
use egret_accounts::{Account, reported_pause};
use egret_clock::Timestamp;
use egret_message::Refused;
use egret_message::grpc::GrpcStatus;

use crate::exchange::Exchange;
use crate::remedy::Reaction;

/// Waits until a call can be made with `account`. An account with a token is ready once it has a valid one;
/// all others are ready at once. The remedy keeps `waiting` between calls of this function.
pub(crate) fn poll_ready(
    account: &Account,
    waiting: &mut TokenWaiter,
    exchange: &mut Exchange<'_>,
    cx: &mut Context<'_>,
) -> Poll<Result<(), Refused>> {
    let Some(token) = account.token().filter(|_| exchange.is_for(account)) else {
        return Poll::Ready(Ok(()));
    };
    match token.poll(waiting, exchange.now, cx) {
        TokenTurn::Ready(fetch) => {
            exchange.draft.fetch = fetch.or(exchange.draft.fetch.take());
            Poll::Ready(Ok(()))
        }
        TokenTurn::Wait(fetch, until) => {
            exchange.draft.fetch = fetch.or(exchange.draft.fetch.take());
            exchange.poll_at(until);
            Poll::Pending
        }
        TokenTurn::Refused(refused) => Poll::Ready(Err(refused)),
    }
}

/// Decides how to react to the response to a call with `account`. If the provider rejected the token (RFC
/// 6750 §3.1), another token is fetched and the call is repeated with it, once. A provider that responds with
/// 401 has not acted on the request (RFC 9110 §15.5.2), so any method may be repeated. AWS rejects keys with
/// 403, which can have other causes too: the call is not repeated, and the next one gets new keys.
pub(crate) fn react(account: &Account, waiting: &mut TokenWaiter, exchange: &Exchange<'_>) -> Reaction {
    let is_from_provider = exchange.local_kind.is_none() && exchange.is_for(account);
    let status = exchange.response().filter(|_| is_from_provider).map(|response| response.status);
    let Some(token) = account.token() else { return Reaction::Pass };
    if status == Some(403) && token.has_keys() {
        token.reject(waiting, exchange.now);
    }
    if status == Some(401) && token.reject(waiting, exchange.now) && exchange.repeatable {
        waiting.repeat();
        return Reaction::RepeatSelf;
    }
    Reaction::Pass
}

/// Counts the outcome of the last call, and stores the provider's report of its allowance.
pub fn record_account_outcome(account: &Account, exchange: &Exchange<'_>) {
    let reader = exchange.conventions().and_then(|conventions| conventions.readers.any());
    account.state().record_outcome(&exchange.outcome, exchange.response().as_ref(), reader, exchange.now);
}

/// Returns `true` if a provider has accepted the request.
pub(crate) fn is_accepted(exchange: &Exchange<'_>) -> bool {
    exchange.local_kind.is_none()
        && exchange.response().is_some_and(|response| response.status < 400)
        && exchange.grpc.status().is_none_or(|status| status == GrpcStatus::Ok)
}

/// Returns the time before which the provider wants no further call with an account, from a response that
/// refuses one: the time that it asks for, or the time at which a spent allowance is restored.
pub(crate) fn requested_pause(exchange: &Exchange<'_>) -> Option<Timestamp> {
    let reader = exchange.conventions().and_then(|conventions| conventions.readers.any());
    exchange.retry_after().or_else(|| reported_pause(&exchange.response()?, reader, exchange.now))
}

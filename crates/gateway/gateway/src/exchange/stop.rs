//! The reasons why a call has no response to forward: what they mean for it, and what they are called.

use std::io;

use egret_clock::{Moment, planted};
use egret_http2::{Lost, is_websocket_accepted, websocket_key};
use egret_net::tls::TlsError;
use egret_observe::failure::{ErrorKind, Failure};

use crate::exchange::call::Call;
use crate::exchange::grpc::TOTAL;
use crate::state::request::{RequestState, ResponseState};
use egret_upstream::Connection;

/// The detail of the error for a recorded request of another generation.
pub(crate) const OTHER_GENERATION: &str = "the config was changed over the API since the request was recorded, so it is not sent again: repeat the call itself";

/// Maximum number of times that a request is sent again because the provider has not processed it.
const REFUSALS_MAX: u8 = 2;

/// The reason why there is no response to forward.
pub(crate) enum Stop {
    /// The client gets an error response.
    Failure(Failure),
    /// The client has disconnected, so no response is sent.
    ClientGone,
    /// The reused connection was closed before the provider read the request, as far as the gateway can know.
    Stale,
    /// A permit has ended before the request was sent. The connection is kept.
    NotPermitted,
    /// The provider says that it has not processed the request, which can be sent again.
    Refused,
}

/// The failure of a provider that sends more than `limits.informational` responses before the final one.
pub(super) fn too_many_informational() -> Failure {
    let detail = "the provider sent too many informational responses (`limits.informational`)";
    Failure::new(ErrorKind::BadResponse, detail)
}

/// The failure of a provider that has switched protocols unasked.
pub(super) fn unexpected_switch() -> Failure {
    let detail =
        "the provider switched protocols without a matching request, or before it had received the request";
    Failure::new(ErrorKind::BadResponse, detail)
}

/// The failure of a provider that has not opened a WebSocket, for a client that would take its response for
/// one.
pub(super) fn not_opened() -> Failure {
    let detail = "the provider did not open the WebSocket: its response is a success, but no switch that answers the key";
    Failure::new(ErrorKind::BadResponse, detail)
}

/// Refuses a call of a recorded request that is sent again, unless it goes to the provider of the
/// recorded one. Every call of an exchange passes here, so nothing in the config can take it elsewhere.
#[cold]
pub(super) fn check_pin(call: &Call<'_>) -> Result<(), Stop> {
    let Some(pin) = &call.client.connection.pin else { return Ok(()) };
    if pin.routed.destination == call.upstream.plan.destination {
        return check_generation(call);
    }
    let detail = "a recorded request is sent again to the provider of the recorded call only, and the config now leads elsewhere";
    Err(Stop::Failure(Failure::new(ErrorKind::ResendElsewhere, detail)))
}

/// Refuses a recorded request that is sent again under another generation of the config. No flow and no
/// diagnosis sees it then.
pub(super) fn check_generation(call: &Call<'_>) -> Result<(), Stop> {
    let is_other = |recorded: u64| recorded != call.view.plan.generation;
    match &call.client.connection.pin {
        Some(pin) if is_other(pin.routed.generation) => {
            Err(Stop::Failure(Failure::new(ErrorKind::ResendElsewhere, OTHER_GENERATION)))
        }
        _ => Ok(()),
    }
}

/// Checks that the client has asked for the protocol to which the provider switches.
pub(super) fn check_switch(call: &Call<'_>) -> Result<(), Stop> {
    let RequestState { input, request, up, response_state, .. } = &*call.state;
    let ResponseState { output, response, .. } = &**response_state;
    let upgrades = &call.upstream.plan.upgrades;
    // The rest of the request belongs to the old protocol (RFC 9110 §7.8).
    let is_agreed =
        up.is_complete() && upgrades.are_agreed_on(request, input.filled(), response, output.filled());
    if !is_agreed {
        return Err(Stop::Failure(unexpected_switch()));
    }
    // A client that has opened a stream does not know the key, so nobody else checks the answer to it.
    let is_answer = |key: &[u8]| is_websocket_accepted(&response.fields, output.filled(), key);
    let is_unproven =
        call.client.leg.opens_websocket() && !websocket_key(request, input.filled()).is_some_and(is_answer);
    if is_unproven { Err(Stop::Failure(not_opened())) } else { Ok(()) }
}

/// Returns the reason to stop, after the provider closed the connection before it sent a complete
/// response head.
pub(super) fn provider_closed(call: &Call<'_>, connection: &Connection, error: Option<io::Error>) -> Stop {
    match error.as_ref().and_then(Lost::carried_by) {
        None | Some(Lost::Connection) => {}
        Some(lost) => return provider_refused(call, lost),
    }
    let request = &call.state.request;
    let whole = call.state.up.is_received() && call.upload.is_repeatable();
    let may_repeat = (connection.reused && request.method.is_idempotent()) || planted!(PostRepeated);
    if may_repeat && call.received_bytes == 0 && whole {
        return Stop::Stale;
    }
    let how = match error {
        Some(error) => format!(
            "the connection to the provider failed before a response arrived: {}",
            TlsError::reason_of(&error)
        ),
        None => "the provider closed the connection before a response arrived".to_owned(),
    };
    Stop::Failure(Failure::new(ErrorKind::ProviderClosed, how))
}

/// Returns the reason to stop, after the provider has ended the stream of the call.
#[cold]
fn provider_refused(call: &Call<'_>, lost: Lost) -> Stop {
    if lost == Lost::Http11Required {
        call.upstream.note_http1();
    }
    let is_unprocessed = matches!(lost, Lost::NotProcessed | Lost::Http11Required);
    let can_repeat = call.received_bytes == 0 && call.upload.is_repeatable();
    if is_unprocessed && can_repeat && call.refusals < REFUSALS_MAX {
        return Stop::Refused;
    }
    let kind = match lost {
        Lost::Untranslatable => ErrorKind::BadRequest,
        Lost::Violation(_) | Lost::Flood(_) => ErrorKind::BadResponse,
        _ => ErrorKind::ProviderClosed,
    };
    Stop::Failure(Failure::new(kind, format!("there is no response: {lost}")))
}

/// Returns the reason to stop at `now`, if the exchange or its phase has taken too long. It
/// `waits_for_client` if the request's body is late, and not the provider.
pub(super) fn overdue(call: &Call<'_>, now: Moment, waits_for_client: bool) -> Option<Stop> {
    let (up, deadlines) = (&call.state.up, &call.deadlines);
    let (kind, detail) = if deadlines.total <= now {
        (ErrorKind::TotalTimeout, call.grpc.as_ref().map_or(TOTAL, |grpc| grpc.total_detail(now)))
    } else if deadlines.phase > now {
        return None;
    } else if waits_for_client {
        (ErrorKind::RequestTimeout, "the request body did not arrive in time (`timeouts.idle`)")
    } else if up.is_blocked_on_sink() && !call.upload.is_refused() {
        (ErrorKind::IdleTimeout, "the provider stopped reading the request (`timeouts.idle`)")
    } else if call.is_gathering {
        let detail = "the provider stalled during a response that a flow buffers (`timeouts.idle`)";
        (ErrorKind::IdleTimeout, detail)
    } else {
        (ErrorKind::FirstByteTimeout, "the provider did not respond in time (`timeouts.first_byte`)")
    };
    Some(Stop::Failure(Failure::new(kind, detail)))
}

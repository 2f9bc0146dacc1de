//! Adds the credential of an account to a call, and masks the account's secrets where the provider sends them
//! back.
//!
//! A credential is added at the last moment, and only if the called provider is one of the account's own.
//! Secrets are masked while the response arrives, before remedies, caches, diagnoses or the client see any of
//! it.

use std::sync::Arc;

use egret_accounts::{Account, Applied, Outgoing, SecretPatterns, Unusable, is_unsearchable_charset};
use egret_body::mask_fields;
use egret_clock::{Moment, Timestamp};
use egret_http1::{KnownField, RequestFraming, ResponseFraming};
use egret_message::Fields;
use egret_message::request_target::{split_query, split_target};
use egret_observe::failure::{ErrorKind, Failure};

use crate::exchange::call::Call;
use crate::exchange::stop::Stop;
use crate::state::flow_run::FlowRun;
use crate::state::request::ResponseState;
use egret_upstream::{CallTarget, EmptyPath};

/// Fields removed from the request, because a partial body may begin or end within a secret.
const PART_FIELDS: [&[u8]; 2] = [b"range", b"if-range"];

/// The changes of a credential to a call, and the secrets to mask in its response.
type Prepared = (Option<Applied>, Option<Arc<SecretPatterns>>);

/// Returns the account that the call is made with, if the call is made to one of the account's providers.
pub(crate) fn account<'v>(call: &'v Call<'_>, run: &FlowRun) -> Option<&'v Account> {
    let number = run.draft.call.account?;
    let account = call.view.plan.flows.accounts.get(number)?;
    (run.takes_credentials && account.is_for(call.upstream.plan.provider())).then_some(account)
}

/// Prepares the call that is about to be sent: applies the credential, if an account was chosen, and finds
/// the secrets to mask. If there are any, the provider is asked for a response that can be masked: complete
/// and without a content coding.
pub(crate) fn prepare(call: &Call<'_>, run: &FlowRun, target: &CallTarget) -> Result<Prepared, Stop> {
    let Some(account) = account(call, run) else { return Ok((None, None)) };
    let now = call.client.connection.worker.shared.clock.timestamp(Moment::now());
    let mut applied = apply(account, call, run, target, now).map_err(Stop::Failure)?;
    let mask = if run.draft.call.masks_echoes {
        account.secret_patterns().map_err(|why| {
            let detail = format!("the secrets of the account {} cannot be masked: {why}", account.name());
            Stop::Failure(Failure::new(ErrorKind::AccountUnavailable, detail))
        })?
    } else {
        None
    };
    if mask.is_some() {
        applied.fields.set(b"accept-encoding", b"identity");
        for name in PART_FIELDS {
            applied.fields.remove(name);
        }
    }
    Ok((Some(applied), mask))
}

/// Returns the credential's changes to the request.
fn apply(
    account: &Account,
    call: &Call<'_>,
    run: &FlowRun,
    target: &CallTarget,
    now: Timestamp,
) -> Result<Applied, Failure> {
    let request = &call.state.request;
    let bytes = call.state.input.filled();
    let received_host = || {
        let host = request.fields.iter().find(|field| field.known == KnownField::Host);
        host.map_or(&*target.upstream.plan.host_field, |field| field.value.of(bytes))
    };
    let path = run.draft.target.as_deref().unwrap_or_else(|| target.target.of(bytes));
    let (path, query) = match target.empty_path {
        EmptyPath::Bare => split_query(path),
        EmptyPath::Slash | EmptyPath::Asterisk => split_target(path),
    };
    let received_body = match request.framing {
        RequestFraming::None => Some(&b""[..]),
        RequestFraming::Length(_) | RequestFraming::Chunked => run.body.whole(bytes),
    };
    let outgoing = Outgoing {
        now,
        tls: target.upstream.plan.origin.tls,
        method: request.method_text.of(bytes),
        host: target.host_field(bytes).unwrap_or_else(received_host),
        base: target.base(),
        path,
        query,
        fields: Fields::new(&request.fields, bytes, &run.draft.request),
        body: run.draft.request_body.as_deref().or(received_body),
    };
    let mut applied = Applied::default();
    account.apply(&outgoing, &mut applied).map(|()| applied).map_err(|why| {
        let detail = format!("the account {} cannot be used for this call: {why}", account.name());
        let kind = match why {
            Unusable::BodyTooLarge(_) => ErrorKind::BodyTooLargeToSign,
            Unusable::Fault(_) => ErrorKind::AccountUnavailable,
        };
        Failure::new(kind, detail)
    })
}

/// Masks the head of the received response. Fails if its body could not be masked.
pub(crate) fn mask_response(
    response_state: &mut ResponseState,
    mask: &Arc<SecretPatterns>,
) -> Result<(), Failure> {
    let ResponseState { output, response, .. } = response_state;
    let has_body = !matches!(response.framing, ResponseFraming::None | ResponseFraming::Length(0));
    let fields = Fields::received(&response.fields, output.filled());
    let what = match response.status {
        101 => "switches protocols",
        206 if has_body => "is partial content",
        _ if has_body && fields.is_encoded() => "has a content coding that was not requested",
        _ if has_body && fields.all(b"content-type").any(is_unsearchable_charset) => {
            "has a charset that is not based on ASCII"
        }
        _ => {
            mask_fields(response, output.filled_mut(), mask);
            return Ok(());
        }
    };
    let detail = format!(
        "the provider's response {what}, so the account's secrets cannot be masked in it (`mask_echoes`)"
    );
    Err(Failure::new(ErrorKind::EchoUnreadable, detail))
}

//! Adds the credential of an account to a request at the last moment: for each attempt, and only if the
//! called provider is one of the account's own.

use egret_accounts::{Account, Applied, Outgoing};
use egret_http1::{KnownField, RequestFraming};
use egret_message::Fields;
use egret_message::request_target::{split_query, split_target};

use crate::exchange::call::{Exchange, Stop};
use crate::exchange::target::{CallTarget, EmptyPath};
use crate::failure::{ErrorKind, Failure};
use egret_net::event_loop::now;

impl Exchange<'_> {
    /// Returns the account of the call that is about to be sent, if the call is made to one of the account's
    /// providers.
    pub fn account(&self) -> Option<&Account> {
        let number = self.flow_run.as_ref()?.draft.call.account?;
        let account = self.view.plan.flows.accounts.get(number)?;
        (self.takes_credentials && account.is_for(self.upstream.plan.provider())).then_some(account)
    }

    /// Returns the credential's changes to the request, if an account was chosen for it.
    pub(super) fn authenticate(&self, forward: &CallTarget) -> Result<Option<Applied>, Stop> {
        let (Some(account), Some(flow_run)) = (self.account(), &self.flow_run) else { return Ok(None) };
        let request = &self.state.request;
        let bytes = self.state.input.filled();
        let received_host = || {
            let host = request.fields.iter().find(|field| field.known == KnownField::Host);
            host.map_or(&*forward.upstream.plan.host_field, |field| field.value.of(bytes))
        };
        let target = flow_run.draft.target.as_deref().unwrap_or_else(|| forward.target.of(bytes));
        let (path, query) = match forward.empty_path {
            EmptyPath::Bare => split_query(target),
            EmptyPath::Slash | EmptyPath::Asterisk => split_target(target),
        };
        let received_body = match request.framing {
            RequestFraming::None => Some(&b""[..]),
            RequestFraming::Length(_) | RequestFraming::Chunked => flow_run.body.whole(bytes),
        };
        let plan = &forward.upstream.plan;
        let outgoing = Outgoing {
            now: self.client.worker.shared.clock.timestamp(now::turned()),
            tls: plan.origin.tls,
            method: request.method_text.of(bytes),
            host: forward.host_field(bytes).unwrap_or_else(received_host),
            base: forward.base(),
            path,
            query,
            fields: Fields::new(&request.fields, bytes, &flow_run.draft.request),
            body: flow_run.draft.request_body.as_deref().or(received_body),
        };
        let mut applied = Applied::default();
        match account.apply(&outgoing, &mut applied) {
            Ok(()) => Ok(Some(applied)),
            Err(fault) => {
                let detail =
                    format!("the account {} cannot be used for this call: {}", account.name(), fault.0);
                Err(Stop::Failure(Failure::new(ErrorKind::AccountUnavailable, detail)))
            }
        }
    }
}

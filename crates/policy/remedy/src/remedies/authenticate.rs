//! `authenticate`: makes calls with an account's credential, so the application needs none.
//!
//! The remedy only chooses the account. The gateway adds the credential when the request is sent, and only to
//! that account's providers.

use std::task::{Context, Poll};

use egret_accounts::AccountUse;
use egret_accounts::token::TokenWaiter;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::account_use;
use crate::exchange::Exchange;
use crate::remedy::{CompileContext, Mode, NamedPart, Needs, Reaction, Remedy, Step};

/// Bytes of a request's body that are kept for repeating the call after a refused token.
const REPLAY_BYTES: usize = 64 << 10;

/// The account that calls use. Credentials that the client sends under the same names are removed. A call to
/// a provider that the account is not for is sent without it. Of several `authenticate`, the innermost one
/// whose account is for the called provider chooses. A text alone is its `account`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(rename = "short form: account")]
#[schemars(rename = "AuthenticateConfig", transform = egret_config::or_text)]
pub struct AuthenticateConfig {
    /// Name of the account.
    #[schemars(extend("x-tier" = "everyday"))]
    pub account: String,
    /// Masks the account's secrets in responses with asterisks of the same length: literal, percent-encoded,
    /// JSON-escaped and in Base64. Part of a body that does not consist of lines is held back. The gateway
    /// asks the provider for an unencoded and complete response. A response that nevertheless has a content
    /// coding, is partial, switches protocols or has a charset like UTF-16 is refused (`echo-unreadable`).
    /// Each secret must have at least 8 bytes.
    #[serde(default)]
    pub mask_echoes: bool,
}

/// Makes calls with an account's credential.
#[derive(Debug)]
pub struct Authenticate {
    account: usize,
    masks_echoes: bool,
    request_body_max: usize,
    /// For the description.
    name: String,
    kind: &'static str,
    /// `true` if the account has a token, which a provider may reject before its end.
    has_token: bool,
    mode: Mode,
}

/// State of one exchange.
#[derive(Debug, Default)]
pub struct AuthenticateRun {
    /// The account, if the called provider is one of its providers.
    used: Option<AccountUse>,
    /// Its token.
    token: TokenWaiter,
}

impl Remedy for Authenticate {
    type Config = AuthenticateConfig;
    type Run = AuthenticateRun;

    const CHOOSES_ACCOUNT: bool = true;

    fn names(config: &AuthenticateConfig) -> Vec<NamedPart<'_>> {
        vec![NamedPart::Account(&config.account)]
    }

    fn compile(config: &AuthenticateConfig, context: &mut CompileContext<'_>) -> Option<Self> {
        let account = context.account("account", &config.account)?;
        let found = context.accounts.get(account)?;
        let (kind, request_body_max) = (found.kind(), found.request_body_max());
        let has_token = found.token().is_some();
        if config.mask_echoes && !context.can_mask_echoes(found) {
            return None;
        }
        let masks_echoes = config.mask_echoes;
        let (name, mode) = (config.account.clone(), context.mode);
        Some(Self { account, masks_echoes, request_body_max, name, kind, has_token, mode })
    }

    fn describe(&self) -> String {
        let masks = if self.masks_echoes { ", and masks its secrets in responses" } else { "" };
        format!("calls with the account {} ({}){masks}", self.name, self.kind)
    }

    fn needs(&self) -> Needs {
        let replay = if self.has_token { REPLAY_BYTES } else { 0 };
        Needs { request_body: self.request_body_max, replay, ..Needs::default() }
    }

    fn request(
        &self,
        exchange: &mut Exchange<'_>,
        held: &mut AuthenticateRun,
        cx: &mut Context<'_>,
    ) -> Poll<Step> {
        if !self.chooses(exchange) {
            return Poll::Ready(Step::Next);
        }
        exchange.draft.call.account = Some(self.account);
        exchange.draft.call.masks_echoes = self.masks_echoes;
        let account = exchange.called_account().filter(|_| self.mode == Mode::Enforce);
        let Some(account) = account else { return Poll::Ready(Step::Next) };
        account_use::poll_ready(account, &mut held.token, exchange, cx).map(|ready| match ready {
            Ok(()) => {
                held.used = Some(account.start_use(self.account, exchange.now));
                Step::Next
            }
            Err(refused) => refused.into(),
        })
    }

    fn response(&self, exchange: &mut Exchange<'_>, held: &mut AuthenticateRun) -> Reaction {
        let Some(used) = &held.used else { return Reaction::Pass };
        if account_use::is_accepted(exchange) {
            used.accepted(exchange.now);
        }
        match exchange.called_account() {
            Some(account) if exchange.draft.call.account == Some(self.account) => {
                account_use::react(account, &mut held.token, exchange)
            }
            _ => Reaction::Pass,
        }
    }
}

impl Authenticate {
    /// Returns `false` if an outer remedy has chosen an account for the called provider, which this one's is
    /// not for.
    fn chooses(&self, exchange: &Exchange<'_>) -> bool {
        let own = exchange.account_numbered(Some(self.account));
        exchange.called_account().is_none() || own.is_some_and(|account| exchange.is_for(account))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use egret_fixture::{TestFlows, TestStep};

    fn config(remedies: &Value) -> Value {
        // Any secret will do; this variable exists wherever tests run.
        let account = json!({ "provider": "one", "bearer": { "token": "${env:PATH}" } });
        let flows = json!([{ "name": "f", "remedies": remedies }]);
        json!({ "accounts": { "a": account, "b": account }, "flows": flows })
    }

    const GET: &str = "GET https://one.example/a";

    #[test]
    fn the_account_is_chosen_and_no_secret_is_drafted() {
        let harness = TestFlows::new(config(&json!([{ "authenticate": { "account": "b" } }])));
        let mut exchange = harness.send(GET);
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        assert_eq!(exchange.draft.call.account, harness.flows.accounts.find("b"));
        assert!(exchange.draft.request.is_empty());
    }

    #[test]
    fn the_innermost_chooses() {
        let both = json!([{ "authenticate": { "account": "a" } }, { "authenticate": { "account": "b" } }]);
        let harness = TestFlows::new(config(&both));
        let mut exchange = harness.send(GET);
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        assert_eq!(exchange.draft.call.account, harness.flows.accounts.find("b"));
    }

    #[test]
    fn accounts_for_different_providers_choose_by_provider() {
        let account = |provider| json!({ "provider": provider, "bearer": { "token": "${env:PATH}" } });
        for order in [["a", "b"], ["b", "a"]] {
            let remedies = order.map(|name| json!({ "authenticate": { "account": name } }));
            let flows = json!([{ "name": "f", "remedies": remedies }]);
            let accounts = json!({ "a": account("one"), "b": account("two") });
            let harness = TestFlows::new(json!({ "accounts": accounts, "flows": flows }));
            for (request, chosen) in [(GET, "a"), ("GET https://two.example/a", "b")] {
                let mut exchange = harness.send(request);
                assert_eq!(exchange.poll(&harness), TestStep::Call);
                assert_eq!(
                    exchange.draft.call.account,
                    harness.flows.accounts.find(chosen),
                    "{order:?} {request}"
                );
            }
        }
    }

    #[test]
    fn echoes_are_masked_where_the_remedy_that_chooses_says_so() {
        for (outer, inner) in [(true, false), (false, true)] {
            let remedy = |masks| json!({ "authenticate": { "account": "a", "mask_echoes": masks } });
            let harness = TestFlows::new(config(&json!([remedy(outer), remedy(inner)])));
            let mut exchange = harness.send(GET);
            assert_eq!(exchange.poll(&harness), TestStep::Call);
            assert_eq!(exchange.draft.call.masks_echoes, inner);
        }
    }

    #[test]
    fn in_report_mode_nothing_is_chosen() {
        let harness =
            TestFlows::new(config(&json!([{ "authenticate": { "account": "a" }, "mode": "report" }])));
        let mut exchange = harness.send(GET);
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        assert_eq!(exchange.draft.call.account, None);
    }
}

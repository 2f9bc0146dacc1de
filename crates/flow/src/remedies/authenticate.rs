//! `authenticate`: has calls made with an account's credential, so that the application needs none.
//!
//! The remedy says which account; the gateway adds the credential when the request is sent, to that account's providers alone.

use std::task::{Context, Poll};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::accounts::Use;
use crate::exchange::Exchange;
use crate::remedy::{Mode, Reaction, Remedy, Site, Step};

/// Which account calls are made with. What the client has sent under the same names is removed; a call that goes to a provider that the
/// account is not for goes without it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthenticateConfig {
    /// The account's name.
    pub account: String,
}

/// Has calls made with an account's credential.
#[derive(Debug)]
pub struct Authenticate {
    account: usize,
    /// For people.
    name: String,
    kind: &'static str,
    mode: Mode,
}

impl Remedy for Authenticate {
    type Config = AuthenticateConfig;
    /// The account, if what is called is one of its providers.
    type Held = Option<Use>;

    fn compile(config: &AuthenticateConfig, site: &mut Site<'_>) -> Option<Self> {
        let account = site.account("account", &config.account)?;
        let kind = site.accounts.get(account)?.kind();
        Some(Self { account, name: config.account.clone(), kind, mode: site.mode })
    }

    fn describe(&self) -> String {
        format!("calls with the account {} ({})", self.name, self.kind)
    }

    fn request(
        &self,
        exchange: &mut Exchange<'_>,
        held: &mut Option<Use>,
        _cx: &mut Context<'_>,
    ) -> Poll<Step> {
        exchange.draft.call.account = Some(self.account);
        if self.mode == Mode::Enforce {
            let account = exchange.called_account();
            *held = account.map(|account| Use::of(account, self.account, exchange.now));
        }
        Poll::Ready(Step::Next)
    }

    fn response(&self, exchange: &mut Exchange<'_>, held: &mut Option<Use>) -> Reaction {
        if let Some(held) = held {
            held.answered(exchange);
        }
        Reaction::Pass
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::fixture::{Stage, Stand};

    fn config(remedies: &Value) -> Value {
        // Any secret will do; this one is there wherever tests run.
        let account = json!({ "provider": "one", "bearer": { "token": "${env:PATH}" } });
        let flows = json!([{ "name": "f", "remedies": remedies }]);
        json!({ "accounts": { "a": account, "b": account }, "flows": flows })
    }

    const GET: &str = "GET https://one.example/a";

    #[test]
    fn the_account_is_chosen_and_no_secret_is_drafted() {
        let stage = Stage::new(config(&json!([{ "authenticate": { "account": "b" } }])));
        let mut visit = stage.send(GET);
        assert_eq!(visit.poll(&stage), Stand::Call);
        assert_eq!(visit.draft.call.account, stage.flows.accounts.find("b"));
        assert!(visit.draft.request.is_empty());
    }

    #[test]
    fn the_innermost_chooses() {
        let both = json!([{ "authenticate": { "account": "a" } }, { "authenticate": { "account": "b" } }]);
        let stage = Stage::new(config(&both));
        let mut visit = stage.send(GET);
        assert_eq!(visit.poll(&stage), Stand::Call);
        assert_eq!(visit.draft.call.account, stage.flows.accounts.find("b"));
    }

    #[test]
    fn in_report_mode_nothing_is_chosen() {
        let stage = Stage::new(config(&json!([{ "authenticate": { "account": "a" }, "mode": "report" }])));
        let mut visit = stage.send(GET);
        assert_eq!(visit.poll(&stage), Stand::Call);
        assert_eq!(visit.draft.call.account, None);
    }
}

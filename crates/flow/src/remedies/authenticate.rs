//! `authenticate`: has calls made with an account's credential, so that the application needs none.
//!
//! The remedy says which account; the gateway adds the credential when the request is sent, to that account's providers alone.

use std::task::{Context, Poll};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::exchange::Exchange;
use crate::remedy::{Remedy, Site, Step};

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
}

impl Remedy for Authenticate {
    type Config = AuthenticateConfig;
    type Held = ();

    fn compile(config: &AuthenticateConfig, site: &mut Site<'_>) -> Option<Self> {
        let account = site.account("account", &config.account)?;
        let kind = site.accounts.get(account)?.kind();
        Some(Self { account, name: config.account.clone(), kind })
    }

    fn describe(&self) -> String {
        format!("calls with the account {} ({})", self.name, self.kind)
    }

    fn request(&self, exchange: &mut Exchange<'_>, _held: &mut (), _cx: &mut Context<'_>) -> Poll<Step> {
        exchange.draft.call.account = Some(self.account);
        Poll::Ready(Step::Next)
    }
}

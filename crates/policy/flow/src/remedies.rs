//! The remedies: a file each, and a line each in the registry below.

use std::task::{Context, Poll};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::exchange::Exchange;
use crate::remedy::{Fault, Mode, Needs, OnError, Reaction, Remedy, Site, Step};

pub mod accounts;
pub mod authenticate;
pub mod cache;
pub mod circuit_breaker;
pub mod concurrency;
pub mod fallback;
pub mod fixed_response;
pub mod hedge;
pub mod limit;
pub mod provider_throttle;
pub mod queue;
pub mod retry;
pub mod timeout;
pub mod trace;
pub mod transform;

/// From one line for each remedy: its key in the config, and what is generic over all of them.
macro_rules! registry {
    ($($(#[$doc:meta])* $key:literal $field:ident: $module:ident::$Remedy:ident;)*) => {
        /// One remedy of a flow: exactly one remedy's key with that remedy's config, and what goes for all remedies beside it.
        #[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct RemedyConfig {
            $(
                $(#[$doc])*
                #[serde(rename = $key, skip_serializing_if = "Option::is_none")]
                pub $field: Option<<$module::$Remedy as Remedy>::Config>,
            )*
            /// Whether it acts: `enforce`, or `report` to only decide and be counted.
            pub mode: Mode,
            /// What becomes of the exchange when the remedy itself fails: `open` lets it pass, `closed` refuses it.
            pub on_error: OnError,
        }

        impl RemedyConfig {
            /// The keys of all remedies.
            pub const KEYS: &[&'static str] = &[$($key),*];

            /// The keys of the remedies in this entry; a good one has one.
            pub fn keys(&self) -> Vec<&'static str> {
                let keys = [$(self.$field.is_some().then_some($key)),*];
                keys.into_iter().flatten().collect()
            }
        }

        /// Any remedy.
        #[derive(Debug)]
        pub(crate) enum AnyRemedy {
            $($Remedy($module::$Remedy),)*
        }

        /// What any remedy keeps for an exchange.
        #[derive(Debug)]
        pub(crate) enum AnyHeld {
            $($Remedy(<$module::$Remedy as Remedy>::Held),)*
        }

        impl AnyRemedy {
            /// The remedy that `config` describes; none, and a problem noted, where that is wrong.
            pub fn compile(config: &RemedyConfig, site: &mut Site<'_>) -> Option<Self> {
                $(if let Some(config) = &config.$field {
                    return $module::$Remedy::compile(config, site).map(Self::$Remedy);
                })*
                None
            }

            pub fn describe(&self) -> String {
                match self { $(Self::$Remedy(remedy) => remedy.describe(),)* }
            }

            pub fn cache(&self) -> Option<&cache::Cache> {
                match self { $(Self::$Remedy(remedy) => remedy.cache(),)* }
            }

            pub fn needs(&self) -> Needs {
                match self { $(Self::$Remedy(remedy) => remedy.needs(),)* }
            }

            /// What it keeps before it has seen anything.
            pub fn held(&self) -> AnyHeld {
                match self { $(Self::$Remedy(_) => AnyHeld::$Remedy(Default::default()),)* }
            }

            pub fn request(&self, exchange: &mut Exchange<'_>, held: &mut AnyHeld, cx: &mut Context<'_>) -> Poll<Step> {
                match (self, held) {
                    $((Self::$Remedy(remedy), AnyHeld::$Remedy(held)) => remedy.request(exchange, held, cx),)*
                    _ => Poll::Ready(Step::Next),
                }
            }

            pub fn response(&self, exchange: &mut Exchange<'_>, held: &mut AnyHeld) -> Reaction {
                match (self, held) {
                    $((Self::$Remedy(remedy), AnyHeld::$Remedy(held)) => remedy.response(exchange, held),)*
                    _ => Reaction::Pass,
                }
            }

            pub fn end(&self, exchange: &mut Exchange<'_>, held: &mut AnyHeld) -> Result<(), Fault> {
                match (self, held) {
                    $((Self::$Remedy(remedy), AnyHeld::$Remedy(held)) => remedy.end(exchange, held),)*
                    _ => Ok(()),
                }
            }
        }
    };
}

impl RemedyConfig {
    /// The key of the remedy if it is one that chooses an account.
    pub(crate) fn chooses_account(&self) -> Option<&'static str> {
        let accounts = self.accounts.is_some().then_some("accounts");
        accounts.or(self.authenticate.is_some().then_some("authenticate"))
    }
}

registry! {
    /// Has calls made with one account of several, and leaves out for a while what the provider refuses.
    "accounts" accounts: accounts::Accounts;
    /// Has calls made with an account's credential.
    "authenticate" authenticate: authenticate::Authenticate;
    /// Answers from what is stored of the provider's answers.
    "cache" cache: cache::Cache;
    /// Answers in the place of a provider that fails, until it no longer does.
    "circuit-breaker" circuit_breaker: circuit_breaker::CircuitBreaker;
    /// Lets so many exchanges be under way at once, each until the last byte of its response.
    "concurrency" concurrency: concurrency::Concurrency;
    /// Calls another provider or path where a call has failed, or answers itself.
    "fallback" fallback: fallback::Fallback;
    /// Answers in the provider's place.
    "fixed-response" fixed_response: fixed_response::FixedResponse;
    /// Makes a second call beside one that is slow, and takes whichever response comes first.
    "hedge" hedge: hedge::Hedge;
    /// Refuses what is above a quota, or lets it wait.
    "limit" limit: limit::Limit;
    /// Leaves a provider alone for as long as it has asked for.
    "provider-throttle" provider_throttle: provider_throttle::ProviderThrottle;
    /// Lets what is above a quota wait for its turn.
    "queue" queue: queue::Queue;
    /// Makes a failed call again.
    "retry" retry: retry::Retry;
    /// Limits how long the provider may take.
    "timeout" timeout: timeout::Timeout;
    /// Passes W3C Trace Context on, or starts a trace.
    "trace" trace: trace::Trace;
    /// Changes fields, path, query and JSON bodies.
    "transform" transform: transform::Transform;
}

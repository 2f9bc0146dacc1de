//! The remedies: one file each, and one line each in the registry below.

use std::task::{Context, Poll};

use egret_clock::Timestamp;
use egret_config::{EntryKind, Problem};
use egret_message::Fault;
use egret_quota::{Grant, Quota};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::exchange::Exchange;
use crate::remedy::{CompileContext, InnerRemedy, Mode, NamedPart, Needs, OnError, Reaction, Remedy, Step};

pub mod accounts;
pub mod authenticate;
pub mod cache;
pub mod circuit_breaker;
pub mod concurrency;
pub mod fallback;
pub mod fault;
pub mod fixed_response;
pub mod hedge;
pub mod limit;
pub mod provider_throttle;
pub mod queue;
pub mod retry;
pub mod script;
pub mod timeout;
pub mod trace;
pub mod transform;

/// Generates the config struct and the dispatch enums from one line per remedy. The registry of diagnoses has
/// the same shape.
macro_rules! registry {
    ($(
        $(#[doc = $doc:literal])* $(#[schemars($($schemars:tt)*)])?
        $key:literal $field:ident: $module:ident::$Remedy:ident;
    )*) => {
        /// One remedy of a flow: exactly one remedy key with its config, and the options common to all
        /// remedies. A text alone is one of the keys, with all defaults.
        #[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        #[serde(rename = "short form: *")]
        #[schemars(rename = "RemedyConfig", transform = egret_config::or_text)]
        pub struct RemedyConfig {
            $(
                $(#[doc = $doc])*
                $(#[schemars($($schemars)*)])?
                #[serde(rename = $key, skip_serializing_if = "Option::is_none")]
                pub $field: Option<<$module::$Remedy as Remedy>::Config>,
            )*
            /// Mode: `enforce` acts, `report` only decides and counts.
            pub mode: Mode,
            /// Behaviour when the remedy itself fails: `open` lets the exchange pass, `closed` refuses it.
            pub on_error: OnError,
        }

        impl RemedyConfig {
            /// The keys of all remedies.
            pub const KEYS: &[&str] = &[$($key),*];

            const KIND: EntryKind = EntryKind { name: "a remedy", keys: Self::KEYS, is_ordered: true };

            /// Returns the only remedy key of this entry. Adds a problem at `path` if it has none, or
            /// several.
            pub fn only_key(&self, path: &str, problems: &mut Vec<Problem>) -> Option<&'static str> {
                let keys = [$(self.$field.is_some().then_some($key)),*];
                Self::KIND.only_key(&keys.into_iter().flatten().collect::<Vec<_>>(), path, problems)
            }

            /// See [`Remedy::conflict_with_condition`].
            pub fn conflict_with_condition(&self) -> Option<(&'static str, &'static str)> {
                $(if let Some(config) = &self.$field {
                    return <$module::$Remedy as Remedy>::conflict_with_condition(config);
                })*
                None
            }

            /// See [`Remedy::conflict_with_grpc`].
            pub fn conflict_with_grpc(&self) -> Option<(&'static str, &'static str)> {
                $(if let Some(config) = &self.$field {
                    return <$module::$Remedy as Remedy>::conflict_with_grpc(config);
                })*
                None
            }

            /// See [`Remedy::switched_provider`].
            pub fn switched_provider(&self) -> Option<&str> {
                $(if let Some(config) = &self.$field {
                    return <$module::$Remedy as Remedy>::switched_provider(config);
                })*
                None
            }

            /// See [`Remedy::names`].
            pub fn names(&self) -> Vec<NamedPart<'_>> {
                $(if let Some(config) = &self.$field {
                    return <$module::$Remedy as Remedy>::names(config);
                })*
                Vec::new()
            }

            /// See [`Remedy::needs_key`].
            pub fn needs_key(&self) -> bool {
                $(if let Some(config) = &self.$field {
                    return <$module::$Remedy as Remedy>::needs_key(config);
                })*
                false
            }

            /// Returns this entry as the remedies outside it see it; `number` is its number in the flow.
            pub fn as_inner(&self, number: usize) -> Option<InnerRemedy<'_>> {
                $(if let Some(config) = &self.$field {
                    let chooses_account = <$module::$Remedy as Remedy>::CHOOSES_ACCOUNT;
                    return Some(InnerRemedy { number, key: $key, mode: self.mode, chooses_account, config });
                })*
                None
            }
        }

        /// Any remedy.
        #[derive(Debug)]
        pub enum AnyRemedy {
            $(
                $(#[doc = $doc])*
                $Remedy($module::$Remedy),
            )*
        }

        /// The state of any remedy for an exchange.
        #[derive(Debug)]
        pub enum AnyRun {
            $(
                #[doc = concat!("The state of `", $key, "`.")]
                $Remedy(<$module::$Remedy as Remedy>::Run),
            )*
        }

        impl AnyRemedy {
            /// Compiles the remedy that `config` describes. Adds a problem and returns `None` if it is
            /// invalid.
            pub fn compile(config: &RemedyConfig, context: &mut CompileContext<'_>) -> Option<Self> {
                $(if let Some(config) = &config.$field {
                    return $module::$Remedy::compile(config, context).map(Self::$Remedy);
                })*
                None
            }

            /// See [`Remedy::describe`].
            pub fn describe(&self) -> String {
                match self { $(Self::$Remedy(remedy) => remedy.describe(),)* }
            }

            /// See [`Remedy::rehearse`].
            pub fn rehearse(&self, exchange: &mut Exchange<'_>) -> String {
                match self { $(Self::$Remedy(remedy) => remedy.rehearse(exchange),)* }
            }

            /// See [`Remedy::needs`].
            pub fn needs(&self) -> Needs {
                match self { $(Self::$Remedy(remedy) => remedy.needs(),)* }
            }

            /// Returns the initial state for an exchange.
            pub fn held(&self) -> AnyRun {
                match self { $(Self::$Remedy(_) => AnyRun::$Remedy(Default::default()),)* }
            }

            /// See [`Remedy::request`].
            pub fn request(
                &self,
                exchange: &mut Exchange<'_>,
                held: &mut AnyRun,
                cx: &mut Context<'_>,
            ) -> Poll<Step> {
                match (self, held) {
                    $((Self::$Remedy(remedy), AnyRun::$Remedy(held)) => remedy.request(exchange, held, cx),)*
                    _ => Poll::Ready(Step::Next),
                }
            }

            /// See [`Remedy::response`].
            pub fn response(&self, exchange: &mut Exchange<'_>, held: &mut AnyRun) -> Reaction {
                match (self, held) {
                    $((Self::$Remedy(remedy), AnyRun::$Remedy(held)) => remedy.response(exchange, held),)*
                    _ => Reaction::Pass,
                }
            }

            /// See [`Remedy::grant`].
            pub fn grant<'h>(&self, held: &'h mut AnyRun) -> Option<&'h mut Option<Grant>> {
                match (self, held) {
                    $((Self::$Remedy(_), AnyRun::$Remedy(held)) => {
                        <$module::$Remedy as Remedy>::grant(held)
                    })*
                    _ => None,
                }
            }

            /// See [`Remedy::end`].
            pub fn end(&self, exchange: &mut Exchange<'_>, held: &mut AnyRun) -> Result<(), Fault> {
                match (self, held) {
                    $((Self::$Remedy(remedy), AnyRun::$Remedy(held)) => remedy.end(exchange, held),)*
                    _ => Ok(()),
                }
            }
        }
    };
}

impl AnyRemedy {
    /// The cache, if this remedy is one.
    pub fn as_cache(&self) -> Option<&cache::Cache> {
        if let Self::Cache(cache) = self { Some(cache) } else { None }
    }
}

impl AnyRemedy {
    /// The quota of its own, if it has one.
    pub fn own_quota(&self) -> Option<&Quota> {
        if let Self::Concurrency(concurrency) = self { Some(concurrency.quota()) } else { None }
    }
}

impl AnyRemedy {
    /// The fault, if this remedy is one.
    pub fn as_fault(&self) -> Option<&fault::FaultInjection> {
        if let Self::FaultInjection(fault) = self { Some(fault) } else { None }
    }
}

impl AnyRemedy {
    /// The script, if this remedy is one.
    pub fn as_script(&self) -> Option<&script::Script> {
        if let Self::Script(script) = self { Some(script) } else { None }
    }
}

/// State of a remedy at one point in time, besides its counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RemedyState {
    /// Name of the quota that it draws from, if it is one under `quotas`.
    pub quota: Option<String>,
    /// The exchanges that wait in its queue, if it has one.
    pub queue: Option<queue::QueueSnapshot>,
    /// Its circuits, if it is a breaker.
    pub circuits: Option<circuit_breaker::CircuitsSnapshot>,
    /// The state of its switch, if it injects failures.
    pub fault: Option<fault::FaultSnapshot>,
    /// Its second calls, if it makes any.
    pub hedges: Option<hedge::HedgesSnapshot>,
}

/// The state of a remedy as one process hands it over to the next.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HandedRemedy {
    /// The circuits of a breaker.
    Circuits(circuit_breaker::CircuitsState),
    /// The switch of a fault.
    Fault(fault::HandedFault),
    /// The pauses that providers have asked for.
    Pauses(Vec<provider_throttle::HandedPause>),
}

impl AnyRemedy {
    /// Returns the state that the next process takes over, if there is any.
    pub fn hand_over(&self) -> Option<HandedRemedy> {
        match self {
            Self::CircuitBreaker(breaker) => Some(HandedRemedy::Circuits(breaker.hand_over())),
            Self::FaultInjection(fault) => Some(HandedRemedy::Fault(fault.hand_over())),
            Self::ProviderThrottle(throttle) => Some(HandedRemedy::Pauses(throttle.hand_over())),
            _ => None,
        }
    }

    /// Takes over the state of an earlier process, if it is that of such a remedy.
    pub fn inherit(&self, now: Timestamp, handed: &HandedRemedy) {
        match (self, handed) {
            (Self::CircuitBreaker(breaker), HandedRemedy::Circuits(circuits)) => {
                breaker.inherit(now, circuits);
            }
            (Self::FaultInjection(fault), HandedRemedy::Fault(handed)) => fault.inherit(handed),
            (Self::ProviderThrottle(throttle), HandedRemedy::Pauses(pauses)) => throttle.inherit(now, pauses),
            _ => {}
        }
    }

    /// Returns the state of the remedy at `now`.
    pub fn state(&self, now: Timestamp) -> RemedyState {
        match self {
            Self::Limit(limit) => RemedyState {
                quota: Some(limit.quota().to_owned()),
                queue: limit.queue().map(|queue| queue.snapshot(now)),
                ..RemedyState::default()
            },
            Self::Queue(queue) => RemedyState {
                quota: Some(queue.quota().to_owned()),
                queue: Some(queue.snapshot(now)),
                ..RemedyState::default()
            },
            Self::CircuitBreaker(breaker) => {
                RemedyState { circuits: Some(breaker.snapshot(now)), ..RemedyState::default() }
            }
            Self::FaultInjection(fault) => {
                RemedyState { fault: Some(fault.snapshot(now)), ..RemedyState::default() }
            }
            Self::Hedge(hedge) => RemedyState { hedges: Some(hedge.snapshot()), ..RemedyState::default() },
            _ => RemedyState::default(),
        }
    }
}

registry! {
    /// Chooses one of several accounts for each call, and skips an account for a while after the provider
    /// refuses it.
    "accounts" accounts: accounts::Accounts;
    /// Makes calls with an account's credential.
    #[schemars(extend("x-tier" = "everyday"))]
    "authenticate" authenticate: authenticate::Authenticate;
    /// Serves stored responses of the provider.
    #[schemars(extend("x-tier" = "everyday"))]
    "cache" cache: cache::Cache;
    /// Responds in place of a failing provider until it recovers.
    #[schemars(extend("x-tier" = "everyday"))]
    "circuit-breaker" circuit_breaker: circuit_breaker::CircuitBreaker;
    /// Limits the number of concurrent exchanges. An exchange counts until the last byte of its response.
    "concurrency" concurrency: concurrency::Concurrency;
    /// Calls another provider or path after a failed call, or sends a fixed response.
    "fallback" fallback: fallback::Fallback;
    /// Lets a share of the calls fail, to test how an application copes.
    "fault" fault: fault::FaultInjection;
    /// Sends a fixed response without calling the provider.
    "fixed-response" fixed_response: fixed_response::FixedResponse;
    /// Makes a second call if the first is slow, and uses whichever response comes first.
    "hedge" hedge: hedge::Hedge;
    /// Refuses or delays requests that exceed a quota.
    #[schemars(extend("x-tier" = "everyday"))]
    "limit" limit: limit::Limit;
    /// Stops calling a provider for as long as it asks for.
    "provider-throttle" provider_throttle: provider_throttle::ProviderThrottle;
    /// Queues requests that exceed a quota.
    #[schemars(extend("x-tier" = "everyday"))]
    "queue" queue: queue::Queue;
    /// Repeats failed calls.
    #[schemars(extend("x-tier" = "everyday"))]
    "retry" retry: retry::Retry;
    /// Runs JavaScript on requests and responses.
    "script" script: script::Script;
    /// Limits the time that the provider may take.
    "timeout" timeout: timeout::Timeout;
    /// Propagates W3C Trace Context, or starts a trace.
    "trace" trace: trace::Trace;
    /// Changes header fields, path, query and JSON bodies.
    "transform" transform: transform::Transform;
}

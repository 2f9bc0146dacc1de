//! The diagnoses: one file each, and one line each in the registry below.

use egret_config::{EntryKind, Problem};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::CompileContext;
use crate::diagnosis::{Diagnosis, OnPressure, Tick};
use crate::discovered::Discovered;
use crate::family::Family;
use crate::finished::Finished;
use crate::spend::Spent;

pub mod access_log;
pub mod discovery;
pub mod har;
pub mod ledger;
pub mod metrics;
pub mod traces;

/// Generates the config struct and the dispatch enum from one line per diagnosis. The registry of remedies
/// has the same shape.
macro_rules! registry {
    ($(
        $(#[doc = $doc:literal])* $(#[schemars($($schemars:tt)*)])?
        $key:literal $field:ident: $module:ident::$Diagnosis:ident;
    )*) => {
        /// One diagnosis of a flow: exactly one diagnosis key with its config, and the options common to all
        /// diagnoses. A text alone is one of the keys, with all defaults.
        #[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        #[serde(rename = "short form: *")]
        #[schemars(rename = "DiagnosisConfig", transform = egret_config::or_text)]
        pub struct DiagnosisConfig {
            $(
                $(#[doc = $doc])*
                $(#[schemars($($schemars)*)])?
                #[serde(rename = $key, skip_serializing_if = "Option::is_none")]
                pub $field: Option<<$module::$Diagnosis as Diagnosis>::Config>,
            )*
            /// Behaviour when diagnoses fall behind and the queue is full: `drop` lets the exchange pass
            /// unseen and counts it, `wait` delays the exchange until there is room.
            pub on_pressure: OnPressure,
        }

        impl DiagnosisConfig {
            /// The keys of all diagnoses.
            pub const KEYS: &[&str] = &[$($key),*];

            const KIND: EntryKind = EntryKind { name: "a diagnosis", keys: Self::KEYS, is_ordered: false };

            /// Returns the only diagnosis key of this entry. Adds a problem at `path` if it has none, or
            /// several.
            pub fn only_key(&self, path: &str, problems: &mut Vec<Problem>) -> Option<&'static str> {
                let keys = [$(self.$field.is_some().then_some($key)),*];
                Self::KIND.only_key(&keys.into_iter().flatten().collect::<Vec<_>>(), path, problems)
            }

            /// See [`Diagnosis::exporter`].
            pub fn exporter(&self) -> Option<&str> {
                $(if let Some(config) = &self.$field {
                    return <$module::$Diagnosis as Diagnosis>::exporter(config);
                })*
                None
            }
        }

        /// Any diagnosis.
        #[derive(Debug)]
        pub(crate) enum AnyDiagnosis {
            $(
                $(#[doc = $doc])*
                $Diagnosis($module::$Diagnosis),
            )*
        }

        impl AnyDiagnosis {
            /// Compiles the diagnosis that `config` describes. Adds a problem and returns `None` if it is
            /// invalid.
            pub fn compile(config: &DiagnosisConfig, context: &mut CompileContext<'_>) -> Option<Self> {
                $(if let Some(config) = &config.$field {
                    return $module::$Diagnosis::compile(config, context).map(Self::$Diagnosis);
                })*
                None
            }

            /// See [`Diagnosis::describe`].
            pub fn describe(&self) -> String {
                match self { $(Self::$Diagnosis(diagnosis) => diagnosis.describe(),)* }
            }

            /// See [`Diagnosis::wants_bodies`].
            pub fn wants_bodies(&self) -> bool {
                match self { $(Self::$Diagnosis(diagnosis) => diagnosis.wants_bodies(),)* }
            }

            /// See [`Diagnosis::wants_usage`].
            pub fn wants_usage(&self) -> bool {
                match self { $(Self::$Diagnosis(diagnosis) => diagnosis.wants_usage(),)* }
            }

            /// See [`Diagnosis::wanted_bytes`].
            pub fn wanted_bytes(&self, media_type: &[u8]) -> usize {
                match self { $(Self::$Diagnosis(diagnosis) => diagnosis.wanted_bytes(media_type),)* }
            }

            /// See [`Diagnosis::see`].
            pub fn see(&self, exchange: &Finished<'_>) {
                match self { $(Self::$Diagnosis(diagnosis) => diagnosis.see(exchange),)* }
            }

            /// See [`Diagnosis::take_spent`].
            pub fn take_spent(&self) -> Option<Spent> {
                match self { $(Self::$Diagnosis(diagnosis) => diagnosis.take_spent(),)* }
            }

            /// See [`Diagnosis::tick`].
            pub fn tick(&self, tick: Tick) {
                match self { $(Self::$Diagnosis(diagnosis) => diagnosis.tick(tick),)* }
            }

            /// See [`Diagnosis::metrics`].
            pub fn metrics(&self) -> Vec<Family> {
                match self { $(Self::$Diagnosis(diagnosis) => diagnosis.metrics(),)* }
            }

            /// See [`Diagnosis::discovered`].
            pub fn discovered(&self) -> Option<Discovered> {
                match self { $(Self::$Diagnosis(diagnosis) => diagnosis.discovered(),)* }
            }
        }
    };
}

registry! {
    /// Writes a log line for each exchange.
    "access-log" access_log: access_log::AccessLog;
    /// Lists the endpoints that are called.
    "discovery" discovery: discovery::Discovery;
    /// Archives exchanges as obfuscated HAR.
    #[schemars(extend("x-tier" = "everyday"))]
    "har" har: har::Har;
    /// Writes the cost of each call, and sums costs.
    "ledger" ledger: ledger::Ledger;
    /// Records exchanges in histograms, and values from them in counters and gauges.
    #[schemars(extend("x-tier" = "everyday"))]
    "metrics" metrics: metrics::Metrics;
    /// Exports a span for each exchange and for each call to a provider.
    "traces" traces: traces::Traces;
}

//! Diagnoses: they see finished exchanges and cannot change them.
//!
//! [`Diagnosis`] is the trait of all diagnoses. Each diagnosis is a file under `diagnoses/` and a line in its
//! registry. A worker writes a finished exchange into a [`Record`]; the diagnoses read it on a thread of low
//! priority.
//!
//! A diagnosis never sees a running exchange, a socket or a remedy, and knows the config only as far as it is
//! its own.

mod callers;
mod condition;
mod context;
mod diagnoses;
mod diagnosis;
mod discovered;
mod family;
mod finished;
#[cfg(test)]
mod fixture;
mod gen_ai;
mod masked;
mod observers;
mod record;
mod spend;
mod tally;
mod traffic;

pub use condition::{CONDITION_BODY_BYTES_MAX, ResponseCondition};
pub use context::{CompileContext, Exports, StateStore};
pub use diagnoses::DiagnosisConfig;
pub use diagnoses::discovery::propose;
pub use diagnosis::{Diagnosis, OnPressure, Tick};
pub use discovered::{Discovered, DiscoveredConsumer, DiscoveredEndpoint};
pub use family::{Family, FamilyKind, Sample, SampleValue};
pub use finished::{Finished, RecordReader, content_type};
pub use observers::{
    DiagnosedFlow, Diagnoses, DiagnosesContext, DiagnosisCounts, DiagnosisStats, HandOver, Record,
};
pub use record::{Attempt, CallWire, Capture, Facts, PhaseTimes, RecordedExchange, Routed, Url};
pub use spend::{Spend, SpendBy, SpendRange, SpendSum, SpendSums, Spent};
pub use tally::{TalliedCall, TalliedOrigin, Tallies};
pub use traffic::{
    Batch, ExplainedDecision, FilterError, NotResendable, Pin, Redact, Resend, ResendRisk, ResendTarget,
    Resending, Traffic, TrafficConfig, TrafficFilter, TrafficReader, TrafficStatus,
};

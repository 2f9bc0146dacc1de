//! What is to be done with an exchange: which flows match it, what their remedies decide, what their quotas allow.
//!
//! The crate knows no socket and starts no thread. It is told what time it is, sees messages as views over the bytes received, and
//! says what to do; the gateway does it.

pub mod accounts;
pub mod answer;
pub mod cache;
pub mod conditions;
pub mod config;
pub mod diagnoses;
pub mod diagnosis;
pub mod exchange;
pub mod explain;
pub mod expression;
pub mod finished;
pub mod matching;
pub mod message;
pub mod quota;
pub mod record;
pub mod remedies;
pub mod remedy;
pub mod router;
pub mod tally;
pub mod target;
pub mod template;
pub mod trace_context;

mod causes;
mod chain;
mod draw;
#[cfg(test)]
mod fixture;
mod grouping;
mod line;
mod plan;

pub use answer::{Answer, Fixed, Local, Reason, Refused};
pub use chain::{Backward, Onward, RemedyChain, Tells};
pub use egret_clock::{Clock, Moment, Timestamp};
pub use exchange::{
    CallFailure, Destination, Exchange, FailureKind, Outcome, Params, PendingChanges, Received,
};
pub use plan::{
    ACCOUNTS_SHOWN_MAX, Diagnoses, DiagnosisCounts, DiagnosisStats, Fate, FlowParts, FlowStats, Flows,
    FlowsSnapshot, RemedyStats,
};

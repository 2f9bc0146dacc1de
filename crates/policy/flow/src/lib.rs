//! Policy for exchanges: matching of flows, decisions of remedies, and accounting of quotas.
//!
//! The crate has no sockets and starts no threads. The caller passes in the current time and views over the
//! received bytes. The crate returns decisions, and the gateway carries them out.

mod account_use;
pub mod accounts;
pub mod answer;
pub mod cache;
pub mod conditions;
pub mod config;
pub mod diagnoses;
pub mod diagnosis;
pub mod discovered;
pub mod exchange;
pub mod explain;
pub mod expression;
pub mod fault;
pub mod finished;
pub mod form;
pub mod matching;
pub mod message;
pub mod outcome;
pub mod parameters;
pub mod provider;
pub mod quota;
pub mod record;
pub mod refusal;
pub mod remedies;
pub mod remedy;
pub mod request_target;
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

pub use answer::{Answer, Local};
pub use chain::{Backward, Onward, RemedyChain, Tells};
pub use egret_clock::{Clock, Moment, Timestamp};
pub use exchange::{Exchange, Params, PendingChanges};
pub use outcome::{CallFailure, Destination, FailureKind, Outcome, Received};
pub use plan::{
    ACCOUNTS_SHOWN_MAX, Diagnoses, DiagnosisCounts, DiagnosisStats, Fate, FlowParts, FlowStats, Flows,
    FlowsSnapshot, RemedyStats,
};
pub use refusal::{Fixed, Reason, Refused};

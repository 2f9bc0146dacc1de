//! Remedies: the decisions that change, delay, repeat or answer an exchange.
//!
//! [`Remedy`] is the trait of all remedies. Each remedy is a file under `remedies/` and a line in its
//! registry. The other modules are the tools that remedies share: the exchange as they see it, groups,
//! queues, and the use of quotas and accounts.
//!
//! A remedy never sees a socket, a thread or a clock: it receives views over buffered bytes and the current
//! time, and returns a decision that the gateway carries out.

mod account_use;
mod body_fault;
mod conventions;
mod decision_counts;
mod exchange;
mod grouping;
mod local_response;
mod message_templates;
mod prompt_key;
mod quota_draw;
mod remedies;
mod remedy;
mod reservation;
mod usage_ask;
mod wait_line;

pub use account_use::record_account_outcome;
pub use body_fault::{BodyFault, Cut, FaultKind};
pub use conventions::{Conventions, ProviderConventions};
pub use decision_counts::{Decision, DecisionCounts, DecisionSums, WAIT_BOUNDS_US};
pub use exchange::{AlternateCall, CallOptions, Checkpoint, Exchange, Params, PendingChanges, SecondCall};
pub use local_response::{LocalKind, LocalResponse};
pub use remedies::cache::Cache;
pub use remedies::circuit_breaker::{
    CallOutcome, CircuitState, CircuitsSnapshot, Transition, TransitionReason,
};
pub use remedies::fault::{FaultConfig, FaultSnapshot, FaultSwitch};
pub use remedies::hedge::HedgesSnapshot;
pub use remedies::queue::QueueSnapshot;
pub use remedies::script::{Script, ScriptSnapshot};
pub use remedies::{AnyRemedy, AnyRun, HandedRemedy, RemedyConfig, RemedyState};
pub use remedy::{CompileContext, InnerRemedy, Mode, NamedPart, Needs, OnError, Reaction, Remedy, Step};
pub use usage_ask::{NotAsked, UsageAsk};

//! Remedies: the decisions that change, delay, repeat or answer an exchange.
//!
//! [`Remedy`](remedy::Remedy) is the trait of all remedies. Each remedy is a file under `remedies/` and a line in its registry. The
//! other modules are the tools that remedies share: the exchange as they see it, groups, queues, and the use of
//! quotas and accounts.

pub mod account_use;
pub mod exchange;
mod grouping;
pub mod local_response;
mod message_templates;
mod quota_draw;
pub mod remedies;
pub mod remedy;
pub mod tally;
mod wait_line;

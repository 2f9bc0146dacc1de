//! What is to be done with an exchange: which flows match it, what their remedies decide, what their quotas allow.
//!
//! The crate knows no socket and starts no thread. It is told what time it is, sees messages as views over the bytes received, and
//! says what to do; the gateway does it.

pub mod config;
pub mod explain;
pub mod expression;
pub mod matching;
pub mod message;
pub mod quota;
pub mod retry_after;
pub mod router;
pub mod template;

#[cfg(test)]
mod fixture;

pub use egret_store::Timestamp;

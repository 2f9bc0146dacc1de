//! An allowance shared by many gateways through a store that they all reach: the protocol, without I/O.
//!
//! A *member* is a running gateway. It *holds* units over time, and uses only units that it holds. The
//! *allocator*, which is the script [`CALL_SCRIPT`] in Redis or Valkey, notes who holds how many. For each
//! group, the pool, all holds, and the units of members that are gone are together at most the limit: a unit
//! exists once. Only free units leave a hold, so a unit that a provider may still count is never lent to
//! another member.
//!
//! A member may use its hold until its lease ends, which is earlier by its clock than by that of the store.
//! The store may forget everything. In a recovery window it then hears from the members what they hold,
//! before it lends again.

mod block;
mod hold;
mod lease;
mod member;
mod message;
mod purges;
mod report;
mod script;
mod session;
mod terms;
mod tokens;

#[cfg(test)]
mod model;

pub use block::Block;
pub use hold::{Demand, Hold};
pub use lease::{Lease, SharedLease, StoreClock};
pub use member::{GroupSink, LeaveMessage, Listing, Member, SharedGroup};
pub use message::{
    AllocatorReply, Call, CallReply, ClockCheck, GroupCall, GroupKey, GroupReply, Instance, ProviderReport,
    View, WakeUpHint, WindowCall,
};
pub use purges::{
    NotTold, PURGE_SCRIPT, PurgeEntry, PurgePosition, Purged, PurgedCache, STREAM_TTL_MS, SharedPurges,
    Told as PurgeTold,
};
pub(crate) use script::digits;
pub use script::{CALL_SCRIPT, ScriptCall, ScriptReplyError, Shard};
pub use session::Session;
pub use terms::Terms;
pub use tokens::{
    ClaimRefusal, Election, SharedTokenState, SharedTokens, StoredToken, TOKEN_SCRIPT, TokenAnswer,
    TokenCalls, TokenClaim, TokenIdentity, TokenOutcome, TokenReply,
};

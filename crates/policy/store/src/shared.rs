//! An allowance shared by many gateways through a store that they all reach: the protocol, without I/O.
//!
//! A *member* is a running gateway. It *holds* units over time, and uses only units that it holds. The store,
//! here the [`Book`], notes who holds how many. For each group, the pool, all holds, and the units of members
//! that are gone are together the limit: a unit exists once. Only free units leave a hold, so a unit that a
//! provider may still count is never lent to another member.
//!
//! A member may use its hold until its lease ends, which is earlier by its clock than by that of the store.
//! The store may forget everything. It then learns from the members what they hold, before it lends again.

mod block;
mod book;
mod hold;
mod lease;
mod member;
mod message;
mod purges;
mod report;
mod script;
mod session;
mod sharing;
mod terms;
mod tokens;

#[cfg(test)]
mod model;

pub use block::Block;
pub use book::Book;
pub use hold::{Demand, Hold};
pub use lease::{Lease, SharedLease, StoreClock};
pub use member::{Farewell, GroupSink, Listing, Member, SharedGroup};
pub use message::{
    BookReply, Call, ClockCheck, GroupCall, GroupKey, GroupReply, Instance, Press, ProviderReport, Told,
    View, WindowCall,
};
pub use purges::{
    NotTold, PURGE_SCRIPT, PurgeEntry, PurgePosition, Purged, PurgedCache, Removal, STREAM_TTL_MS,
    SharedPurges, Told as PurgeTold,
};
pub use script::{CALL_SCRIPT, ScriptCall, ScriptReplyError, Segment};
pub use session::Session;
pub use terms::Terms;
pub use tokens::{
    ClaimRefusal, Election, SharedTokenState, SharedTokens, StoredToken, TOKEN_SCRIPT, TokenAnswer,
    TokenCalls, TokenClaim, TokenIdentity, TokenOutcome, TokenReply,
};

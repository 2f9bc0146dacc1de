//! Calls that the gateway makes for itself: revalidations of stored responses, and tokens of accounts.

pub(crate) mod revalidate;
pub(crate) mod token;

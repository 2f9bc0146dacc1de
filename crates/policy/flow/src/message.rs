//! Requests and responses as flows see them: views over the received bytes, with the remedies' changes so
//! far.

/// Maximum size of a body that a flow may hold in memory, in bytes.
pub const BODY_BYTES_MAX: u64 = 16 << 20;

mod ending;
mod fields;
mod request;
mod response;

pub use ending::seen_at_end;
pub(crate) use fields::is_json;
pub use fields::{Changes, Fields, Json};
pub use request::Request;
pub use response::Response;

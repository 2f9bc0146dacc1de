//! Messages as policies see them: views over the received bytes, with the remedies' changes so far.
//!
//! Also the plain data that describes a call: its destination, its client, its outcome, and the reason of a
//! refusal; and the fields with a syntax of their own, such as `Via` and `Upgrade`, and those of gRPC. The
//! crate knows no socket, no remedy and no expression.

mod address;
pub mod authority;
mod condition;
mod error_kind;
mod fault;
mod fields;
pub mod grpc;
pub mod host_pattern;
mod origin;
mod outcome;
mod provider;
mod refusal;
mod request;
mod request_id;
pub mod request_target;
mod response;
pub mod trace_context;
mod upgrade;
mod via;

pub use address::{ClientAddress, ListenAddress, ListenAddressError, UnixPath};
pub use condition::{Condition, ConditionError, any_meets};
pub use error_kind::ErrorKind;
pub use fault::Fault;
pub use fields::{Changes, Fields, Json, is_json};
pub use origin::{Origin, default_port};
pub use outcome::{CallFailure, Destination, FailureKind, Outcome, ReceivedMessage};
pub use provider::{KnownProvider, KnownProviders, OTHER_HOSTS};
pub use refusal::{Fixed, Refused};
pub use request::{Request, consumer};
pub use request_id::{OWN_REQUEST_ID, REQUEST_ID, RequestId};
pub use response::Response;
pub use upgrade::Protocols;
pub use via::Via;

/// Maximum size of a body that a flow may hold in memory, in bytes.
pub const FLOW_BODY_BYTES_MAX: u64 = 16 << 20;

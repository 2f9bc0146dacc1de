//! Heads of requests and responses: start line, fields, and their meaning for the connection and the body.

mod authority;
mod connection;
mod diagnose;
mod error;
mod facts;
pub(crate) mod fields;
mod framing;
mod known;
mod limits;
mod method;
mod progress;
mod repeated;
mod request;
mod response;
mod scan;
mod target;
mod version;

pub use authority::AuthoritySpan;
pub use connection::MAX_CONNECTION_OPTIONS;
pub use error::HeadError;
pub use fields::Field;
pub use framing::{RequestFraming, ResponseFraming};
pub use known::KnownField;
pub use limits::{HeadLimits, MAX_FIELDS, MAX_HEAD, MAX_METHOD};
pub use method::Method;
pub use progress::Progress;
pub use request::RequestHead;
pub use response::ResponseHead;
pub use target::TargetForm;
pub use version::Version;

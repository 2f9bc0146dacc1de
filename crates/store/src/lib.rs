//! What has to be remembered longer than an exchange: counts of windows that outlive the process. It knows nothing of HTTP.

mod timestamp;

pub use timestamp::{Clock, Timestamp};

//! Default limits of a provider.

use std::time::Duration;

/// Default limit of request and response content, in bytes.
pub const CONTENT_BYTES_MAX: usize = 1 << 20;

/// Default limit of the duration that a client may request for a response.
pub const DURATION_MAX: Duration = Duration::from_secs(10);

/// Default time that a client may take to send a head.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

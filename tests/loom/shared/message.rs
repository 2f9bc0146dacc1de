//! The parts of the protocol's messages that a lease reads.

/// A reply of the store to a call.
pub struct CallReply {
    pub time_ms: u64,
    pub generation: u64,
    pub view: View,
    pub divisor: u64,
}

/// The size of a cluster.
pub struct View {
    pub member_count: u64,
}

/// The bounds of the store's time.
pub struct ClockCheck {
    pub earliest_ms: u64,
    pub latest_ms: u64,
}

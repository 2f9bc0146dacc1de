//! Faults that a kernel may show to a program at any time, and their numbers.

/// Chances of faults, each of 1,024.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// A call is interrupted by a signal.
    pub interrupted: u64,
    /// A send takes a part of what would fit.
    pub short_send: u64,
    /// An event is reported at a later wait.
    pub late_event: u64,
    /// An event is reported although nothing has changed.
    pub spurious_event: u64,
    /// A client has left before it is accepted.
    pub accept_aborted: u64,
    /// No socket can be made, and none accepted.
    pub no_files: u64,
    /// A reset overtakes what the peer has sent before it.
    pub lossy_reset: u64,
}

/// Number of faults by their kind, and of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Calls of the gateway.
    pub calls: u64,
    /// Calls that a signal has interrupted.
    pub interrupted: u64,
    /// Sends of which a part was taken.
    pub short_sends: u64,
    /// Sends for which there was no room.
    pub full_sends: u64,
    /// Events that were reported late.
    pub late_events: u64,
    /// Events without a change.
    pub spurious_events: u64,
    /// Clients that left before they were accepted.
    pub accepts_aborted: u64,
    /// Sockets that could not be made or accepted.
    pub no_files: u64,
    /// Connections that were reset, by either side.
    pub resets: u64,
    /// Connections that were refused, or could not be routed.
    pub refused: u64,
}

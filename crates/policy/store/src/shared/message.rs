//! The messages between a member and the store.

use std::sync::Arc;

/// The identity of a running process; another start is another instance.
pub type Instance = u64;

/// The key of a group in the store.
pub type GroupKey = Arc<[u8]>;

/// A member's call to the store. It renews the lease of all that the member holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The calling process.
    pub instance: Instance,
    /// The member's name. It is unique among running members, and survives a restart.
    pub name: Arc<str>,
    /// Number of the call; each is greater than the last. The store ignores calls that arrive out of order.
    pub seq: u64,
    /// The server incarnation behind the connection: a process of the store. Another one may have lost
    /// writes.
    pub incarnation: Arc<str>,
    /// The generation of the last reply; 0 before the first.
    pub generation: u64,
    /// A number for a new generation, if this call begins one. It is used only once, and not 0.
    pub nonce: u64,
    /// The bounds of the store's time by the member's clock, if a reply has had a time.
    pub clock: Option<ClockCheck>,
    /// The view of the cluster in the last reply.
    pub view: View,
    /// The divisor in the last reply.
    pub divisor: u64,
    /// `true` if this is the last call: no call to a provider is in transit, and none follows.
    pub leaves: bool,
    /// The parts about groups.
    pub groups: Vec<GroupCall>,
}

/// The bounds of the store's time at the sending of a call, in the store's milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockCheck {
    /// The earliest possible time.
    pub earliest_ms: u64,
    /// The latest possible time.
    pub latest_ms: u64,
}

/// The size of a cluster, as a member knows it. After a loss, members claim it, so the store knows
/// how many may go on without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct View {
    /// Number of members that may use units: living ones, and those that are cut off.
    pub member_count: u64,
    /// The lowest divisor that one of them may use; 0 if none.
    pub lowest_divisor: u64,
}

/// The part of a call about one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupCall {
    /// The group.
    pub key: GroupKey,
    /// The generation of the last reply about this group; 0 if there was none.
    pub generation: u64,
    /// The limit in the member's config.
    pub limit: u64,
    /// Cool-down of a used unit.
    pub cool_down_ms: u64,
    /// `true` if the member goes on with its fallback share when it is cut off.
    pub has_fallback: bool,
    /// Units that the member holds: those in use, and the free ones that it does not return.
    pub has: u64,
    /// Units that the member could use, at most the limit.
    pub want: u64,
    /// Units in use: of calls in transit, and those in their cool-down. With a window, all that were used in
    /// it.
    pub used: u64,
    /// The provider's own count, if the member has heard one that the store does not know.
    pub report: Option<ProviderReport>,
    /// The window, for a group whose units are lent in blocks. Such units do not come back.
    pub window: Option<WindowCall>,
}

impl GroupCall {
    /// Returns `true` if the inequalities at the top of [`Member`](super::Member)'s file hold.
    pub(super) fn is_valid(&self) -> bool {
        let Self { limit, has, want, used, .. } = *self;
        match self.window {
            None => used <= has && want <= limit.max(has),
            Some(window) => used <= has && has <= want && window.known <= has && window.settled <= used,
        }
    }
}

/// A provider's own count of a group. It includes outside use: calls from outside the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProviderReport {
    /// Units left.
    pub remaining: u64,
    /// Time until the count restarts, in milliseconds.
    pub reset_in_ms: u64,
}

/// A window of a group whose units are lent in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WindowCall {
    /// Begin of the window in milliseconds since the epoch; it identifies the window.
    pub begin_ms: u64,
    /// End of the window.
    pub end_ms: u64,
    /// Units used or lent in the whole cluster, by the last reply.
    pub total: u64,
    /// The units of the member that this total includes.
    pub known: u64,
    /// Units whose calls ended before the window did, so no later window counts them.
    pub settled: u64,
}

/// The allocator's reply to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllocatorReply {
    /// The call came after a later one of the same member, and had no effect.
    Stale,
    /// The call was applied.
    Applied(CallReply),
}

/// The reply to a call that was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallReply {
    /// The store's time in milliseconds since the epoch.
    pub time_ms: u64,
    /// The current generation.
    pub generation: u64,
    /// The size of the cluster.
    pub view: View,
    /// Cut off, the member may go on with its own limit divided by this; 0 if it may not.
    pub divisor: u64,
    /// One reply for each group of the call, in order.
    pub groups: Vec<GroupReply>,
    /// The wake-up hints to the other members, with the indexes of the called groups.
    pub hints: Vec<(usize, WakeUpHint)>,
}

/// A wake-up hint: the reason why other members should call about a group soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeUpHint {
    /// A member holds less than its share: those that hold units should return some.
    Short,
    /// There are units that nobody holds: those that wait for units should ask. If there are fewer units than
    /// members, only this one, which has waited longest.
    Freed(Option<Instance>),
}

impl WakeUpHint {
    /// Returns `true` if the process should look at its hold.
    pub fn concerns(self, instance: Instance) -> bool {
        match self {
            Self::Freed(Some(first)) => first == instance,
            Self::Freed(None) | Self::Short => true,
        }
    }
}

/// The allocator's reply about one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupReply {
    /// Units that the member holds from now on.
    pub hold: u64,
    /// The member takes nothing above this, and returns units above it as soon as they are free. `u64::MAX`
    /// if there is enough for all.
    pub cap: u64,
    /// Units that nobody holds. It is negative if a limit was lowered, or if costs exceeded it.
    pub pool: i64,
    /// Remaining time of the recovery window, in which nothing is lent.
    pub recovery_ms: u64,
    /// Units of the window that are used or lent; 0 without windows.
    pub total: u64,
    /// `true` if another member affirms a different limit.
    pub differs: bool,
}

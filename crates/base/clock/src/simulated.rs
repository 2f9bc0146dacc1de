//! Time, chance and planted defects of a simulated world, all of the thread that runs it. Only the simulation
//! (`simulation/`) switches the feature on.

use std::cell::{Cell, RefCell};

use crate::random::Random;

thread_local! {
    /// Nanoseconds since the clock's beginning.
    static NOW: Cell<u64> = const { Cell::new(0) };
    /// Microseconds since 1970 at the clock's beginning.
    static EPOCH_US: Cell<u64> = const { Cell::new(0) };
    static RANDOM: RefCell<Random> = const { RefCell::new(Random::new(0)) };
    static PLANTED: Cell<Option<Defect>> = const { Cell::new(None) };
}

/// A defect that the simulation can plant, to show that it finds defects of this kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    /// The kernel forgets some events of sockets, as if a wake-up was lost.
    LostWakeUp,
    /// The wait for events does not end at its time now and then.
    SilentAlarm,
    /// A byte is sent twice.
    ByteTwice,
    /// A byte is not received.
    ByteLost,
    /// A socket that is dropped stays open.
    DescriptorLeaked,
    /// The end of a peer's data is not seen.
    EndUnseen,
    /// The place of an exchange is not returned.
    ExchangeKept,
    /// The place of a connection to a provider is not returned.
    ConnectionKept,
    /// A permit or held unit of a quota is not returned.
    UnitKept,
    /// A unit that was used is not counted.
    UnitUncounted,
    /// A POST is sent again after its connection was lost.
    PostRepeated,
    /// The deadline of a connection never comes.
    DeadlineMissed,
    /// A worker does not hear that it is to drain.
    DrainUnheard,
    /// A connection is kept although its response has not ended.
    UnfinishedKept,
    /// The memory of a body that was kept is not returned.
    MemoryKept,
    /// The part of a body that has arrived with its head is not sent again.
    RepeatShortened,
    /// A cache takes one resource for another.
    CacheMixed,
    /// A task of a client's connection does not end.
    TaskKept,
    /// A byte is lost when a socket takes a part of what it is given.
    TailDropped,
    /// The addresses of a name are used after the time for which they are valid.
    NameOutlived,
    /// The wait for a provider's response has no limit of its own.
    WaitUnlimited,
    /// Remedies are told the beginning of an exchange as the present time.
    TimeOfThePast,
    /// The record of an exchange is lost if another one waits.
    RecordLost,
    /// A connection over TLS that is cut is taken for one that ends.
    CutUnseen,
    /// Encrypted bytes that the socket had no room for wait for the next ones.
    RecordHeld,
    /// A provider's certificate is used after its time.
    ExpiryIgnored,
    /// Units are lent before the disk has the loan.
    LoanUnsynced,
    /// Records that an exporter could not write are not counted.
    DropUncounted,
}

impl Defect {
    /// All defects.
    pub const ALL: [Self; 28] = [
        Self::LostWakeUp,
        Self::SilentAlarm,
        Self::ByteTwice,
        Self::ByteLost,
        Self::DescriptorLeaked,
        Self::EndUnseen,
        Self::ExchangeKept,
        Self::ConnectionKept,
        Self::UnitKept,
        Self::UnitUncounted,
        Self::PostRepeated,
        Self::DeadlineMissed,
        Self::DrainUnheard,
        Self::UnfinishedKept,
        Self::MemoryKept,
        Self::RepeatShortened,
        Self::CacheMixed,
        Self::TaskKept,
        Self::TailDropped,
        Self::NameOutlived,
        Self::WaitUnlimited,
        Self::TimeOfThePast,
        Self::RecordLost,
        Self::CutUnseen,
        Self::RecordHeld,
        Self::ExpiryIgnored,
        Self::LoanUnsynced,
        Self::DropUncounted,
    ];
}

/// Begins a world: the nanoseconds of its clock, the microseconds since 1970 at this moment, the seed of all
/// chance, and a defect.
pub fn begin(now_nanos: u64, system_us: u64, seed: u64, defect: Option<Defect>) {
    NOW.set(now_nanos);
    EPOCH_US.set(system_us.wrapping_sub(now_nanos / 1_000));
    RANDOM.replace(Random::new(seed));
    PLANTED.set(defect);
}

/// Moves the clock forward to this time. It never goes back.
pub fn advance_to(nanos: u64) {
    NOW.set(NOW.get().max(nanos));
}

/// Sets the system's time forward, or back.
pub fn step_system_time(micros: i64) {
    EPOCH_US.set(EPOCH_US.get().wrapping_add_signed(micros));
}

/// Nanoseconds of the world's clock.
pub(crate) fn nanos() -> u64 {
    NOW.get()
}

/// Microseconds since 1970 by the system's time in the world.
pub(crate) fn system_us() -> u64 {
    EPOCH_US.get().wrapping_add(nanos() / 1_000)
}

/// A seed from the world's chance.
pub fn draw() -> u64 {
    RANDOM.with_borrow_mut(Random::draw)
}

/// Returns `true` if `defect` is planted.
pub fn is_planted(defect: Defect) -> bool {
    PLANTED.get() == Some(defect)
}

//! Faults as the gateway sees them: their kinds, their switch, and what is to be done to a body.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use egret_items::{opaque, words};

words! {
    /// Kinds of injected failures. Its word is the name in metrics and in the API.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum FaultKind: word {
        /// A delayed call.
        Delay => "delay",
        /// An error response in the provider's place.
        Abort => "abort",
        /// A reset connection or stream.
        Reset => "reset",
        /// A body that broke off.
        Cut => "cut",
        /// A slow body.
        Slow => "slow",
    }
}

/// The switch of a fault, and the number of failures that it has injected.
#[derive(Debug)]
pub(crate) struct FaultSignal {
    is_on: AtomicBool,
    counts: [AtomicU64; FaultKind::ALL.len()],
}

impl FaultSignal {
    pub fn new(is_on: bool) -> Self {
        Self { is_on: AtomicBool::new(is_on), counts: Default::default() }
    }

    /// Returns `true` if the switch is on.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Sets the switch.
    pub fn switch(&self, is_on: bool) {
        self.is_on.store(is_on, Relaxed);
    }

    /// Counts an injected failure.
    pub fn count(&self, kind: FaultKind) {
        self.counts[kind as usize].fetch_add(1, Relaxed);
    }

    /// The number of injected failures by kind.
    pub fn counts(&self) -> [u64; FaultKind::ALL.len()] {
        self.counts.each_ref().map(|count| count.load(Relaxed))
    }
}

/// A fault that a response's body gets on its way to the client. It ends early if it is switched off.
#[derive(Clone)]
pub struct BodyFault {
    /// The place where the body ends, as if the connection had broken there.
    pub cut: Option<Cut>,
    /// Maximum number of bytes per second.
    pub bytes_per_second: Option<u64>,
    /// Time until the fault ends by itself, from the head of the response.
    pub ends_in: Duration,
    signal: Arc<FaultSignal>,
}

/// The place where a body is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// After this number of bytes of the body, without transfer framing.
    Bytes(u64),
    /// After this number of events of an event stream; other bodies are whole.
    Events(u64),
}

impl BodyFault {
    pub(crate) fn new(
        cut: Option<Cut>,
        bytes_per_second: Option<u64>,
        ends_in: Duration,
        signal: &Arc<FaultSignal>,
    ) -> Self {
        Self { cut, bytes_per_second, ends_in, signal: Arc::clone(signal) }
    }

    /// Returns `true` until the fault is switched off.
    pub fn is_on(&self) -> bool {
        self.signal.is_on()
    }

    /// Counts a body that was cut.
    pub fn count_cut(&self) {
        self.signal.count(FaultKind::Cut);
    }
}

opaque!(BodyFault { cut, bytes_per_second, ends_in });

//! Limits of instruction counts.

use gungraun::prelude::*;
use gungraun::{Callgrind, CallgrindMetrics, EventKind};

/// The limits of a release, and of a quick build, which `make instructions QUICK=1` counts.
pub fn at_most(release: u64, quick: u64) -> LibraryBenchmarkConfig {
    let instructions = if option_env!("EGRET_QUICK").is_some() { quick } else { release };
    let limits = [(CallgrindMetrics::SingleEvent(EventKind::Ir), instructions)];
    LibraryBenchmarkConfig::default().tool(Callgrind::default().hard_limits(limits)).clone()
}

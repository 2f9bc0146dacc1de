//! The limits of the instruction counts. They are in a package of their own, so `cargo bench` needs the same
//! features of dependencies as Egret itself, and shares a quick build with it.

use gungraun::{Callgrind, CallgrindMetrics, EventKind, LibraryBenchmarkConfig};

/// Limits the instructions of a benchmark: in a release, and in a quick build, which
/// `make instructions QUICK=1` counts.
#[must_use]
pub fn at_most(release: u64, quick: u64) -> LibraryBenchmarkConfig {
    let instructions = if option_env!("EGRET_QUICK").is_some() { quick } else { release };
    let limits = [(CallgrindMetrics::SingleEvent(EventKind::Ir), instructions)];
    LibraryBenchmarkConfig::default().tool(Callgrind::default().hard_limits(limits)).clone()
}

//! Shared code of exporters that work in the background: low-priority threads, backoff between attempts, and
//! compression.

use std::io::{self, Write as _};
use std::thread::JoinHandle;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;

/// Niceness of background threads. At 19, the maximum, they would hardly run while there is other work.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// Starts a thread of low priority.
pub fn spawn(name: &'static str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        // On Linux this affects the current thread only. If it fails, the thread keeps the normal priority.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::setpriority_process(None, NICENESS);
        work();
    })
}

/// A wait that grows with each consecutive failure, up to a limit.
#[derive(Debug)]
pub struct Backoff {
    failures: u32,
    max: Duration,
}

/// Wait after the first failure.
const FIRST: Duration = Duration::from_millis(250);

impl Backoff {
    /// Returns a backoff with the given maximum wait.
    pub const fn up_to(max: Duration) -> Self {
        Self { failures: 0, max }
    }

    /// Returns the wait after another failure: half of it fixed, half of it random, so that many clients do
    /// not retry at once.
    pub fn next(&mut self) -> Duration {
        let whole = FIRST.saturating_mul(1 << self.failures.min(16)).min(self.max);
        self.failures = self.failures.saturating_add(1);
        let chance = u32::from_le_bytes(random()) >> 16;
        whole / 2 + whole / 2 * chance / (1 << 16)
    }

    /// Resets the wait after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Returns `true` if the last attempt failed.
    pub fn is_waiting(&self) -> bool {
        self.failures > 0
    }
}

/// Returns random bytes, or zeros if the system has none. With zeros, waits are equal and names may collide;
/// callers handle both.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    if egret_clock::IS_SIMULATED {
        // A simulated world must repeat exactly.
        let drawn = egret_clock::Random::default().draw().to_le_bytes();
        bytes.iter_mut().zip(drawn.iter().cycle()).for_each(|(byte, drawn)| *byte = *drawn);
    } else if aws_lc_rs::rand::fill(&mut bytes).is_err() {
        bytes.fill(0);
    }
    bytes
}

/// Compresses a body with gzip at the fastest level.
pub fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory cannot fail.
    let _ = encoder.write_all(body);
    encoder.finish().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_grows_up_to_its_bound_and_begins_anew() {
        let max = Duration::from_secs(2);
        let mut backoff = Backoff::up_to(max);
        let waits: Vec<Duration> = (0..40).map(|_| backoff.next()).collect();
        for (number, wait) in waits.iter().enumerate() {
            let whole = FIRST.saturating_mul(1 << number.min(16)).min(max);
            assert!((whole / 2..=whole).contains(wait), "{number}: {wait:?}");
        }
        backoff.reset();
        assert!(!backoff.is_waiting() && backoff.next() <= FIRST && backoff.is_waiting());
    }
}

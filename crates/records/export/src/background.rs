//! What exporters that work in the background have in common: threads that give way to traffic, how long to wait before an attempt is
//! made again, compression.

use std::io::{self, Write as _};
use std::thread::JoinHandle;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;

/// How far work in the background steps back; 19 would be never while there is other work.
const NICENESS: i32 = 10;

/// Starts a thread of low priority.
pub fn spawn(name: &'static str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        // Of this thread alone, on Linux. Where it cannot be had, work is done at the priority of all.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::setpriority_process(None, NICENESS);
        work();
    })
}

/// Grows with each attempt that fails in a row, up to a bound.
#[derive(Debug)]
pub struct Backoff {
    failures: u32,
    max: Duration,
}

/// The wait after the first attempt that failed.
const FIRST: Duration = Duration::from_millis(250);

impl Backoff {
    /// Never longer than `max`.
    pub const fn up_to(max: Duration) -> Self {
        Self { failures: 0, max }
    }

    /// How long to wait after one more that failed: half of it fixed, half of it by chance, so that many do not come back at once.
    pub fn next(&mut self) -> Duration {
        let whole = FIRST.saturating_mul(1 << self.failures.min(16)).min(self.max);
        self.failures = self.failures.saturating_add(1);
        let chance = u32::from_le_bytes(random()) >> 16;
        whole / 2 + whole / 2 * chance / (1 << 16)
    }

    /// An attempt went well.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Whether the last attempt failed.
    pub fn is_waiting(&self) -> bool {
        self.failures > 0
    }
}

/// Random bytes; zeros where the system has none, which only makes waits alike and names collide, both of which are seen to.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    if aws_lc_rs::rand::fill(&mut bytes).is_err() {
        bytes.fill(0);
    }
    bytes
}

/// Compressed by gzip, quickly rather than well.
pub fn packed(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    // Memory takes everything.
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

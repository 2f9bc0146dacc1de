//! CPU usage of the load client's threads: a thread without time to spare measures itself instead of the
//! target.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Share of its time from which a thread counts as the bottleneck.
const BUSY: f64 = 0.9;

/// CPU usage of a thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CpuUsage {
    started: Instant,
    elapsed: Duration,
    spent: CpuTimes,
}

/// The uses of a thread's time since it started.
#[derive(Debug, Clone, Copy, Default)]
struct CpuTimes {
    /// Time spent computing.
    cpu: Duration,
    /// Time spent ready to run but waiting for a processor.
    delayed: Duration,
}

impl CpuUsage {
    /// Starts measuring the calling thread.
    pub fn start() -> Self {
        Self { started: Instant::now(), elapsed: Duration::ZERO, spent: CpuTimes::by_now() }
    }

    /// Stops measuring.
    pub fn stop(&mut self) {
        let now = CpuTimes::by_now();
        self.spent.cpu = now.cpu.saturating_sub(self.spent.cpu);
        self.spent.delayed = now.delayed.saturating_sub(self.spent.delayed);
        self.elapsed = self.started.elapsed();
    }

    /// Share of its time that the thread spent computing, 0 to 1.
    pub fn cpu_share(&self) -> f64 {
        share(self.spent.cpu, self.elapsed)
    }

    /// Share of its time that the thread wanted to compute: computing plus waiting for a processor.
    pub fn wanted_share(&self) -> f64 {
        share(self.spent.cpu + self.spent.delayed, self.elapsed)
    }

    /// Returns `true` if the thread had no time to spare.
    pub fn is_saturated(&self) -> bool {
        // A very short run has no steady state.
        self.elapsed > Duration::from_millis(20) && self.wanted_share() >= BUSY
    }
}

fn share(part: Duration, whole: Duration) -> f64 {
    if whole.is_zero() { 0.0 } else { (part.as_secs_f64() / whole.as_secs_f64()).min(1.0) }
}

impl CpuTimes {
    /// Usage of the calling thread so far. Without `schedstat`, the time spent waiting for a processor is
    /// unknown and counts as zero.
    fn by_now() -> Self {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let mut nanos = text.split_ascii_whitespace().map_while(|nanos| nanos.parse().ok());
        match (nanos.next(), nanos.next()) {
            (Some(cpu), Some(delayed)) => {
                Self { cpu: Duration::from_nanos(cpu), delayed: Duration::from_nanos(delayed) }
            }
            _ => Self {
                cpu: Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default(),
                delayed: Duration::ZERO,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_computing_thread_is_saturated() {
        // By its own clock, it computes for as long on a busy machine.
        let cpu = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
        let mut busy = CpuUsage::start();
        let begun = cpu();
        while cpu() < begun + Duration::from_millis(60) {
            std::hint::spin_loop();
        }
        busy.stop();
        assert!(busy.wanted_share() >= busy.cpu_share());
        let (_sender, receiver) = std::sync::mpsc::channel::<()>();
        let mut lazy = CpuUsage::start();
        // After its rest, the thread may wait for a processor, which counts as wanting to compute.
        let _ = receiver.recv_timeout(Duration::from_millis(500));
        lazy.stop();
        assert!(!lazy.is_saturated(), "{lazy:?}");
        assert!(busy.cpu_share() > lazy.cpu_share(), "{busy:?} {lazy:?}");
    }
}

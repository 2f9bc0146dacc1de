//! The cores that this process may use, and the pinning of programs to them.

#[cfg(target_os = "linux")]
pub(crate) use linux::{cores, pinned};
#[cfg(not(target_os = "linux"))]
pub(crate) use other::{cores, pinned};

#[cfg(target_os = "linux")]
mod linux {
    use std::io;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    /// The cores that this process may use.
    pub(crate) fn cores() -> Vec<usize> {
        let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
    }

    /// Runs `start` with the calling thread pinned to a core. A child inherits the pinning.
    pub(crate) fn pinned<T>(core: Option<usize>, start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let Some(core) = core else { return start() };
        let before = sched_getaffinity(None)?;
        let mut only = CpuSet::new();
        only.set(core);
        sched_setaffinity(None, &only)?;
        let started = start();
        sched_setaffinity(None, &before)?;
        started
    }
}

#[cfg(not(target_os = "linux"))]
mod other {
    use std::io;

    /// The cores of the machine.
    pub(crate) fn cores() -> Vec<usize> {
        (0..std::thread::available_parallelism().map_or(1, Into::into)).collect()
    }

    /// Fails: a measurement needs the pinning, and the CPU time of `/proc`.
    pub(crate) fn pinned<T>(_: Option<usize>, _: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        Err(io::Error::other("experiments measure by the interfaces of Linux, which this system lacks"))
    }
}

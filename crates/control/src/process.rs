//! Resource usage of the process, read from `/proc/self`; empty on systems without it.

use std::fs;

/// Resource usage. Values that could not be read are `None` and are not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Process {
    /// CPU time of all threads, user and system, in milliseconds.
    pub cpu_ms: Option<u64>,
    /// Resident memory, in bytes.
    pub resident_bytes: Option<u64>,
    /// Open file descriptors.
    pub open_fds: Option<u64>,
    /// The limit of open file descriptors.
    pub max_fds: Option<u64>,
    /// Threads.
    pub threads: Option<u64>,
}

/// Reads the limit of open file descriptors alone, which takes no longer the more of them are open.
pub fn limits() -> Process {
    Process { max_fds: read_max_fds(), ..Process::default() }
}

/// `/proc` counts CPU time in units of `USER_HZ`, which is 100 per second wherever Egret runs.
const TICK_MS: u64 = 10;

/// Reads the current values.
pub fn read() -> Process {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    Process {
        cpu_ms: fs::read_to_string("/proc/self/stat").ok().and_then(|stat| cpu_ms(&stat)),
        resident_bytes: field(&status, "VmRSS:").and_then(|kib| kib.checked_mul(1024)),
        open_fds: open_fds(),
        max_fds: read_max_fds(),
        threads: field(&status, "Threads:"),
    }
}

/// Returns the sum of utime and stime, fields 14 and 15 of `proc_pid_stat(5)`. Field 2 is the program's name
/// in parentheses and may hold any character, so counting starts after the last parenthesis.
fn cpu_ms(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    user.checked_add(system)?.checked_mul(TICK_MS)
}

/// Returns the number in a line of `proc_pid_status(5)`.
fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

fn open_fds() -> Option<u64> {
    let entries = fs::read_dir("/proc/self/fd").ok()?.count();
    // One entry is the directory being read.
    u64::try_from(entries.saturating_sub(1)).ok()
}

fn read_max_fds() -> Option<u64> {
    fs::read_to_string("/proc/self/limits").ok().and_then(|limits| max_fds(&limits))
}

/// Returns the soft limit in a line of `proc_pid_limits(5)`; `None` if there is no limit.
fn max_fds(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_a_program_name_with_parentheses_and_spaces() {
        let stat = "42 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 250 31 0 0 20 0 4 0 0 0 0";
        assert_eq!(cpu_ms(stat), Some(2_810));
        assert_eq!(cpu_ms("42 (cut"), None);
    }

    #[test]
    fn a_line_of_the_status_is_read_without_its_unit() {
        let status = "Name:\tegret\nVmRSS:\t   12345 kB\nThreads:\t4\n";
        assert_eq!(
            (field(status, "VmRSS:"), field(status, "Threads:"), field(status, "VmHWM:")),
            (Some(12_345), Some(4), None)
        );
    }

    #[test]
    fn the_limit_of_open_files_is_the_soft_one() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 4096                 files\n";
        assert_eq!(max_fds(limits), Some(1_024));
        assert_eq!(
            max_fds("Max open files            unlimited            unlimited            files\n"),
            None
        );
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_living_process_uses_memory_descriptors_and_threads() {
        let process = read();
        assert!(
            process.resident_bytes > Some(1 << 16)
                && process.open_fds >= Some(1)
                && process.max_fds >= process.open_fds
                && process.threads >= Some(1),
            "{process:?}"
        );
        assert!(process.cpu_ms.is_some());
    }
}

//! The machine and the limits of this process.

use std::fs;

use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};

/// Returns the facts about the machine that matter to a gateway. Those that cannot be read are `null`.
pub fn facts() -> Value {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let files = getrlimit(Resource::Nofile);
    json!({
        "kernel": first_line("/proc/sys/kernel/osrelease"),
        "architecture": std::env::consts::ARCH,
        "system": std::env::consts::OS,
        "cores": std::thread::available_parallelism().ok().map(usize::from),
        "memory_bytes": meminfo(&memory, "MemTotal:"),
        "memory_available_bytes": meminfo(&memory, "MemAvailable:"),
        "cgroup_memory_max": first_line("/sys/fs/cgroup/memory.max"),
        "cgroup_cpu_max": first_line("/sys/fs/cgroup/cpu.max"),
        "load": first_line("/proc/loadavg"),
        "open_files_soft": files.current,
        "open_files_hard": files.maximum,
    })
}

fn first_line(file: &str) -> Option<String> {
    fs::read_to_string(file).ok()?.lines().next().map(str::to_owned)
}

/// Returns a value of `proc_meminfo(5)` in bytes.
fn meminfo(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        let text = "MemTotal:        2048 kB\nMemFree: 1 kB\n";
        assert_eq!((meminfo(text, "MemTotal:"), meminfo(text, "MemAvailable:")), (Some(2 << 20), None));
        assert!(facts()["cores"].as_u64() > Some(0));
    }
}

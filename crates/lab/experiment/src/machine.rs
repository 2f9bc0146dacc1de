//! The properties of the machine that influence the figures of an experiment.

use serde::{Deserialize, Serialize};

use crate::affinity;

/// The machine of an experiment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct Machine {
    /// Host name.
    pub host: String,
    /// Name of the processor.
    pub processor: String,
    /// Number of cores available to the experiment.
    pub cores: usize,
    /// Total memory in bytes.
    pub memory_bytes: u64,
    /// Name and release of the kernel.
    pub kernel: String,
    /// Name of the distribution.
    pub system: String,
    /// Frequency governor of the processor, if the kernel reports it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub frequency_governor: Option<String>,
}

impl Machine {
    /// Detects the machine.
    pub fn detect() -> Self {
        let name = rustix::system::uname();
        let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        let value = |file: &str, key: &str, separator: char| {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(separator)?.1.trim().trim_matches('"').to_owned())
        };
        let memory_kib =
            value("/proc/meminfo", "MemTotal", ':').and_then(|text| text.split(' ').next()?.parse().ok());
        let governor = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
        Self {
            host: text(name.nodename()),
            processor: value("/proc/cpuinfo", "model name", ':').unwrap_or_else(|| text(name.machine())),
            cores: affinity::cores().len(),
            memory_bytes: memory_kib.unwrap_or(0_u64) << 10,
            kernel: format!("{} {}", text(name.sysname()), text(name.release())),
            system: value("/etc/os-release", "PRETTY_NAME", '=').unwrap_or_default(),
            frequency_governor: governor.ok().map(|text| text.trim().to_owned()),
        }
    }
}

/// Identifies the running system: the same in all containers and network namespaces of a machine.
pub(crate) fn boot_id() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

/// The user who runs the experiment. An nginx started by root would otherwise run its workers as a user who
/// may not read the results.
pub(crate) fn user() -> String {
    let id = rustix::process::geteuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == id).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| "root".into())
}

/// The load average of the last minute: the number of threads that were running or ready to run.
pub(crate) fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

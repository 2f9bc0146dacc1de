//! The machine that an experiment ran on, as far as figures depend on it.

use serde::{Deserialize, Serialize};

use super::process;

/// A machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct Machine {
    /// Its name in the network.
    pub host: String,
    /// The processor's name.
    pub processor: String,
    /// Cores that the experiment could use.
    pub cores: usize,
    /// Memory in all.
    pub memory_bytes: u64,
    /// The kernel's name and release.
    pub kernel: String,
    /// The distribution.
    pub system: String,
    /// How the processor chooses its frequency, where the kernel tells.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub frequency_governor: Option<String>,
}

impl Machine {
    /// Looks around.
    pub fn look() -> Self {
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
            cores: process::cores().len(),
            memory_bytes: memory_kib.unwrap_or(0_u64) << 10,
            kernel: format!("{} {}", text(name.sysname()), text(name.release())),
            system: value("/etc/os-release", "PRETTY_NAME", '=').unwrap_or_default(),
            frequency_governor: governor.ok().map(|text| text.trim().to_owned()),
        }
    }
}

/// The load average of the last minute: how many threads wanted to run.
pub fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

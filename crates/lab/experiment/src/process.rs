//! A process under measurement: pinned to a core, its CPU time and memory read from `/proc`, ended with its
//! turn.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};

use crate::affinity::pinned;

/// Time between SIGTERM and SIGKILL.
const STOP_GRACE: Duration = Duration::from_secs(3);

/// Interval between checks of an ending process.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Maximum number of log lines repeated in an error.
const LAST_LINES: usize = 15;

/// The parameters to start a process.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub(crate) struct Launch {
    /// Name used in messages: `the provider`, `the proxy of nginx`.
    pub name: String,
    /// Path of the program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Additional environment variables.
    pub environment: BTreeMap<String, String>,
    /// Its working directory.
    pub directory: PathBuf,
    /// File that receives standard output.
    pub stdout: PathBuf,
    /// File that receives standard error; may be the same as `stdout`.
    pub stderr: PathBuf,
    /// The core to which the process and its children are pinned.
    pub core: Option<usize>,
    /// Value of `HOME`: a separate directory, so no user's settings influence the measurement.
    pub home: PathBuf,
}

/// A running program with its children, in their own process group. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct MeasuredProcess {
    child: Child,
    log: PathBuf,
}

/// Resources used so far by the processes of a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct Usage {
    /// User and system time of all threads, in seconds.
    pub cpu_s: f64,
    /// Proportional set size: memory shared between processes counts once.
    pub memory_bytes: u64,
}

impl MeasuredProcess {
    /// Starts the process.
    pub fn start(launch: &Launch) -> io::Result<Self> {
        let stdout = File::options().create(true).append(true).open(&launch.stdout)?;
        let stderr = File::options().create(true).append(true).open(&launch.stderr)?;
        let mut command = Command::new(&launch.program);
        command.args(&launch.arguments).current_dir(&launch.directory).process_group(0);
        for name in ["http_proxy", "https_proxy", "no_proxy", "all_proxy"] {
            command.env_remove(name).env_remove(name.to_ascii_uppercase());
        }
        command
            .envs(&launch.environment)
            .env("HOME", &launch.home)
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr);
        let child = pinned(launch.core, || command.spawn())?;
        Ok(Self { child, log: launch.stderr.clone() })
    }

    /// The exit status, if the process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Resources used so far. Processes of the group that have ended do not count.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for stat in group(self.child.id()) {
            usage.cpu_s += stat.cpu_s;
            usage.memory_bytes += memory_bytes(stat.pid);
        }
        usage
    }

    /// CPU time only, which is cheaper to read.
    pub fn cpu_s(&self) -> f64 {
        group(self.child.id()).iter().map(|stat| stat.cpu_s).sum()
    }

    /// The last lines of standard error, indented for a message.
    pub fn last_lines(&self) -> String {
        last_lines(&self.log)
    }

    /// Asks the group to end, then kills its remaining processes.
    fn stop(&mut self) {
        let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) else { return };
        if self.ended().is_none() {
            // Fails if the group has ended in the meantime.
            let _ = kill_process_group(group, Signal::TERM);
            let start = Instant::now();
            while self.ended().is_none() && start.elapsed() < STOP_GRACE {
                std::thread::park_timeout(LOOK_AGAIN);
            }
        }
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Drop for MeasuredProcess {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The last lines of a log, indented, or a note that it is empty.
fn last_lines(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    if last.is_empty() { "    (no output)".into() } else { format!("    {}", last.join("\n    ")) }
}

/// Raises the limit of open files for this process and its children, as far as the system permits.
pub(crate) fn allow_many_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If this fails, a high concurrency fails visibly in the client.
    let _ = setrlimit(Resource::Nofile, limit);
}

struct Stat {
    pid: u32,
    cpu_s: f64,
}

/// Lists the processes of a group from `/proc/PID/stat`. proc(5) counts the fields from 1; the indices here
/// start after the name.
fn group(leader: u32) -> Vec<Stat> {
    let ticks_per_second = rustix::param::clock_ticks_per_second();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        let ticks = number(11)? + number(12)?;
        // Ticks are rounded down. They exceed the sum over the threads only after threads have ended, whose
        // time is then visible nowhere else.
        let cpu_s = || seconds(ticks, ticks_per_second).max(seconds(scheduled_ns(pid), 1_000_000_000));
        (number(2)? == u64::from(leader)).then(|| Stat { pid, cpu_s: cpu_s() })
    })
    .collect()
}

/// CPU time in seconds of all children that have ended and been waited for, and of their children. Resolution
/// is one tick, usually 10 ms.
pub(crate) fn ended_cpu_s() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit_once(')').map(|(_, fields)| fields).unwrap_or_default();
    let ticks =
        fields.split_ascii_whitespace().skip(13).take(2).filter_map(|field| field.parse::<u64>().ok());
    seconds(ticks.sum(), rustix::param::clock_ticks_per_second())
}

/// Time that the threads of a process spent on a core, in nanoseconds; 0 if the kernel does not report it.
fn scheduled_ns(pid: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let times = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_ascii_whitespace().next()?.parse::<u64>().ok()
    });
    times.sum()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "2^52 ns are 52 days; beyond that the error stays below a microsecond"
)]
fn seconds(ticks: u64, ticks_per_second: u64) -> f64 {
    ticks as f64 / ticks_per_second as f64
}

/// Proportional set size of a process; 0 if it has ended or belongs to another user.
fn memory_bytes(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("Pss:")?.split_ascii_whitespace().next()?.parse().ok());
    kib.unwrap_or(0_u64) << 10
}

#[cfg(test)]
mod tests;

//! A clock that stands still until a test advances it. Only test builds use it.

use std::path::PathBuf;
use std::process::Command;
use std::time::SystemTime;

use crate::process::Directory;

/// The clock of a process.
#[derive(Debug, Clone)]
pub struct Clock(PathBuf);

impl Clock {
    /// Creates a clock at `now_s`, in seconds since the epoch; its file is in `directory`. Returns `None` if
    /// another binary is tested: it may be a release build, which uses the real time.
    pub fn new(directory: &Directory, now_s: u64) -> Option<Self> {
        if std::env::var_os("EGRET_BIN").is_some() {
            println!("left out: another binary has its own time");
            return None;
        }
        Some(Self(directory.write("clock", now_s.to_string())))
    }

    /// Makes `command` use the clock.
    pub fn govern(&self, command: &mut Command) {
        command.env("EGRET_TEST_CLOCK", &self.0);
    }

    /// Sets the time.
    pub fn set(&self, now_s: u64) {
        // Renamed into place, so it is never read half written.
        let new = self.0.with_extension("new");
        std::fs::write(&new, now_s.to_string()).unwrap();
        std::fs::rename(new, &self.0).unwrap();
    }

    /// Advances the time.
    pub fn pass(&self, seconds: u64) {
        let now_s: u64 = std::fs::read_to_string(&self.0).unwrap().parse().unwrap();
        self.set(now_s + seconds);
    }
}

/// Stops the clock of `command`, which bounds how long a request waits for the disk of a cache: a second,
/// which a busy machine may exceed. A release build takes the real time.
pub fn stop_clock(command: &mut Command) {
    let file = command.get_current_dir().unwrap().join("clock");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    // Rounded up: what was stored before is not of the future.
    std::fs::write(&file, (now.as_secs() + 1).to_string()).unwrap();
    command.env("EGRET_TEST_CLOCK", file);
}

//! A clock that stands still until a test sets it on. Builds for tests alone go by it.

use std::path::PathBuf;
use std::process::Command;

use crate::process::Directory;

/// A clock that a process goes by.
#[derive(Debug, Clone)]
pub struct Clock(PathBuf);

impl Clock {
    /// A clock that says `now_s`, in seconds since the epoch; its file is in `directory`. None where another binary is put to the test,
    /// which may be a release build: that one has its own time.
    pub fn new(directory: &Directory, now_s: u64) -> Option<Self> {
        if std::env::var_os("EGRET_BIN").is_some() {
            println!("left out: another binary has its own time");
            return None;
        }
        Some(Self(directory.write("clock", now_s.to_string())))
    }

    /// Has `command` go by it.
    pub fn govern(&self, command: &mut Command) {
        command.env("EGRET_TEST_CLOCK", &self.0);
    }

    /// Sets it.
    pub fn set(&self, now_s: u64) {
        // Never seen half written.
        let new = self.0.with_extension("new");
        std::fs::write(&new, now_s.to_string()).unwrap();
        std::fs::rename(new, &self.0).unwrap();
    }

    /// Lets time pass.
    pub fn pass(&self, seconds: u64) {
        let now_s: u64 = std::fs::read_to_string(&self.0).unwrap().parse().unwrap();
        self.set(now_s + seconds);
    }
}

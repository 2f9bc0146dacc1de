//! A network namespace.

use std::ffi::OsStr;
use std::process::Command;

use crate::process::{Process, run_checked};
use crate::wait;

/// A network namespace, which exists as long as this process.
#[derive(Debug)]
pub struct Namespace(Process);

impl Namespace {
    /// Creates it, with a loopback device that is up.
    pub fn create() -> Self {
        let process = Process::start(Command::new("unshare").args(["--net", "sleep", "infinity"]));
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let is_other =
            |id: u32| std::fs::read_link(format!("/proc/{id}/ns/net")).is_ok_and(|other| other != own);
        let mut namespace = Self(process);
        wait::until_true("the namespace exists", || {
            assert!(
                namespace.0.is_running(),
                "this suite needs network namespaces, which only root may create here (`unshare --net`):\n{}",
                namespace.0.stderr()
            );
            is_other(namespace.0.id())
        });
        namespace.ip("link set lo up");
        namespace
    }

    /// The process that it belongs to.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// A command that runs in the namespace.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.id())).arg(program);
        command
    }

    /// Moves a command into the namespace.
    pub fn enclose(&self, command: &mut Command) {
        let mut enclosed = self.command(command.get_program());
        enclosed.args(command.get_args());
        if let Some(directory) = command.get_current_dir() {
            enclosed.current_dir(directory);
        }
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => enclosed.env(name, value),
                None => enclosed.env_remove(name),
            };
        }
        *command = enclosed;
    }

    /// Runs `ip` in it.
    pub fn ip(&self, words: &str) {
        run_checked(self.command("ip").args(words.split(' ')));
    }

    /// Connects it to another namespace by a cable, with these addresses on its ends.
    pub fn connect(&self, name: &str, address: &str, other: &Self, other_address: &str) {
        self.ip(&format!("link add {name} type veth peer name eth0 netns {}", other.id()));
        self.ip(&format!("addr add {address} dev {name}"));
        self.ip(&format!("link set {name} up"));
        other.ip(&format!("addr add {other_address} dev eth0"));
        other.ip("link set eth0 up");
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.0.signal("TERM");
    }
}

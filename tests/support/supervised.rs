//! The test as a service manager: receives messages about Egret, and starts it with a listening socket.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};

use crate::process::Directory;
use crate::wait::DEADLINE;

/// The socket on which a service manager receives messages.
#[derive(Debug)]
pub struct Notifications {
    socket: UnixDatagram,
    directory: Directory,
}

impl Default for Notifications {
    fn default() -> Self {
        let directory = Directory::default();
        let socket = UnixDatagram::bind(directory.join("notify")).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        Self { socket, directory }
    }
}

impl Notifications {
    /// Names the socket in the environment of a command.
    pub fn expect_from(&self, command: &mut Command) {
        command.env("NOTIFY_SOCKET", self.directory.join("notify"));
    }

    /// Waits for the next message, and returns its lines.
    pub fn next(&self) -> Vec<String> {
        let mut message = [0; 4096];
        let length = self.socket.recv(&mut message).expect("the service manager is told something");
        String::from_utf8_lossy(&message[..length]).lines().map(str::to_owned).collect()
    }

    /// Returns the number of messages that have arrived and were not read, and drops them.
    pub fn unread(&self) -> usize {
        self.socket.set_nonblocking(true).unwrap();
        let unread = std::iter::from_fn(|| self.socket.recv(&mut [0; 1]).ok()).count();
        self.socket.set_nonblocking(false).unwrap();
        unread
    }
}

/// Returns the value of a line `KEY=VALUE`.
pub fn value(message: &[String], key: &str) -> String {
    let found = message.iter().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("no {key} in {message:?}")).to_owned()
}

/// A listening socket that outlives the processes that use it, as the unit of a socket does.
#[derive(Debug)]
pub struct HeldSocket {
    listener: TcpListener,
}

impl Default for HeldSocket {
    fn default() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").unwrap() }
    }
}

impl HeldSocket {
    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// Passes the socket to a command.
    pub fn pass_to(&self, command: &mut Command) {
        pass(&self.listener, command);
    }
}

/// Passes a listening socket to a command, as descriptor 3.
pub fn pass(listener: &impl AsFd, command: &mut Command) {
    // The shell moves it there from standard output, and becomes the program without a change of its id.
    let script = "export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$0\" \"$@\" 3<&1 >/dev/null";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(command.get_program()).args(command.get_args());
    if let Some(directory) = command.get_current_dir() {
        shell.current_dir(directory);
    }
    shell.stdout(Stdio::from(listener.as_fd().try_clone_to_owned().unwrap()));
    *command = shell;
}

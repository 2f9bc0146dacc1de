//! Programs without Egret, as a baseline: in namespaces of their own, so no file of the machine changes.

use std::path::Path;
use std::process::Command;

use crate::process::Directory;

/// Puts the files of a directory in the place of the system's, and runs a command.
const MOUNT: &str = "mount --bind \"$1/hosts\" /etc/hosts && mount --bind \"$1/resolv.conf\" /etc/resolv.conf && shift && exec \"$@\"";

/// Carries connections from port 443 to a Unix socket.
const RELAY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/direct.py");

/// Returns the start of a command that runs in a mount and a network namespace of its own; the program and
/// its arguments follow. There, `names` are in `/etc/hosts`, they lead to port 443 of the loopback interface,
/// and that port leads to a Unix socket. There is no name server, and no other network. The files for that
/// are written to `directory`.
pub fn direct(directory: &Directory, names: &[&str], socket: &Path) -> Command {
    let lines = ["localhost"].iter().chain(names).map(|name| format!("127.0.0.1 {name}\n"));
    directory.write("hosts", lines.collect::<String>());
    directory.write("resolv.conf", "nameserver 127.0.0.1\n");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "--mount", "sh", "-c", MOUNT, "sh"]);
    command.args([directory.path(), Path::new("python3"), Path::new(RELAY), socket]);
    command
}

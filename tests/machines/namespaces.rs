//! Three machines with an sshd each, and a fourth one for the lab: network namespaces on one bridge, which
//! vanish with the test.

use std::path::{Path, PathBuf};
use std::process::Command;

use egret_tests::process::{Directory, Process, run, run_checked};

use egret_tests::namespace::Namespace;

/// The parts of an experiment, in the order of their addresses.
pub const PARTS: [&str; 3] = ["client", "proxy", "provider"];

/// A machine with an sshd.
#[derive(Debug)]
pub struct Machine {
    /// Ends before its namespace.
    sshd: Process,
    namespace: Namespace,
    /// Its address.
    pub address: String,
    /// The lab's directory on it.
    pub directory: PathBuf,
}

impl Machine {
    /// Kills the processes that serve connections, as if the machine had dropped them.
    pub fn drop_connections(&self) {
        let children = format!("/proc/{id}/task/{id}/children", id = self.sshd.id());
        let children = std::fs::read_to_string(children).unwrap();
        assert!(!children.trim().is_empty(), "no connection");
        run_checked(Command::new("sh").args(["-c", &format!("kill -KILL {children}")]));
    }

    /// Command lines of all processes that name the lab's directory.
    pub fn processes(&self) -> Vec<String> {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
        let directory = self.directory.display().to_string();
        // A shell and ssh have the command line for the other machine, with its quoting.
        lines.filter(|line| line.contains(&directory) && !line.starts_with("ssh ")).collect()
    }
}

/// The machines.
#[derive(Debug)]
pub struct Network {
    /// One for each part.
    pub machines: Vec<Machine>,
    lab: Namespace,
    files: Directory,
}

impl Network {
    /// Creates the namespaces and starts sshd in each.
    pub fn start() -> Self {
        let files = Directory::default();
        let key = |name: &str| {
            let file = files.join(name);
            run_checked(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&file));
            std::fs::read_to_string(file.with_extension("pub")).unwrap()
        };
        files.write("authorized_keys", key("user_key"));
        let host_key = key("host_key");
        // sshd run by root separates its privileges in this directory.
        std::fs::create_dir_all("/run/sshd").unwrap();
        let lab = Namespace::create();
        lab.ip("link add bridge type bridge");
        lab.ip("addr add 10.77.0.254/24 dev bridge");
        lab.ip("link set bridge up");
        let machines: Vec<Machine> =
            (1..).zip(PARTS).map(|(number, part)| machine(&lab, &files, number, part)).collect();
        let known = machines.iter().map(|machine| format!("[{}]:2222 {host_key}", machine.address));
        files.write("known_hosts", known.collect::<String>());
        Self { machines, lab, files }
    }

    /// The text of a file for `--on`; `keys` are more keys of each machine.
    pub fn on(&self, keys: &str) -> String {
        let (key, known) = (self.files.join("user_key"), self.files.join("known_hosts"));
        let part = |(part, machine): (&str, &Machine)| {
            let Machine { address, directory, .. } = machine;
            let reached = if part == "client" { String::new() } else { format!(", address: {address}") };
            format!(
                "{part}: {{ ssh: {user}@{address}, directory: {directory:?}{reached}{keys}, ssh_options: [Port=2222, \
                 IdentityFile={key}, IdentitiesOnly=yes, UserKnownHostsFile={known}, StrictHostKeyChecking=yes] }}\n",
                user = user(),
                key = key.display(),
                known = known.display(),
            )
        };
        PARTS.into_iter().zip(&self.machines).map(part).collect()
    }

    /// Makes all host keys wrong.
    pub fn forget_host_keys(&self) {
        self.files.write("known_hosts", "");
    }

    /// A command on the machine of the lab.
    pub fn command(&self, program: &Path) -> Command {
        self.lab.command(program)
    }
}

fn user() -> String {
    run_checked(Command::new("id").arg("-un")).trim().to_owned()
}

fn machine(lab: &Namespace, files: &Directory, number: u8, part: &str) -> Machine {
    let namespace = Namespace::create();
    let address = format!("10.77.0.{number}");
    lab.ip(&format!("link add to-{part} type veth peer name eth0 netns {}", namespace.id()));
    lab.ip(&format!("link set to-{part} master bridge up"));
    namespace.ip(&format!("addr add {address}/24 dev eth0"));
    namespace.ip("link set eth0 up");
    let config = format!(
        "Port 2222\nListenAddress {address}\nHostKey {directory}/host_key\nPidFile none\nUsePAM no\nStrictModes no\n\
         AuthorizedKeysFile {directory}/authorized_keys\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         PermitRootLogin prohibit-password\n",
        directory = files.path().display()
    );
    let config = files.write(&format!("sshd-{part}"), config);
    let sshd = run(Command::new("sh").args(["-c", "PATH=$PATH:/usr/sbin command -v sshd"]));
    let sshd = String::from_utf8(sshd.stdout).unwrap();
    assert!(!sshd.is_empty(), "sshd is not installed: run `make test-machines`, which installs it");
    let sshd = Process::start(namespace.command(sshd.trim()).args(["-D", "-e", "-f"]).arg(config));
    sshd.until_prints("sshd listens", |lines| {
        lines.iter().any(|line| line.starts_with("Server listening on")).then_some(())
    });
    // A name that a shell would take apart, or run.
    let directory = files.join(&format!("{part}'s $(touch injected) \"lab\""));
    Machine { sshd, namespace, address, directory }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.sshd.signal("TERM");
    }
}

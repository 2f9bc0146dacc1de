//! The connection to an agent on another machine, through OpenSSH's client.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{Context, SHA256};
use parking_lot::Mutex;

use super::agent::GREETING;
use super::frame;
use super::order::{Order, Reply};
use super::quote::script_line;
use crate::config::MachineConfig;

/// Maximum time until the agent's first line.
const GREETING_DEADLINE: Duration = Duration::from_secs(30);

/// Maximum time until a reply. The longest order, to end a process, takes three seconds.
const REPLY_DEADLINE: Duration = Duration::from_mins(1);

/// Maximum time for the agent to end its processes after the end of the connection.
const END_GRACE: Duration = Duration::from_secs(10);

/// Maximum time to read what an ended ssh has printed.
const RECORD_GRACE: Duration = Duration::from_secs(1);

/// Interval between checks of an ending ssh.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Maximum number of lines kept of what ssh prints.
const LINES_MAX: usize = 15;

/// Maximum length of such a line, and of the output before the agent's first line, in bytes.
const LINE_BYTES_MAX: u64 = 64 << 10;

// Each script is one line, which every login shell passes on.

/// Prints the checksum of a program, if it is there. `$1` is the directory, `$2` the name of the program.
const CHECK: &str = r#"if test -f "$1/$2"; then sha256sum "$1/$2"; fi"#;

/// Refuses a directory of another user, who could replace the program.
macro_rules! own_directory {
    () => {
        r#"test -O "$1" || { echo "$1 belongs to another user" >&2; exit 1; }; "#
    };
}

/// Stores the standard input as program and prints its checksum.
const INSTALL: &str = concat!(
    r#"umask 077; mkdir -p "$1" || exit; "#,
    own_directory!(),
    r#"cat >"$1/$2.$$" && chmod 700 "$1/$2.$$" && mv -f "$1/$2.$$" "$1/$2" && sha256sum "$1/$2""#
);

/// Starts the installed program as agent.
const RUN_INSTALLED: &str = concat!(own_directory!(), r#"exec "$1/$2" lab agent "$1""#);

/// Starts another program as agent.
const RUN_GIVEN: &str = r#"exec "$2" lab agent "$1""#;

/// The reason why an agent cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SshError {
    /// A file of this machine cannot be read, or ssh cannot be started.
    #[error("{0}: {1}")]
    Io(String, io::Error),
    /// Egret's program could not be copied: ssh's exit status, and what it printed.
    #[error("Egret's program cannot be copied there: {0}")]
    NotCopied(String),
    /// The agent did not start: ssh's exit status, and what it printed.
    #[error("`egret lab agent` did not start there: {0}")]
    NotStarted(String),
    /// The other machine's Egret speaks another version of the protocol.
    #[error(
        "its Egret is of another version (`{0}`, expected `{GREETING}`): leave out `egret` to have it copied"
    )]
    OtherVersion(String),
    /// The connection has ended: ssh's exit status, and what it printed.
    #[error("the connection was lost: {0}")]
    Lost(String),
    /// No reply arrived in time.
    #[error("no reply within {} s", REPLY_DEADLINE.as_secs())]
    Silent,
    /// A reply that cannot be read.
    #[error("a reply cannot be read: {0}")]
    Malformed(io::Error),
}

/// The last lines that ssh has printed to its standard error.
#[derive(Debug, Clone, Default)]
struct LastWords(Arc<Mutex<VecDeque<String>>>);

impl LastWords {
    fn lines(&self) -> Vec<String> {
        self.0.lock().iter().cloned().collect()
    }

    fn add(&self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let text: String = text.trim_end().chars().map(|c| if c.is_control() { '.' } else { c }).collect();
        let mut lines = self.0.lock();
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(text);
    }
}

/// An item from the reading thread.
enum Incoming {
    /// The first line that looks like the agent's.
    Greeting(String),
    /// A reply with its content.
    Reply(Reply, Vec<u8>),
    /// A reply that cannot be read; the last item.
    Malformed(io::Error),
}

/// A connection with an agent at its other end. Dropping it ends the agent and all its processes.
#[derive(Debug)]
pub(crate) struct SshConnection {
    child: Child,
    /// `None` once it was closed.
    input: Option<ChildStdin>,
    incoming: Receiver<Incoming>,
    words: LastWords,
    /// Disconnected once all that ssh printed is recorded.
    recorded: Receiver<()>,
}

impl SshConnection {
    /// Connects to a machine, copies Egret's program there if necessary, and starts the agent.
    pub fn open(machine: &MachineConfig, egret: &Path) -> Result<Self, SshError> {
        let directory = machine.directory();
        let line = match &machine.egret {
            Some(given) => script_line(RUN_GIVEN, &[directory, given]),
            None => script_line(RUN_INSTALLED, &[directory, &install(machine, egret)?]),
        };
        let mut connection = Self::start(&mut ssh(machine, &line))?;
        match connection.next(GREETING_DEADLINE) {
            Ok(Incoming::Greeting(line)) if line == GREETING => Ok(connection),
            Ok(Incoming::Greeting(line)) => Err(SshError::OtherVersion(line)),
            Ok(_) | Err(RecvTimeoutError::Timeout) => Err(SshError::NotStarted("no output".into())),
            Err(RecvTimeoutError::Disconnected) => Err(SshError::NotStarted(connection.end())),
        }
    }

    fn start(command: &mut Command) -> Result<Self, SshError> {
        let failed = |error| SshError::Io("ssh cannot be started".into(), error);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let (input, output, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let words = LastWords::default();
        let ((sender, incoming), (recording, recorded)) = (sync_channel(1), sync_channel(0));
        let connection = Self { child, input, incoming, words: words.clone(), recorded };
        let spawn = |name: &str, read: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.into()).spawn(read).map(drop).map_err(failed)
        };
        if let Some(stderr) = stderr {
            spawn(
                "egret-ssh-errors",
                Box::new(move || {
                    record(stderr, &words);
                    drop(recording);
                }),
            )?;
        }
        if let Some(output) = output {
            let read = move || {
                let mut output = BufReader::new(output);
                if let Some(greeting) = greeting(&mut output) {
                    let _ = sender.send(Incoming::Greeting(greeting));
                    pass_on_replies(&mut output, &sender);
                }
            };
            spawn("egret-ssh-replies", Box::new(read))?;
        }
        Ok(connection)
    }

    /// Has the agent carry out an order. Returns its reply and the content of it.
    pub fn order(&mut self, order: &Order, content: &[u8]) -> Result<(Reply, Vec<u8>), SshError> {
        let sent = self.input.as_mut().map(|input| frame::write(input, order, content));
        if !matches!(sent, Some(Ok(()))) {
            return Err(SshError::Lost(self.end()));
        }
        match self.next(REPLY_DEADLINE) {
            Ok(Incoming::Reply(reply, content)) => Ok((reply, content)),
            Ok(Incoming::Malformed(error)) => Err(SshError::Malformed(error)),
            Ok(Incoming::Greeting(line)) => Err(SshError::OtherVersion(line)),
            Err(RecvTimeoutError::Timeout) => {
                // A late reply would be taken for that of the next order.
                self.end();
                Err(SshError::Silent)
            }
            Err(RecvTimeoutError::Disconnected) => Err(SshError::Lost(self.end())),
        }
    }

    fn next(&self, deadline: Duration) -> Result<Incoming, RecvTimeoutError> {
        self.incoming.recv_timeout(deadline)
    }

    /// Closes the connection, which ends the agent, and waits for ssh. Returns its exit status with the last
    /// lines that it printed.
    fn end(&mut self) -> String {
        drop(self.input.take());
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && start.elapsed() < END_GRACE {
            std::thread::park_timeout(LOOK_AGAIN);
        }
        // Fails if it has ended.
        let _ = self.child.kill();
        let status = self.child.wait().map(|status| status.to_string()).unwrap_or_default();
        // A process that ssh leaves behind may hold its standard error open.
        let _ = self.recorded.recv_timeout(RECORD_GRACE);
        described(&status, &self.words.lines())
    }
}

impl Drop for SshConnection {
    fn drop(&mut self) {
        self.end();
    }
}

/// Describes how ssh ended.
fn described(status: &str, lines: &[String]) -> String {
    lines.iter().fold(format!("ssh ended ({status})"), |text, line| text + "\n    " + line)
}

/// Records the lines of standard error.
fn record(stderr: impl io::Read, words: &LastWords) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    while stderr.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        words.add(&line);
        line.clear();
    }
}

/// Finds the agent's first line. A login shell may print other lines before it.
fn greeting(output: &mut impl io::BufRead) -> Option<String> {
    let name = GREETING.split(' ').next().unwrap_or_default();
    let mut output = output.take(LINE_BYTES_MAX);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(&line);
        if text.starts_with(name) {
            return Some(text.trim_end().to_owned());
        }
        line.clear();
    }
    None
}

fn pass_on_replies(output: &mut impl io::BufRead, sender: &std::sync::mpsc::SyncSender<Incoming>) {
    while let Some(reply) = frame::read(output).transpose() {
        let is_last = reply.is_err();
        let incoming =
            reply.map_or_else(Incoming::Malformed, |(reply, content)| Incoming::Reply(reply, content));
        if sender.send(incoming).is_err() || is_last {
            return;
        }
    }
}

/// The command that runs a command line on the machine. Its input and output are not set.
fn ssh(machine: &MachineConfig, line: &str) -> Command {
    let mut command = Command::new("ssh");
    // `-T`, `-a`, `-x`: no terminal, and no forwarding of the user's agent or display. In ssh the first value
    // of an option counts.
    command.args("-T -a -x -o BatchMode=yes -o RemoteCommand=none -o ClearAllForwardings=yes".split(' '));
    for option in &machine.ssh_options {
        command.args(["-o", option]);
    }
    command.args(["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3", "-o", "ConnectTimeout=10"]);
    command.args(["--", machine.ssh.as_deref().unwrap_or_default(), line]);
    // A group of its own: Ctrl-C interrupts the lab, which then ends the agents in order.
    command.stderr(Stdio::piped()).process_group(0);
    command
}

/// Copies Egret's program to the machine unless it is there. Returns its file name, which contains its
/// checksum.
fn install(machine: &MachineConfig, egret: &Path) -> Result<String, SshError> {
    let unread = |error| SshError::Io(egret.display().to_string(), error);
    let sum = checksum(egret).map_err(unread)?;
    let name = format!("egret-{}", &sum[..16]);
    let run = |script: &str, input: Stdio| -> Result<bool, SshError> {
        let line = script_line(script, &[machine.directory(), &name]);
        let output = ssh(machine, &line).stdin(input).output();
        let output = output.map_err(|error| SshError::Io("ssh cannot be started".into(), error))?;
        if !output.status.success() {
            let words = LastWords::default();
            record(output.stderr.as_slice(), &words);
            return Err(SshError::NotCopied(described(&output.status.to_string(), &words.lines())));
        }
        Ok(String::from_utf8_lossy(&output.stdout).contains(&sum))
    };
    if !run(CHECK, Stdio::null())? && !run(INSTALL, File::open(egret).map_err(unread)?.into())? {
        return Err(SshError::NotCopied("its checksum differs there, or there is no sha256sum".into()));
    }
    Ok(name)
}

/// SHA-256 of a file, in hexadecimal digits.
fn checksum(file: &Path) -> io::Result<String> {
    let mut file = File::open(file)?;
    let mut context = Context::new(&SHA256);
    let mut piece = vec![0; 64 << 10];
    loop {
        let length = file.read(&mut piece)?;
        if length == 0 {
            break;
        }
        context.update(&piece[..length]);
    }
    let mut digits = String::new();
    for byte in context.finish().as_ref() {
        let _ = write!(digits, "{byte:02x}");
    }
    Ok(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection whose other end is a shell script instead of ssh.
    fn connection(script: &str) -> SshConnection {
        let mut command = Command::new("sh");
        SshConnection::start(command.args(["-c", script]).stderr(Stdio::piped())).unwrap()
    }

    #[test]
    fn lines_before_the_greeting_are_skipped() {
        let mut output = "Welcome!\n\negret-lab-agent 7\nrest\n".as_bytes();
        assert_eq!(greeting(&mut output).as_deref(), Some("egret-lab-agent 7"));
        assert_eq!(output, b"rest\n");
        assert_eq!(greeting(&mut "Permission denied\n".as_bytes()), None);
        let endless = vec![b'x'; 1 << 20];
        assert_eq!(greeting(&mut endless.as_slice()), None);
    }

    #[test]
    fn a_lost_connection_says_how_it_ended() {
        let mut lost = connection(&format!("echo {GREETING}; echo 'Connection reset' >&2; exit 255"));
        assert!(matches!(lost.next(GREETING_DEADLINE), Ok(Incoming::Greeting(line)) if line == GREETING));
        // The thread that records may get no time within the grace for it.
        let _ = lost.recorded.recv();
        let error = lost.order(&Order::Introduce, b"").unwrap_err().to_string();
        assert_eq!(error, "the connection was lost: ssh ended (exit status: 255)\n    Connection reset");
    }

    #[test]
    fn replies_are_received_and_nonsense_is_refused() {
        let mut agent = connection(&format!(
            "echo {GREETING}; read order; echo '{{\"message\":{{\"text\":\"hi\"}}}}'; read order; echo no; cat >/dev/null"
        ));
        assert!(matches!(agent.next(GREETING_DEADLINE), Ok(Incoming::Greeting(_))));
        let (reply, _) = agent.order(&Order::Ended(1), b"").unwrap();
        assert!(matches!(reply, Reply::Text(Some(text)) if text == "hi"));
        let error = agent.order(&Order::Ended(1), b"").unwrap_err().to_string();
        assert!(error.starts_with("a reply cannot be read: "), "{error}");
    }

    #[test]
    fn a_destination_is_never_an_option_and_nobody_is_asked() {
        let machine = MachineConfig {
            ssh: Some("me@there".into()),
            ssh_options: vec!["Port=2222".into()],
            ..MachineConfig::default()
        };
        let command = ssh(&machine, "line");
        let words: Vec<&str> = command.get_args().filter_map(std::ffi::OsStr::to_str).collect();
        assert_eq!(words[words.len() - 3..], ["--", "me@there", "line"]);
        let at = |word: &str| words.iter().position(|each| *each == word).unwrap();
        assert!(at("BatchMode=yes") < at("Port=2222") && at("Port=2222") < at("ConnectTimeout=10"));
    }

    #[test]
    fn a_checksum_is_that_of_the_content() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        std::fs::write(&file, "abc").unwrap();
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(checksum(&file).unwrap(), expected);
    }

    #[test]
    fn the_scripts_install_a_program_and_find_it_again() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("it's a directory");
        let run = |script: &str, input: Stdio| {
            let line = script_line(script, &[directory.to_str().unwrap(), "egret-1"]);
            let output = Command::new("sh").args(["-c", &line]).stdin(input).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(run(CHECK, Stdio::null()), "");
        let program = root.path().join("program");
        std::fs::write(&program, "#!/bin/sh\necho \"$@\"\n").unwrap();
        let sum = checksum(&program).unwrap();
        assert!(run(INSTALL, File::open(&program).unwrap().into()).contains(&sum));
        assert!(run(CHECK, Stdio::null()).contains(&sum));
        assert_eq!(run(RUN_INSTALLED, Stdio::null()), format!("lab agent {}\n", directory.display()));
        let files: Vec<_> =
            std::fs::read_dir(&directory).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(files, ["egret-1"], "no draft is left");
    }
}

//! Child processes that end with the test, and their resource usage.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use crate::sockets;
use crate::wait::{self, Watched};

/// Maximum time of a program that a test runs to its end: one that hangs fails its test and not all of them.
pub(crate) const RUN_DEADLINE: Duration = Duration::from_mins(8);

/// A running program whose output is recorded; killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    lines: Arc<Watched<Lines>>,
    printed: Arc<Watched<Lines>>,
}

/// The times of a thread, as the system counts them.
#[derive(Debug)]
pub struct ThreadTimes {
    number: u32,
    running: Duration,
    /// Time for which it was ready to run, and waited for a processor.
    pub queued: Duration,
}

impl ThreadTimes {
    /// Reads those of a thread's directory below `/proc`.
    fn read(thread: &Path) -> Option<Self> {
        let number = thread.file_name()?.to_str()?.parse().ok()?;
        let text = std::fs::read_to_string(thread.join("schedstat")).ok()?;
        let mut times = text.split(' ').map(|nanos| nanos.parse().map(Duration::from_nanos).ok());
        Some(Self { number, running: times.next()??, queued: times.next()?? })
    }
}

/// The output of a program so far.
#[derive(Debug, Default)]
struct Lines {
    lines: Vec<String>,
    ended: bool,
}

/// Records a stream of a program.
fn record(stream: Option<impl Read + Send + 'static>) -> Arc<Watched<Lines>> {
    let lines = Arc::new(Watched::<Lines>::default());
    let recorded = Arc::clone(&lines);
    thread::spawn(move || {
        for line in
            stream.into_iter().flat_map(|stream| BufReader::new(stream).split(b'\n')).map_while(Result::ok)
        {
            recorded.change(|recorded| recorded.lines.push(String::from_utf8_lossy(&line).into_owned()));
        }
        recorded.change(|recorded| recorded.ended = true);
    });
    lines
}

/// Waits until `find` finds something in the lines of a stream. Fails if the program ends first.
fn until<T>(stream: &Watched<Lines>, event: &str, find: impl Fn(&[String]) -> Option<T>) -> T {
    let found = stream.until(event, |lines| match find(&lines.lines) {
        Some(found) => Some(Ok(found)),
        None => lines.ended.then(|| Err(lines.lines.join("\n"))),
    });
    found.unwrap_or_else(|lines| panic!("the program ended before {event}; its output:\n{lines}"))
}

impl Process {
    /// Starts a program without input, and records its standard error.
    pub fn start(command: &mut Command) -> Self {
        Self::of(command.stdin(Stdio::null()))
    }

    /// Starts a program, and records its standard output too. Its input stays open.
    pub fn printing(command: &mut Command) -> Self {
        Self::of(command.stdin(Stdio::piped()).stdout(Stdio::piped()))
    }

    fn of(command: &mut Command) -> Self {
        let child = command.stderr(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let (lines, printed) = (record(child.stderr.take()), record(child.stdout.take()));
        Self { child, lines, printed }
    }

    /// Writes a line to its input, if that is open.
    pub fn enter(&mut self, line: &str) {
        self.child.stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its standard error so far.
    pub fn stderr(&self) -> String {
        self.lines.read(|stderr| stderr.lines.join("\n"))
    }

    /// Waits until `find` finds something in the lines of standard error. Fails if the program ends first.
    pub fn until_prints<T>(&self, event: &str, find: impl Fn(&[String]) -> Option<T>) -> T {
        until(&self.lines, event, find)
    }

    /// Does the same with standard output.
    pub fn until_printed<T>(&self, event: &str, find: impl Fn(&[String]) -> Option<T>) -> T {
        until(&self.printed, event, find)
    }

    /// Sends a signal, by name: `TERM`, `HUP`.
    pub fn signal(&self, name: &str) {
        // The shell's built-in `kill` exists even if there is no program of that name.
        let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", self.id())]).status().unwrap();
        assert!(sent.success(), "process {} takes no signal", self.id());
    }

    /// Waits until it has ended.
    pub fn until_ended(&mut self) -> ExitStatus {
        let status = wait::until("the process has ended", || self.child.try_wait().unwrap());
        for stream in [&self.lines, &self.printed] {
            stream.until("its last line is read", |stream| stream.ended.then_some(()));
        }
        status
    }

    /// Returns `true` if it is running.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Resident memory in bytes, without the pages of the program file, whose number depends on the system.
    pub fn resident_bytes(&self) -> u64 {
        self.status_number("VmRSS:").saturating_sub(self.status_number("RssFile:")) << 10
    }

    /// Peak resident memory in bytes, without the current pages of the program file.
    pub fn resident_bytes_max(&self) -> u64 {
        self.status_number("VmHWM:").saturating_sub(self.status_number("RssFile:")) << 10
    }

    /// Lets [`resident_bytes_max`](Self::resident_bytes_max) begin again, from what is resident now.
    pub fn forget_resident_bytes_max(&self) {
        // proc_pid_clear_refs(5).
        std::fs::write(format!("/proc/{}/clear_refs", self.id()), "5").unwrap();
    }

    /// CPU time used so far, in user and system mode, with a resolution of 10 ms.
    pub fn cpu_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap_or_default();
        let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        // Fields 14 and 15 of proc_pid_stat(5), after two fields and the name were removed.
        let ticks: u64 =
            after_name.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
        Duration::from_millis(ticks * 10)
    }

    /// Time for which each of its threads has been running, or ready to run, by the thread's number. A thread
    /// in an endless loop is always one of both, however busy the machine is.
    pub fn runnable_times(&self) -> BTreeMap<u32, Duration> {
        let threads = self.threads_named("").into_iter();
        threads.map(|thread| (thread.number, thread.running + thread.queued)).collect()
    }

    /// The longest time for which a thread has been running, or ready to run, since `before`.
    pub fn longest_runnable(&self, before: &BTreeMap<u32, Duration>) -> Duration {
        let since = |(thread, time): (u32, Duration)| {
            time.saturating_sub(before.get(&thread).copied().unwrap_or_default())
        };
        self.runnable_times().into_iter().map(since).max().expect("a process has a thread")
    }

    /// Its threads whose names begin with `name`.
    pub fn threads_named(&self, name: &str) -> Vec<ThreadTimes> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.id())).into_iter().flatten().flatten();
        let named = threads.filter(|thread| {
            std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|found| found.starts_with(name))
        });
        named.filter_map(|thread| ThreadTimes::read(&thread.path())).collect()
    }

    /// Number of its open descriptors.
    pub fn descriptors(&self) -> u64 {
        self.open_files().len() as u64
    }

    /// The files of its open descriptors: a path, or a kind and a number, like `socket:[4026]`.
    pub fn open_files(&self) -> Vec<String> {
        let fds = std::fs::read_dir(format!("/proc/{}/fd", self.id())).into_iter().flatten().flatten();
        fds.filter_map(|fd| Some(std::fs::read_link(fd.path()).ok()?.display().to_string())).collect()
    }

    /// Number of its threads.
    pub fn threads(&self) -> u64 {
        self.status_number("Threads:")
    }

    /// Its open sockets, each one once even if several descriptors refer to it.
    pub fn sockets(&self) -> BTreeSet<String> {
        self.open_files()
            .iter()
            .filter_map(|file| Some(file.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
            .collect()
    }

    /// A number in `proc_pid_status(5)`. Sizes are in KiB.
    fn status_number(&self, key: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(key)).unwrap();
        line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Its TCP listening ports, according to the system.
    pub fn listening_ports(&self) -> Vec<u16> {
        let own = self.sockets();
        sockets::listening().filter(|(number, _)| own.contains(number)).map(|(_, port)| port).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("---- process {}, standard error:\n{}", self.id(), self.stderr());
        }
    }
}

/// Runs a program until it ends.
pub fn run(command: &mut Command) -> Output {
    run_to(command, Stdio::piped())
}

/// Runs a program that prints to this stream until it ends.
pub fn run_to(command: &mut Command, stdout: Stdio) -> Output {
    let child = command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped()).spawn();
    output(child.unwrap_or_else(|error| panic!("cannot run {command:?}: {error}")))
}

/// A line of the shell that runs in a pseudo-terminal, and ends with its exit code.
pub fn in_terminal(line: &str) -> Command {
    let mut command = Command::new("script");
    // It runs the line by the caller's shell, which may be any.
    command.env("SHELL", "/bin/sh").env_remove("NO_COLOR");
    command.args(["--quiet", "--return", "--command", line, "/dev/null"]);
    command
}

/// Waits until a program has ended, and returns its output.
pub fn output(child: Child) -> Output {
    let id = child.id().to_string();
    let command = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    if let Ok(output) = ended.recv_timeout(RUN_DEADLINE) {
        return output.unwrap();
    }
    let _ = Command::new("sh").args(["-c", &format!("kill -KILL {id}")]).status();
    // A program that it has started may still have its output open.
    let output = ended.recv_timeout(wait::DEADLINE).ok();
    let command = String::from_utf8_lossy(&command).replace('\0', " ");
    panic!("{command} did not end within {RUN_DEADLINE:?}; its output: {output:?}");
}

/// Runs a program, which must succeed, and returns its output.
pub fn run_checked(command: &mut Command) -> String {
    let output = run(command);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed ({}):\n{printed}\n{stderr}", output.status);
    printed
}

/// Runs a program with this standard input, which must succeed, and returns its output.
pub fn run_with_input(command: &mut Command, mut input: impl Read) -> String {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _ = std::io::copy(&mut input, &mut child.stdin.take().unwrap());
    let output = output(child);
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Raises the limit of open files of this process to the maximum, and returns it.
pub fn raise_open_files() -> u64 {
    let own = std::process::id().to_string();
    let hard = run_checked(Command::new("prlimit").args([
        "--pid",
        &own,
        "--nofile",
        "--output",
        "HARD",
        "--noheadings",
        "--raw",
    ]));
    let hard = hard.trim();
    run_checked(Command::new("prlimit").args(["--pid", &own, &format!("--nofile={hard}:{hard}")]));
    hard.parse().unwrap_or(u64::MAX)
}

/// A test's own directory; deleted when dropped.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Default for Directory {
    fn default() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("egret-e2e-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Directory {
    /// Returns a path in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file in it atomically, and returns its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        let draft = path.with_extension("draft");
        std::fs::write(&draft, content).unwrap();
        std::fs::rename(&draft, &path).unwrap();
        path
    }

    /// Does the same with a file that only its owner can read.
    pub fn write_secret(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        let draft = path.with_extension("draft");
        std::fs::write(&draft, content).unwrap();
        std::fs::set_permissions(&draft, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::rename(&draft, &path).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

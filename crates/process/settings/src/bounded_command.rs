//! Runs a command of the config: without a shell and without input, for a bounded time, with bounded output.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use zeroize::Zeroizing;

/// Maximum length of what a command says about its failure, in bytes, from its beginning. The rest is
/// dropped.
const COMPLAINT_BYTES_MAX: usize = 4 << 10;

/// Maximum length of the line of it that is shown, in characters.
const COMPLAINT_CHARS_MAX: usize = 200;

/// Number of bytes that are read at once.
const CHUNK_BYTES: usize = 4 << 10;

/// The variables through which a service manager talks to Egret, and not to what Egret starts.
const OF_SERVICE_MANAGER: [&str; 6] =
    ["NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

/// A command with its bounds.
#[derive(Debug, Clone, Copy)]
pub struct BoundedCommand<'a> {
    /// The program, and its arguments.
    pub words: &'a [String],
    /// Time after which it is killed, with all that it has started.
    pub timeout: Duration,
    /// Maximum length of what it prints, in bytes.
    pub bytes_max: usize,
    /// Names of variables that it does not get.
    pub withheld: &'a BTreeSet<String>,
}

/// The reason why a command has printed nothing that can be used. It shows nothing of its standard output.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// There is no program.
    #[error("it names no program")]
    Empty,
    /// It cannot be started.
    #[error("cannot start `{program}`: {error}")]
    Start {
        /// The program.
        program: String,
        /// The reason.
        #[source]
        error: io::Error,
    },
    /// Its output cannot be read.
    #[error("its output cannot be read: {0}")]
    Unreadable(#[source] io::Error),
    /// It has not ended in time.
    #[error("it has not ended within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// It prints more than its bound.
    #[error("it prints more than {0} bytes")]
    TooLong(usize),
    /// It prints something that is no text.
    #[error("it prints something that is not UTF-8")]
    NotUtf8,
    /// It reports a failure.
    #[error("{}{}", ended(*.status), complaint.as_ref().map_or_else(String::new, |line| format!(": {line}")))]
    Failed {
        /// Its exit status.
        status: ExitStatus,
        /// The last line of its standard error.
        complaint: Option<String>,
    },
}

fn ended(status: ExitStatus) -> String {
    status.code().map_or_else(
        || format!("it was ended by a signal ({status})"),
        |code| format!("it ended with exit code {code}"),
    )
}

impl BoundedCommand<'_> {
    /// Runs it, and returns what it has printed to its standard output.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be started, exceeds a bound, prints no text, or ends with another exit code than 0.
    pub fn run(&self) -> Result<Zeroizing<String>, CommandError> {
        let deadline = Instant::now() + self.timeout;
        let mut running = self.start()?;
        let mut stdout = Output::of(running.child.stdout.take(), self.bytes_max);
        let mut stderr = Output::of(running.child.stderr.take(), COMPLAINT_BYTES_MAX);
        while stdout.pipe.is_some() || stderr.pipe.is_some() {
            self.read_next(&mut stdout, &mut stderr, deadline)?;
            if stdout.is_cut {
                return Err(CommandError::TooLong(self.bytes_max));
            }
        }
        let status = self.wait(&mut running, deadline)?;
        if status.success() {
            let bytes = std::mem::take(&mut *stdout.bytes);
            return String::from_utf8(bytes).map(Zeroizing::new).map_err(|error| {
                drop(Zeroizing::new(error.into_bytes()));
                CommandError::NotUtf8
            });
        }
        Err(CommandError::Failed { status, complaint: complaint(&stderr.bytes, &stdout.bytes) })
    }

    fn start(&self) -> Result<Running, CommandError> {
        let (program, arguments) = self.words.split_first().ok_or(CommandError::Empty)?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Its own group, so that all that it has started can be killed.
        command.process_group(0);
        for name in OF_SERVICE_MANAGER.into_iter().chain(self.withheld.iter().map(String::as_str)) {
            command.env_remove(name);
        }
        let started = command.spawn();
        let started = started.map(|child| Running { child, has_ended: false });
        started.map_err(|error| CommandError::Start { program: program.clone(), error })
    }

    /// Waits until one of them can be read, and reads it.
    fn read_next(
        &self,
        stdout: &mut Output,
        stderr: &mut Output,
        deadline: Instant,
    ) -> Result<(), CommandError> {
        let left = self.left(deadline)?;
        let timeout = Timespec::try_from(left).unwrap_or_default();
        let mut outputs: Vec<&mut Output> =
            [stdout, stderr].into_iter().filter(|output| output.pipe.is_some()).collect();
        let ready: Vec<bool> = {
            let pipes = outputs.iter().filter_map(|output| output.pipe.as_ref());
            let mut polled: Vec<_> =
                pipes.map(|pipe| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)).collect();
            match poll(&mut polled, Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(CommandError::Unreadable(error.into())),
            }
            polled.iter().map(|pipe| !pipe.revents().is_empty()).collect()
        };
        for (output, _) in outputs.iter_mut().zip(ready).filter(|(_, is_ready)| *is_ready) {
            output.read().map_err(CommandError::Unreadable)?;
        }
        Ok(())
    }

    /// Waits for the end of a command that has closed its output.
    fn wait(&self, running: &mut Running, deadline: Instant) -> Result<ExitStatus, CommandError> {
        let left = self.left(deadline)?;
        let (sender, ended) = mpsc::channel();
        let number = number_of(&running.child);
        let waits = std::thread::Builder::new().spawn(move || {
            // It stays a zombie, so that no other process gets its number before the timeout is over.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            let _ = number.map(|number| retry_on_intr(|| waitid(WaitId::Pid(number), options)));
            let _ = sender.send(());
        });
        waits.map_err(CommandError::Unreadable)?;
        ended.recv_timeout(left).map_err(|_| CommandError::TimedOut(self.timeout))?;
        let status = running.child.wait().map_err(CommandError::Unreadable)?;
        running.has_ended = true;
        Ok(status)
    }

    fn left(&self, deadline: Instant) -> Result<Duration, CommandError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(CommandError::TimedOut(self.timeout)) } else { Ok(left) }
    }
}

/// A command that was started. Unless it was waited for, it is killed when dropped, with all that it has
/// started.
struct Running {
    child: Child,
    /// Once it was waited for, another process can have its number.
    has_ended: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may be a zombie, and what it has started may hold its output open.
        let group = number_of(&self.child).filter(|_| !self.has_ended);
        let is_killed = group.is_some_and(|group| kill_process_group(group, Signal::KILL).is_ok());
        if is_killed {
            // A program of another user cannot be killed, and could let this wait for ever.
            let _ = self.child.wait();
        }
    }
}

fn number_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// An output of a command.
struct Output {
    /// `None` once it is closed.
    pipe: Option<File>,
    /// At most as many bytes as allowed. They never move, so no copy of a secret stays behind.
    bytes: Zeroizing<Vec<u8>>,
    bytes_max: usize,
    /// There was more.
    is_cut: bool,
}

impl Output {
    fn of(pipe: Option<impl Into<OwnedFd>>, bytes_max: usize) -> Self {
        let bytes = Zeroizing::new(Vec::with_capacity(bytes_max));
        Self { pipe: pipe.map(|pipe| File::from(pipe.into())), bytes, bytes_max, is_cut: false }
    }

    /// Reads what is there. What exceeds the bound is dropped.
    fn read(&mut self) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        let mut chunk = Zeroizing::new([0_u8; CHUNK_BYTES]);
        let read = match pipe.read(&mut *chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            read => read?,
        };
        let taken = read.min(self.bytes_max - self.bytes.len());
        self.bytes.extend_from_slice(&chunk[..taken]);
        self.is_cut |= taken < read;
        if read == 0 {
            self.pipe = None;
        }
        Ok(())
    }
}

/// Returns the last line of a command's standard error, unless it has what the command has printed as its
/// secret.
fn complaint(stderr: &[u8], stdout: &[u8]) -> Option<String> {
    let line = stderr.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).rfind(|line| !line.is_empty())?;
    let mut words = stdout.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let holds = |word: &[u8]| line.windows(word.len()).any(|part| part == word);
    if words.any(|word| !word.is_empty() && holds(word)) {
        return None;
    }
    let line = String::from_utf8_lossy(line);
    let shown = line.chars().map(|char| if char.is_control() { ' ' } else { char });
    Some(shown.take(COMPLAINT_CHARS_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_within(timeout: Duration, words: &[&str]) -> Result<String, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let withheld = BTreeSet::from(["CARGO_PKG_NAME".to_owned()]);
        let command = BoundedCommand { words: &words, timeout, bytes_max: 8, withheld: &withheld };
        command.run().map(|text| text.to_string()).map_err(|error| error.to_string())
    }

    fn run(script: &str) -> Result<String, String> {
        run_within(Duration::from_mins(1), &["sh", "-c", script])
    }

    #[test]
    fn a_command_prints_text_of_bounded_length() {
        assert_eq!(run("printf 12345678").unwrap(), "12345678");
        assert_eq!(run("printf 123456789").unwrap_err(), "it prints more than 8 bytes");
        assert_eq!(run("yes").unwrap_err(), "it prints more than 8 bytes");
        assert_eq!(run(r"printf '\377'").unwrap_err(), "it prints something that is not UTF-8");
    }

    #[test]
    fn a_failed_command_is_quoted_without_its_secret() {
        let error = run("echo first >&2; printf 'no\\tpolicy\\n\\n' >&2; exit 3").unwrap_err();
        assert_eq!(error, "it ended with exit code 3: no policy");
        let error = run("echo key; echo 'the key is bad' >&2; exit 3").unwrap_err();
        assert_eq!(error, "it ended with exit code 3");
        let error = run("head -c 9999 /dev/zero | tr '\\0' a >&2; exit 1").unwrap_err();
        assert_eq!(error, format!("it ended with exit code 1: {}", "a".repeat(COMPLAINT_CHARS_MAX)));
        let error = run("kill -9 $$").unwrap_err();
        assert!(error.starts_with("it was ended by a signal (signal: 9"), "{error}");
        let error = run_within(Duration::from_mins(1), &["/no/such"]).unwrap_err();
        assert!(error.starts_with("cannot start `/no/such`: No such file"), "{error}");
        assert_eq!(run_within(Duration::from_mins(1), &[]).unwrap_err(), "it names no program");
    }

    #[test]
    fn a_command_that_does_not_end_is_killed_with_its_children() {
        let directory = tempfile::tempdir().unwrap();
        let script =
            format!("echo $$ > {0}/parent; sleep 1d & echo $! > {0}/child; wait", directory.path().display());
        let error = run_within(Duration::from_millis(500), &["sh", "-c", &script]).unwrap_err();
        assert_eq!(error, "it has not ended within 0.5 s");
        // What is left behind holds the output open.
        let script = format!("sleep 1d & echo $! > {}/left", directory.path().display());
        let error = run_within(Duration::from_millis(500), &["sh", "-c", &script]).unwrap_err();
        assert_eq!(error, "it has not ended within 0.5 s");
        for name in ["parent", "child", "left"] {
            // A machine that stalls may not have run it at all.
            let Ok(number) = std::fs::read_to_string(directory.path().join(name)) else { continue };
            let Ok(number) = number.trim().parse() else { continue };
            let is_running = || {
                let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
                rustix::process::test_kill_process(Pid::from_raw(number).unwrap()).is_ok()
                    && !stat.contains(") Z ")
            };
            while is_running() {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn a_command_gets_no_input_and_no_withheld_variable() {
        assert_eq!(run("cat").unwrap(), "");
        assert_eq!(run("printf %s \"$CARGO_PKG_NAME\"").unwrap(), "");
        assert_eq!(run("printf %.6s \"$CARGO_MANIFEST_DIR\"").unwrap().len(), 6);
    }

    #[test]
    fn a_command_that_closes_its_output_still_has_its_time() {
        assert_eq!(run("exec >&- 2>&-; exit 0").unwrap(), "");
        let error = run_within(Duration::from_millis(200), &["sh", "-c", "exec >&- 2>&-; sleep 1d"]);
        assert_eq!(error.unwrap_err(), "it has not ended within 0.2 s");
    }
}

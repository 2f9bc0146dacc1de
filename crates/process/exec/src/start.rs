//! Starts a gateway for the command.
//!
//! This process becomes the command, so it must not be the gateway's parent: a command that waits for its
//! children would meet one that it has not started. Therefore a helper starts the gateway and ends. The
//! helper's input is a descriptor of this process, by which the gateway learns when the command has ended;
//! its output is a socket for the gateway's report, by which an isolated command also hands its sockets over.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use egret_service::exec_directory::ExecDirectory;

use super::find::Gateway;

/// Time for the gateway to start.
#[cfg(target_os = "linux")]
const TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum length of the report.
#[cfg(target_os = "linux")]
const REPORT_BYTES_MAX: usize = 4 << 20;

/// The gateway to start.
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "nothing is started on other systems"))]
pub struct Start<'a, Names> {
    /// The config file.
    pub config: Option<&'a Path>,
    /// The directory for its log.
    pub directory: &'a ExecDirectory,
    /// Hosts to intercept besides those of the config; `None` if only the config decides.
    pub intercept: Option<Vec<String>>,
    /// Time that it stays after the command.
    pub linger: Duration,
    /// `true` if it will be handed the sockets of an isolated command.
    pub isolated: bool,
    /// The command's program.
    pub program: String,
    /// Variables that it must not see.
    pub removed: Names,
}

/// A gateway that was started.
#[derive(Debug)]
pub struct Started {
    /// The gateway.
    pub gateway: Gateway,
    /// Its log, if it can be written.
    pub log: Option<PathBuf>,
    /// The connection to it, of no use unless the command is isolated.
    pub channel: UnixStream,
}

/// The reason why a gateway did not start.
#[derive(Debug, thiserror::Error)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "nothing is started on other systems"))]
pub enum StartError {
    /// The system refused a step.
    #[error("cannot {0}: {1}")]
    System(&'static str, io::Error),
    /// The gateway sent no report in time, or none at all. The log says why, if there is one.
    #[error("the gateway did not start{}", of_log(.0.as_deref()))]
    Silent(Option<PathBuf>),
    /// The gateway sent this reason.
    #[error("the gateway did not start: {0}")]
    Reported(String),
    /// The gateway has no listener to use.
    #[error("the gateway at {0} does not listen")]
    NoListener(SocketAddr),
    /// The system cannot watch a process.
    #[cfg(not(target_os = "linux"))]
    #[error("no gateway runs, and on this system `egret exec` cannot start one: start `egret run` first")]
    Unsupported,
}

fn of_log(log: Option<&Path>) -> String {
    log.map_or_else(|| ", and could not write a log".to_owned(), |log| format!(": see {}", log.display()))
}

#[cfg(not(target_os = "linux"))]
impl<Names> Start<'_, Names> {
    /// Fails: the system has no descriptors of processes.
    pub fn gateway(self) -> Result<Started, StartError> {
        Err(StartError::Unsupported)
    }
}

#[cfg(target_os = "linux")]
pub use linux::read_report;

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::io::{ErrorKind, IsTerminal, Read};
    use std::os::fd::OwnedFd;
    use std::process::{Command, Stdio};
    use std::time::Instant;

    use egret_service::run::attached::AttachedReport;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{PidfdFlags, getpid, pidfd_open};

    use super::{
        Gateway, Path, PathBuf, REPORT_BYTES_MAX, Start, StartError, Started, TIMEOUT, UnixStream, io,
    };
    use crate::serve::ServeCommand;

    impl<'n, Names: Iterator<Item = &'n str>> Start<'_, Names> {
        /// Starts the gateway and waits until it accepts calls.
        pub fn gateway(self) -> Result<Started, StartError> {
            let (log, stderr) = match self.directory.log(std::process::id()) {
                Ok((path, file)) => (Some(path), Stdio::from(file)),
                // A file system may be read-only.
                Err(_) => (None, Stdio::null()),
            };
            let failed = |step| move |error: io::Error| StartError::System(step, error);
            let process: OwnedFd = pidfd_open(getpid(), PidfdFlags::empty())
                .map_err(|error| failed("let the gateway watch this process")(error.into()))?;
            let (channel, far) = UnixStream::pair().map_err(failed("create a socket"))?;
            let program = std::env::current_exe().map_err(failed("find this program"))?;
            let mut helper = Command::new(program);
            let serve = ServeCommand {
                detach: true,
                config: self.config.map(Path::to_owned),
                intercept: self.intercept.is_some(),
                hosts: self.intercept.unwrap_or_default(),
                isolated: self.isolated,
                linger_ms: u64::try_from(self.linger.as_millis()).unwrap_or(u64::MAX),
                program: self.program,
                terminal: terminal(),
            };
            helper.args(serve.arguments());
            self.removed.for_each(|name| {
                helper.env_remove(name);
            });
            helper.stdin(process).stdout(OwnedFd::from(far)).stderr(stderr);
            let mut child = helper.spawn().map_err(failed("start the gateway"))?;
            // It holds the other end of the socket.
            drop(helper);
            child.wait().map_err(failed("wait for the gateway's start"))?;
            match read_report(&channel).map_err(failed("read the gateway's report"))? {
                Some(AttachedReport::Started { control, gateway }) => {
                    let gateway = Gateway::new(gateway, control).ok_or(StartError::NoListener(control))?;
                    Ok(Started { gateway, log, channel })
                }
                Some(AttachedReport::Failed(reason)) => Err(StartError::Reported(reason)),
                Some(AttachedReport::Serving) | None => Err(StartError::Silent(log)),
            }
        }
    }

    /// Returns the terminal of the command's messages. The gateway opens it again by its name: a descriptor
    /// of it would keep the terminal open when the command has ended.
    fn terminal() -> Option<PathBuf> {
        if !io::stderr().is_terminal() {
            return None;
        }
        fs::read_link("/proc/self/fd/2").ok()
    }

    /// Reads a report, which is one line. `None` if the gateway sends none in time, or leaves.
    pub fn read_report(channel: &UnixStream) -> io::Result<Option<AttachedReport>> {
        Ok(serde_json::from_slice(&read_line(channel)?).ok())
    }

    fn read_line(mut channel: &UnixStream) -> io::Result<Vec<u8>> {
        let deadline = Instant::now() + TIMEOUT;
        let (mut report, mut bytes) = (Vec::new(), [0; 4096]);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(channel, PollFlags::IN)], Some(&timeout)) {
                Ok(0) => return Ok(report),
                Ok(_) => {}
                Err(error) if io::Error::from(error).kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            }
            match channel.read(&mut bytes)? {
                0 => return Ok(report),
                count => report.extend_from_slice(bytes.get(..count).unwrap_or_default()),
            }
            // Nothing follows it until this process has sent something.
            if report.ends_with(b"\n") {
                return Ok(report);
            }
            if report.len() > REPORT_BYTES_MAX {
                return Ok(Vec::new());
            }
        }
    }
}

//! Starts a gateway for the command.
//!
//! This process becomes the command, so it must not be the gateway's parent: a command that waits for its
//! children would meet one that it has not started. Therefore a helper starts the gateway and ends. The
//! helper's input is a descriptor of this process, by which the gateway learns when the command has ended;
//! its output is a pipe for the gateway's report.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::find::Gateway;
use crate::exec_directory::ExecDirectory;

/// Time for the gateway to start.
#[cfg(target_os = "linux")]
const TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum length of the report.
#[cfg(target_os = "linux")]
const REPORT_BYTES_MAX: usize = 4 << 20;

/// The gateway to start.
pub struct Start<'a, Names> {
    /// The config file.
    pub config: Option<&'a Path>,
    /// The directory for its log.
    pub directory: &'a ExecDirectory,
    /// Hosts to intercept besides those of the config; `None` if only the config decides.
    pub intercept: Option<Vec<String>>,
    /// Time that it stays after the command.
    pub linger: Duration,
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
}

/// The reason why a gateway did not start.
#[derive(Debug)]
pub enum StartError {
    /// The system refused a step.
    System(&'static str, io::Error),
    /// The gateway sent no report in time, or none at all. The log says why, if there is one.
    Silent(Option<PathBuf>),
    /// The gateway sent this reason.
    Reported(String),
    /// The gateway has no listener to use.
    NoListener(SocketAddr),
    /// The system cannot watch a process.
    #[cfg(not(target_os = "linux"))]
    Unsupported,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(step, error) => write!(f, "cannot {step}: {error}"),
            Self::Silent(Some(log)) => write!(f, "the gateway did not start: see {}", log.display()),
            Self::Silent(None) => f.write_str("the gateway did not start, and could not write a log"),
            Self::Reported(reason) => write!(f, "the gateway did not start: {reason}"),
            Self::NoListener(control) => write!(f, "the gateway at {control} does not listen"),
            #[cfg(not(target_os = "linux"))]
            Self::Unsupported => f.write_str(
                "no gateway runs, and on this system `egret exec` cannot start one: start `egret run` first",
            ),
        }
    }
}

impl std::error::Error for StartError {}

#[cfg(not(target_os = "linux"))]
impl<Names> Start<'_, Names> {
    /// Fails: the system has no descriptors of processes.
    pub fn gateway(self) -> Result<Started, StartError> {
        Err(StartError::Unsupported)
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io::{ErrorKind, PipeReader, Read};
    use std::os::fd::OwnedFd;
    use std::process::{Command, Stdio};
    use std::time::Instant;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{PidfdFlags, getpid, pidfd_open};

    use super::*;
    use crate::exec::serve;
    use crate::run::attached::Report;

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
            let (pipe, writer) = io::pipe().map_err(failed("create a pipe"))?;
            let program = std::env::current_exe().map_err(failed("find this program"))?;
            let mut helper = Command::new(program);
            helper.args(serve::arguments(self.config, self.intercept.as_deref(), self.linger));
            self.removed.for_each(|name| {
                helper.env_remove(name);
            });
            helper.stdin(process).stdout(writer).stderr(stderr);
            let mut child = helper.spawn().map_err(failed("start the gateway"))?;
            // It holds the writing end of the pipe.
            drop(helper);
            child.wait().map_err(failed("wait for the gateway's start"))?;
            let report = read_report(pipe).map_err(failed("read the gateway's report"))?;
            match serde_json::from_slice(&report) {
                Ok(Report::Started { control, gateway }) => {
                    let gateway = Gateway::new(gateway, control).ok_or(StartError::NoListener(control))?;
                    Ok(Started { gateway, log })
                }
                Ok(Report::Failed(reason)) => Err(StartError::Reported(reason)),
                Err(_) => Err(StartError::Silent(log)),
            }
        }
    }

    /// Reads until the gateway closes the pipe, or the time is over.
    fn read_report(mut pipe: PipeReader) -> io::Result<Vec<u8>> {
        let deadline = Instant::now() + TIMEOUT;
        let (mut report, mut bytes) = (Vec::new(), [0; 4096]);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&pipe, PollFlags::IN)], Some(&timeout)) {
                Ok(0) => return Ok(report),
                Ok(_) => {}
                Err(error) if io::Error::from(error).kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            }
            match pipe.read(&mut bytes)? {
                0 => return Ok(report),
                count => report.extend_from_slice(bytes.get(..count).unwrap_or_default()),
            }
            if report.len() > REPORT_BYTES_MAX {
                return Ok(Vec::new());
            }
        }
    }
}

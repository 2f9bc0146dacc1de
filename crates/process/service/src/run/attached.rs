//! A gateway that is run for one command, by `egret exec`: on free ports, until the command has ended.

use std::fs::File;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use egret_ca::CaDirectory;
use egret_config::Duration as ConfigDuration;
use egret_control::{GatewayInfo, Source};
use egret_gateway::Gateway;
use egret_observe::stats::StatsSnapshot;
use egret_plan::config::ListenConfig;
use egret_settings::config::Config;
use egret_settings::failure::Failure;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::exec_directory::ExecDirectory;
use crate::interception::Certificates;
use crate::run::passed_sockets::{self, Purpose};
use crate::run::{missed, names};

/// Time for exchanges in flight once the command has ended: nobody waits for their responses.
const DRAIN: ConfigDuration = ConfigDuration::from_millis(500);

/// A free port on loopback, so that gateways run side by side.
const FREE_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Time for the command to hand its sockets over.
const HANDOVER: Duration = Duration::from_secs(30);

/// The numbers of the listeners, for sockets of an isolated command.
const PROXY: usize = 0;
const DIRECT: usize = 1;

/// The command, and what it asked for.
#[derive(Debug)]
pub struct Attached {
    /// The command's process (`pidfd_open(2)`). It becomes readable when the process has ended.
    pub process: OwnedFd,
    /// Time that the gateway stays after that, for programs that the command leaves running.
    pub linger: Duration,
    /// Hosts to intercept besides those of the config. `None` if only the config decides.
    pub intercept: Option<Vec<String>>,
    /// Receives the report.
    pub reporter: Reporter,
    /// Sends the sockets of an isolated command, made in its network namespace. `None` if it is not isolated.
    pub channel: Option<UnixStream>,
    /// The command's program, as it was named.
    pub program: String,
    /// The terminal of the command's messages. `None` if they go to a file or a pipe.
    pub terminal: Option<PathBuf>,
}

/// A message of the gateway to `egret exec`, in one line: the first one says that it has started or failed,
/// and a second one that it serves the sockets of an isolated command.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttachedReport {
    /// The gateway accepts calls.
    Started {
        /// The address of its control port.
        control: SocketAddr,
        /// The addresses, providers and authority of the gateway.
        gateway: GatewayInfo,
    },
    /// The gateway did not start, for this reason.
    Failed(String),
    /// The gateway serves the sockets that it was handed.
    Serving,
}

impl AttachedReport {
    /// Returns the line.
    fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// Sends the report, once.
#[derive(Debug, Clone)]
pub struct Reporter(Arc<Mutex<Option<File>>>);

impl Reporter {
    /// Sends the report to this pipe.
    pub fn new(pipe: OwnedFd) -> Self {
        Self(Arc::new(Mutex::new(Some(File::from(pipe)))))
    }

    /// Sends the report, unless one has been sent. If `egret exec` is gone, nobody needs it.
    pub fn send(&self, report: &AttachedReport) {
        let pipe = self.0.lock().take();
        if let Some(mut pipe) = pipe {
            let _ = pipe.write_all(&report.line());
        }
    }
}

impl Attached {
    /// Returns the config for this command.
    pub fn adapt(&self, mut config: Config) -> Config {
        config.gateway.listen = vec![ListenConfig::from(FREE_PORT)];
        if self.channel.is_some() {
            config.gateway.listen.push(ListenConfig { redirect: true, ..ListenConfig::from(FREE_PORT) });
        }
        config.control.listen = FREE_PORT;
        let drain = &mut config.gateway.timeouts.drain;
        if drain.is_zero() || drain.get() > DRAIN.get() {
            *drain = DRAIN;
        }
        if let Some(hosts) = &self.intercept {
            let known = &mut config.interception.get_or_insert_default().hosts;
            let new: Vec<_> = hosts.iter().filter(|host| !known.contains(host)).cloned().collect();
            known.extend(new);
        }
        config
    }

    /// Returns the end of the command as an event. A thread waits for it.
    pub fn end(&self) -> Result<CommandEnd, Failure> {
        let failed = |error: io::Error| Failure::Failed(format!("cannot watch the command: {error}"));
        let process = self.process.as_fd().try_clone_to_owned().map_err(failed)?;
        let (ended, end) = oneshot::channel();
        let watch = move || {
            wait_for(&process);
            // The gateway may be stopping already.
            let _ = ended.send(());
        };
        std::thread::Builder::new().name("egret-command".into()).spawn(watch).map_err(failed)?;
        Ok(CommandEnd { end, linger: self.linger, ended_at: None })
    }

    /// Removes the address of the gateway, and the files by which the command trusts the gateway's authority,
    /// if the authority ends with the gateway.
    pub fn clean_up(config: &Config, certificates: Option<&Certificates>) {
        let Ok(directory) = ExecDirectory::of(&config.data_dir) else { return };
        directory.forget_gateway();
        let Some(certificates) = certificates else { return };
        let root = certificates.configs().authority().root();
        let kept = CaDirectory::new(&config.data_dir).root();
        if kept.is_ok_and(|kept| kept.as_ref() != Some(root)) {
            directory.remove_authority(root.der());
        }
    }

    /// Takes the sockets of an isolated command over, and serves them.
    pub fn take_over(&self, gateway: &Arc<Gateway>) -> Result<(), Failure> {
        let Some(mut channel) = self.channel.as_ref() else { return Ok(()) };
        let taken = serve_sockets(channel, gateway);
        let report = match &taken {
            Ok(()) => AttachedReport::Serving,
            Err(error) => AttachedReport::Failed(error.to_string()),
        };
        // If the command has ended, nobody needs it.
        let _ = channel.write_all(&report.line());
        taken.map_err(|error| Failure::Failed(format!("cannot serve the sockets of the command: {error}")))
    }

    /// Shows the user of the command, which has ended, that its calls went past the gateway or were refused,
    /// and where the log is.
    pub fn show_missed(&self, stats: &StatsSnapshot) {
        let lines = missed::lines(&self.program, stats, self.channel.is_some());
        if let Some(terminal) = self.terminal.as_ref().filter(|_| !lines.is_empty()) {
            let log = own_log().map(|log| format!("the gateway's log: {}", log.display()));
            for line in lines.iter().chain(&log) {
                // The terminal may be closed.
                let _ = write_to_terminal(terminal, line);
            }
        }
        for line in lines {
            tracing::info!("{line}");
        }
    }

    /// Notes where the gateway listens, for commands in other terminals, and reports it to `egret exec`.
    pub fn report(&self, control: SocketAddr, source: &dyn Source, data_dir: &Path) {
        let noted = ExecDirectory::of(data_dir).and_then(|directory| directory.note_gateway(control));
        if let Err(error) = noted {
            tracing::debug!(%error, "commands in other terminals need `--control` to find this gateway");
        }
        self.reporter.send(&AttachedReport::Started { control, gateway: source.gateway() });
    }
}

/// The file that this process writes its log to.
fn own_log() -> Option<PathBuf> {
    std::fs::read_link("/proc/self/fd/2").ok().filter(|log| log.is_file())
}

/// Writes a line to a terminal, which does not become that of this process.
fn write_to_terminal(terminal: &Path, line: &str) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(terminal, flags, Mode::empty())?;
    File::from(file).write_all(format!("egret: {line}\r\n").as_bytes())
}

fn serve_sockets(channel: &UnixStream, gateway: &Arc<Gateway>) -> io::Result<()> {
    channel.set_read_timeout(Some(HANDOVER))?;
    let mut of_names = Vec::new();
    for (purpose, socket) in passed_sockets::receive(channel)? {
        match purpose {
            Purpose::Proxy => gateway.adopt(socket.into(), PROXY)?,
            Purpose::Direct => gateway.adopt(socket.into(), DIRECT)?,
            Purpose::Names | Purpose::NamesOverTcp => of_names.push((purpose, socket)),
        }
    }
    names::serve(of_names, Arc::clone(gateway))
}

/// Waits until the process has ended. An error other than an interruption ends the wait too: a gateway that
/// nobody ends is worse than one that ends early.
fn wait_for(process: &OwnedFd) {
    while poll(&mut [PollFd::new(process, PollFlags::IN)], None) == Err(Errno::INTR) {}
}

/// The end of the command.
#[derive(Debug)]
pub struct CommandEnd {
    end: oneshot::Receiver<()>,
    linger: Duration,
    ended_at: Option<Instant>,
}

impl CommandEnd {
    /// Waits until the command has ended and the time to linger is over. If the future is dropped meanwhile,
    /// nothing is lost.
    pub async fn wait(&mut self) {
        if self.ended_at.is_none() {
            // An error means that the thread has ended, and so has the wait.
            let _ = (&mut self.end).await;
            self.ended_at = Some(Instant::now());
        }
        let since = self.ended_at.map(|at| at.elapsed()).unwrap_or_default();
        tokio::time::sleep(self.linger.saturating_sub(since)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// Returns a command that ends when the other end is dropped.
    fn attached(linger: Duration, intercept: Option<Vec<String>>) -> (Attached, io::PipeWriter) {
        let (process, other) = io::pipe().unwrap();
        let (_, report) = io::pipe().unwrap();
        let reporter = Reporter::new(report.into());
        (
            Attached {
                process: process.into(),
                linger,
                intercept,
                reporter,
                channel: None,
                program: String::new(),
                terminal: None,
            },
            other,
        )
    }

    #[test]
    fn a_config_is_adapted_for_an_attached_gateway() {
        let text = "gateway: { listen: ['127.0.0.1:8000', '[::1]:8000'], timeouts: { drain: 100ms } }\n\
                    interception: { hosts: [a.example] }\n";
        let config = Config::parse("egret.yaml", text).unwrap();
        let hosts = ["a.example", "b.example"].map(str::to_owned).to_vec();
        let adapted = attached(Duration::ZERO, Some(hosts)).0.adapt(config);
        assert_eq!(adapted.gateway.listen, [ListenConfig::from(FREE_PORT)]);
        assert_eq!(adapted.control.listen, FREE_PORT);
        assert_eq!(adapted.gateway.timeouts.drain.as_millis(), 100);
        assert_eq!(adapted.interception.unwrap().hosts, ["a.example", "b.example"]);
        let plain = attached(Duration::ZERO, None).0.adapt(Config::default());
        assert_eq!((plain.gateway.timeouts.drain, plain.interception), (DRAIN, None));
        let (mut isolated, _other) = attached(Duration::ZERO, None);
        isolated.channel = Some(UnixStream::pair().unwrap().0);
        let listeners = isolated.adapt(Config::default()).gateway.listen;
        assert_eq!(listeners.iter().map(|listener| listener.redirect).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn only_the_first_report_is_sent() {
        let (mut read, write) = io::pipe().unwrap();
        let reporter = Reporter::new(write.into());
        reporter.send(&AttachedReport::Failed("first".to_owned()));
        reporter.send(&AttachedReport::Failed("second".to_owned()));
        let mut text = String::new();
        read.read_to_string(&mut text).unwrap();
        assert_eq!(text, "{\"failed\":\"first\"}\n");
    }

    #[tokio::test]
    async fn the_command_ends_once_however_often_the_wait_is_interrupted() {
        for linger in [Duration::from_hours(1), Duration::from_millis(20)] {
            let (attached, other) = attached(linger, None);
            let mut end = attached.end().unwrap();
            for _ in 0..2 {
                let waited = tokio::time::timeout(Duration::from_millis(1), end.wait()).await;
                assert!(waited.is_err(), "it has not ended");
            }
            drop(other);
            let waited = tokio::time::timeout(Duration::from_millis(1), end.wait()).await;
            if linger > Duration::from_mins(1) {
                assert!(waited.is_err(), "it lingers");
            } else {
                end.wait().await;
                assert!(end.ended_at.unwrap().elapsed() >= linger);
            }
        }
    }
}

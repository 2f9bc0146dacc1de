//! The hidden command that `egret exec` starts: first as the helper, then as the gateway.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, stderr, stdin, stdout};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::Args;
use egret_service::run::attached::{Attached, AttachedReport, Reporter};
use egret_service::run::overrides::Overrides;
use egret_service::run::{Beginning, Origin, Run};
use egret_settings::failure::Failure;
use rustix::stdio::{dup2_stdin, dup2_stdout};

/// The command's name.
pub const NAME: &str = "__serve-command";

/// First descriptor after the standard streams.
const FIRST_OTHER: i32 = 3;

/// Arguments of the command.
#[derive(Debug, Clone, PartialEq, Eq, Default, Args)]
pub struct ServeCommand {
    /// Start the gateway in a session of its own, and end.
    #[arg(long)]
    pub detach: bool,
    /// The config file.
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Intercept the config's providers and hosts.
    #[arg(long)]
    pub intercept: bool,
    /// A further host to intercept.
    #[arg(long = "host", requires = "intercept")]
    pub hosts: Vec<String>,
    /// Take sockets of the command over: standard output is a socket then.
    #[arg(long)]
    pub isolated: bool,
    /// Time to stay after the command, in milliseconds.
    #[arg(long, default_value_t = 0)]
    pub linger_ms: u64,
    /// The command's program.
    #[arg(long, default_value = "")]
    pub program: String,
    /// The terminal of the command, whose user is told if no call went through the gateway.
    #[arg(long)]
    pub terminal: Option<PathBuf>,
}

impl ServeCommand {
    /// Returns the arguments of the helper, which starts the gateway by this command.
    pub fn arguments(&self) -> Vec<OsString> {
        let linger_ms = self.linger_ms.to_string();
        let program = format!("--program={}", self.program);
        let mut arguments: Vec<OsString> =
            [NAME, "--detach", "--linger-ms", &linger_ms, &program].map(OsString::from).to_vec();
        for (option, is_given) in [("--isolated", self.isolated), ("--intercept", self.intercept)] {
            arguments.extend(is_given.then(|| option.into()));
        }
        for (option, path) in [("--config", &self.config), ("--terminal", &self.terminal)] {
            arguments.extend(path.iter().flat_map(|path| [option.into(), path.clone().into_os_string()]));
        }
        arguments.extend(self.hosts.iter().flat_map(|host| ["--host".into(), OsString::from(host)]));
        arguments
    }

    /// Runs the command. Its failure is reported to `egret exec`, and written to the log.
    pub fn run(self) -> Result<(), Failure> {
        if self.detach {
            return detach().map_err(|error| Failure::Failed(format!("cannot start the gateway: {error}")));
        }
        let config = self.config.clone();
        let attached =
            self.attach().map_err(|error| Failure::Failed(format!("cannot serve the command: {error}")))?;
        let pipe = attached.reporter.clone();
        let origin = config.map_or(Origin::Default, Origin::File);
        let result = Run {
            origin,
            demo: None,
            beginning: Beginning::New,
            overrides: Overrides::default(),
            attached: Some(attached),
        }
        .run();
        if let Err(failure) = &result {
            pipe.send(&AttachedReport::Failed(failure.to_string()));
        }
        result
    }

    /// Takes the descriptor of the command from standard input, and the pipe or socket from standard output,
    /// which becomes the log.
    fn attach(self) -> io::Result<Attached> {
        let process: OwnedFd = stdin().as_fd().try_clone_to_owned()?;
        let output = stdout().as_fd().try_clone_to_owned()?;
        let channel = if self.isolated { Some(UnixStream::from(output.try_clone()?)) } else { None };
        let reporter = Reporter::new(output);
        dup2_stdin(File::open("/dev/null")?)?;
        dup2_stdout(stderr())?;
        Ok(Attached {
            process,
            linger: Duration::from_millis(self.linger_ms),
            intercept: self.intercept.then_some(self.hosts),
            reporter,
            channel,
            program: self.program,
            terminal: self.terminal,
        })
    }
}

/// Starts this command again without `--detach`, and leaves it alone: it becomes a child of the system's
/// first process.
fn detach() -> io::Result<()> {
    close_others();
    // Signals of the terminal are for the command.
    rustix::process::setsid()?;
    let arguments = std::env::args_os().skip(1).filter(|argument| argument != "--detach");
    Command::new(std::env::current_exe()?).args(arguments).spawn().map(drop)
}

/// Closes the descriptors that the command has inherited, such as locks and pipes. Others wait for them to be
/// closed, and the gateway may outlive the command. This process has opened none itself yet.
fn close_others() {
    let names = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let others: Vec<i32> = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for descriptor in others.into_iter().filter(|descriptor| *descriptor >= FIRST_OTHER) {
        // The one of the directory is closed already.
        let _ = nix::unistd::close(descriptor);
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        serve: ServeCommand,
    }

    #[test]
    fn the_helpers_arguments_read_back() {
        let full = ServeCommand {
            detach: true,
            config: Some("/my egret.yaml".into()),
            intercept: true,
            hosts: vec!["a.example".to_owned(), "*".to_owned()],
            isolated: true,
            linger_ms: 2_000,
            program: "-my node".to_owned(),
            terminal: Some("/dev/pts/3".into()),
        };
        for written in [full, ServeCommand { detach: true, ..ServeCommand::default() }] {
            assert_eq!(Cli::parse_from(written.arguments()).serve, written);
        }
    }
}

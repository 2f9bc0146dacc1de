//! External events of a running Egret: signals, changes of its config file and secrets, and the end of the
//! command that it is run for.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use egret_settings::config_file::{self, ConfigFileError, ConfigSources};
use egret_settings::failure::Failure;
use egret_settings::fetched_secrets::SecretSources;
use egret_settings::secret_files;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::run::attached::CommandEnd;
use crate::watch::Watch;

/// Further changes of the file within this time belong to the same change.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// A file that reads the same twice at this interval is considered complete.
const SETTLE: Duration = Duration::from_millis(30);

/// Maximum number of reads of a file that keeps changing; the last one is used.
const SETTLE_READS_MAX: usize = 20;

/// An external event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Request to stop, by this signal.
    Stop(&'static str),
    /// Request to reload.
    Hangup,
    /// Request to start a new process that takes over.
    Replace,
    /// The config file, or a secret file that it refers to, may have changed.
    FileChanged,
    /// Secrets have been fetched again.
    SecretsRenewed,
    /// The command that the gateway is run for has ended, and nothing waits for what it left behind.
    CommandEnded,
}

/// Creates a runtime for one thread that mostly waits.
pub fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("the main thread cannot wait for signals: {error}")))
}

/// The signals, and changes of the file if there is one.
pub struct Events {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    replace: Signal,
    file: Option<(Watch, Receiver<()>)>,
    /// `None` once it is returned as an event.
    command: Option<CommandEnd>,
    /// The time at which a change is returned as an event, if there was one.
    change_due: Option<Instant>,
    /// Sources whose secrets are renewed, the first of them at this time.
    sources: Option<(Instant, Arc<SecretSources>)>,
    /// The renewal that is under way.
    renewal: Option<JoinHandle<()>>,
}

impl Events {
    /// Installs signal handlers and starts to watch the file. Must be called within a runtime.
    pub fn start(file: Option<&Path>) -> Result<Self, Failure> {
        let handler = |kind| {
            signal(kind).map_err(|error| Failure::Failed(format!("cannot install signal handlers: {error}")))
        };
        // Handling SIGXFSZ turns a file size limit (`ulimit -f`) into a write error; otherwise it would end
        // the process.
        drop(handler(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?);
        Ok(Self {
            terminate: handler(SignalKind::terminate())?,
            interrupt: handler(SignalKind::interrupt())?,
            hangup: handler(SignalKind::hangup())?,
            replace: handler(SignalKind::user_defined2())?,
            file: file.and_then(watch),
            command: None,
            change_due: None,
            sources: None,
            renewal: None,
        })
    }

    /// Also waits for the end of a command.
    pub fn watch_command(&mut self, command: CommandEnd) {
        self.command = Some(command);
    }

    /// Also renews the secrets of these sources, until the next time that some have been renewed.
    pub fn renew_secrets(&mut self, sources: Arc<SecretSources>) {
        self.sources = sources.next_renewal().map(|due| (due.into(), sources));
    }

    /// Waits for the next event. If the future is dropped meanwhile, no change of the file and no renewal is
    /// lost or delayed.
    pub async fn next(&mut self) -> Event {
        // A signal during the wait drops the change. That is safe: reload reads the file anyway, and stop
        // does not need it.
        let change_due = &mut self.change_due;
        let changed = async {
            let Some((_, changes)) = &mut self.file else { return std::future::pending().await };
            if change_due.is_none() && changes.recv().await.is_none() {
                return std::future::pending().await;
            }
            // The time stays if the future is dropped: calls over the API, however frequent, delay no reload.
            tokio::time::sleep_until(*change_due.get_or_insert_with(|| Instant::now() + DEBOUNCE)).await;
            *change_due = None;
        };
        let (sources, renewal) = (&mut self.sources, &mut self.renewal);
        let renewed = async {
            if renewal.is_none() {
                let Some((due, _)) = &*sources else { return std::future::pending().await };
                tokio::time::sleep_until(*due).await;
                // The next time is not known before they have been fetched.
                let Some((_, sources)) = sources.take() else { return };
                *renewal = Some(tokio::task::spawn_blocking(move || sources.renew()));
            }
            if let Some(renewal) = renewal {
                // A panic in it is logged.
                let _ = renewal.await;
            }
            *renewal = None;
        };
        let command = &mut self.command;
        let ended = async {
            match command {
                Some(command) => command.wait().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = self.terminate.recv() => Event::Stop("SIGTERM"),
            _ = self.interrupt.recv() => Event::Stop("SIGINT"),
            _ = self.hangup.recv() => Event::Hangup,
            _ = self.replace.recv() => Event::Replace,
            () = changed => Event::FileChanged,
            () = renewed => Event::SecretsRenewed,
            () = ended => {
                self.command = None;
                Event::CommandEnded
            }
        }
    }

    /// Watches the current targets of the file's links, and drops changes up to now, because the file is
    /// about to be read.
    pub fn refresh(&mut self) {
        if let Some((watch, changes)) = &mut self.file {
            while changes.try_recv().is_ok() {}
            if let Err(error) = watch.refresh() {
                tracing::warn!(%error, "changes of the config file may be missed; send SIGHUP to reload it");
            }
        }
    }

    /// Watches the files that the config in `file` includes, and the secret files and scripts that it refers
    /// to, besides the config file. The files are read once more if some of them were not watched when
    /// `sources` was read, because a change since then was not noticed.
    pub fn watch_others(&mut self, file: &Path, sources: &ConfigSources) {
        if let Some((watch, _)) = &mut self.file {
            let directory = file.parent().unwrap_or(Path::new(""));
            let texts = || sources.set.included.iter().chain([&sources.set.main]).map(|source| &*source.text);
            let scripts = texts().flat_map(|text| secret_files::named_files(text, directory));
            let secrets = texts().flat_map(secret_files::paths);
            watch.set_others(secrets.chain(scripts).chain(sources.paths.iter().cloned()));
            watch.set_directories(&sources.directories);
            match watch.refresh() {
                Ok(true) => self.change_due = self.change_due.or_else(|| Some(Instant::now() + DEBOUNCE)),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%error, "changes of a secret file or a script may be missed; send SIGHUP to reload it");
                }
            }
        }
    }

    /// Reads the file once it has stopped changing.
    pub async fn read_settled(&self, file: &Path) -> Result<ConfigSources, ConfigFileError> {
        let mut last = config_file::read_again(file);
        for _ in 1..SETTLE_READS_MAX {
            tokio::time::sleep(SETTLE).await;
            let now = config_file::read_again(file);
            if now == last {
                break;
            }
            last = now;
        }
        last
    }
}

fn watch(file: &Path) -> Option<(Watch, Receiver<()>)> {
    match Watch::start(file) {
        Ok(watch) => Some(watch),
        Err(error) => {
            tracing::warn!(%error, "cannot watch the config file; send SIGHUP to reload it");
            None
        }
    }
}

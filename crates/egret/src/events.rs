//! What happens to a running Egret from outside: signals, and changes of its config file and of the secrets that it names.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::Receiver;

use crate::watch::Watch;
use crate::{Failure, config};

/// What comes within this time after a change of the file belongs to the same change.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// A file that reads the same twice at this distance is taken for finished.
const SETTLE: Duration = Duration::from_millis(30);

/// Reads of a file that does not settle; the last is taken as it is.
const SETTLE_READS_MAX: usize = 20;

/// Something that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Told to stop, by this signal.
    Stop(&'static str),
    /// Told to reload.
    Hangup,
    /// The config file, or a secret that it names, may have changed.
    FileChanged,
}

/// A runtime for one thread that mostly waits.
pub fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("the main thread cannot wait for signals: {error}")))
}

/// Signals under way, and changes of the file where there is one.
pub struct Events {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    file: Option<(Watch, Receiver<()>)>,
}

impl Events {
    /// Takes over the signals and starts to watch the file. Needs a runtime.
    pub fn start(file: Option<&Path>) -> Result<Self, Failure> {
        let taken = |kind| {
            signal(kind).map_err(|error| Failure::Failed(format!("cannot take over signals: {error}")))
        };
        // A file that may grow no more (`ulimit -f`) is an error to whoever writes it, and not the end of the process.
        drop(taken(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?);
        Ok(Self {
            terminate: taken(SignalKind::terminate())?,
            interrupt: taken(SignalKind::interrupt())?,
            hangup: taken(SignalKind::hangup())?,
            file: file.and_then(watch),
        })
    }

    /// Waits for the next event.
    pub async fn next(&mut self) -> Event {
        // A signal during the wait forgets the change; what signals lead to needs none.
        let changed = async {
            let Some((_, changes)) = &mut self.file else { return std::future::pending().await };
            match changes.recv().await {
                Some(()) => tokio::time::sleep(DEBOUNCE).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = self.terminate.recv() => Event::Stop("SIGTERM"),
            _ = self.interrupt.recv() => Event::Stop("SIGINT"),
            _ = self.hangup.recv() => Event::Hangup,
            () = changed => Event::FileChanged,
        }
    }

    /// Watches what the file's links lead to now, and forgets changes up to now: the file is about to be read.
    pub fn refresh(&mut self) {
        if let Some((watch, changes)) = &mut self.file {
            while changes.try_recv().is_ok() {}
            if let Err(error) = watch.refresh() {
                tracing::warn!(%error, "changes of the config file may go unnoticed; SIGHUP reloads it");
            }
        }
    }

    /// Watches the files with secrets that `text`, a config, names, besides the config file.
    pub fn watch_secrets(&mut self, text: &str) {
        if let Some((watch, _)) = &mut self.file {
            watch.set_others(config::secret_files(text).map(PathBuf::from));
            if let Err(error) = watch.refresh() {
                tracing::warn!(%error, "changes of a file with a secret may go unnoticed; SIGHUP reads it anew");
            }
        }
    }

    /// Reads the file once nobody seems to be writing it.
    pub async fn read_settled(&self, file: &Path) -> Result<String, String> {
        let mut last = config::read_again(file);
        for _ in 1..SETTLE_READS_MAX {
            tokio::time::sleep(SETTLE).await;
            let now = config::read_again(file);
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
            tracing::warn!(%error, "the config file cannot be watched; SIGHUP reloads it");
            None
        }
    }
}

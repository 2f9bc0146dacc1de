//! The file of durable quotas, and the thread that reads and writes it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use egret_clock::{Clock, Moment};
use egret_store::{FileStore, Ledger, Loan, LoanRequest, Store, StoreError, ledger};

/// The file's name in the data directory.
const FILE_NAME: &str = "quotas.redb";

/// The open file.
pub struct DurableQuotas {
    ledger: Ledger,
    clerk: JoinHandle<()>,
}

impl DurableQuotas {
    /// Opens the file in `data_dir`, and creates both if needed.
    pub fn open(data_dir: &Path) -> Result<Self, QuotaFileError> {
        let (quotas, opening) = Self::prepare(data_dir)?;
        opening.open()?;
        Ok(quotas)
    }

    /// Creates what is needed but the file, which another process may still use. Requests for units wait
    /// until it is opened.
    pub fn prepare(data_dir: &Path) -> Result<(Self, Opening), QuotaFileError> {
        let path = data_dir.join(FILE_NAME);
        let failed = |cause| QuotaFileError { path: path.clone(), cause };
        std::fs::create_dir_all(data_dir).map_err(|error| failed(DurableCause::System(error)))?;
        let (ledger, clerk) = ledger();
        let (sender, opened) = sync_channel::<FileStore>(1);
        let work = move || {
            if let Ok(store) = opened.recv() {
                clerk.run(&mut Watched { store, has_failed: false });
            }
        };
        let clerk = std::thread::Builder::new()
            .name("egret-store".into())
            .spawn(work)
            .map_err(|error| failed(DurableCause::System(error)))?;
        Ok((Self { ledger, clerk }, Opening { path, sender }))
    }

    /// The handle through which units are requested.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Writes all pending requests and closes the file.
    pub fn close(self) {
        self.ledger.close();
        if self.clerk.join().is_err() {
            tracing::error!("the quota file was not closed: units returned last may count as used");
        }
    }
}

/// The file, which is not open yet.
pub struct Opening {
    path: PathBuf,
    sender: SyncSender<FileStore>,
}

impl Opening {
    /// Opens the file.
    pub fn open(self) -> Result<(), QuotaFileError> {
        let now = Clock::new().timestamp(Moment::now());
        let store = FileStore::open(&self.path, now)
            .map_err(|error| QuotaFileError { path: self.path.clone(), cause: DurableCause::Store(error) })?;
        tracing::info!(file = %self.path.display(), "quotas are stored in a file");
        // The thread waits for it.
        let _ = self.sender.send(store);
        Ok(())
    }
}

/// The reason why quotas cannot be stored in their file.
#[derive(Debug, thiserror::Error)]
#[error("cannot store quotas in {path}: {cause}")]
pub struct QuotaFileError {
    path: PathBuf,
    cause: DurableCause,
}

#[derive(Debug, thiserror::Error)]
enum DurableCause {
    /// The directory or the thread cannot be created.
    #[error("{0}")]
    System(io::Error),
    /// The file cannot be opened.
    #[error("{0}")]
    Store(StoreError),
}

/// A store that logs when it starts to fail and when it works again, not every failure.
struct Watched<S> {
    store: S,
    has_failed: bool,
}

impl<S: Store> Store for Watched<S> {
    fn apply(&mut self, requests: &[LoanRequest], loans: &mut Vec<Loan>) -> Result<(), StoreError> {
        let result = self.store.apply(requests, loans);
        match &result {
            Err(error) if !self.has_failed => {
                tracing::error!(
                    "the quota file failed: {error}; `on_store_error` applies until it works again"
                );
            }
            Ok(()) if self.has_failed => tracing::info!("the quota file works again"),
            _ => {}
        }
        self.has_failed = result.is_err();
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails or succeeds as scripted, call by call.
    struct Scripted(Vec<bool>);

    impl Store for Scripted {
        fn apply(&mut self, _: &[LoanRequest], _: &mut Vec<Loan>) -> Result<(), StoreError> {
            if self.0.remove(0) { Ok(()) } else { Err(StoreError::Failed("disk full".to_owned())) }
        }
    }

    #[test]
    fn a_watched_store_responds_like_the_store() {
        let results = [true, false, false, true];
        let mut watched = Watched { store: Scripted(results.to_vec()), has_failed: false };
        for works in results {
            assert_eq!(watched.apply(&[], &mut Vec::new()).is_ok(), works);
            assert_eq!(watched.has_failed, !works);
        }
    }

    #[test]
    fn a_file_is_refused_while_it_is_open() {
        let directory = std::env::temp_dir().join(format!("egret-durable-{}", std::process::id()));
        let open = DurableQuotas::open(&directory).unwrap();
        let Err(error) = DurableQuotas::open(&directory) else { panic!("opened twice") };
        let message = error.to_string();
        assert!(message.contains(FILE_NAME) && message.contains("`data_dir`"), "{message}");
        open.close();
        DurableQuotas::open(&directory).unwrap().close();
        std::fs::remove_dir_all(directory).unwrap();
    }
}

//! The file of durable quotas, and the thread that reads and writes it.

use std::path::Path;
use std::thread::JoinHandle;

use egret_clock::{Clock, Moment};
use egret_store::{FileStore, Ledger, Loan, Request, Store, StoreError, ledger};

/// The file's name in the data directory.
const FILE_NAME: &str = "quotas.redb";

/// The open file.
pub struct DurableQuotas {
    ledger: Ledger,
    clerk: JoinHandle<()>,
}

impl DurableQuotas {
    /// Opens the file in `data_dir`, and creates both if needed. The error says what to do.
    pub fn open(data_dir: &Path) -> Result<Self, String> {
        let path = data_dir.join(FILE_NAME);
        let failed =
            |error: &dyn std::fmt::Display| format!("cannot store quotas in {}: {error}", path.display());
        std::fs::create_dir_all(data_dir).map_err(|error| failed(&error))?;
        let now = Clock::new().timestamp(Moment::now());
        let store = FileStore::open(&path, now).map_err(|error| failed(&error))?;
        let (ledger, clerk) = ledger();
        let clerk = std::thread::Builder::new()
            .name("egret-store".into())
            .spawn(move || clerk.run(&mut Watched { store, has_failed: false }))
            .map_err(|error| failed(&error))?;
        tracing::info!(file = %path.display(), "quotas are stored in a file");
        Ok(Self { ledger, clerk })
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

/// A store that logs when it starts to fail and when it works again, not every failure.
struct Watched<S> {
    store: S,
    has_failed: bool,
}

impl<S: Store> Store for Watched<S> {
    fn apply(&mut self, requests: &[Request], loans: &mut Vec<Loan>) -> Result<(), StoreError> {
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
    struct Told(Vec<bool>);

    impl Store for Told {
        fn apply(&mut self, _: &[Request], _: &mut Vec<Loan>) -> Result<(), StoreError> {
            if self.0.remove(0) { Ok(()) } else { Err(StoreError::Failed("disk full".to_owned())) }
        }
    }

    #[test]
    fn a_watched_store_answers_as_the_store_does_and_knows_how_it_stands() {
        let answers = [true, false, false, true];
        let mut watched = Watched { store: Told(answers.to_vec()), has_failed: false };
        for works in answers {
            assert_eq!(watched.apply(&[], &mut Vec::new()).is_ok(), works);
            assert_eq!(watched.has_failed, !works);
        }
    }

    #[test]
    fn a_file_that_is_open_already_is_refused_and_free_again_once_it_is_closed() {
        let directory = std::env::temp_dir().join(format!("egret-durable-{}", std::process::id()));
        let open = DurableQuotas::open(&directory).unwrap();
        let Err(message) = DurableQuotas::open(&directory) else { panic!("opened twice") };
        assert!(message.contains(FILE_NAME) && message.contains("`data_dir`"), "{message}");
        open.close();
        DurableQuotas::open(&directory).unwrap().close();
        std::fs::remove_dir_all(directory).unwrap();
    }
}

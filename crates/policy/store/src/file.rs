//! A store in a file, for one process. Every commit is on disk before its result is delivered.

use std::path::Path;

use egret_clock::Timestamp;
use egret_files::private_file;
use egret_items::opaque;
use redb::backends::FileBackend;
use redb::{Database, DatabaseError, ReadableTable, TableDefinition};

use crate::store::{Loan, LoanRequest, Store, StoreError, WindowRecord};

/// Keys and their latest windows.
const WINDOWS: TableDefinition<'_, &[u8], WindowRow> = TableDefinition::new("windows");
/// Memory for pages of the file. Records take some tens of bytes, and few are in use.
const CACHE_BYTES: usize = 4 << 20;
/// Number of requests after which expired windows are removed.
const REQUESTS_BETWEEN_SWEEPS: usize = 100_000;

/// Windows in a file.
pub struct FileStore {
    database: Database,
    requests_since_sweep: usize,
}

opaque!(FileStore);

fn failed(error: impl Into<redb::Error>) -> StoreError {
    match error.into() {
        redb::Error::Corrupted(why) => StoreError::Damaged(why),
        redb::Error::DatabaseAlreadyOpen => StoreError::InUse,
        redb::Error::RepairAborted => StoreError::Damaged("it cannot be repaired".to_owned()),
        other => StoreError::Failed(other.to_string()),
    }
}

impl FileStore {
    /// Opens the file, or creates it; its directory must exist. After a crash the file is repaired:
    /// everything whose result was delivered is there, other requests may be.
    pub fn open(path: &Path, now: Timestamp) -> Result<Self, StoreError> {
        let file = private_file().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| StoreError::Failed(error.to_string()))?;
        let opened = FileBackend::new(file)
            .and_then(|backend| Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(backend));
        let database = opened.map_err(|error| match error {
            DatabaseError::UpgradeRequired(version) => {
                StoreError::Damaged(format!("unknown format {version}"))
            }
            other => failed(other),
        })?;
        let mut store = Self { database, requests_since_sweep: 0 };
        store.sweep(now.as_micros())?;
        Ok(store)
    }

    /// Removes expired windows, so the file does not grow with every group that ever existed.
    fn sweep(&mut self, now: u64) -> Result<(), StoreError> {
        self.requests_since_sweep = 0;
        let transaction = self.database.begin_write().map_err(failed)?;
        {
            let mut windows = transaction.open_table(WINDOWS).map_err(failed)?;
            windows.retain(|_, record| !WindowRecord::from(record).is_over(now)).map_err(failed)?;
        }
        transaction.commit().map_err(failed)
    }
}

/// A window as the file has it: begin, end, used, spilled.
type WindowRow = (u64, u64, u64, u64);

impl From<WindowRow> for WindowRecord {
    fn from((begin, end, used, spilled): WindowRow) -> Self {
        Self { begin, end, used, spilled }
    }
}

impl From<WindowRecord> for WindowRow {
    fn from(WindowRecord { begin, end, used, spilled }: WindowRecord) -> Self {
        (begin, end, used, spilled)
    }
}

impl Store for FileStore {
    fn apply(&mut self, requests: &[LoanRequest], loans: &mut Vec<Loan>) -> Result<(), StoreError> {
        let transaction = self.database.begin_write().map_err(failed)?;
        {
            let mut windows = transaction.open_table(WINDOWS).map_err(failed)?;
            for request in requests {
                let found = windows.get(&*request.key).map_err(failed)?.map(|record| record.value().into());
                let mut record: WindowRecord = found.unwrap_or_default();
                loans.push(record.apply(request));
                windows.insert(&*request.key, WindowRow::from(record)).map_err(failed)?;
            }
        }
        transaction.commit().map_err(failed)?;
        self.requests_since_sweep += requests.len();
        if self.requests_since_sweep > REQUESTS_BETWEEN_SWEEPS
            && let Some(latest) = requests.iter().map(|request| request.window.begin).max()
        {
            self.sweep(latest)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::path::PathBuf;

    use proptest::prelude::*;

    use super::*;
    use crate::store::Window;

    const NOW: Timestamp = Timestamp::from_micros(1_000);

    fn window(number: u64) -> Window {
        let begin = number * 1_000;
        Window { begin, end: begin + 1_000, before: begin - 1_000, limit: 10, spillover: 4 }
    }

    fn request(key: u8, number: u64, wanted: u64) -> LoanRequest {
        LoanRequest { key: [key].as_slice().into(), window: window(number), owed: 0, wanted, returned: 0 }
    }

    fn apply(store: &mut FileStore, request: LoanRequest) -> Loan {
        let mut loans = Vec::new();
        store.apply(&[request], &mut loans).unwrap();
        loans[0]
    }

    fn file() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("quotas.redb");
        (directory, path)
    }

    #[test]
    fn lent_units_are_used_after_reopening_the_file() {
        let (_directory, path) = file();
        let mut store = FileStore::open(&path, NOW).unwrap();
        assert_eq!(apply(&mut store, request(1, 1, 7)).units, 7);
        drop(store);
        let mut store = FileStore::open(&path, NOW).unwrap();
        let loan = apply(&mut store, request(1, 1, 7));
        assert_eq!((loan.units, loan.used), (3, 10));
    }

    #[test]
    fn a_file_in_use_or_malformed_is_refused() {
        let (_directory, path) = file();
        let _open = FileStore::open(&path, NOW).unwrap();
        let error = FileStore::open(&path, NOW).unwrap_err();
        assert_eq!(error, StoreError::InUse);
        assert!(error.to_string().contains("data_dir"));
        let (_directory, path) = file();
        std::fs::write(&path, "quotas: {}\n".repeat(1_000)).unwrap();
        assert!(FileStore::open(&path, NOW).is_err());
    }

    #[test]
    fn windows_that_are_long_over_are_removed_when_the_file_is_opened() {
        let (_directory, path) = file();
        let mut store = FileStore::open(&path, NOW).unwrap();
        for key in 0..100 {
            apply(&mut store, request(key, 1 + u64::from(key % 2) * 9, 1));
        }
        drop(store);
        let store = FileStore::open(&path, Timestamp::from_micros(10_500)).unwrap();
        let transaction = redb::ReadableDatabase::begin_read(&store.database).unwrap();
        let windows = transaction.open_table(WINDOWS).unwrap();
        assert_eq!(redb::ReadableTableMetadata::len(&windows).unwrap(), 50);
    }

    #[test]
    fn any_copy_of_the_file_has_all_answered_requests() {
        let (_directory, path) = file();
        let mut store = FileStore::open(&path, NOW).unwrap();
        for lent in 1..=8 {
            apply(&mut store, request(1, 1, 1));
            // The state after `kill -9`: the file as it is, never closed.
            let copy = path.with_extension("copy");
            std::fs::copy(&path, &copy).unwrap();
            let mut after = FileStore::open(&copy, NOW).unwrap();
            assert_eq!(apply(&mut after, request(1, 1, 0)).used, lent);
        }
    }

    #[test]
    fn a_file_cut_short_is_repaired_or_refused_and_never_read_wrongly() {
        let (_directory, path) = file();
        let mut store = FileStore::open(&path, NOW).unwrap();
        for key in 0..200 {
            apply(&mut store, request(key, 1, 5));
        }
        let whole = std::fs::read(&path).unwrap();
        for kept in (0..8).map(|eighths| whole.len() * eighths / 8) {
            let copy = path.with_extension("copy");
            std::fs::write(&copy, &whole[..kept]).unwrap();
            match std::panic::catch_unwind(|| FileStore::open(&copy, NOW)) {
                Ok(Ok(mut store)) if kept > 0 => assert_eq!(apply(&mut store, request(1, 1, 0)).used, 5),
                opened => assert!(opened.is_ok(), "a file cut to {kept} bytes brings the process down"),
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn lent_units_stay_within_limit_and_spill_cap(
            steps in prop::collection::vec((0_u8..3, 0_u64..3, 0_u64..8, any::<bool>()), 1..40),
        ) {
            let (_directory, path) = file();
            let mut store = FileStore::open(&path, NOW).unwrap();
            let mut now = 1;
            let mut lent: HashMap<(u8, u64), u64> = HashMap::new();
            for (key, later, wanted, reopens) in steps {
                now += later / 2;
                if reopens {
                    drop(store);
                    store = FileStore::open(&path, NOW).unwrap();
                }
                let loan = apply(&mut store, request(key, now, wanted));
                let sum = lent.entry((key, now)).or_default();
                *sum += loan.units;
                prop_assert_eq!(loan.used, *sum);
                prop_assert!(loan.spilled <= 4);
                prop_assert_eq!(loan.units, wanted.min(10 + loan.spilled - (*sum - loan.units)));
            }
        }
    }
}

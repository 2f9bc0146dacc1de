//! A store in a file, for one process. Every commit is on disk before its result is delivered.
//!
//! A database that has failed once is of no use any more, even if the disk works again. So the file is closed
//! after a failure, and opened again for a later request.

#[cfg(feature = "simulated")]
mod simulated;

use std::path::{Path, PathBuf};
use std::time::Duration;

use egret_clock::{Moment, Timestamp, planted};
use egret_files::system::private_file;
use egret_items::opaque;
#[cfg(not(feature = "simulated"))]
use redb::backends::FileBackend;
use redb::{Database, DatabaseError, Durability, ReadableTable, TableDefinition};
#[cfg(feature = "simulated")]
use simulated::FileBackend;

use crate::store::{Loan, LoanRequest, Store, StoreError, WindowRecord};

/// Keys and their latest windows.
const WINDOWS: TableDefinition<'_, &[u8], WindowRow> = TableDefinition::new("windows");
/// Memory for pages of the file. Records take some tens of bytes, and few are in use.
const CACHE_BYTES: usize = 4 << 20;
/// Number of requests after which expired windows are removed.
const REQUESTS_BETWEEN_SWEEPS: usize = 100_000;
/// Time after a failure for which the file is not opened again.
const REOPEN_AFTER: Duration = Duration::from_millis(500);

/// Windows in a file.
pub struct FileStore {
    path: PathBuf,
    opens: Opens,
    state: FileState,
    requests_since_sweep: usize,
}

/// Opens the database in a file. Tests replace it by one on a disk that fills up.
type Opens = fn(&Path) -> Result<Database, StoreError>;

/// The state of the file.
enum FileState {
    Open(Database),
    /// It has failed, for this reason, and is not opened again before this time.
    Failed(StoreError, Moment),
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

fn open_database(path: &Path) -> Result<Database, StoreError> {
    let file = private_file().read(true).write(true).create(true).truncate(false).open(path);
    let file = file.map_err(|error| StoreError::Failed(error.to_string()))?;
    let opened = FileBackend::new(file)
        .and_then(|backend| Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(backend));
    opened.map_err(|error| match error {
        DatabaseError::UpgradeRequired(version) => StoreError::Damaged(format!("unknown format {version}")),
        other => failed(other),
    })
}

impl FileStore {
    /// Opens the file, or creates it; its directory must exist. After a crash the file is repaired:
    /// everything whose result was delivered is there, other requests may be.
    pub fn open(path: &Path, now: Timestamp) -> Result<Self, StoreError> {
        let database = open_database(path)?;
        sweep(&database, now.as_micros())?;
        let state = FileState::Open(database);
        Ok(Self { path: path.to_owned(), opens: open_database, state, requests_since_sweep: 0 })
    }

    /// Returns the database, which is opened if it has failed before.
    fn database(&mut self) -> Result<&Database, StoreError> {
        if let FileState::Failed(error, until) = &self.state {
            if Moment::now() < *until {
                return Err(error.clone());
            }
            self.state = FileState::Open((self.opens)(&self.path)?);
        }
        match &self.state {
            FileState::Open(database) => Ok(database),
            FileState::Failed(error, _) => Err(error.clone()),
        }
    }

    /// Applies requests, and removes expired windows now and then.
    fn try_apply(&mut self, requests: &[LoanRequest], loans: &mut Vec<Loan>) -> Result<(), StoreError> {
        let database = self.database()?;
        lend(database, requests, loans)?;
        self.requests_since_sweep += requests.len();
        if self.requests_since_sweep > REQUESTS_BETWEEN_SWEEPS
            && let Some(latest) = requests.iter().map(|request| request.window.begin).max()
        {
            self.requests_since_sweep = 0;
            sweep(self.database()?, latest)?;
        }
        Ok(())
    }
}

/// Removes expired windows, so the file does not grow with every group that ever existed.
fn sweep(database: &Database, now: u64) -> Result<(), StoreError> {
    let transaction = database.begin_write().map_err(failed)?;
    {
        let mut windows = transaction.open_table(WINDOWS).map_err(failed)?;
        windows.retain(|_, record| !WindowRecord::from(record).is_over(now)).map_err(failed)?;
    }
    transaction.commit().map_err(failed)
}

/// Applies all requests, or none.
fn lend(database: &Database, requests: &[LoanRequest], loans: &mut Vec<Loan>) -> Result<(), StoreError> {
    let mut transaction = database.begin_write().map_err(failed)?;
    if planted!(LoanUnsynced) {
        transaction
            .set_durability(Durability::None)
            .map_err(|error| StoreError::Failed(error.to_string()))?;
    }
    {
        let mut windows = transaction.open_table(WINDOWS).map_err(failed)?;
        for request in requests {
            let found = windows.get(&*request.key).map_err(failed)?.map(|record| record.value().into());
            let mut record: WindowRecord = found.unwrap_or_default();
            loans.push(record.apply(request));
            windows.insert(&*request.key, WindowRow::from(record)).map_err(failed)?;
        }
    }
    transaction.commit().map_err(failed)
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
        let applied = self.try_apply(requests, loans);
        if let Err(error) = &applied
            && !matches!(&self.state, FileState::Failed(_, until) if Moment::now() < *until)
        {
            self.state = FileState::Failed(error.clone(), Moment::now() + REOPEN_AFTER);
        }
        applied
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::HashMap;
    use std::io;

    use proptest::prelude::*;
    use redb::StorageBackend;

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
        let FileState::Open(database) = &store.state else { panic!("it is open") };
        let transaction = redb::ReadableDatabase::begin_read(database).unwrap();
        let windows = transaction.open_table(WINDOWS).unwrap();
        assert_eq!(redb::ReadableTableMetadata::len(&windows).unwrap(), 50);
    }

    thread_local! {
        static IS_FULL: Cell<bool> = const { Cell::new(false) };
    }

    /// A file on a disk that is full at times.
    #[derive(Debug)]
    struct FillingDisk(FileBackend);

    impl StorageBackend for FillingDisk {
        fn len(&self) -> io::Result<u64> {
            self.0.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.0.read(offset, out)
        }

        fn set_len(&self, length: u64) -> io::Result<()> {
            self.0.set_len(length)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.0.sync_data()
        }

        fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            if IS_FULL.get() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.0.write(offset, bytes)
        }

        fn close(&self) -> io::Result<()> {
            self.0.close()
        }
    }

    #[test]
    fn a_store_works_again_once_its_disk_does() {
        let opens: Opens = |path| {
            let file = private_file().read(true).write(true).create(true).truncate(false).open(path).unwrap();
            let disk = FillingDisk(FileBackend::new(file).unwrap());
            Database::builder().create_with_backend(disk).map_err(failed)
        };
        let (_directory, path) = file();
        let state = FileState::Open(opens(&path).unwrap());
        let mut store = FileStore { path, opens, state, requests_since_sweep: 0 };
        assert_eq!(apply(&mut store, request(1, 1, 4)).units, 4);
        IS_FULL.set(true);
        let ask = |store: &mut FileStore| store.apply(&[request(1, 1, 4)], &mut Vec::new());
        assert!(ask(&mut store).is_err());
        IS_FULL.set(false);
        assert!(ask(&mut store).is_err(), "it is not opened again at once");
        let FileState::Failed(_, until) = &mut store.state else { panic!("it has failed") };
        *until = Moment::now();
        let loan = apply(&mut store, request(1, 1, 1));
        assert_eq!((loan.units, loan.used), (1, 5));
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

//! The parts of a process that use the disk: the file of its quotas, the disks of its caches, and its
//! exporter. Each has a thread in the gateway; here the world gives them their turns.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use egret_cache::{CacheDisk, Stored};
use egret_clock::{Moment, Timestamp, system_time};
use egret_diagnosis::Exports;
use egret_export::{ExporterConfigs, ExporterContext, Exporters};
use egret_gateway::Gateway;
use egret_har::Key;
use egret_kernel::disk::outside as disk;
use egret_quota::Stores;
use egret_store::entries::SteppedDisk;
use egret_store::{
    Clerk, FileStore, Ledger as QuotaLedger, Loan, LoanRequest, Store, StoreError, Window, ledger,
};
use serde_json::{Value, json};

use crate::disk_plan::{DiskPlan, RECORDS};
use crate::ledger::Ledger;

/// The directory of the gateway's data.
const DATA_DIR: &str = "/data";
/// The file of quotas in it.
const QUOTAS: &str = "/data/quotas.redb";

/// The units of a window that were confirmed as used.
#[derive(Debug, Clone, Copy)]
struct Floor {
    window: Window,
    begin: u64,
    used: u64,
}

impl Floor {
    /// Returns `true` if its window is over, and so is the next one, which could take units over from it.
    fn is_over(&self, now: Timestamp) -> bool {
        let Window { begin, end, .. } = self.window;
        end + (end - begin) <= now.as_micros()
    }
}

/// Units that the file of quotas must not forget, by the keys of windows. They outlive processes.
#[derive(Debug, Clone, Default)]
pub struct Floors(Rc<RefCell<BTreeMap<Box<[u8]>, Floor>>>);

/// The file, and the units that it must not forget.
struct Tallied {
    store: FileStore,
    floors: Floors,
}

impl Store for Tallied {
    fn apply(&mut self, requests: &[LoanRequest], loans: &mut Vec<Loan>) -> Result<(), StoreError> {
        let applied = self.store.apply(requests, loans);
        let mut floors = self.floors.0.borrow_mut();
        for (number, request) in requests.iter().enumerate() {
            match (&applied, loans.get(number)) {
                (Ok(()), Some(loan)) => {
                    let floor = Floor { window: request.window, begin: loan.begin, used: loan.used };
                    floors.insert(request.key.clone(), floor);
                }
                // It may be on the disk, or not.
                _ => {
                    if let Some(floor) = floors.get_mut(&request.key) {
                        floor.used = floor.used.saturating_sub(request.returned);
                    }
                }
            }
        }
        applied
    }
}

/// A cache's disk, and its turns while it works.
struct ServedDisk {
    disk: CacheDisk,
    stepped: Option<SteppedDisk<Stored>>,
}

/// The parts of a process that use the disk.
#[derive(Default)]
pub struct Disks {
    quotas: Option<(QuotaLedger, Clerk, Tallied)>,
    caches: Vec<ServedDisk>,
    /// The exporter's config, if there is one.
    exporter: Option<Value>,
    exporters: Exporters,
    exports: Exports,
    is_used: bool,
    /// The disk fails to sync at times.
    may_lose: bool,
}

impl Disks {
    /// Opens what a process keeps on the disk, and checks that quotas are not forgotten.
    pub fn open(plan: Option<&DiskPlan>, floors: &Floors, ledger: &mut Ledger) -> Result<Self, String> {
        let Some(plan) = plan else { return Ok(Self::default()) };
        let may_lose = plan.faults.sync > 0;
        let mut disks = Self { is_used: true, may_lose, exporter: plan.exporter.clone(), ..Self::default() };
        disks.open_exporter().map_err(|error| error.to_string())?;
        if plan.keeps_quota {
            let opened = egret_kernel::disk::create_dir_all(DATA_DIR)
                .map_err(|error| error.to_string())
                .and_then(|()| disks.open_quotas(floors, ledger).map_err(|error| error.to_string()));
            opened.map_err(|error| format!("the file of quotas cannot be opened: {error}"))?;
        }
        Ok(disks)
    }

    fn open_exporter(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        let Some(config) = &self.exporter else { return Ok(()) };
        let configs: ExporterConfigs = serde_json::from_value(json!({ "archive": config }))?;
        let context = ExporterContext { version: "0", data_dir: Path::new(DATA_DIR), upstream_proxy: None };
        self.exporters = Exporters::default().open(&configs, context)?;
        let key = Some(Arc::new(Key::new(&[7; 32])));
        self.exports = Exports { sinks: self.exporters.sinks(), key, state_store: None };
        Ok(())
    }

    fn open_quotas(&mut self, floors: &Floors, ledger: &mut Ledger) -> Result<(), StoreError> {
        let mut store = FileStore::open(Path::new(QUOTAS), system_time())?;
        // What nobody needs any more is forgotten with reason.
        floors.0.borrow_mut().retain(|_, floor| !floor.is_over(system_time()));
        let known: Vec<_> = floors.0.borrow().iter().map(|(key, floor)| (key.clone(), *floor)).collect();
        for (key, floor) in known {
            let request = LoanRequest { key, window: floor.window, owed: 0, wanted: 0, returned: 0 };
            let mut loans = Vec::new();
            store.apply(&[request], &mut loans)?;
            let found = loans.first().map(|loan| (loan.begin, loan.used));
            if found.is_none_or(|found| found < (floor.begin, floor.used)) {
                let (begin, used) = (floor.begin, floor.used);
                ledger.accuse(format!(
                    "the file of quotas had {used} units from {begin} on, and has {found:?}"
                ));
            }
        }
        let (asked, clerk) = self::ledger();
        self.quotas = Some((asked, clerk, Tallied { store, floors: floors.clone() }));
        Ok(())
    }

    /// The stores of quotas.
    pub fn stores(&self) -> Stores<'_> {
        Stores { ledger: self.quotas.as_ref().map(|(ledger, ..)| ledger), ..Stores::default() }
    }

    /// The destinations of diagnoses.
    pub fn exports(&self) -> &Exports {
        &self.exports
    }

    /// The directory of the gateway's data, if the disk is used.
    pub fn data_dir(&self) -> Option<&'static Path> {
        self.is_used.then_some(Path::new(DATA_DIR))
    }

    /// Opens the disks of caches that do not work, as each config that is applied does.
    pub fn open_caches(&mut self, gateway: &Gateway) {
        if !self.is_used {
            return;
        }
        for disk in gateway.cache_disks() {
            disk.resize();
            let known = self.caches.iter().position(|served| served.disk.is(&disk));
            let number = known.unwrap_or_else(|| {
                self.caches.push(ServedDisk { disk: disk.clone(), stepped: None });
                self.caches.len() - 1
            });
            let served = &mut self.caches[number];
            if served.stepped.is_none() {
                // One that cannot be opened is not used until the next config.
                served.stepped = disk.open().ok();
            }
        }
    }

    /// Returns `true` if there is a file of quotas.
    pub fn has_quotas(&self) -> bool {
        self.quotas.is_some()
    }

    /// Lends the units that were asked for.
    pub fn lend(&mut self) {
        if let Some((_, clerk, store)) = &mut self.quotas {
            clerk.work_off(store);
        }
    }

    /// The time at which the disk of a cache has something to do.
    pub fn cache_due(&self) -> Option<Moment> {
        self.caches.iter().filter_map(|served| served.stepped.as_ref()?.due()).min()
    }

    /// Gives the disks of caches a turn.
    pub fn turn_caches(&mut self) {
        for served in &mut self.caches {
            if let Some(stepped) = &mut served.stepped
                && stepped.due().is_some_and(|due| due <= Moment::now())
                && served.disk.turn(stepped).is_err()
            {
                served.stepped = None;
            }
        }
    }

    /// Checks that the file of quotas works, as its disk does.
    pub fn check_quotas(&mut self, ledger: &mut Ledger) {
        self.lend();
        let Some((_, _, store)) = &mut self.quotas else { return };
        let known = store.floors.0.borrow().iter().next().map(|(key, floor)| (key.clone(), floor.window));
        let Some((key, window)) = known else { return };
        let request = LoanRequest { key, window, owed: 0, wanted: 0, returned: 0 };
        if let Err(error) = store.apply(&[request], &mut Vec::new()) {
            ledger.accuse(format!("the disk works again, and the file of quotas does not: {error}"));
        }
    }

    /// Closes the exporter, and checks that each record is in a file, or counted as lost. After another
    /// start, with room on the disk, a file is whole, or was put aside.
    pub fn check_records(&mut self, ledger: &mut Ledger) {
        self.exporters.close();
        let Some(snapshot) = self.exporters.snapshot().pop() else { return };
        let lost: u64 = snapshot.dropped.values().sum();
        if snapshot.put != snapshot.written + lost {
            let (put, written) = (snapshot.put, snapshot.written);
            ledger.accuse(format!(
                "{put} records were exported: {written} are written, {lost} counted as lost"
            ));
        }
        disk::set_free(None);
        if let Err(error) = self.open_exporter() {
            ledger.accuse(format!("the exporter cannot be opened again: {error}"));
        }
        self.exporters.close();
        let mut found = 0;
        for (path, bytes) in disk::files(Path::new(RECORDS)) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            match entries(&name, &bytes) {
                Some(count) => found += count,
                // What could not be synced may be lost from any of them.
                None if disk::counts().cuts > 0 && self.may_lose => {}
                None => ledger.accuse(format!("the file {name} of {} bytes is not whole", bytes.len())),
            }
        }
        // A power failure may take what was written. What a torn file still has is written twice.
        if disk::counts().cuts == 0 && found < snapshot.written {
            ledger.accuse(format!("{} records were written, and {found} are in files", snapshot.written));
        }
    }
}

/// Number of records in a file. `None` if it is not whole.
fn entries(name: &str, bytes: &[u8]) -> Option<u64> {
    if let Some(name) = name.strip_suffix(".gz") {
        return entries(name, &unpacked(bytes)?);
    }
    let is_line = |line: &&[u8]| serde_json::from_slice::<Value>(line).is_ok();
    match name.rsplit_once('.')?.1 {
        "har" => {
            let har: Value = serde_json::from_slice(bytes).ok()?;
            Some(har["log"]["entries"].as_array()?.len() as u64)
        }
        "ndjson" if bytes.is_empty() => Some(0),
        "ndjson" => {
            let lines: Vec<&[u8]> = bytes.strip_suffix(b"\n")?.split(|byte| *byte == b'\n').collect();
            lines.iter().all(is_line).then_some(lines.len() as u64)
        }
        // Files under way, and those that were put aside.
        _ => Some(0),
    }
}

fn unpacked(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut unpacked = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(bytes), &mut unpacked).ok()?;
    Some(unpacked)
}

//! Tests of entries that must come back and of entries that must not, and of a model that forgets nothing.

use std::collections::HashMap;
use std::task::{Context, Poll, Waker};

use egret_clock::Timestamp;
use proptest::prelude::*;

use super::super::{BodyWriter, Entries, EntryLimits};
use super::*;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Note(Vec<u8>);

impl StoredValue for Note {
    type Context = ();

    fn bytes(&self) -> usize {
        self.0.len()
    }

    fn label(&self) -> &[u8] {
        &self.0
    }

    fn save(&self) -> Vec<u8> {
        self.0.clone()
    }

    fn load(saved: &[u8], (): &()) -> Option<Self> {
        saved.starts_with(b"/").then(|| Self(saved.to_vec()))
    }
}

const SEAL: Seal = Seal { fingerprint: [1; 32], secret: [2; 32] };
const BYTES: u64 = 256 << 10;
const WAITING_BYTES: u64 = 1 << 20;

/// A way of removing an entry.
type Remove = fn(&Entries<Note>);

fn key(id: u128) -> EntryKey {
    EntryKey { id, group: id / 4 }
}

/// A store with a disk whose thread is the test.
struct TestDisk {
    entries: Arc<Entries<Note>>,
    directory: Option<Directory>,
    removed_at: Option<Moment>,
}

impl TestDisk {
    fn new(path: &Path, seal: Seal, memory: u64) -> Self {
        let limits = DiskLimits { bytes: BYTES, waiting_bytes: WAITING_BYTES, variants: 3 };
        let disk = Disk::new(path, seal, false, (), limits);
        let limits = EntryLimits { bytes: memory, body_bytes: 20_000, variants: 3 };
        Self { entries: Entries::with_disk(limits, Some(disk)), directory: None, removed_at: None }
    }

    fn open(path: &Path) -> Self {
        let mut setup = Self::new(path, SEAL, 1 << 20);
        setup.start(&|_| {});
        setup
    }

    /// Scans the disk.
    fn start(&mut self, report: &dyn Fn(DiskEvent)) {
        let directory = Directory::open(self.disk().directory()).unwrap();
        self.disk().claim(&directory, report).unwrap();
        self.disk().scan(&directory, report).unwrap();
        self.directory = Some(directory);
    }

    fn disk(&self) -> &Arc<Disk<Note>> {
        self.entries.disk().unwrap()
    }

    fn has_work(&self) -> bool {
        let index = self.disk().lock();
        !(index.to_delete.is_empty() && index.loads.is_empty() && index.writes.is_empty())
    }

    fn turn(&mut self) -> Option<Stop> {
        let directory = self.directory.as_ref().unwrap();
        let mut removed_at = self.removed_at.take();
        let stop = self.disk().turn(&*self.entries, directory, &mut removed_at).unwrap();
        self.removed_at = removed_at;
        stop
    }

    fn work_off(&mut self) {
        while self.has_work() {
            assert_eq!(self.turn(), None);
        }
    }

    fn stop(mut self) {
        self.disk().stop(Stop::Keep(Moment::NEVER));
        while self.turn().is_none() {}
    }

    fn begin(&self, id: u128, body: &[u8]) -> BodyWriter<Note> {
        let tags: Arc<[Box<str>]> = [Box::from(format!("t{}", id % 2))].into();
        let label = Note(format!("/{id}/").into());
        let now = Timestamp::from_secs(1);
        let mut filling = self.entries.begin(key(id), label, &tags, Some(body.len() as u64), now).unwrap();
        filling.push(body).unwrap();
        filling
    }

    fn put(&self, id: u128, body: &[u8]) -> Arc<StoredEntry<Note>> {
        self.begin(id, body).finish()
    }

    fn find(&self, id: u128) -> Vec<Arc<StoredEntry<Note>>> {
        let mut found = Vec::new();
        self.entries.find(key(id), &mut found);
        found
    }

    fn look_up(&self, id: u128) -> DiskLookup {
        self.entries.look_up(key(id), &self.find(id))
    }

    /// Returns the bodies under `id`, from memory or else from disk.
    fn bodies(&mut self, id: u128) -> Vec<Vec<u8>> {
        if let DiskLookup::Loading(mut loading) = self.look_up(id) {
            let cx = Context::from_waker(Waker::noop());
            while loading.poll(&cx).is_pending() {
                self.turn();
            }
        }
        self.find(id).iter().map(|entry| entry.body.blocks().unwrap().concat()).collect()
    }

    /// Evicts everything possible from memory.
    fn forget_memory(&self) {
        for shard in &self.entries.shards {
            let mut shard = shard.lock();
            shard.remove_among(0, usize::MAX, &|entry| entry.body.len().is_some());
        }
    }
}

fn directory() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache");
    (directory, path)
}

#[test]
fn written_entries_are_found_after_restart_and_eviction() {
    let (_directory, path) = directory();
    let mut setup = TestDisk::open(&path);
    let first = setup.put(1, b"one");
    setup.put(1, b"another");
    setup.put(5, &[7; 15_000]);
    // Entries that are still waiting to be written are found as well.
    setup.forget_memory();
    assert_eq!(setup.bodies(1), [b"another".to_vec(), b"one".to_vec()]);
    setup.work_off();
    setup.forget_memory();
    assert_eq!(setup.bodies(5), [[7; 15_000]]);
    setup.stop();
    let mut setup = TestDisk::open(&path);
    assert!(setup.find(1).is_empty());
    assert_eq!(setup.bodies(1), [b"another".to_vec(), b"one".to_vec()]);
    let again = &setup.find(1)[1];
    assert_eq!((&again.value, again.stored_at, &again.tags), (&first.value, first.stored_at, &first.tags));
    assert_eq!(setup.disk().stats().loads, 1);
    assert!(matches!(setup.look_up(1), DiskLookup::Nothing), "all of it is in memory");
    let is_loaded_since = setup.entries.look_up(key(1), &setup.find(1)[..1]);
    assert!(matches!(is_loaded_since, DiskLookup::InMemory), "one was not found a moment ago");
    assert!(matches!(setup.look_up(2), DiskLookup::Nothing));
}

#[test]
fn all_who_wait_share_one_load() {
    let (_directory, path) = directory();
    let mut setup = TestDisk::open(&path);
    setup.put(1, b"one");
    setup.work_off();
    setup.forget_memory();
    let look_up = || match setup.look_up(1) {
        DiskLookup::Loading(loading) => loading,
        other => panic!("{other:?}"),
    };
    let cx = Context::from_waker(Waker::noop());
    let mut waiting: Vec<_> = (0..100).map(|_| look_up()).collect();
    assert!(waiting.iter_mut().all(|one| one.poll(&cx).is_pending()));
    waiting.truncate(50);
    setup.work_off();
    assert!(waiting.iter_mut().all(|one| one.poll(&cx) == Poll::Ready(())));
    assert_eq!((setup.disk().stats().loads, setup.find(1).len()), (1, 1));
}

#[test]
fn an_entry_removed_during_a_read_stays_removed() {
    let (_directory, path) = directory();
    let ways: [Remove; 4] = [
        |entries| assert_eq!(entries.remove_group(0), 1),
        |entries| assert_eq!(entries.purge(Purge::Label(b"/1/")), 1),
        |entries| assert_eq!(entries.purge(Purge::All), 1),
        |entries| entries.remove_unloaded(key(1)),
    ];
    for remove in ways {
        let mut setup = TestDisk::open(&path);
        setup.put(1, b"one");
        setup.work_off();
        setup.forget_memory();
        let number = setup.disk().lock().numbers(1).next().unwrap();
        let directory = setup.directory.as_ref().unwrap();
        let read = setup.disk().read(&*setup.entries, directory, key(1), number).unwrap().unwrap();
        remove(&setup.entries);
        assert!(!setup.entries.restore(setup.disk(), read));
        assert!(setup.bodies(1).is_empty());
        setup.stop();
        assert!(TestDisk::open(&path).bodies(1).is_empty());
    }
}

#[test]
fn a_removal_before_the_scan_stays_in_force() {
    let (_directory, path) = directory();
    let ways: [(Remove, &[u128]); 6] = [
        (|entries| _ = entries.remove_group(0), &[4, 5]),
        (|entries| _ = entries.purge(Purge::Label(b"/1/")), &[0, 2, 3, 4, 5]),
        (|entries| _ = entries.purge(Purge::Prefix(b"/")), &[]),
        (|entries| _ = entries.purge(Purge::Tag("t1")), &[0, 2, 4]),
        (|entries| _ = entries.purge(Purge::All), &[]),
        (|entries| entries.remove_unloaded(key(2)), &[0, 1, 3, 4, 5]),
    ];
    for (remove, left) in ways {
        let setup = TestDisk::open(&path);
        (0..6).for_each(|id| drop(setup.put(id, b"old")));
        setup.stop();
        let mut setup = TestDisk::new(&path, SEAL, 1 << 20);
        assert!(matches!(setup.look_up(1), DiskLookup::Unknown));
        remove(&setup.entries);
        setup.put(9, b"new");
        setup.start(&|_| {});
        let found: Vec<_> = (0..6).filter(|id| !setup.bodies(*id).is_empty()).collect();
        assert_eq!(found, left);
        setup.work_off();
        setup.forget_memory();
        assert_eq!(setup.bodies(9), [b"new"]);
        setup.entries.purge(Purge::All);
        setup.stop();
    }
}

#[test]
fn removals_count_entries_on_disk_and_memory_once() {
    let (_directory, path) = directory();
    let mut setup = TestDisk::open(&path);
    (0..8).for_each(|id| drop(setup.put(id, b"old")));
    setup.work_off();
    setup.forget_memory();
    (0..2).for_each(|id| drop(setup.bodies(id)));
    let coming = setup.begin(3, b"new");
    assert_eq!(setup.entries.remove_group(0), 5, "two in both, two on disk, one that is arriving");
    coming.finish();
    assert_eq!(setup.entries.purge(Purge::Tag("t1")), 2);
    assert_eq!(setup.entries.purge(Purge::All), 2);
    assert_eq!((setup.disk().stats().entries, setup.entries.stats().entries), (0, 0));
    setup.work_off();
    assert_eq!(
        (setup.disk().stats().bytes, setup.directory.as_ref().unwrap().numbers().unwrap().len()),
        (0, 0)
    );
}

#[test]
fn an_update_takes_the_place_of_what_was_there() {
    let (_directory, path) = directory();
    let mut setup = TestDisk::open(&path);
    let entry = setup.put(1, b"one");
    setup.work_off();
    setup.entries.update(&entry, Note(b"/new".into()), Timestamp::from_secs(9)).unwrap();
    setup.stop();
    let mut setup = TestDisk::open(&path);
    assert_eq!(setup.bodies(1), [b"one"]);
    let found = &setup.find(1)[0];
    assert_eq!((found.value.0.as_slice(), found.stored_at), (&b"/new"[..], Timestamp::from_secs(9)));
}

#[test]
fn a_disk_of_another_config_or_one_that_is_damaged_is_emptied() {
    let (_directory, path) = directory();
    let events = |seal: Seal| {
        let events = Mutex::new(Vec::new());
        let mut setup = TestDisk::new(&path, seal, 1 << 20);
        setup.start(&|event| events.lock().unwrap().push(event));
        setup.put(1, b"one");
        let secret = *setup.disk().secret();
        setup.stop();
        (events.into_inner().unwrap(), secret)
    };
    let open = |entries| DiskEvent::Open { entries, dropped: 0 };
    assert_eq!(events(SEAL), (vec![open(0)], [2; 32]));
    let fresh = Seal { secret: [9; 32], ..SEAL };
    assert_eq!(events(fresh), (vec![open(1)], [2; 32]), "the secret stays");
    let other = Seal { fingerprint: [3; 32], secret: [4; 32] };
    assert_eq!(events(other), (vec![DiskEvent::Outdated, open(0)], [4; 32]));
    std::fs::write(path.join("seal"), "no seal").unwrap();
    assert_eq!(events(SEAL), (vec![DiskEvent::Damaged, open(0)], [2; 32]));
    std::fs::remove_file(path.join("seal")).unwrap();
    assert_eq!(events(SEAL).0, [open(0)], "without a seal their owner is unknown");
}

#[test]
fn a_damaged_entry_is_dropped_and_the_others_stay() {
    let (_directory, path) = directory();
    let setup = TestDisk::open(&path);
    let entries: Vec<_> = (0..4).map(|id| setup.put(id, b"body")).collect();
    setup.stop();
    let file = |at: usize| path.join(format!("{:016x}", entries[at].number));
    let change = |at: usize, byte: usize| {
        let mut bytes = std::fs::read(file(at)).unwrap();
        let byte = if byte == usize::MAX { bytes.len() - 1 } else { byte };
        bytes[byte] ^= 1;
        std::fs::write(file(at), bytes).unwrap();
    };
    change(0, 20);
    change(1, usize::MAX);
    std::fs::write(file(2), "").unwrap();
    let mut setup = TestDisk::open(&path);
    assert_eq!(setup.disk().stats().dropped, 2, "those with an invalid head");
    let found: Vec<_> = (0..4).filter(|id| !setup.bodies(*id).is_empty()).collect();
    assert_eq!((found, setup.disk().stats().dropped), (vec![3], 3));
    setup.work_off();
    assert!(!file(0).exists() && !file(1).exists() && !file(2).exists() && file(3).exists());
}

#[test]
fn churn_stays_within_its_bytes_and_what_is_used_stays() {
    let (_directory, path) = directory();
    let mut setup = TestDisk::open(&path);
    setup.put(0, &[0; 3_000]);
    for id in 1..1_000_u128 {
        let size = 1_000 + usize::try_from(id % 17).unwrap() * 1_000;
        setup.put(id * 4, &vec![1; size]);
        setup.work_off();
        if id % 5 == 0 {
            setup.forget_memory();
            assert_eq!(setup.bodies(0).len(), 1, "{id}: it is used again and again");
        }
        let files: u64 = std::fs::read_dir(&path)
            .unwrap()
            .map(|file| file.unwrap().metadata().unwrap().len().next_multiple_of(4096))
            .sum();
        assert!(files <= BYTES + (8 << 10), "{files}");
    }
    let stats = setup.disk().stats();
    assert!(stats.evicted > 900 && stats.bytes > BYTES / 2 && stats.skipped == 0, "{stats:?}");
    // A lower limit takes effect at once.
    setup.disk().set_bytes_max(BYTES / 4);
    setup.turn();
    assert!(setup.disk().stats().bytes <= BYTES / 4);
}

#[test]
fn an_entry_used_in_memory_stays_on_disk() {
    let (_directory, path) = directory();
    let mut setup = TestDisk::open(&path);
    let used = setup.put(0, b"used");
    setup.work_off();
    for id in 1..300_u128 {
        used.touch();
        setup.put(id * 4, &[1; 3_000]);
        setup.work_off();
    }
    setup.stop();
    assert_eq!(TestDisk::open(&path).bodies(0), [b"used"]);
}

#[test]
fn an_index_of_long_labels_is_bounded() {
    let (_directory, path) = directory();
    let mut setup = TestDisk::open(&path);
    for id in 0..200_u128 {
        let label = Note(format!("/{}", "x".repeat(2_000)).into());
        let mut filling =
            setup.entries.begin(key(id), label, &Arc::default(), None, Timestamp::default()).unwrap();
        filling.push(b"x").unwrap();
        filling.finish();
        setup.work_off();
    }
    assert!(setup.disk().lock().own_bytes <= BYTES / INDEX_PART);
    assert!(setup.disk().stats().evicted > 100);
}

#[test]
fn a_skipped_write_leaves_no_older_entry() {
    let (_directory, path) = directory();
    let mut setup = TestDisk::new(&path, SEAL, 8 << 20);
    setup.start(&|_| {});
    let old = setup.put(1, &[0; 15_000]);
    setup.work_off();
    for id in 2..100_u128 {
        setup.put(id * 4, &[1; 16_000]);
    }
    assert!(setup.disk().stats().skipped > 20);
    setup.entries.update(&old, Note(b"/new".into()), Timestamp::default()).unwrap();
    setup.work_off();
    setup.forget_memory();
    assert!(setup.bodies(1).is_empty());
}

#[test]
fn an_entry_larger_than_memory_is_not_loaded() {
    let (_directory, path) = directory();
    let setup = TestDisk::open(&path);
    setup.put(1, &[1; 10_000]);
    setup.stop();
    let mut setup = TestDisk::new(&path, SEAL, 5_000);
    setup.start(&|_| {});
    assert!(setup.bodies(1).is_empty());
    assert!(matches!(setup.look_up(1), DiskLookup::Nothing));
}

#[test]
fn a_disk_that_fails_is_left_and_can_be_taken_again() {
    let (_directory, path) = directory();
    let mut setup = TestDisk::new(&path, SEAL, 1 << 20);
    let held = Directory::open(&path).unwrap();
    assert!(matches!(setup.disk().serve(&*setup.entries, &|_| {}), Err(DiskError::InUse)));
    assert_eq!(setup.disk().stats(), DiskStats::default());
    setup.put(1, b"one");
    assert!(matches!(setup.look_up(1), DiskLookup::Nothing));
    drop(held);
    setup.entries.remove_group(0);
    let serving = (Arc::clone(setup.disk()), Arc::clone(&setup.entries));
    let thread = std::thread::spawn(move || serving.0.serve(&*serving.1, &|_| {}));
    while !setup.disk().stats().is_open {
        std::thread::yield_now();
    }
    setup.put(2, b"two");
    setup.disk().stop(Stop::Keep(Moment::NEVER));
    thread.join().unwrap().unwrap();
    setup = TestDisk::open(&path);
    assert_eq!((setup.bodies(1).len(), setup.bodies(2).len()), (0, 1));
    setup.disk().stop(Stop::Delete);
    drop(setup.directory.take());
    setup.disk().serve(&*setup.entries, &|_| {}).unwrap();
    assert!(!path.exists());
}

#[test]
fn entries_not_deleted_in_time_are_unreadable() {
    let (_directory, path) = directory();
    let mut setup = TestDisk::open(&path);
    (0..20).for_each(|id| drop(setup.put(id, b"old")));
    setup.work_off();
    setup.entries.purge(Purge::Tag("t1"));
    setup.disk().stop(Stop::Keep(Moment::from_nanos(0)));
    assert!(setup.turn().is_some());
    drop(setup);
    assert!((0..20).all(|id| TestDisk::open(&path).bodies(id).is_empty()));
}

/// An entry of one of several groups contains its round. Once a round is over, none of its entries may be
/// found.
fn storm(entries: &Arc<Entries<Note>>, rounds: &[Mutex<u64>], over: &[AtomicU64], seed: u64) {
    let mut random = seed;
    let cx = Context::from_waker(Waker::noop());
    for _ in 0..3_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (act, id) = ((random >> 33) % 16, u128::from((random >> 45) % 32));
        let at = usize::try_from(id / 4).unwrap();
        match act {
            0..6 => {
                let round = rounds[at].lock().unwrap();
                let label = Note(format!("/{at}/").into());
                let body = [round.to_le_bytes(), u64::try_from(id).unwrap().to_le_bytes()].concat();
                let filling = entries.begin(key(id), label, &Arc::default(), None, Timestamp::default());
                drop(round);
                let Ok(mut filling) = filling else { continue };
                if filling.push(&body).is_ok() && filling.push(&[0; 500]).is_ok() {
                    filling.finish();
                }
            }
            6 => {
                let mut round = rounds[at].lock().unwrap();
                if random & 1 == 0 {
                    entries.remove_group(id / 4);
                } else {
                    entries.purge(Purge::Label(format!("/{at}/").as_bytes()));
                }
                *round += 1;
                over[at].store(*round, Relaxed);
            }
            _ => {
                let round = over[at].load(Relaxed);
                if let DiskLookup::Loading(mut loading) = entries.look_up(key(id), &[]) {
                    while loading.poll(&cx).is_pending() {
                        std::thread::yield_now();
                    }
                }
                let mut found = Vec::new();
                entries.find(key(id), &mut found);
                for entry in found.iter().filter(|entry| entry.body.len().is_some()) {
                    let body = entry.body.blocks().unwrap().concat();
                    let number =
                        |range: std::ops::Range<usize>| u64::from_le_bytes(body[range].try_into().unwrap());
                    assert!(number(0..8) >= round, "{id}: of round {} after {round}", number(0..8));
                    assert_eq!(u128::from(number(8..16)), id);
                }
            }
        }
    }
}

#[test]
fn removed_entries_stay_removed_under_concurrent_use() {
    const THREADS: u64 = 4;
    let (_directory, path) = directory();
    let rounds: [Mutex<u64>; 8] = Default::default();
    let over: [AtomicU64; 8] = Default::default();
    for run in 0..3 {
        // So little memory that most entries are only on disk.
        let entries = TestDisk::new(&path, SEAL, 24_000).entries;
        let serving = || entries.disk().unwrap().serve(&*entries, &|_| {});
        std::thread::scope(|scope| {
            let serving = scope.spawn(serving);
            while run > 0 && !entries.disk().unwrap().stats().is_open {
                std::thread::yield_now();
            }
            let storms: Vec<_> = (0..THREADS)
                .map(|number| {
                    let (entries, rounds, over) = (&entries, &rounds, &over);
                    scope.spawn(move || storm(entries, rounds, over, run * THREADS + number))
                })
                .collect();
            let storms: Vec<_> = storms.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            entries.disk().unwrap().stop(Stop::Keep(Moment::NEVER));
            serving.join().unwrap().unwrap();
            assert!(storms.iter().all(Result::is_ok));
        });
        let stats = entries.disk().unwrap().stats();
        assert!(run == 0 || (stats.loads > 10 && stats.writes > 10), "{stats:?}");
        assert_eq!(stats.dropped, 0);
    }
}

#[derive(Debug, Clone)]
enum Act {
    Put(u128, usize),
    Update(u128),
    Remove(u128),
    Unseen(u128),
    Group(u128),
    Tag(u8),
    Prefix(u128),
    Find(u128),
    /// Reads the entries under an identity, and adds them to memory only some acts later.
    Read(u128),
    Restore,
    ForgetMemory,
    Turn,
    Restart,
    /// A restart with removals before the scan has ended.
    RestartLate(u128),
    Kill,
}

fn act() -> impl Strategy<Value = Act> {
    let id = 0_u128..12;
    prop_oneof![
        6 => (id.clone(), 0_usize..19_000).prop_map(|(id, len)| Act::Put(id, len)),
        2 => id.clone().prop_map(Act::Update),
        1 => id.clone().prop_map(Act::Remove),
        1 => id.clone().prop_map(Act::Unseen),
        1 => (0_u128..3).prop_map(Act::Group),
        1 => (0_u8..2).prop_map(Act::Tag),
        1 => id.clone().prop_map(Act::Prefix),
        4 => id.clone().prop_map(Act::Find),
        3 => id.clone().prop_map(Act::Read),
        3 => Just(Act::Restore),
        2 => Just(Act::ForgetMemory),
        6 => Just(Act::Turn),
        1 => Just(Act::Restart),
        1 => (0_u128..3).prop_map(Act::RestartLate),
        1 => Just(Act::Kill),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    /// Compared with a map that forgets nothing: an entry that is found was stored under that identity, and
    /// was not removed since.
    #[test]
    fn removed_entries_stay_removed_and_bounds_hold(acts in prop::collection::vec(act(), 1..90)) {
        let (_directory, path) = directory();
        let mut setup = TestDisk::open(&path);
        let mut model: HashMap<u128, Vec<Vec<u8>>> = HashMap::new();
        let mut read: Vec<Arc<StoredEntry<Note>>> = Vec::new();
        for (step, act) in acts.into_iter().enumerate() {
            let fill = u8::try_from(step).unwrap();
            match act {
                Act::Put(id, len) => {
                    setup.put(id, &vec![fill; len]);
                    model.entry(id).or_default().push(vec![fill; len]);
                }
                Act::Update(id) => {
                    if let Some(entry) = setup.find(id).first() {
                        let note = Note(format!("/{id}/").into());
                        setup.entries.update(entry, note, Timestamp::from_secs(2)).unwrap();
                    }
                }
                Act::Remove(id) => {
                    if let Some(entry) = setup.find(id).first() {
                        let body = entry.body.blocks().unwrap().concat();
                        setup.entries.remove(entry);
                        model.get_mut(&id).unwrap().retain(|other| *other != body);
                    }
                }
                Act::Unseen(id) => {
                    setup.entries.remove_unloaded(key(id));
                    let seen = setup.find(id);
                    let seen: Vec<_> = seen.iter().map(|entry| entry.body.blocks().unwrap().concat()).collect();
                    model.insert(id, seen);
                }
                Act::Group(group) => {
                    setup.entries.remove_group(group);
                    model.retain(|id, _| id / 4 != group);
                }
                Act::Tag(tag) => {
                    setup.entries.purge(Purge::Tag(&format!("t{tag}")));
                    model.retain(|id, _| id % 2 != u128::from(tag));
                }
                Act::Prefix(id) => {
                    setup.entries.purge(Purge::Prefix(format!("/{id}").as_bytes()));
                    model.retain(|other, _| !other.to_string().starts_with(&id.to_string()));
                }
                Act::Find(id) => {
                    for body in setup.bodies(id) {
                        prop_assert!(model.get(&id).is_some_and(|bodies| bodies.contains(&body)));
                    }
                }
                Act::Read(id) => {
                    let numbers: Vec<_> = setup.disk().lock().numbers(id).collect();
                    let directory = setup.directory.as_ref().unwrap();
                    for number in numbers.into_iter().filter(|number| !setup.entries.has(key(id), *number)) {
                        // Entries that are not written yet have no file.
                        let entry = setup.disk().read(&*setup.entries, directory, key(id), number).unwrap();
                        read.extend(entry);
                    }
                }
                Act::Restore => {
                    for entry in read.drain(..).filter(|entry| !setup.entries.has(entry.key, entry.number)) {
                        setup.entries.restore(setup.disk(), entry);
                    }
                }
                Act::ForgetMemory => setup.forget_memory(),
                Act::Turn => {
                    if setup.has_work() {
                        setup.turn();
                    }
                }
                Act::Restart => {
                    setup.stop();
                    read.clear();
                    setup = TestDisk::open(&path);
                }
                Act::RestartLate(group) => {
                    setup.stop();
                    read.clear();
                    setup = TestDisk::new(&path, SEAL, 1 << 20);
                    setup.entries.remove_group(group);
                    model.retain(|id, _| id / 4 != group);
                    setup.put(group * 4, b"late");
                    model.entry(group * 4).or_default().push(b"late".to_vec());
                    setup.start(&|_| {});
                }
                Act::Kill => {
                    // Removals are durable within 100 ms; entries waiting to be written are lost.
                    let directory = setup.directory.as_ref().unwrap();
                    setup.disk().delete_files(directory, usize::MAX).unwrap();
                    read.clear();
                    drop(setup);
                    setup = TestDisk::open(&path);
                }
            }
            for id in 0..12 {
                for entry in setup.find(id) {
                    let body = entry.body.blocks().unwrap().concat();
                    prop_assert!(model.get(&id).is_some_and(|bodies| bodies.contains(&body)), "{}", id);
                    prop_assert_eq!(entry.key, key(id));
                }
                prop_assert!(setup.disk().lock().numbers(id).count() <= 3);
            }
            prop_assert!(setup.disk().stats().bytes <= BYTES);
        }
    }
}

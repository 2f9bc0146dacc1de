use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use egret_har::validate::validate;
use proptest::prelude::*;

use super::retention::read;
use super::*;
use crate::disk::System;
use crate::disk::tests::LimitedDisk;

const ENTRY: &str = r#"{"startedDateTime":"2026-01-02T03:04:05.250Z","time":1,"request":{"method":"GET","url":"http://a/NUMBER","httpVersion":"HTTP/1.1","cookies":[],"headers":[],"queryString":[],"headersSize":-1,"bodySize":0},"response":{"status":200,"statusText":"OK","httpVersion":"HTTP/1.1","cookies":[],"headers":[],"content":{"size":0,"mimeType":""},"redirectURL":"","headersSize":-1,"bodySize":0},"cache":{},"timings":{"send":0,"wait":1,"receive":0}}"#;

fn entry(number: u64) -> Vec<u8> {
    ENTRY.replace("NUMBER", &number.to_string()).into_bytes()
}

/// Returns the numbers of the entries in a valid HAR file.
fn numbers(bytes: &[u8]) -> Vec<u64> {
    let har: serde_json::Value = serde_json::from_slice(bytes).expect("a file is JSON at every moment");
    assert_eq!(validate(&har), [], "a file is HAR at every moment");
    let urls = har["log"]["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["request"]["url"].as_str().unwrap());
    urls.map(|url| url["http://a/".len()..].parse().unwrap()).collect()
}

fn layout(directory: &Path) -> Layout {
    Layout {
        name: "archive".to_owned(),
        directory: directory.join("har"),
        format: FileFormat::har("1.2.3"),
        rotate_bytes: 64 << 20,
        rotate_after: None,
        keep_bytes: None,
        gzip: false,
        is_spool: false,
    }
}

fn counters() -> Arc<Counters> {
    Arc::new(Counters::new("archive", "har"))
}

fn writer(layout: Layout, disk: impl Disk + 'static) -> Writer {
    Writer::new(Arc::new(layout), counters(), Box::new(disk))
}

fn retention(layout: Layout) -> Retention {
    Retention::new(Arc::new(layout), counters())
}

/// Returns the visible files in the directory, by name.
fn files(directory: &Path) -> Vec<PathBuf> {
    let is_hidden = |path: &PathBuf| path.file_name().unwrap().as_encoded_bytes().starts_with(b".");
    all(directory).into_iter().filter(|path| !is_hidden(path)).collect()
}

/// Returns all files in the directory, by name.
fn all(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory.join("har")) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Returns the numbers in all files, in order.
fn written(directory: &Path) -> Vec<u64> {
    let bytes = |path: &PathBuf| {
        let mut bytes = Vec::new();
        read(path).unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    };
    files(directory).iter().flat_map(|path| numbers(&bytes(path))).collect()
}

#[test]
fn a_file_is_valid_after_every_batch_and_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let (mut writer, now) = (writer(layout(directory.path()), System), Moment::now());
    assert_eq!(
        files(directory.path()),
        Vec::<PathBuf>::new(),
        "nothing is made before there is something to write"
    );
    for number in 0..50 {
        writer.put(&entry(number), now);
        writer.tick(now);
        assert_eq!(written(directory.path()), (0..=number).collect::<Vec<_>>());
    }
    let [file] = &files(directory.path())[..] else { panic!("one file") };
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(directory.path().join("har")).unwrap().permissions().mode() & 0o777, 0o700);
    let snapshot = writer.counters.snapshot();
    assert_eq!((snapshot.put, snapshot.written, snapshot.up), (50, 50, true));
}

#[test]
fn a_line_break_in_an_entry_does_not_break_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let ndjson = Layout { format: FileFormat::ndjson(), ..layout(directory.path()) };
    let (mut writer, now) = (writer(ndjson, System), Moment::now());
    writer.put(b"{\n  \"a\": 1\n}", now);
    writer.put(b"{}", now);
    writer.tick(now);
    let text = fs::read_to_string(&files(directory.path())[0]).unwrap();
    assert_eq!(text, "{   \"a\": 1 }\n{}\n");
}

#[test]
fn files_are_rotated_by_size_and_by_age_and_sort_by_time() {
    let directory = tempfile::tempdir().unwrap();
    let rotated = Layout {
        rotate_bytes: 4_096,
        rotate_after: Some(Duration::from_mins(1)),
        ..layout(directory.path())
    };
    let (mut writer, start) = (writer(rotated, System), Moment::now());
    let mut closed = 0;
    for number in 0..20 {
        writer.put(&entry(number), start);
        closed += usize::from(writer.tick(start));
    }
    assert_eq!(files(directory.path()).len(), closed);
    assert!((2..=4).contains(&closed), "{closed}");
    writer.put(&entry(20), start);
    writer.tick(start);
    assert!(!writer.tick(start + Duration::from_secs(59)));
    assert!(writer.tick(start + Duration::from_mins(1)));
    assert_eq!(written(directory.path()), (0..=20).collect::<Vec<_>>());
}

#[test]
fn names_of_others_are_left_alone() {
    let layout = layout(Path::new("/"));
    let own = layout.file_name(SystemTime::now());
    assert!(layout.is_own(&own) && layout.is_own(&format!("{own}.gz")), "{own}");
    for name in [
        own.replace("archive-", "archive-b-"),
        own.replace(".har", ".ndjson"),
        own.replace("archive-2", "archive-x"),
        format!("{own}.bak"),
        "archive-.har".to_owned(),
        "archive.har".to_owned(),
        "archive-ä".repeat(5),
    ] {
        assert!(!layout.is_own(&name), "{name}");
    }
}

/// A disk whose free space the test can change.
#[derive(Debug)]
struct SharedDisk(Arc<LimitedDisk>);
impl Disk for SharedDisk {
    fn write_all_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(file, bytes, offset)
    }
}

#[test]
fn a_full_disk_costs_what_does_not_fit_and_never_validity() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(LimitedDisk::of(3_000));
    let (mut writer, mut now) =
        (writer(layout(directory.path()), SharedDisk(Arc::clone(&disk))), Moment::now());
    for number in 0..40 {
        writer.put(&entry(number), now);
        writer.tick(now);
        now = now + Duration::from_millis(50);
        let so_far = written(directory.path());
        assert_eq!(so_far, (0..so_far.len() as u64).collect::<Vec<_>>());
    }
    let snapshot = writer.counters.snapshot();
    assert!(!snapshot.up && snapshot.retries > 0 && snapshot.written < 10, "{snapshot:?}");
    assert!(snapshot.last_error.unwrap().contains("cannot write to"));
    // The buffer of waiting entries is bounded.
    let long = vec![b'1'; 1 << 20];
    (0..8).for_each(|_| _ = writer.put(&long, now));
    assert!(writer.pending.len() <= PENDING_BYTES_MAX);
    assert!(writer.counters.snapshot().dropped["full"] == 5, "{:?}", writer.counters.snapshot());
    // There is space again: the waiting entries are written, each once.
    writer.pending.truncate(writer.pending.len() - 3 * (long.len() + 2));
    disk.0.store(1 << 30, Relaxed);
    writer.tick(now + BACKOFF_MAX);
    assert_eq!(written(directory.path()), (0..40).collect::<Vec<_>>());
    assert!(writer.counters.snapshot().up);
}

#[test]
fn a_directory_that_cannot_be_made_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let in_the_way = directory.path().join("har");
    fs::write(&in_the_way, "").unwrap();
    let (mut writer, now) = (writer(layout(directory.path()), System), Moment::now());
    writer.put(&entry(1), now);
    writer.tick(now);
    assert!(!writer.counters.snapshot().up);
    fs::remove_file(in_the_way).unwrap();
    writer.tick(now);
    assert!(!writer.counters.snapshot().up, "an attempt is not made before its time");
    writer.tick(now + BACKOFF_MAX);
    let snapshot = writer.counters.snapshot();
    assert!(snapshot.up && snapshot.retries == 1, "{snapshot:?}");
    assert_eq!(written(directory.path()), [1]);
}

#[test]
fn a_writable_spool_does_not_mean_a_working_destination() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = writer(Layout { is_spool: true, ..layout(directory.path()) }, System);
    writer.counters.failed("the store answers 403".to_owned());
    writer.put(&entry(0), Moment::now());
    writer.flush(Moment::now());
    assert!(!writer.counters.snapshot().up);
}

#[test]
fn a_deleted_or_changed_file_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let (mut writer, now) = (writer(layout(directory.path()), System), Moment::now());
    let put = |number, writer: &mut Writer| {
        writer.put(&entry(number), now);
        writer.tick(now);
        files(directory.path()).pop().unwrap()
    };
    fs::remove_file(put(1, &mut writer)).unwrap();
    let moved = put(2, &mut writer);
    assert!(writer.counters.snapshot().dropped["deleted"] == 1);
    fs::rename(&moved, directory.path().join("elsewhere")).unwrap();
    let cut = put(3, &mut writer);
    fs::write(&cut, "").unwrap();
    let last = put(4, &mut writer);
    assert_eq!(numbers(&fs::read(directory.path().join("elsewhere")).unwrap()), [2]);
    assert_eq!((fs::read(cut).unwrap().len(), numbers(&fs::read(last).unwrap())), (0, vec![4]));
    fs::remove_dir_all(directory.path().join("har")).unwrap();
    put(5, &mut writer);
    assert_eq!(written(directory.path()), [5]);
}

#[test]
fn the_keeper_compresses_and_deletes_the_oldest() {
    let directory = tempfile::tempdir().unwrap();
    let kept = || Layout { rotate_bytes: 4_096, keep_bytes: Some(16_384), ..layout(directory.path()) };
    let (mut writer, now) = (writer(kept(), System), Moment::now());
    for number in 0..95 {
        writer.put(&entry(number), now);
        writer.tick(now);
    }
    let open = writer.open.as_ref().unwrap().path().to_path_buf();
    retention(kept()).round();
    let left = written(directory.path());
    assert_eq!(left, (95 - left.len() as u64..95).collect::<Vec<_>>());
    let bytes: u64 = files(directory.path()).iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    assert!((8_192..=16_384).contains(&bytes), "{bytes}");
    retention(Layout { gzip: true, ..kept() }).round();
    assert_eq!(written(directory.path()), left);
    let plain: Vec<_> =
        files(directory.path()).into_iter().filter(|file| file.extension().unwrap() == "har").collect();
    assert_eq!(plain, [open], "the file that is being written is left alone");
}

#[test]
fn an_exporter_keeps_what_it_was_given_over_its_close() {
    let directory = tempfile::tempdir().unwrap();
    let layout = Layout { gzip: true, ..layout(directory.path()) };
    let exporter = FileExporter::open(layout, Counters::new("archive", "har"), Box::new(System));
    let put = |number| {
        let entry = entry(number);
        exporter.put(Exported { entry: &entry, client: None, service_token: "", environment: "" });
    };
    put(1);
    exporter.close(Instant::now());
    put(2);
    exporter.close(Instant::now());
    assert_eq!(written(directory.path()), [1, 2]);
    assert!(files(directory.path()).iter().all(|file| file.extension().unwrap() == "gz"));
}

/// Returns a file with batches of entries, its length before the last batch, and the number of entries up to
/// there.
fn torn(batches: &[usize], format: fn() -> FileFormat) -> (Vec<u8>, usize, u64) {
    let directory = tempfile::tempdir().unwrap();
    let layout = Layout { format: format(), ..layout(directory.path()) };
    let (mut writer, now) = (writer(layout, System), Moment::now());
    let (mut before, mut entries, mut number) = (0, 0, 0);
    for batch in batches {
        (before, entries) = writer.open.as_ref().map_or((0, 0), |open| (open.end(), open.entries()));
        for _ in 0..*batch {
            writer.put(&entry(number), now);
            number += 1;
        }
        writer.tick(now);
    }
    (fs::read(&files(directory.path())[0]).unwrap(), usize::try_from(before).unwrap(), entries)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_torn_file_is_repaired_and_loses_nothing_but_its_last_batch(
        batches in prop::collection::vec(1_usize..6, 2..5),
        torn_at in any::<prop::sample::Index>(),
        is_har in any::<bool>(),
        zeros in 0_usize..2_000,
    ) {
        let format = if is_har { || FileFormat::har("1.2.3") } else { FileFormat::ndjson };
        let (whole, before, entries) = torn(&batches, format);
        let mut bytes = whole[..before + torn_at.index(whole.len() - before)].to_vec();
        // After a power failure a file can be longer than the data written to it.
        bytes.resize(bytes.len() + zeros, 0);
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout { format: format(), ..layout(directory.path()) };
        fs::create_dir(&layout.directory).unwrap();
        let path = layout.directory.join(layout.file_name(SystemTime::now()));
        fs::write(&path, &bytes).unwrap();
        let retention = retention(layout);
        retention.round();
        let repaired = fs::read(&path).unwrap();
        let found: Vec<u64> = if is_har {
            numbers(&repaired)
        } else {
            let text = String::from_utf8(repaired).unwrap();
            assert!(text.ends_with('\n'));
            text.lines().enumerate().map(|(number, line)| {
                assert_eq!(line.as_bytes(), entry(number as u64));
                number as u64
            }).collect()
        };
        prop_assert!(found.len() as u64 >= entries);
        prop_assert_eq!(&found, &(0..found.len() as u64).collect::<Vec<_>>());
        // One round is enough.
        retention.round();
        prop_assert!(fs::read(&path).unwrap().len() <= whole.len());
    }

    #[test]
    fn whatever_stands_in_a_file_of_its_name_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let directory = tempfile::tempdir().unwrap();
        let layout = layout(directory.path());
        fs::create_dir(&layout.directory).unwrap();
        fs::write(layout.directory.join(layout.file_name(SystemTime::now())), &bytes).unwrap();
        retention(layout).round();
        prop_assert!(files(directory.path()).iter().all(|file| file.extension().unwrap() == "damaged"));
    }
}

#[test]
fn a_file_that_was_begun_and_never_named_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let layout = layout(directory.path());
    fs::create_dir(&layout.directory).unwrap();
    let name = layout.file_name(SystemTime::now());
    fs::write(layout.directory.join(format!(".{name}.part")), "{").unwrap();
    fs::write(layout.directory.join(".other.part"), "{").unwrap();
    retention(layout).round();
    assert_eq!(all(directory.path()), [directory.path().join("har/.other.part")]);
}

/// A disk that writes a few bytes at a time, and after each write checks that the visible file is complete.
#[derive(Debug)]
struct Watched(PathBuf);
impl Disk for Watched {
    fn write_all_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        for (piece, at) in bytes.chunks(97).zip((offset..).step_by(97)) {
            System.write_all_at(file, piece, at)?;
            let _ = written(&self.0);
        }
        Ok(())
    }
}

#[test]
fn a_visible_file_is_always_valid() {
    let directory = tempfile::tempdir().unwrap();
    let rotated = Layout { rotate_bytes: 8_192, ..layout(directory.path()) };
    let mut writer = writer(rotated, Watched(directory.path().to_path_buf()));
    let now = Moment::now();
    let mut number = 0;
    for batch in [1, 3, 1, 7, 2, 9, 1, 1] {
        for _ in 0..batch {
            writer.put(&entry(number), now);
            number += 1;
        }
        writer.tick(now);
        assert_eq!(written(directory.path()), (0..number).collect::<Vec<_>>());
    }
    writer.end();
    assert!(files(directory.path()).len() > 1);
    assert_eq!(files(directory.path()), all(directory.path()), "nothing hidden is left");
}

#[test]
fn hidden_files_of_a_killed_writer_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let (mut writer, now) = (writer(layout(directory.path()), System), Moment::now());
    for number in 0..3 {
        writer.put(&entry(number), now);
        writer.tick(now);
    }
    let shown = writer.open.as_ref().unwrap().path().to_path_buf();
    let left = fs::read(&shown).unwrap();
    let hidden = all(directory.path()).into_iter().find(|file| *file != shown).unwrap();
    retention(layout(directory.path())).round();
    assert!(hidden.exists(), "a twin in use is left alone");
    let twin = fs::read(&hidden).unwrap();
    drop(writer);
    fs::write(&hidden, &twin[..twin.len() / 2]).unwrap();
    retention(layout(directory.path())).round();
    assert_eq!((fs::read(&shown).unwrap(), all(directory.path())), (left, vec![shown]));
}

#[test]
fn a_file_with_a_hole_is_cut_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let (mut writer, now) = (writer(layout(directory.path()), System), Moment::now());
    for number in 0..3 {
        writer.put(&entry(number), now);
    }
    writer.end();
    let path = files(directory.path()).remove(0);
    let mut bytes = fs::read(&path).unwrap();
    let hole = bytes.len() / 2;
    bytes[hole..hole + 10].fill(0);
    fs::write(&path, &bytes).unwrap();
    retention(layout(directory.path())).round();
    assert_eq!(written(directory.path()), [0]);
}

#[test]
fn a_file_without_hard_links_is_written_in_place() {
    let directory = tempfile::tempdir().unwrap();
    let (mut writer, now) = (writer(layout(directory.path()), System), Moment::now());
    let put = |number, writer: &mut Writer| {
        writer.put(&entry(number), now);
        writer.tick(now);
    };
    put(0, &mut writer);
    let shown = writer.open.as_ref().unwrap().path().to_path_buf();
    let name = shown.file_name().unwrap().to_str().unwrap();
    // Simulates a file system without hard links.
    fs::create_dir(shown.with_file_name(format!(".{name}.link"))).unwrap();
    for number in 1..4 {
        put(number, &mut writer);
        assert_eq!(written(directory.path()), (0..=number).collect::<Vec<_>>());
    }
    let snapshot = writer.counters.snapshot();
    assert!(snapshot.last_error.unwrap().contains("is written in place"));
    assert_eq!((snapshot.written, snapshot.up), (4, true));
}

/// A disk that counts writes.
#[derive(Debug)]
struct Counted(Arc<AtomicU64>);
impl Disk for Counted {
    fn write_all_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.fetch_add(1, Relaxed);
        System.write_all_at(file, bytes, offset)
    }
}

#[test]
fn many_records_are_written_in_bounded_batches() {
    let (directory, writes) = (tempfile::tempdir().unwrap(), Arc::new(AtomicU64::new(0)));
    let (mut writer, now) = (writer(layout(directory.path()), Counted(Arc::clone(&writes))), Moment::now());
    for number in 0..2_000 {
        writer.put(&entry(number), now);
        assert!(writer.pending.len() <= BATCH_BYTES + 1_000);
    }
    writer.tick(now);
    let expected = (ENTRY.len() as u64 * 2_000) / BATCH_BYTES as u64;
    assert!((expected..=expected + 3).contains(&writes.load(Relaxed)), "{writes:?}");
    assert_eq!(written(directory.path()).len(), 2_000);
}

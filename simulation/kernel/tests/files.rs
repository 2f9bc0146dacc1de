//! Tests of the disk with both of its sides.

use std::io::{ErrorKind, Read as _, Write as _};
use std::path::Path;

use egret_kernel::disk::{self, DiskFaults, File, FileExt as _, MetadataExt as _, OpenOptions, outside};

/// Begins a world with a directory.
fn begin() {
    outside::begin(1);
    disk::create_dir_all("/data").unwrap();
}

fn create(path: &str) -> File {
    OpenOptions::new().write(true).create_new(true).open(path).unwrap()
}

#[test]
fn a_file_is_written_read_and_renamed() {
    begin();
    let mut file = create("/data/new");
    file.write_all(b"content").unwrap();
    disk::rename("/data/new", "/data/old").unwrap();
    assert_eq!(disk::read("/data/old").unwrap(), b"content");
    assert_eq!(disk::read("/data/new").unwrap_err().kind(), ErrorKind::NotFound);
    disk::hard_link("/data/old", "/data/second").unwrap();
    let (known, linked) = (file.metadata().unwrap(), disk::metadata("/data/second").unwrap());
    assert_eq!((known.ino(), known.nlink(), known.len()), (linked.ino(), 2, 7));
    let names: Vec<_> = disk::read_dir("/data").unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["old", "second"]);
    assert_eq!(disk::remove_dir("/data").unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
}

#[test]
fn a_lock_ends_with_its_handle() {
    begin();
    let file = create("/data/file");
    file.try_lock().unwrap();
    let other = File::open("/data/file").unwrap();
    assert!(other.try_lock().is_err());
    drop(file);
    other.try_lock().unwrap();
}

#[test]
fn a_full_disk_takes_what_fits_and_frees_what_is_removed() {
    begin();
    let mut file = create("/data/file");
    outside::set_free(Some(4));
    assert_eq!(file.write(b"content").unwrap(), 4);
    assert_eq!(file.write(b"ent").unwrap_err().kind(), ErrorKind::StorageFull);
    file.write_all_at(b"CONT", 0).unwrap();
    assert_eq!(disk::read("/data/file").unwrap(), b"CONT");
    disk::remove_file("/data/file").unwrap();
    create("/data/other").write_all(b"four").unwrap();
}

#[test]
fn without_power_synced_content_stays_and_handles_fail() {
    begin();
    let mut file = create("/data/file");
    file.write_all(b"synced").unwrap();
    file.sync_data().unwrap();
    file.write_all_at(b"lost or not", 6).unwrap();
    outside::cut_power();
    assert!(disk::remove_file("/data/file").is_err(), "a killed process changes nothing");
    outside::restore_power();
    assert!(file.write_all(b"x").is_err());
    let mut found = Vec::new();
    File::open("/data/file").unwrap().read_to_end(&mut found).unwrap();
    assert!(found == b"synced" || found == b"syncedlost or not", "{found:?}");
}

#[test]
fn faults_have_their_chances() {
    begin();
    let file = create("/data/file");
    outside::set_faults(DiskFaults { sync: 1_024, ..DiskFaults::default() });
    assert!(file.sync_data().is_err());
    outside::set_faults(DiskFaults { short_write: 1_024, ..DiskFaults::default() });
    assert!((&file).write(b"content").unwrap() < 7);
    assert_eq!(outside::files(Path::new("/data")).len(), 1);
    assert_eq!(outside::counts().short_writes, 1);
}

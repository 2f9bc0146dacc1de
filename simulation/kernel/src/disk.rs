//! A disk in memory: files and directories with the names and forms of `std::fs`, as far as the gateway uses
//! them. It fills up, fails, writes less than it was given, and loses what was not synced when the power
//! fails.
//!
//! Names are durable at once, as on a file system with a journal. What is written to a file is durable once
//! it was synced: after a power failure any part of the rest may be there.

mod file;
mod paths;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use egret_clock::Random;
use rustix::io::Errno;

pub use file::{DirBuilder, DirBuilderExt, File, FileExt, OpenOptions, OpenOptionsExt, private_file};
pub use paths::{
    DirEntry, Metadata, MetadataExt, create_dir_all, exists, hard_link, metadata, read, read_dir, remove_dir,
    remove_file, rename, set_permissions, symlink_metadata,
};

thread_local! {
    static DISK: RefCell<Disk> = RefCell::new(Disk::new(0, 0));
}

/// Chances of faults, each of 1,024.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskFaults {
    /// A file is written in part.
    pub short_write: u64,
    /// A write fails.
    pub write: u64,
    /// Written bytes cannot be made durable.
    pub sync: u64,
    /// A file gets no other name, or cannot be removed.
    pub rename: u64,
    /// A file cannot be opened, or not be read.
    pub read: u64,
}

/// Number of calls and faults of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskCounts {
    /// Calls.
    pub calls: u64,
    /// Writes of which a part was done.
    pub short_writes: u64,
    /// Writes for which there was no room.
    pub full: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Power failures.
    pub cuts: u64,
}

/// A change of a file that is not durable yet.
#[derive(Debug)]
enum Change {
    Write(usize, Vec<u8>),
    Length(usize),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Length(length) => bytes.resize(*length, 0),
            Self::Write(at, written) => {
                let end = at + written.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*at..end].copy_from_slice(written);
            }
        }
    }
}

/// A file, whatever its names are.
#[derive(Debug, Default)]
struct Node {
    bytes: Vec<u8>,
    /// The content that survives a power failure.
    durable: Vec<u8>,
    changes: Vec<Change>,
    links: u64,
    /// The handle that has locked it.
    locked_by: Option<u64>,
}

/// The name of a file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Directory,
    File(usize),
}

/// The disk of the thread's world.
#[derive(Debug)]
struct Disk {
    /// Number of the world, and of the power failures in it. Handles of an earlier one fail.
    life: u64,
    nodes: Vec<Node>,
    names: BTreeMap<PathBuf, Name>,
    random: Random,
    faults: DiskFaults,
    counts: DiskCounts,
    /// Number of bytes that files may grow by. `None` without a limit.
    free: Option<u64>,
    /// The gateway is being killed: nothing that it does reaches the disk any more.
    is_dead: bool,
    next_handle: u64,
}

impl Disk {
    fn new(life: u64, seed: u64) -> Self {
        Self {
            life,
            nodes: Vec::new(),
            names: BTreeMap::from([(PathBuf::from("/"), Name::Directory)]),
            random: Random::new(seed),
            faults: DiskFaults::default(),
            counts: DiskCounts::default(),
            free: None,
            is_dead: false,
            next_handle: 0,
        }
    }

    fn chance(&mut self, of_1024: u64) -> bool {
        of_1024 > 0 && self.random.up_to(1_023) < of_1024
    }

    /// Begins a call, which fails with this chance.
    fn begin(&mut self, chance: u64) -> io::Result<()> {
        self.counts.calls += 1;
        if self.is_dead || self.chance(chance) {
            self.counts.failed += 1;
            return Err(Errno::IO.into());
        }
        Ok(())
    }

    fn file(&self, path: &Path) -> io::Result<usize> {
        match self.names.get(path) {
            Some(Name::File(node)) => Ok(*node),
            Some(Name::Directory) => Err(Errno::ISDIR.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    fn needs_parent(&self, path: &Path) -> io::Result<()> {
        let parent = path.parent().and_then(|parent| self.names.get(parent));
        if parent == Some(&Name::Directory) { Ok(()) } else { Err(Errno::NOENT.into()) }
    }

    /// Removes a name of a file, and its content with the last one.
    fn unlink(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        node.links -= 1;
        if node.links == 0 {
            // An open handle may still read it, which no code of the gateway relies on.
            self.free = self.free.map(|free| free + node.bytes.len() as u64);
        }
    }

    /// Writes at a place of a file. Returns the number of bytes, which may be less than all.
    fn write(&mut self, node: usize, at: usize, bytes: &[u8]) -> io::Result<usize> {
        self.begin(self.faults.write)?;
        let mut count = bytes.len();
        if count > 1 && self.chance(self.faults.short_write) {
            self.counts.short_writes += 1;
            count = 1 + usize::try_from(self.random.up_to(count as u64 - 2)).unwrap_or_default();
        }
        let length = self.nodes[node].bytes.len();
        if let Some(free) = self.free {
            // Overwriting needs no space.
            let room = length.saturating_sub(at).saturating_add(usize::try_from(free).unwrap_or(usize::MAX));
            count = count.min(room);
            if count == 0 && !bytes.is_empty() {
                self.counts.full += 1;
                return Err(Errno::NOSPC.into());
            }
            self.free = Some(free.saturating_sub((at + count).saturating_sub(length) as u64));
        }
        self.change(node, Change::Write(at, bytes[..count].to_vec()));
        Ok(count)
    }

    fn set_len(&mut self, node: usize, length: usize) -> io::Result<()> {
        self.begin(self.faults.write)?;
        let before = self.nodes[node].bytes.len();
        if let Some(free) = self.free {
            let grown = length.saturating_sub(before) as u64;
            if grown > free {
                self.counts.full += 1;
                return Err(Errno::NOSPC.into());
            }
            self.free = Some(free - grown + before.saturating_sub(length) as u64);
        }
        self.change(node, Change::Length(length));
        Ok(())
    }

    fn change(&mut self, node: usize, change: Change) {
        let node = &mut self.nodes[node];
        change.apply(&mut node.bytes);
        node.changes.push(change);
    }

    fn sync(&mut self, node: usize) -> io::Result<()> {
        self.begin(self.faults.sync)?;
        let node = &mut self.nodes[node];
        for change in node.changes.drain(..) {
            change.apply(&mut node.durable);
        }
        Ok(())
    }

    /// Loses a part of what is not durable.
    fn lose(&mut self) {
        for node in 0..self.nodes.len() {
            let changes = std::mem::take(&mut self.nodes[node].changes);
            for change in changes {
                if self.random.up_to(1) == 0 {
                    change.apply(&mut self.nodes[node].durable);
                }
            }
            let node = &mut self.nodes[node];
            node.bytes = node.durable.clone();
            node.locked_by = None;
        }
    }
}

fn with<T>(act: impl FnOnce(&mut Disk) -> T) -> T {
    DISK.with_borrow_mut(act)
}

/// The other side of the disk: what the simulation does to it, and what it finds on it.
pub mod outside {
    use super::{
        Disk, DiskCounts, DiskFaults, File, FileExt as _, Name, OpenOptions, Path, PathBuf, io, with,
    };

    /// Begins a world with an empty disk.
    pub fn begin(seed: u64) {
        with(|disk| *disk = Disk::new(disk.life + 1, seed));
    }

    /// Changes the chances of faults.
    pub fn set_faults(faults: DiskFaults) {
        with(|disk| disk.faults = faults);
    }

    /// Changes the number of bytes that files may grow by. `None` is no limit.
    pub fn set_free(free: Option<u64>) {
        with(|disk| disk.free = free);
    }

    /// Number of calls and faults so far.
    pub fn counts() -> DiskCounts {
        with(|disk| disk.counts)
    }

    /// Begins a power failure: from now on all calls fail.
    pub fn cut_power() {
        with(|disk| {
            disk.counts.cuts += 1;
            disk.is_dead = true;
        });
    }

    /// Ends a power failure, in which a part of what was not synced is lost.
    pub fn restore_power() {
        with(|disk| {
            disk.lose();
            disk.life += 1;
            disk.is_dead = false;
        });
    }

    /// Puts a file on the disk.
    ///
    /// # Errors
    ///
    /// Fails as the disk does.
    pub fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
        if let Some(parent) = path.parent() {
            super::create_dir_all(parent)?;
        }
        let file: File = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        file.write_all_at(bytes, 0)?;
        file.sync_data()
    }

    /// The files below a directory, with their content.
    pub fn files(below: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        with(|disk| {
            let names = disk.names.iter().filter(|(path, _)| path.starts_with(below));
            let content = |(path, name): (&PathBuf, &Name)| match name {
                Name::File(node) => Some((path.clone(), disk.nodes[*node].bytes.clone())),
                Name::Directory => None,
            };
            names.filter_map(content).collect()
        })
    }
}

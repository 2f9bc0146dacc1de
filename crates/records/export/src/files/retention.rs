//! Maintains closed files: repairs those torn by a crash, compresses them, and deletes the oldest.

use std::collections::BTreeSet;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use egret_files::system::{self as fs, File, FileExt as _};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use parking_lot::Mutex;

use super::format::FileFormat;
use super::growing::{LINK, PART};
use super::layout::Layout;
#[cfg(not(feature = "simulated"))]
use crate::background;
use crate::counters::{Counters, DropReason};
use crate::disk;

/// Maintains the closed files of an exporter, on a thread that exists while there is work.
#[derive(Debug)]
pub struct Retention {
    layout: Arc<Layout>,
    counters: Arc<Counters>,
    work: Mutex<Work>,
    /// `true` after the first round.
    has_begun: AtomicBool,
    /// Closed files that are durable.
    synced: Mutex<BTreeSet<PathBuf>>,
}

#[derive(Debug, Default)]
struct Work {
    is_running: bool,
    /// `true` if another round is needed after the current one.
    is_wanted: bool,
    thread: Option<JoinHandle<()>>,
}

/// Number of files of an earlier process that are read as a whole: the one that was written last, and one
/// that was closed shortly before. After a power failure any part of them may be missing, also from their
/// middle.
const SUSPECTS: usize = 2;

/// Maximum number of files locked at once.
const CLOSED_MAX: usize = 16;

/// A locked file of this exporter that is not being written.
#[derive(Debug)]
pub struct Closed {
    /// Path of the file.
    pub path: PathBuf,
    /// Keeps the file locked for this process.
    _file: File,
}

impl Retention {
    /// Returns the maintenance of the files of `layout`.
    pub fn new(layout: Arc<Layout>, counters: Arc<Counters>) -> Self {
        let (work, has_begun, synced) = Default::default();
        Self { layout, counters, work, has_begun, synced }
    }

    /// Does a round: a simulated world has no other thread.
    #[cfg(feature = "simulated")]
    pub fn wake(self: &Arc<Self>) {
        self.work.lock().is_wanted = true;
        self.run();
    }

    /// Requests a round, and starts the thread if necessary.
    #[cfg(not(feature = "simulated"))]
    pub fn wake(self: &Arc<Self>) {
        let mut work = self.work.lock();
        work.is_wanted = true;
        if work.is_running {
            return;
        }
        if let Some(ended) = work.thread.take() {
            let _ = ended.join();
        }
        let retention = Arc::clone(self);
        match background::spawn("egret-export", move || retention.run()) {
            Ok(thread) => *work = Work { is_running: true, is_wanted: true, thread: Some(thread) },
            Err(error) => {
                self.counters.warn(format!("cannot start the thread that maintains closed files: {error}"));
            }
        }
    }

    /// Waits until the work is done.
    pub fn join(&self) {
        let thread = self.work.lock().thread.take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            self.counters.warn("the thread that maintains closed files panicked".to_owned());
        }
    }

    fn run(&self) {
        loop {
            {
                let mut work = self.work.lock();
                if !std::mem::take(&mut work.is_wanted) {
                    work.is_running = false;
                    return;
                }
            }
            self.round();
        }
    }

    /// Does one round of maintenance.
    pub fn round(&self) {
        let paths = self.paths();
        let suspects = if self.has_begun.swap(true, Relaxed) { 0 } else { SUSPECTS };
        self.synced.lock().retain(|path| paths.binary_search(path).is_ok());
        let plain = |path: &&PathBuf| !is_hidden(path) && !is_packed(path);
        let suspects: Vec<&PathBuf> = paths.iter().rev().filter(plain).take(suspects).collect();
        for path in &paths {
            if let Err(error) = self.process(path, suspects.contains(&path)) {
                self.counters.warn(format!("cannot process {}: {error}", path.display()));
            }
        }
        self.expire();
    }

    /// Total size of the exporter's files.
    pub fn bytes(&self) -> u64 {
        self.paths().iter().filter_map(|path| Some(fs::metadata(path).ok()?.len())).sum()
    }

    /// Counts the entries in a file of the exporter, which has one in each line.
    pub fn entries(&self, path: &Path) -> io::Result<u64> {
        let mut lines = BufReader::new(read(path)?).split(b'\n');
        let lines = lines.try_fold(0_u64, |count, line| line.map(|_| count + 1))?;
        // The header and the closing are lines too.
        let FileFormat { header, closing, .. } = &self.layout.format;
        let others = u64::from(!header.is_empty()) + u64::from(!closing.is_empty());
        Ok(lines.saturating_sub(others))
    }

    /// Returns closed files of the exporter, oldest first, each locked, and at most `CLOSED_MAX`. It does a
    /// round of maintenance first. Files closed during that round are left for the next call.
    pub fn closed(&self) -> Vec<Closed> {
        let is_closed =
            |path: &PathBuf| !is_hidden(path) && File::open(path).is_ok_and(|file| disk::is_free(&file));
        let known: Vec<PathBuf> = self.paths().into_iter().filter(is_closed).take(CLOSED_MAX).collect();
        self.round();
        let closed = |path: PathBuf| {
            let mut compressed = path.clone().into_os_string();
            compressed.push(".gz");
            let compressed = PathBuf::from(compressed);
            let path = if fs::exists(&compressed).unwrap_or_default() { compressed } else { path };
            let file = File::open(&path).ok().filter(disk::is_free)?;
            Some(Closed { path, _file: file })
        };
        known.into_iter().filter_map(closed).collect()
    }

    /// Returns all files of the exporter, oldest first.
    fn paths(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(&self.layout.directory) else { return Vec::new() };
        let is_own = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let hidden = name.strip_prefix('.').and_then(|name| name.rsplit_once('.'));
            let hidden = hidden.filter(|(_, extension)| matches!(*extension, PART | LINK));
            self.layout.is_own(hidden.map_or(name, |(name, _)| name))
        };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_own).collect();
        paths.sort_unstable();
        paths
    }

    fn process(&self, path: &Path, is_suspect: bool) -> io::Result<()> {
        let Ok(mut file) = File::options().read(true).write(true).open(path) else { return Ok(()) };
        if !disk::is_free(&file) {
            return Ok(());
        }
        if is_hidden(path) {
            return fs::remove_file(path);
        }
        if is_packed(path) {
            return Ok(());
        }
        let length = file.metadata()?.len();
        let format = &self.layout.format;
        let is_whole = format.is_closed(&mut file, length)?
            && (!is_suspect
                || format
                    .whole(&mut file)?
                    .is_some_and(|whole| whole.end + format.closing.len() as u64 == length));
        if !is_whole && !self.repair(path, &mut file, length)? {
            return Ok(());
        }
        if self.layout.gzip {
            return compress(path);
        }
        // Nothing is added to it any more, so now it can be made durable once and for all.
        if self.synced.lock().contains(path) {
            return Ok(());
        }
        file.sync_data()?;
        self.synced.lock().insert(path.to_owned());
        Ok(())
    }

    /// Cuts a file to its last complete entry, and removes it if there is none. Returns `true` if the file
    /// still exists.
    fn repair(&self, path: &Path, file: &mut File, length: u64) -> io::Result<bool> {
        let format = &self.layout.format;
        self.counters.repaired.fetch_add(1, Relaxed);
        let (shown, name) = (path.display(), self.layout.name.as_str());
        let Some(whole) = format.whole(file)? else {
            tracing::warn!(
                exporter = name,
                "{shown} has no valid beginning and is renamed to end with .damaged"
            );
            let mut aside = path.as_os_str().to_owned();
            aside.push(".damaged");
            fs::rename(path, aside)?;
            return Ok(false);
        };
        let (entries, cut) = (whole.entries, length.saturating_sub(whole.end));
        tracing::warn!(
            exporter = name,
            "{shown} was torn: kept {entries} complete entries, cut {cut} bytes after them"
        );
        if entries == 0 {
            fs::remove_file(path)?;
            return Ok(false);
        }
        file.set_len(whole.end)?;
        file.write_all_at(format.closing.as_bytes(), whole.end)?;
        Ok(true)
    }

    /// Deletes the oldest files until there is room for the next one.
    fn expire(&self) {
        let Some(keep) = self.layout.keep_bytes else { return };
        let space = keep.saturating_sub(self.layout.rotate_bytes);
        let length = |path: PathBuf| Some((fs::metadata(&path).ok()?.len(), path));
        let shown = self.paths().into_iter().filter(|path| !is_hidden(path));
        let files: Vec<(u64, PathBuf)> = shown.filter_map(length).collect();
        let mut bytes: u64 = files.iter().map(|(length, _)| length).sum();
        for (length, path) in files {
            if bytes <= space {
                break;
            }
            // The file that is being written stays.
            if File::open(&path).is_ok_and(|file| disk::is_free(&file)) {
                bytes -= length;
                self.delete(&path);
            }
        }
    }

    fn delete(&self, path: &Path) {
        let lost = if self.layout.is_spool { self.entries(path).unwrap_or_default() } else { 0 };
        match fs::remove_file(path) {
            Ok(()) if self.layout.is_spool => self.counters.dropped(DropReason::SpoolFull, lost),
            Ok(()) => {
                tracing::debug!(exporter = self.layout.name, "deleted {}, the oldest file", path.display());
            }
            Err(error) => self.counters.warn(format!("cannot delete {}: {error}", path.display())),
        }
    }
}

/// Returns `true` for compressed files.
fn is_packed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gz")
}

/// Returns `true` for hidden files: new ones that have no name yet, and twins.
fn is_hidden(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == PART || extension == LINK)
}

/// Replaces a file by its compressed form.
fn compress(path: &Path) -> io::Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str()))
    else {
        return Ok(());
    };
    let part = directory.join(format!(".{name}.gz.part"));
    let _ = fs::remove_file(&part);
    let compressed = disk::create(&part)?;
    let _ = compressed.try_lock();
    let done = || {
        let mut encoder = GzEncoder::new(&compressed, Compression::default());
        io::copy(&mut BufReader::with_capacity(1 << 16, File::open(path)?), &mut encoder)?;
        encoder.finish()?.flush()?;
        compressed.sync_data()?;
        fs::rename(&part, directory.join(format!("{name}.gz")))?;
        fs::remove_file(path)
    };
    done().inspect_err(|_| {
        let _ = fs::remove_file(&part);
    })
}

/// Opens a file for reading. A file whose name ends with `.gz` is decompressed.
pub fn read(path: &Path) -> io::Result<Box<dyn io::Read>> {
    let file = BufReader::new(File::open(path)?);
    Ok(if is_packed(path) { Box::new(GzDecoder::new(file)) } else { Box::new(file) })
}

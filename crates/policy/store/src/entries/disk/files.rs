//! The files of a disk: one for each entry, and a seal that identifies their owner.
//!
//! An entry's file is written once and never changed. A file that is truncated by a crash or a full disk
//! fails its checksums and is ignored. So writes need no sync; only removals must be durable.

use std::fs::{Permissions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crc32fast::Hasher;
use egret_clock::Timestamp;
use egret_files::private_directory;
use egret_files::system::{self as fs, File, OpenOptions, OpenOptionsExt as _};
use egret_items::opaque;

use super::super::body::{Block, StoredBody};
use super::super::entry::EntryKey;
use super::status::DiskError;

/// Identifies the owner of the entries.
const SEAL_NAME: &str = "seal";
/// Locked by the process that uses the directory.
const LOCK_NAME: &str = "lock";
const SEAL_MAGIC: &[u8; 8] = b"egretdk1";
const SEAL_BYTES: usize = 8 + 4 + 32 + 32 + 4;
const ENTRY_MAGIC: &[u8; 4] = b"ege1";
const HEAD_BYTES: usize = 4 + 8 + 16 + 16 + 8 + 4 + 4 + 8 + 4 + 4;
/// Maximum size of the data besides a body.
const VALUE_BYTES_MAX: usize = 4 << 20;
/// Block size of file systems; file sizes are rounded up to it.
const BLOCK_BYTES: u64 = 4 << 10;
/// Size of the pieces in which bodies are read, and sent to sockets unchanged.
const PIECE_BYTES: u64 = 64 << 10;

/// The data needed to find entries again: the secret of their keys, and a digest of everything else that
/// their keys and contents depend on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seal {
    /// Digest of everything on which the meaning of the entries depends. With another one they would be
    /// unusable, or shown to the wrong client.
    pub fingerprint: [u8; 32],
    /// The secret for keys.
    pub secret: [u8; 32],
}

opaque!(Seal);

/// The seal of a directory before it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sealed {
    /// The directory has no seal.
    Not,
    /// The seal, with its generation number.
    By(Seal, u32),
    /// The seal cannot be read.
    Damaged,
}

impl Sealed {
    /// Reads the seal in `directory`, without changing anything.
    pub fn read(directory: &Path) -> Self {
        match fs::read(directory.join(SEAL_NAME)) {
            Ok(bytes) => Self::parse(&bytes).unwrap_or(Self::Damaged),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Self::Not,
            Err(_) => Self::Damaged,
        }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; SEAL_BYTES] = bytes.try_into().ok()?;
        let (rest, checksum) = bytes.split_last_chunk::<4>()?;
        let (magic, rest) = rest.split_first_chunk::<8>()?;
        let (run, rest) = rest.split_first_chunk::<4>()?;
        let (fingerprint, secret) = rest.split_first_chunk::<32>()?;
        let is_whole = crc32fast::hash(&bytes[..SEAL_BYTES - 4]) == u32::from_le_bytes(*checksum);
        let seal = Seal { fingerprint: *fingerprint, secret: secret.try_into().ok()? };
        (is_whole && magic == SEAL_MAGIC).then_some(Self::By(seal, u32::from_le_bytes(*run)))
    }
}

/// An entry as it is stored in its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileRecord {
    pub number: u64,
    pub key: EntryKey,
    pub stored_at: Timestamp,
    pub tags: Box<[Box<str>]>,
    pub value: Vec<u8>,
    pub body_len: u64,
    body_checksum: u32,
}

impl FileRecord {
    /// Size of the entry's file.
    pub fn bytes(&self) -> u64 {
        let tags: usize = self.tags.iter().map(|tag| 2 + tag.len()).sum();
        blocks((HEAD_BYTES + tags + self.value.len()) as u64 + self.body_len)
    }

    fn encode(&self) -> Option<Vec<u8>> {
        let mut tags = Vec::new();
        for tag in &self.tags {
            tags.extend_from_slice(&u16::try_from(tag.len()).ok()?.to_le_bytes());
            tags.extend_from_slice(tag.as_bytes());
        }
        if tags.len() + self.value.len() > VALUE_BYTES_MAX {
            return None;
        }
        let mut out = Vec::with_capacity(HEAD_BYTES + tags.len() + self.value.len());
        out.extend_from_slice(ENTRY_MAGIC);
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.key.id.to_le_bytes());
        out.extend_from_slice(&self.key.group.to_le_bytes());
        out.extend_from_slice(&self.stored_at.as_micros().to_le_bytes());
        out.extend_from_slice(&u32::try_from(tags.len()).ok()?.to_le_bytes());
        out.extend_from_slice(&u32::try_from(self.value.len()).ok()?.to_le_bytes());
        out.extend_from_slice(&self.body_len.to_le_bytes());
        out.extend_from_slice(&self.body_checksum.to_le_bytes());
        let mut hasher = Hasher::new();
        for part in [&out, &tags, &self.value] {
            hasher.update(part);
        }
        out.extend_from_slice(&hasher.finalize().to_le_bytes());
        out.extend_from_slice(&tags);
        out.extend_from_slice(&self.value);
        Some(out)
    }

    /// Reads everything except the body. Returns `None` if the file is invalid or truncated.
    pub fn read(file: &mut impl Read) -> io::Result<Option<Self>> {
        let mut head = [0; HEAD_BYTES];
        if !fill(file, &mut head)? {
            return Ok(None);
        }
        let Some((mut record, lens, checksum)) = Self::parse(&head) else { return Ok(None) };
        let (tags_len, value_len) = lens;
        let mut rest = vec![0; tags_len + value_len];
        if !fill(file, &mut rest)? {
            return Ok(None);
        }
        let mut hasher = Hasher::new();
        hasher.update(&head[..HEAD_BYTES - 4]);
        hasher.update(&rest);
        if hasher.finalize() != checksum {
            return Ok(None);
        }
        let Some(tags) = tags(&rest[..tags_len]) else { return Ok(None) };
        record.tags = tags;
        rest.drain(..tags_len);
        record.value = rest;
        Ok(Some(record))
    }

    /// Parses the part of fixed length: the record without its variable parts, their lengths, and the
    /// checksum.
    fn parse(head: &[u8; HEAD_BYTES]) -> Option<(Self, (usize, usize), u32)> {
        let (magic, rest) = head.split_first_chunk::<4>()?;
        let (number, rest) = rest.split_first_chunk::<8>()?;
        let (id, rest) = rest.split_first_chunk::<16>()?;
        let (group, rest) = rest.split_first_chunk::<16>()?;
        let (stored_at, rest) = rest.split_first_chunk::<8>()?;
        let (tags_len, rest) = rest.split_first_chunk::<4>()?;
        let (value_len, rest) = rest.split_first_chunk::<4>()?;
        let (body_len, rest) = rest.split_first_chunk::<8>()?;
        let (body_checksum, rest) = rest.split_first_chunk::<4>()?;
        let checksum = u32::from_le_bytes(rest.try_into().ok()?);
        let len = |bytes: &[u8; 4]| usize::try_from(u32::from_le_bytes(*bytes)).ok();
        let lens = (len(tags_len)?, len(value_len)?);
        let is_good = magic == ENTRY_MAGIC && lens.0.checked_add(lens.1)? <= VALUE_BYTES_MAX;
        let record = Self {
            number: u64::from_le_bytes(*number),
            key: EntryKey { id: u128::from_le_bytes(*id), group: u128::from_le_bytes(*group) },
            stored_at: Timestamp::from_micros(u64::from_le_bytes(*stored_at)),
            tags: Box::default(),
            value: Vec::new(),
            body_len: u64::from_le_bytes(*body_len),
            body_checksum: u32::from_le_bytes(*body_checksum),
        };
        is_good.then_some((record, lens, checksum))
    }

    /// Reads the body, in pieces. Returns `None` if it is truncated or modified.
    fn read_body(&self, file: &mut impl Read) -> io::Result<Option<Vec<Block>>> {
        let (mut pieces, mut hasher) = (Vec::new(), Hasher::new());
        let mut left = self.body_len;
        while left > 0 {
            let mut piece = vec![0; usize::try_from(left.min(PIECE_BYTES)).unwrap_or_default()];
            if !fill(file, &mut piece)? {
                return Ok(None);
            }
            hasher.update(&piece);
            left -= piece.len() as u64;
            pieces.push(piece.into());
        }
        let is_end = !fill(file, &mut [0])?;
        Ok((is_end && hasher.finalize() == self.body_checksum).then_some(pieces))
    }
}

/// The content of an entry's file, for tools that examine single files. The disk itself never holds a body in
/// one piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryFile {
    /// Number of the entry, unique in its directory.
    pub number: u64,
    /// The key.
    pub key: EntryKey,
    /// Time at which it was stored.
    pub stored_at: Timestamp,
    /// Tags for purges.
    pub tags: Box<[Box<str>]>,
    /// The output of [`StoredValue::save`](super::super::entry::StoredValue::save).
    pub value: Vec<u8>,
    /// The body.
    pub body: Vec<u8>,
}

impl EntryFile {
    /// Parses a whole file. Returns `None` if it is truncated or invalid.
    pub fn read(mut bytes: &[u8]) -> Option<Self> {
        let len = bytes.len() as u64;
        let record = FileRecord::read(&mut bytes).ok()?.filter(|record| record.body_len <= len)?;
        let body = record.read_body(&mut bytes).ok()??.concat();
        let FileRecord { number, key, stored_at, tags, value, .. } = record;
        Some(Self { number, key, stored_at, tags, value, body })
    }
}

fn tags(mut bytes: &[u8]) -> Option<Box<[Box<str>]>> {
    let mut tags = Vec::new();
    while !bytes.is_empty() {
        let (len, rest) = bytes.split_first_chunk::<2>()?;
        let (tag, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
        tags.push(std::str::from_utf8(tag).ok()?.into());
        bytes = rest;
    }
    Some(tags.into())
}

/// Fills `bytes`. Returns `false` if the file ends before.
fn fill(file: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Size of a file with that many bytes, on disk.
fn blocks(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(BLOCK_BYTES)
}

/// A directory of entries, locked by this process.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// Unlocked when it is closed.
    _lock: File,
    /// Handle for syncing the directory, to make removals durable.
    itself: File,
}

impl Directory {
    /// Opens or creates the directory. Only its owner may read it.
    pub fn open(path: &Path) -> Result<Self, DiskError> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        private_directory(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o700))?;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path.join(LOCK_NAME))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(DiskError::InUse),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        Ok(Self { path: path.to_owned(), _lock: lock, itself: File::open(path)? })
    }

    fn file(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number:016x}"))
    }

    /// Returns the numbers of all entries, in order.
    pub fn numbers(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for file in fs::read_dir(&self.path)? {
            numbers.extend(file?.file_name().to_str().and_then(number));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Seals the directory with `seal` and the generation number `run`.
    pub fn seal(&self, seal: &Seal, run: u32) -> io::Result<()> {
        let mut bytes = SEAL_MAGIC.to_vec();
        bytes.extend_from_slice(&run.to_le_bytes());
        bytes.extend_from_slice(&seal.fingerprint);
        bytes.extend_from_slice(&seal.secret);
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        let (draft, path) = (self.path.join("seal.part"), self.path.join(SEAL_NAME));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(&bytes)?;
        file.sync_data()?;
        fs::rename(draft, path)?;
        self.sync()
    }

    /// Deletes all entries. The seal is deleted first: if the process dies meanwhile, the remaining files are
    /// not used.
    pub fn clear(&self) -> io::Result<()> {
        self.unseal()?;
        for number in self.numbers()? {
            self.delete(number)?;
        }
        Ok(())
    }

    /// Deletes the seal, so the remaining files are not used.
    pub fn unseal(&self) -> io::Result<()> {
        delete(&self.path.join(SEAL_NAME))?;
        self.sync()
    }

    /// Deletes the directory with all its entries. Other files in it stay.
    pub fn destroy(self) -> io::Result<()> {
        self.clear()?;
        delete(&self.path.join(LOCK_NAME))?;
        // The directory stays if it is not empty.
        let _ = fs::remove_dir(&self.path);
        Ok(())
    }

    /// Writes an entry.
    pub fn write(&self, record: &FileRecord, body: &StoredBody) -> io::Result<()> {
        let head = record.encode().ok_or(ErrorKind::InvalidInput)?;
        let path = self.file(record.number);
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(&head)?;
        body.blocks().unwrap_or_default().iter().try_for_each(|block| file.write_all(block))
    }

    /// Reads an entry without its body. Returns `None` if it does not exist or is invalid.
    pub fn read_head(&self, number: u64) -> io::Result<Option<FileRecord>> {
        let Some(mut file) = open(&self.file(number))? else { return Ok(None) };
        let len = file.metadata()?.len();
        let record = FileRecord::read(&mut file)?;
        Ok(record.filter(|record| record.number == number && record.bytes() == blocks(len)))
    }

    /// Reads an entry with its body.
    pub fn read(&self, number: u64) -> io::Result<Option<(FileRecord, Vec<Block>)>> {
        let Some(mut file) = open(&self.file(number))? else { return Ok(None) };
        let len = file.metadata()?.len();
        let record = FileRecord::read(&mut file)?;
        // A length beyond that of the file would allocate memory for nothing.
        let Some(record) = record.filter(|record| record.number == number && record.body_len <= len) else {
            return Ok(None);
        };
        let body = record.read_body(&mut file)?;
        Ok(body.map(|body| (record, body)))
    }

    /// Deletes an entry, if it exists.
    pub fn delete(&self, number: u64) -> io::Result<()> {
        delete(&self.file(number))
    }

    /// Makes creations and removals of files durable.
    pub fn sync(&self) -> io::Result<()> {
        self.itself.sync_all()
    }
}

impl FileRecord {
    /// Creates the record of an entry with a complete body.
    pub fn new(
        number: u64,
        key: EntryKey,
        stored_at: Timestamp,
        tags: &[Box<str>],
        value: Vec<u8>,
        body: &StoredBody,
    ) -> Option<Self> {
        let mut hasher = Hasher::new();
        for block in body.blocks()? {
            hasher.update(block);
        }
        let (body_len, body_checksum) = (body.len()?, hasher.finalize());
        let record = Self { number, key, stored_at, tags: tags.into(), value, body_len, body_checksum };
        (record.value.len() <= VALUE_BYTES_MAX / 2).then_some(record)
    }
}

/// Parses the name of an entry's file; `None` for other files.
fn number(name: &str) -> Option<u64> {
    let is_number =
        name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f'));
    is_number.then(|| u64::from_str_radix(name, 16).ok()).flatten()
}

fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn delete(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    fn body(bytes: &[u8]) -> StoredBody {
        let body = StoredBody::new(Arc::default());
        if !bytes.is_empty() {
            body.push(bytes.into());
        }
        body.finish();
        body
    }

    fn record(number: u64, tags: &[Box<str>], value: Vec<u8>, body: &StoredBody) -> FileRecord {
        let key = EntryKey { id: u128::from(number) + 7, group: 9 };
        FileRecord::new(number, key, Timestamp::from_secs(5), tags, value, body).unwrap()
    }

    #[test]
    fn only_its_owner_may_read_what_is_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b");
        let open = Directory::open(&path).unwrap();
        assert!(matches!(Directory::open(&path), Err(DiskError::InUse)));
        let body = body(b"body");
        open.write(&record(1, &[], vec![1], &body), &body).unwrap();
        open.seal(&Seal { fingerprint: [1; 32], secret: [2; 32] }, 3).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o700);
        for file in std::fs::read_dir(&path).unwrap() {
            assert_eq!(mode(&file.unwrap().path()), 0o600);
        }
        std::fs::write(path.join("of-others"), "").unwrap();
        open.destroy().unwrap();
        let left: Vec<_> = std::fs::read_dir(&path).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(left, ["of-others"]);
    }

    #[test]
    fn a_seal_is_read_back_and_a_damaged_one_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cache");
        assert_eq!(Sealed::read(&path), Sealed::Not);
        let seal = Seal { fingerprint: [1; 32], secret: [2; 32] };
        Directory::open(&path).unwrap().seal(&seal, 3).unwrap();
        assert_eq!(Sealed::read(&path), Sealed::By(seal, 3));
        assert_eq!(format!("{:?}", Sealed::read(&path)), "By(Seal { .. }, 3)");
        let whole = std::fs::read(path.join(SEAL_NAME)).unwrap();
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            std::fs::write(path.join(SEAL_NAME), &changed).unwrap();
            assert_eq!(Sealed::read(&path), Sealed::Damaged);
            std::fs::write(path.join(SEAL_NAME), &whole[..at]).unwrap();
            assert_eq!(Sealed::read(&path), Sealed::Damaged);
        }
    }

    #[test]
    fn a_file_under_another_number_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let open = Directory::open(directory.path()).unwrap();
        let body = body(b"body");
        open.write(&record(1, &[], vec![1], &body), &body).unwrap();
        std::fs::rename(open.file(1), open.file(2)).unwrap();
        assert_eq!((open.read(2).unwrap(), open.read(1).unwrap()), (None, None));
        assert_eq!(open.read_head(2).unwrap(), None);
        assert_eq!(open.numbers().unwrap(), [2]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn an_entry_is_read_back_and_anything_else_is_none(
            tags in prop::collection::vec("[a-z]{0,9}", 0..4),
            value in prop::collection::vec(any::<u8>(), 0..300),
            bytes in prop::collection::vec(any::<u8>(), 0..3_000),
            change in any::<prop::sample::Index>(),
            cut in any::<prop::sample::Index>(),
        ) {
            let directory = tempfile::tempdir().unwrap();
            let open = Directory::open(directory.path()).unwrap();
            let tags: Vec<Box<str>> = tags.iter().map(|tag| tag.as_str().into()).collect();
            let body = body(&bytes);
            let record = record(5, &tags, value, &body);
            open.write(&record, &body).unwrap();
            prop_assert_eq!(open.read_head(5).unwrap(), Some(record.clone()));
            let (read, blocks) = open.read(5).unwrap().unwrap();
            prop_assert_eq!((&read, blocks.concat()), (&record, bytes));
            let whole = std::fs::read(open.file(5)).unwrap();
            prop_assert_eq!(record.bytes(), (whole.len() as u64).next_multiple_of(4096));
            let file = EntryFile::read(&whole).unwrap();
            prop_assert_eq!((file.number, file.value, file.body), (5, record.value, blocks.concat()));
            let mut changed = whole.clone();
            changed[change.index(whole.len())] ^= 4;
            std::fs::write(open.file(5), &changed).unwrap();
            prop_assert_eq!(open.read(5).unwrap(), None);
            std::fs::write(open.file(5), &whole[..cut.index(whole.len())]).unwrap();
            prop_assert_eq!(open.read(5).unwrap(), None);
            std::fs::write(open.file(5), [&whole[..], b"x"].concat()).unwrap();
            prop_assert_eq!(open.read(5).unwrap(), None);
        }

        #[test]
        fn no_bytes_bring_it_down(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            prop_assert_eq!(FileRecord::read(&mut &bytes[..]).unwrap(), None);
            let magic = [&ENTRY_MAGIC[..], &bytes].concat();
            prop_assert_eq!(FileRecord::read(&mut &magic[..]).unwrap(), None);
            prop_assert!(!matches!(Sealed::parse(&bytes), Some(Sealed::By(..))));
        }
    }
}

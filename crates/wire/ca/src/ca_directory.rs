//! The directory of an authority that outlives the process.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use egret_clock::Timestamp;
use egret_config::{CERTIFICATES_BYTES_MAX, read_file};
use egret_files::{Distrust, is_ours, private_directory, private_file};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use zeroize::Zeroizing;

use crate::authority::{Authority, AuthorityError};
use crate::bundle::{Bundle, BundleError};
use crate::root::Root;
use crate::{jks, pem};

/// The directory's name in the data directory.
const NAME: &str = "ca";
const KEY: &str = "ca.key";
const ROOT: &str = "ca.pem";
const CHAIN: &str = "chain.pem";
const BUNDLE: &str = "bundle.pem";
const TRUST_STORE: &str = "ca.jks";

/// Mode of the files without a secret. The directory's own mode still keeps other users out.
const PUBLIC_MODE: u32 = 0o644;
/// Any access by the group or by others.
const OTHERS: u32 = 0o077;
/// Write access by the group or by others.
const OTHERS_WRITE: u32 = 0o022;

/// Maximum length of the key's file. A P-256 key has about 240 bytes.
const KEY_BYTES_MAX: u64 = 16 << 10;

/// `data_dir/ca`: an authority's key and certificates, and the files that programs need to trust it.
///
/// | file | content | mode |
/// | --- | --- | --- |
/// | `ca.key` | the key of the issuing certificate | 0600 |
/// | `ca.pem` | the root | 0644 |
/// | `chain.pem` | the issuing certificate, then the root | 0644 |
/// | `bundle.pem` | the root, and the authorities that programs trust anyway | 0644 |
/// | `ca.jks` | the same as a trust store of Java | 0644 |
///
/// Each file is written aside and renamed, because running programs read them at any time. The directory is
/// locked for as long as one of its methods takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaDirectory {
    path: PathBuf,
}

/// The reason why an authority could not be read or written. Its message names the file.
#[derive(Debug)]
pub struct CaError {
    path: PathBuf,
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    System(io::Error),
    Exists,
    Missing,
    /// Another user has made it.
    Foreign(Distrust),
    /// The mode that lets others read the key.
    Readable(u32),
    /// The mode that lets others replace the key.
    Writable(u32),
    NoCertificate(String),
    Authority(AuthorityError),
    Bundle(BundleError),
}

impl fmt::Display for CaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.cause {
            Cause::System(error) => write!(f, "{path}: {error}"),
            Cause::Exists => write!(
                f,
                "{path}: there is a certificate authority already, which clients may trust; `egret ca init --force` replaces it"
            ),
            Cause::Missing => {
                write!(f, "{path}: the file is missing: restore it, or run `egret ca init --force`")
            }
            Cause::Foreign(distrust) => write!(
                f,
                "{path}: {distrust}, so its authority is not used: run the command as its owner, or remove it and run `egret \
                 ca init`"
            ),
            Cause::Readable(mode) => write!(
                f,
                "{path}: other users can read the authority's key (mode {mode:04o}): if one of them may have, run `egret ca \
                 init --force`, else `chmod 600 {path}`"
            ),
            Cause::Writable(mode) => write!(
                f,
                "{path}: other users can replace the authority's key (mode {mode:04o}): run `chmod 700 {path}`, then `egret \
                 ca init --force` if one of them may have"
            ),
            Cause::NoCertificate(error) => {
                write!(
                    f,
                    "{path}: no certificate in PEM ({error}): restore the file, or run `egret ca init --force`"
                )
            }
            Cause::Authority(error @ AuthorityError::NotYetValid(_)) => write!(f, "{path}: {error}"),
            Cause::Authority(error) => write!(
                f,
                "{path}: {error}: run `egret ca init --force`, and install the new root where the old one is trusted"
            ),
            Cause::Bundle(error) => error.fmt(f),
        }
    }
}

impl CaError {
    /// Returns `true` if the reason is that it is another user's.
    pub fn is_foreign(&self) -> bool {
        matches!(self.cause, Cause::Foreign(_))
    }
}

impl std::error::Error for CaError {}

impl CaDirectory {
    /// The directory in this data directory, whether it exists or not.
    pub fn new(data_dir: &Path) -> Self {
        Self { path: data_dir.join(NAME) }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file of the root, for programs that add it to the authorities they trust.
    pub fn root_path(&self) -> PathBuf {
        self.path.join(ROOT)
    }

    /// The file of all authorities, for programs that trust the named ones only.
    pub fn bundle_path(&self) -> PathBuf {
        self.path.join(BUNDLE)
    }

    /// The trust store of all authorities, for Java. Its password is [`jks::PASSWORD`].
    pub fn trust_store_path(&self) -> PathBuf {
        self.path.join(TRUST_STORE)
    }

    /// Reads the authority. `None` if there is none.
    ///
    /// # Errors
    ///
    /// Fails if another user has made it, or could read the key or replace it, if the files do not belong
    /// together, and if the authority is not valid at this time.
    pub fn load(&self, now: Timestamp) -> Result<Option<Authority>, CaError> {
        let lock = match File::open(&self.path) {
            Ok(directory) => directory,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed("", Cause::System(error))),
        };
        lock.lock_shared().map_err(|error| self.failed("", Cause::System(error)))?;
        if !self.exists(KEY)? && !self.exists(ROOT)? {
            return Ok(None);
        }
        self.check_directory(&lock)?;
        let key = self.read_key()?;
        let (root, issuing) = (self.read_certificate(ROOT)?, self.read_certificate(CHAIN)?);
        let authority = Authority::read(root, issuing, &key, now);
        authority.map(Some).map_err(|error| self.failed("", Cause::Authority(error)))
    }

    /// Reads the root alone, whether it is valid or not. `None` if there is none.
    pub fn root(&self) -> Result<Option<Root>, CaError> {
        if !self.exists(ROOT)? {
            return Ok(None);
        }
        let directory = File::open(&self.path).map_err(|error| self.failed("", Cause::System(error)))?;
        self.check_directory(&directory)?;
        let unreadable = || Cause::NoCertificate("it is not one of an authority".to_owned());
        let root = Root::read(self.read_certificate(ROOT)?);
        root.map(Some).ok_or_else(|| self.failed(ROOT, unreadable()))
    }

    /// Writes an authority and the files for programs that should trust it.
    ///
    /// # Errors
    ///
    /// Fails if there is an authority, unless `replace` is true.
    pub fn create(&self, authority: &Authority, bundle: &Bundle, replace: bool) -> Result<(), CaError> {
        let lock = self.open_locked()?;
        if !replace && (self.exists(KEY)? || self.exists(ROOT)?) {
            return Err(self.failed("", Cause::Exists));
        }
        self.write(KEY, authority.key_pem().as_bytes(), None)?;
        let root = authority.root().pem();
        self.write(CHAIN, (pem::certificate(authority.issuing()) + &root).as_bytes(), Some(PUBLIC_MODE))?;
        self.write(ROOT, root.as_bytes(), Some(PUBLIC_MODE))?;
        self.write_bundle(authority, bundle)?;
        lock.sync_all().map_err(|error| self.failed("", Cause::System(error)))
    }

    /// Writes the files that hold all authorities again, if they have changed.
    pub fn update_bundle(&self, authority: &Authority, bundle: &Bundle) -> Result<(), CaError> {
        let _lock = self.open_locked()?;
        self.write_bundle(authority, bundle)
    }

    /// Reads the authorities to which the root is added. An inherited file of this directory is ignored: it
    /// is the one to be written.
    pub fn bundle(&self, inherited: Option<&Path>) -> Result<Bundle, CaError> {
        let own = fs::canonicalize(&self.path).ok();
        let is_own = |path: &&Path| {
            let directory = fs::canonicalize(path).ok().and_then(|file| file.parent().map(Path::to_owned));
            directory.is_some() && directory == own
        };
        let inherited = inherited.filter(|path| !is_own(path));
        Bundle::find(inherited).map_err(|error| self.failed("", Cause::Bundle(error)))
    }

    fn write_bundle(&self, authority: &Authority, bundle: &Bundle) -> Result<(), CaError> {
        let root = authority.root().der();
        let store = jks::trust_store(bundle.with_root(root), authority.not_before());
        for (name, bytes) in [(BUNDLE, bundle.pem(root).as_bytes()), (TRUST_STORE, &store)] {
            let is_same = read_file(self.path.join(name), bytes.len()).is_ok_and(|kept| *kept == bytes);
            if !is_same {
                self.write(name, bytes, Some(PUBLIC_MODE))?;
            }
        }
        Ok(())
    }

    /// Creates the directory if needed, and locks it for changes.
    fn open_locked(&self) -> Result<File, CaError> {
        let open = || {
            private_directory(&self.path)?;
            let directory = File::open(&self.path)?;
            directory.lock()?;
            Ok(directory)
        };
        let directory = open().map_err(|error| self.failed("", Cause::System(error)))?;
        self.check_directory(&directory)?;
        Ok(directory)
    }

    fn check_directory(&self, directory: &File) -> Result<(), CaError> {
        let metadata = directory.metadata().map_err(|error| self.failed("", Cause::System(error)))?;
        is_ours(&metadata).map_err(|distrust| self.failed("", Cause::Foreign(distrust)))?;
        match metadata.mode() & 0o7777 {
            mode if mode & OTHERS_WRITE != 0 => Err(self.failed("", Cause::Writable(mode))),
            _ => Ok(()),
        }
    }

    fn exists(&self, name: &str) -> Result<bool, CaError> {
        match self.path.join(name).symlink_metadata() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.failed(name, Cause::System(error))),
        }
    }

    fn read_key(&self) -> Result<Zeroizing<Vec<u8>>, CaError> {
        let failed = |error: io::Error| match error.kind() {
            ErrorKind::NotFound => self.failed(KEY, Cause::Missing),
            _ => self.failed(KEY, Cause::System(error)),
        };
        let path = self.path.join(KEY);
        // Opening a pipe could block forever.
        if !path.symlink_metadata().map_err(failed)?.is_file() {
            return Err(failed(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file")));
        }
        let file = private_file().read(true).open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        is_ours(&metadata).map_err(|distrust| self.failed(KEY, Cause::Foreign(distrust)))?;
        let mode = metadata.mode() & 0o7777;
        if mode & OTHERS != 0 {
            return Err(self.failed(KEY, Cause::Readable(mode)));
        }
        // Allocated at once, so that growing leaves no copy behind.
        let room = usize::try_from(metadata.len().min(KEY_BYTES_MAX)).unwrap_or(0);
        let mut key = Zeroizing::new(Vec::with_capacity(room + 1));
        file.take(KEY_BYTES_MAX).read_to_end(&mut key).map_err(failed)?;
        Ok(key)
    }

    /// Reads the first certificate of a file.
    fn read_certificate(&self, name: &str) -> Result<CertificateDer<'static>, CaError> {
        let bytes = read_file(self.path.join(name), CERTIFICATES_BYTES_MAX).map_err(|error| {
            let is_missing = error.kind() == ErrorKind::NotFound;
            self.failed(name, if is_missing { Cause::Missing } else { Cause::System(error) })
        })?;
        CertificateDer::from_pem_slice(&bytes)
            .map_err(|error| self.failed(name, Cause::NoCertificate(error.to_string())))
    }

    /// Writes a file aside and renames it. Without a mode it is its owner's alone. The caller holds the lock.
    fn write(&self, name: &str, bytes: &[u8], mode: Option<u32>) -> Result<(), CaError> {
        let draft = self.path.join(format!(".{name}.new"));
        let write = || {
            // Left by a process that was killed.
            match fs::remove_file(&draft) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = private_file().write(true).create_new(true).open(&draft)?;
            file.write_all(bytes)?;
            if let Some(mode) = mode {
                file.set_permissions(fs::Permissions::from_mode(mode))?;
            }
            file.sync_all()?;
            fs::rename(&draft, self.path.join(name))
        };
        write().map_err(|error| {
            let _ = fs::remove_file(&draft);
            self.failed(name, Cause::System(error))
        })
    }

    fn failed(&self, name: &str, cause: Cause) -> CaError {
        let path = if name.is_empty() { self.path.clone() } else { self.path.join(name) };
        CaError { path, cause }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use egret_clock::{Clock, Moment};

    use super::*;
    use crate::authority::{IN_MEMORY_DAYS, Owner};
    use crate::constraints::Constraints;
    use egret_message::host_pattern::HostPattern;

    fn now() -> Timestamp {
        Clock::new().timestamp(Moment::now())
    }

    fn authority() -> Authority {
        let constraints = Constraints::new([HostPattern::parse("api.x.com").unwrap()]).unwrap();
        Authority::make(&constraints, &Owner::new("user@host"), IN_MEMORY_DAYS, now()).unwrap()
    }

    /// A directory with an authority in it, which goes with the first value.
    fn made() -> (tempfile::TempDir, CaDirectory, Authority) {
        let data_dir = tempfile::tempdir().unwrap();
        let directory = CaDirectory::new(&data_dir.path().join("deep/data"));
        let authority = authority();
        directory.create(&authority, &Bundle::find(None).unwrap(), false).unwrap();
        (data_dir, directory, authority)
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o7777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn refusal(directory: &CaDirectory) -> String {
        directory.load(now()).unwrap_err().to_string()
    }

    #[test]
    fn an_authority_reads_back_and_its_files_are_for_the_right_readers() {
        let (_data_dir, directory, authority) = made();
        let back = directory.load(now()).unwrap().unwrap();
        assert_eq!(back.fingerprint(), authority.fingerprint());
        assert_eq!(mode(directory.path()), 0o700);
        assert_eq!(mode(&directory.path().join(KEY)), 0o600);
        for name in [ROOT, CHAIN, BUNDLE, TRUST_STORE] {
            assert_eq!(mode(&directory.path().join(name)), 0o644, "{name}");
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 5);
        let root = fs::read_to_string(directory.root_path()).unwrap();
        assert!(fs::read_to_string(directory.bundle_path()).unwrap().starts_with(&root));
        assert!(fs::read_to_string(directory.path().join(CHAIN)).unwrap().ends_with(&root));
        for name in [ROOT, CHAIN, BUNDLE] {
            assert!(!fs::read_to_string(directory.path().join(name)).unwrap().contains("PRIVATE"));
        }
    }

    #[test]
    fn without_an_authority_there_is_none() {
        let data_dir = tempfile::tempdir().unwrap();
        assert!(CaDirectory::new(data_dir.path()).load(now()).unwrap().is_none());
        fs::create_dir(data_dir.path().join(NAME)).unwrap();
        assert!(CaDirectory::new(data_dir.path()).load(now()).unwrap().is_none());
    }

    #[test]
    fn an_authority_is_replaced_only_if_asked_for() {
        let (_data_dir, directory, first) = made();
        let (second, bundle) = (authority(), Bundle::find(None).unwrap());
        let error = directory.create(&second, &bundle, false).unwrap_err();
        assert!(error.to_string().contains("there is a certificate authority already"), "{error}");
        assert_eq!(directory.load(now()).unwrap().unwrap().fingerprint(), first.fingerprint());
        // What a killed process leaves behind does not matter.
        fs::write(directory.path().join(".ca.key.new"), "half").unwrap();
        directory.create(&second, &bundle, true).unwrap();
        assert_eq!(directory.load(now()).unwrap().unwrap().fingerprint(), second.fingerprint());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 5);
    }

    #[test]
    fn a_key_that_others_can_read_or_replace_is_refused() {
        let (_data_dir, directory, _) = made();
        let key = directory.path().join(KEY);
        for bad in [0o640, 0o604, 0o601, 0o620] {
            set_mode(&key, bad);
            let error = refusal(&directory);
            assert!(error.contains(&format!("mode {bad:04o}")) && error.contains("chmod 600"), "{error}");
        }
        set_mode(&key, 0o400);
        assert!(directory.load(now()).is_ok());
        set_mode(directory.path(), 0o770);
        assert!(refusal(&directory).contains("chmod 700"));
        set_mode(directory.path(), 0o755);
        assert!(directory.load(now()).is_ok());
        fs::rename(&key, directory.path().join("elsewhere")).unwrap();
        symlink("elsewhere", &key).unwrap();
        assert!(refusal(&directory).contains("not a regular file"));
    }

    #[test]
    fn an_authority_of_another_user_is_refused() {
        let (_data_dir, directory, _) = made();
        for name in [KEY, ""] {
            let path = directory.path().join(name);
            if std::os::unix::fs::chown(&path, Some(65_534), None).is_err() {
                println!("not run as root: an authority of another user is not tried");
                return;
            }
            let error = directory.load(now()).unwrap_err();
            assert!(error.is_foreign() && error.to_string().contains("it belongs to"), "{error}");
            assert_eq!(directory.root().is_err(), name.is_empty());
            std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        }
        assert!(directory.load(now()).is_ok());
    }

    #[test]
    fn files_that_are_missing_or_do_not_belong_together_are_refused() {
        let (_one_dir, one, _) = made();
        let (_two_dir, two, _) = made();
        for (name, message) in
            [(KEY, "does not belong to"), (CHAIN, "does not belong to"), (ROOT, "has not signed")]
        {
            let (here, kept) = (one.path().join(name), fs::read(one.path().join(name)).unwrap());
            fs::copy(two.path().join(name), &here).unwrap();
            let error = refusal(&one);
            assert!(error.contains(message) && error.contains("egret ca init --force"), "{name}: {error}");
            fs::write(&here, "rubbish").unwrap();
            assert!(refusal(&one).contains("in PEM"), "{name}: {}", refusal(&one));
            fs::remove_file(&here).unwrap();
            assert!(refusal(&one).contains("is missing"), "{name}: {}", refusal(&one));
            fs::write(&here, kept).unwrap();
            set_mode(&here, 0o600);
        }
        assert!(one.load(now()).is_ok());
    }

    #[test]
    fn an_expired_authority_is_refused_with_what_to_run() {
        let (_data_dir, directory, _) = made();
        let later = now() + Duration::from_hours(24 * 31);
        let error = directory.load(later).unwrap_err().to_string();
        assert!(error.contains("expired on 20") && error.contains("run `egret ca init --force`"), "{error}");
        let earlier = now() - Duration::from_hours(25);
        let error = directory.load(earlier).unwrap_err().to_string();
        assert!(error.contains("clock") && !error.contains("--force"), "{error}");
    }

    #[test]
    fn the_bundle_is_written_again_only_if_it_has_changed() {
        let (_data_dir, directory, authority) = made();
        let bundle = Bundle::find(None).unwrap();
        let inode = || directory.bundle_path().metadata().unwrap().ino();
        let before = inode();
        directory.update_bundle(&authority, &bundle).unwrap();
        assert_eq!(inode(), before);
        let own = directory.bundle(Some(&directory.bundle_path())).unwrap();
        assert_eq!(own, bundle);
        let small = Bundle::find(Some(&directory.root_path()));
        directory.update_bundle(&authority, &small.unwrap()).unwrap();
        let root = fs::read(directory.root_path()).unwrap();
        assert_eq!(fs::read(directory.bundle_path()).unwrap(), root);
    }

    #[test]
    fn readers_see_one_authority_while_it_is_replaced() {
        let (_data_dir, directory, _) = made();
        let bundle = Bundle::find(Some(&directory.root_path())).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..20 {
                    directory.create(&authority(), &bundle, true).unwrap();
                }
            });
            for _ in 0..50 {
                directory.load(now()).unwrap().unwrap();
            }
        });
    }
}

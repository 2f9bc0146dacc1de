//! The files by which a command trusts the authority of its gateway.
//!
//! The name of a file stands for its content, so no file changes while programs read it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use egret_ca::{Bundle, BundleError, jks};
use egret_clock::{Clock, Moment};
use egret_files::replace_file;
use egret_service::exec_directory::{ExecDirectory, short_digest};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// The file of the root alone.
const ROOT: &str = "root.pem";

/// The files of one authority.
#[derive(Debug)]
pub struct Trust {
    directory: PathBuf,
    root: CertificateDer<'static>,
    /// The root as the gateway sent it.
    pem: String,
    /// The bundles so far, by the file whose authorities they also have.
    bundles: RefCell<BTreeMap<Option<PathBuf>, PathBuf>>,
}

/// The reason why there are no files.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The gateway's certificate cannot be parsed.
    #[error("the gateway's certificate is not one in PEM")]
    Certificate,
    /// The authorities that a program trusts anyway cannot be read.
    #[error("{0}")]
    Bundle(BundleError),
    /// A file cannot be written.
    #[error(
        "{0}: {1}: the program needs a file there to trust the gateway; set `data_dir` in a config to a directory that is writable"
    )]
    System(PathBuf, io::Error),
}

impl Trust {
    /// Creates the directory for the files of an authority with this root, in PEM.
    pub fn new(directory: &ExecDirectory, pem: &str) -> Result<Self, TrustError> {
        let root = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| TrustError::Certificate)?;
        let directory = directory.authority(&root).map_err(|error| {
            let path = PathBuf::from("the data directory");
            TrustError::System(path, error)
        })?;
        Ok(Self { directory, root, pem: pem.to_owned(), bundles: RefCell::default() })
    }

    /// Returns the file of the root alone, for programs that add it to the authorities they trust.
    pub fn root(&self) -> Result<PathBuf, TrustError> {
        self.file(ROOT, || self.pem.clone().into_bytes())
    }

    /// Returns a file with the root and the authorities in `source`, or else those of the system, for
    /// programs that trust these only.
    pub fn bundle(&self, source: Option<&Path>) -> Result<PathBuf, TrustError> {
        let key = source.map(Path::to_owned);
        if let Some(known) = self.bundles.borrow().get(&key) {
            return Ok(known.clone());
        }
        let pem = read(source)?.pem(&self.root);
        let path = self.file(&format!("{}.pem", short_digest(pem.as_bytes())), || pem.into_bytes())?;
        self.bundles.borrow_mut().insert(key, path.clone());
        Ok(path)
    }

    /// Returns a bundle as a trust store of Java.
    pub fn java(&self, source: Option<&Path>) -> Result<PathBuf, TrustError> {
        let name = self.name_of(source, "jks")?;
        let path = self.directory.join(&name);
        if path.is_file() {
            return Ok(path);
        }
        let bundle = read(source)?;
        let created = Clock::new().timestamp(Moment::now());
        self.file(&name, || jks::trust_store(bundle.with_root(&self.root), created))
    }

    /// Returns a directory with settings that make PHP use a bundle.
    pub fn php(&self, source: Option<&Path>) -> Result<PathBuf, TrustError> {
        let bundle = self.bundle(source)?;
        let directory = self.directory.join(self.name_of(source, "php")?);
        fs::create_dir_all(&directory).map_err(|error| TrustError::System(directory.clone(), error))?;
        let bundle = bundle.display();
        let settings = format!("openssl.cafile = \"{bundle}\"\ncurl.cainfo = \"{bundle}\"\n");
        write_once(&directory.join("egret.ini"), || settings.into_bytes())?;
        Ok(directory)
    }

    /// Returns the name of a bundle in another format.
    fn name_of(&self, source: Option<&Path>, extension: &str) -> Result<String, TrustError> {
        let bundle = self.bundle(source)?.with_extension(extension);
        Ok(bundle.file_name().unwrap_or_default().to_string_lossy().into_owned())
    }

    fn file(&self, name: &str, content: impl FnOnce() -> Vec<u8>) -> Result<PathBuf, TrustError> {
        let path = self.directory.join(name);
        write_once(&path, content)?;
        Ok(path)
    }
}

fn read(source: Option<&Path>) -> Result<Bundle, TrustError> {
    Bundle::find(source).map_err(TrustError::Bundle)
}

/// Writes a file unless it exists. Programs see all of it or nothing.
fn write_once(path: &Path, content: impl FnOnce() -> Vec<u8>) -> Result<(), TrustError> {
    if path.is_file() {
        return Ok(());
    }
    replace_file(path, &content()).map_err(|error| TrustError::System(path.to_owned(), error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use egret_ca::{Authority, Constraints, Owner};

    use super::*;

    #[test]
    fn files_hold_the_root_and_what_is_trusted_anyway() {
        let data_dir = tempfile::tempdir().unwrap();
        let now = Clock::new().timestamp(Moment::now());
        let [root, other] = [(); 2]
            .map(|()| Authority::make(&Constraints::NONE, &Owner::new("me"), 1, now).unwrap().root().clone());
        let own = data_dir.path().join("own.pem");
        fs::write(&own, other.pem()).unwrap();
        let directory = ExecDirectory::of(data_dir.path()).unwrap();
        let trust = Trust::new(&directory, &root.pem()).unwrap();
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        assert_eq!(read(&trust.root().unwrap()), root.pem());
        let bundle = trust.bundle(Some(&own)).unwrap();
        assert_eq!(read(&bundle), root.pem() + &other.pem());
        assert_eq!(fs::metadata(&bundle).unwrap().permissions().mode() & 0o777, 0o600);
        let usual = trust.bundle(None).unwrap();
        assert!(usual != bundle && read(&usual).matches("BEGIN").count() > 50);
        let php = read(&trust.php(Some(&own)).unwrap().join("egret.ini"));
        assert!(php.contains(&format!("curl.cainfo = \"{}\"", bundle.display())), "{php}");
        let java = trust.java(Some(&own)).unwrap();
        assert_eq!(java, bundle.with_extension("jks"));
        assert!(fs::read(&java).unwrap().starts_with(&[0xfe, 0xed, 0xfe, 0xed]));
        let again = Trust::new(&directory, &root.pem()).unwrap();
        assert_eq!((again.bundle(Some(&own)).unwrap(), again.java(Some(&own)).unwrap()), (bundle, java));
    }

    #[test]
    fn files_that_are_none_are_refused() {
        let data_dir = tempfile::tempdir().unwrap();
        let directory = ExecDirectory::of(data_dir.path()).unwrap();
        assert!(matches!(Trust::new(&directory, "no certificate"), Err(TrustError::Certificate)));
        let root =
            Authority::make(&Constraints::NONE, &Owner::new("me"), 1, Clock::new().timestamp(Moment::now()));
        let trust = Trust::new(&directory, &root.unwrap().root().pem()).unwrap();
        let missing = data_dir.path().join("missing.pem");
        assert!(matches!(trust.bundle(Some(&missing)), Err(TrustError::Bundle(_))));
        let unwritable = ExecDirectory::of(Path::new("/dev/null/data")).unwrap();
        let error = Trust::new(&unwritable, &trust.pem).unwrap_err().to_string();
        assert!(error.contains("`data_dir`"), "{error}");
    }
}

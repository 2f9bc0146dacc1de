//! Reads a file that a config names. Such a file can neither block the reader nor exhaust the memory.

#[cfg(not(feature = "simulated"))]
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read};
#[cfg(not(feature = "simulated"))]
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

#[cfg(feature = "simulated")]
use egret_kernel::disk::{OpenOptions, OpenOptionsExt};
use rustix::fs::OFlags;
use zeroize::Zeroizing;

/// Maximum length of a certificate file. A bundle of all public authorities has about 250 KiB.
pub const CERTIFICATES_BYTES_MAX: usize = 4 << 20;

/// Initial buffer for a file whose reported length is wrong, such as one in `/proc`.
const ROOM_BYTES_MIN: usize = 4096;

/// Reads a regular file of at most `bytes_max` bytes into memory that is zeroed when it is freed.
///
/// # Errors
///
/// Fails if the file cannot be opened or read, if it is not a regular file (a pipe could block forever), and
/// if it is longer.
pub fn read_file(path: impl AsRef<Path>, bytes_max: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    // Non-blocking: a pipe may never have a writer. The flag has no effect on a regular file.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let too_long = || io::Error::new(ErrorKind::FileTooLarge, format!("it is longer than {bytes_max} bytes"));
    let reported = usize::try_from(metadata.len()).map_err(|_| too_long())?;
    if reported > bytes_max {
        return Err(too_long());
    }
    // All memory is allocated at once, so growing leaves no copy behind that is not zeroed. The extra byte
    // detects a file that is longer.
    let room = (reported + 1).max(ROOM_BYTES_MIN).min(bytes_max + 1);
    let mut bytes = Zeroizing::new(vec![0; room]);
    let mut filled = 0;
    loop {
        if filled == bytes.len() {
            if filled > bytes_max {
                return Err(too_long());
            }
            // The file has grown, or the system reports no length for it.
            let mut more = Zeroizing::new(vec![0; (2 * filled).min(bytes_max + 1)]);
            more[..filled].copy_from_slice(&bytes);
            bytes = more;
        }
        match (&file).read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Returns the reason of a failed read in words, without the system's number for it.
pub fn reason(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "there is no such file".to_owned(),
        ErrorKind::PermissionDenied => "permission denied".to_owned(),
        ErrorKind::IsADirectory => "it is a directory".to_owned(),
        _ => error.to_string().split(" (os error ").next().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    /// A path that is deleted with the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("egret-config-{name}-{}", std::process::id())))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_regular_file_is_read_up_to_its_bound() {
        let scratch = Scratch::new("regular");
        for len in [0, 1, 99, 100] {
            std::fs::write(&scratch.0, vec![b'a'; len]).unwrap();
            assert_eq!(*read_file(&scratch.0, 100).unwrap(), vec![b'a'; len]);
        }
        std::fs::write(&scratch.0, vec![b'a'; 101]).unwrap();
        let error = read_file(&scratch.0, 100).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (ErrorKind::FileTooLarge, "it is longer than 100 bytes")
        );
    }

    #[test]
    fn a_file_whose_length_is_not_reported_is_bounded_too() {
        // The system reports a length of 0.
        assert_eq!(std::fs::metadata("/proc/self/environ").unwrap().len(), 0);
        let whole = std::fs::read("/proc/self/environ").unwrap();
        assert_eq!(*read_file("/proc/self/environ", 1 << 24).unwrap(), whole);
        if whole.len() > 10 {
            assert_eq!(read_file("/proc/self/environ", 10).unwrap_err().kind(), ErrorKind::FileTooLarge);
        }
    }

    #[test]
    fn a_pipe_a_directory_and_a_device_are_refused_at_once() {
        let pipe = Scratch::new("pipe");
        mknodat(CWD, &pipe.0, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for path in [pipe.0.as_path(), Path::new("/"), Path::new("/dev/zero")] {
            let error = read_file(path, 100).unwrap_err();
            assert_eq!(error.to_string(), "it is not a regular file", "{}", path.display());
        }
        assert_eq!(read_file("/no/such", 100).unwrap_err().kind(), ErrorKind::NotFound);
    }
}

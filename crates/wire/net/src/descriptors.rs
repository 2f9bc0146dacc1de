//! The limit of open files, and the reserve that connections of clients and to providers leave.
//!
//! The system gives a new file the lowest free number. A number in the reserve therefore means that all below
//! it are taken: a connection with such a number is closed again. So the control port answers, names are
//! resolved and logs are written, however many connections there are, and nothing has to be counted.

use std::io;
use std::os::fd::RawFd;
#[cfg(not(feature = "simulated"))]
use std::sync::OnceLock;

use rustix::io::Errno;
#[cfg(not(feature = "simulated"))]
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
#[cfg(not(feature = "simulated"))]
use tracing::warn;

use crate::os::kernel::AsRawFd;

/// Number of files in the reserve, or a quarter of the limit if that is less.
const RESERVE: RawFd = 128;

/// The part of the other files that clients may take. An eighth stays for connections to providers.
const CLIENTS: (RawFd, RawFd) = (7, 8);

/// Number of files that a process has open if the system does not tell.
const OPEN: usize = 32;

/// The open files of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFiles {
    /// Number of files that may be open.
    limit: RawFd,
}

impl OpenFiles {
    /// Returns the limit of this process. The first call raises the soft limit to the hard one: many systems
    /// start a process with 1,024, and an exchange takes two.
    #[cfg(not(feature = "simulated"))]
    pub fn get() -> Self {
        static OPEN_FILES: OnceLock<OpenFiles> = OnceLock::new();
        *OPEN_FILES.get_or_init(|| {
            let limit = getrlimit(Resource::Nofile);
            if limit.current != limit.maximum
                && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
            {
                warn!(%error, current = limit.current, "cannot raise the limit of open files");
            }
            Self::limited_to(getrlimit(Resource::Nofile).current)
        })
    }

    /// Returns the limit of the simulated kernel.
    #[cfg(feature = "simulated")]
    pub fn get() -> Self {
        Self { limit: egret_kernel::outside::files_max() }
    }

    #[cfg(any(test, not(feature = "simulated")))]
    fn limited_to(limit: Option<u64>) -> Self {
        Self { limit: limit.and_then(|limit| limit.try_into().ok()).unwrap_or(RawFd::MAX) }
    }

    /// Returns the number of files in the reserve.
    pub fn reserve(self) -> usize {
        usize::try_from(RESERVE.min(self.limit / 4)).unwrap_or_default()
    }

    /// Returns the number of the first file in the reserve.
    fn reserved_from(self) -> RawFd {
        self.limit - RESERVE.min(self.limit / 4)
    }

    /// Returns `true` if a file has a number of the reserve.
    pub fn reserves(self, file: &impl AsRawFd) -> bool {
        file.as_raw_fd() >= self.reserved_from()
    }

    /// Returns the number of clients whose connections may be open beside the files that are open now.
    pub fn clients_max(self) -> u32 {
        let open = open_files().unwrap_or(OPEN);
        let left = self.reserved_from().saturating_sub(open.try_into().unwrap_or(RawFd::MAX));
        let (part, whole) = CLIENTS;
        u32::try_from(left / whole * part).unwrap_or_default().max(1)
    }
}

/// Returns the number of open files, if the system tells.
fn open_files() -> Option<usize> {
    #[cfg(feature = "simulated")]
    return Some(egret_kernel::outside::open_files());
    #[cfg(not(feature = "simulated"))]
    std::fs::read_dir("/dev/fd").ok().map(Iterator::count)
}

/// Returns `true` if the process or the system has no open file or no memory left.
pub fn is_exhausted(error: &io::Error) -> bool {
    let errors = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|error| errors.contains(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_a_part_of_the_limit() {
        for (limit, reserve) in [(Some(64), 16), (Some(1024), 128), (Some(1 << 20), 128), (None, 128)] {
            let files = OpenFiles::limited_to(limit);
            assert_eq!(files.reserve(), reserve, "{limit:?}");
            assert!(!files.reserves(&0));
        }
        assert!(
            OpenFiles::limited_to(Some(64)).reserves(&48) && !OpenFiles::limited_to(Some(64)).reserves(&47)
        );
        assert!(OpenFiles::limited_to(Some(0)).reserves(&0));
    }

    #[test]
    fn clients_leave_files_to_providers() {
        let max = |limit| OpenFiles::limited_to(Some(limit)).clients_max();
        assert_eq!(max(0), 1);
        assert!((10_000..12_000).contains(&max(12_000)), "{}", max(12_000));
        assert!(OpenFiles::limited_to(None).clients_max() > 1_000_000);
    }
}

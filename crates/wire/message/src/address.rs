//! The ends of a client's connection: the address of the listener that accepted it, and that of the client.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use egret_config::text_value;
use serde::{Serialize, Serializer};

/// Beginning of an address that is the path of a Unix socket.
const UNIX: &str = "unix:";
/// Maximum length of such a path, in bytes: the system's address has room for one byte more, which ends it.
const UNIX_PATH_BYTES_MAX: usize = if cfg!(target_os = "linux") { 107 } else { 103 };
/// Maximum number of different paths that a process may name, over all reloads: each of them is kept.
const UNIX_PATHS_MAX: usize = 4_096;

/// The paths that are kept.
static UNIX_PATHS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// The address of a listener: `IP:port`, or `unix:` and an absolute path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// An address of the Internet. With port 0 the system chooses a port.
    Internet(SocketAddr),
    /// The path of a Unix socket.
    Unix(UnixPath),
}

/// The absolute path of a Unix socket. It is kept as long as the process lives, so it can be copied like an
/// address of the Internet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UnixPath(&'static str);

/// The reason why a text is no address to listen on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListenAddressError {
    /// It has neither form.
    #[error(
        "`{0}` is not an address to listen on: write IP:port, like `127.0.0.1:8000` or `[::1]:8000`, or the path of a Unix \
         socket, like `unix:/run/egret/egret.sock`"
    )]
    Unknown(String),
    /// The path does not begin with `/`, does not name a file, or has control characters.
    #[error("the path of a Unix socket must be absolute, like `unix:/run/egret/egret.sock`")]
    Path,
    /// The path is longer than the system permits.
    #[error("the path of a Unix socket has at most {UNIX_PATH_BYTES_MAX} bytes: choose a shorter one")]
    TooLong,
    /// Reloads have named so many paths that no further one can be kept.
    #[error("this process has had {UNIX_PATHS_MAX} Unix sockets: restart it to name others")]
    TooMany,
}

impl UnixPath {
    /// Returns the path, which must be absolute.
    ///
    /// # Errors
    ///
    /// Fails if it is relative, ends with `/`, has control characters or is too long; and if the process has
    /// named too many different paths.
    pub fn new(path: &str) -> Result<Self, ListenAddressError> {
        if !path.starts_with('/') || path.ends_with('/') || path.contains(char::is_control) {
            return Err(ListenAddressError::Path);
        }
        if path.len() > UNIX_PATH_BYTES_MAX {
            return Err(ListenAddressError::TooLong);
        }
        let mut known = UNIX_PATHS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = known.get(path) {
            return Ok(Self(kept));
        }
        if known.len() >= UNIX_PATHS_MAX {
            return Err(ListenAddressError::TooMany);
        }
        let kept: &'static str = Box::leak(path.into());
        known.insert(kept);
        Ok(Self(kept))
    }

    /// Returns the path as that of a file.
    pub fn as_path(self) -> &'static Path {
        Path::new(self.0)
    }
}

impl fmt::Display for UnixPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl ListenAddress {
    /// Returns the address of the Internet. `None` for a Unix socket.
    pub const fn internet(self) -> Option<SocketAddr> {
        match self {
            Self::Internet(address) => Some(address),
            Self::Unix(_) => None,
        }
    }

    /// Returns the path of a Unix socket. `None` for an address of the Internet.
    pub const fn unix(self) -> Option<UnixPath> {
        match self {
            Self::Internet(_) => None,
            Self::Unix(path) => Some(path),
        }
    }

    /// Returns the host, and the port if clients write it, by which clients name the gateway here. A Unix
    /// socket has no name, so clients write `localhost`.
    pub fn authority(self) -> String {
        self.internet().map_or_else(|| "localhost".to_owned(), |address| address.to_string())
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Internet(address)
    }
}

impl FromStr for ListenAddress {
    type Err = ListenAddressError;

    fn from_str(text: &str) -> Result<Self, ListenAddressError> {
        match text.strip_prefix(UNIX) {
            Some(path) => UnixPath::new(path).map(Self::Unix),
            None => {
                text.parse().map(Self::Internet).map_err(|_| ListenAddressError::Unknown(text.to_owned()))
            }
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Internet(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX}{path}"),
        }
    }
}

text_value!(ListenAddress, "an address like `127.0.0.1:8000` or `unix:/run/egret/egret.sock`");

/// The address of a client: `IP:port`, or `unix:uid=1000`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClientAddress {
    /// An address of the Internet.
    Internet(SocketAddr),
    /// The user id of the process that has connected to a Unix socket.
    User(u32),
}

impl ClientAddress {
    /// Returns the address of the Internet. `None` for the client of a Unix socket.
    pub const fn internet(self) -> Option<SocketAddr> {
        match self {
            Self::Internet(address) => Some(address),
            Self::User(_) => None,
        }
    }

    /// Returns the IP address. `None` for the client of a Unix socket.
    pub fn ip(self) -> Option<IpAddr> {
        self.internet().map(|address| address.ip())
    }
}

impl fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Internet(address) => address.fmt(f),
            Self::User(user) => write!(f, "{UNIX}uid={user}"),
        }
    }
}

impl Serialize for ClientAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_address_is_read_and_written_in_both_forms() {
        for text in ["127.0.0.1:8000", "[::1]:0", "unix:/run/egret.sock", "unix:/a b/é.sock"] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), text);
        }
        let unix: ListenAddress = "unix:/run/egret.sock".parse().unwrap();
        assert_eq!(unix, ListenAddress::Unix(UnixPath::new("/run/egret.sock").unwrap()));
        assert_eq!((unix.internet(), unix.authority()), (None, "localhost".to_owned()));
        let internet: ListenAddress = "127.0.0.1:80".parse().unwrap();
        assert_eq!((internet.unix(), internet.authority()), (None, "127.0.0.1:80".to_owned()));
    }

    #[test]
    fn a_path_is_absolute_short_and_plain() {
        let long = format!("unix:/{}", "x".repeat(UNIX_PATH_BYTES_MAX));
        for (text, expected) in [
            ("unix:", ListenAddressError::Path),
            ("unix:egret.sock", ListenAddressError::Path),
            ("unix:@egret", ListenAddressError::Path),
            ("unix:/run/", ListenAddressError::Path),
            ("unix:/run/\n", ListenAddressError::Path),
            ("unix:/run/\0", ListenAddressError::Path),
            (long.as_str(), ListenAddressError::TooLong),
            ("/run/egret.sock", ListenAddressError::Unknown("/run/egret.sock".to_owned())),
            ("localhost:8000", ListenAddressError::Unknown("localhost:8000".to_owned())),
        ] {
            assert_eq!(text.parse::<ListenAddress>(), Err(expected), "{text}");
        }
        let longest = long.strip_suffix('x').unwrap();
        assert!(longest.parse::<ListenAddress>().is_ok());
    }

    #[test]
    fn a_client_of_a_unix_socket_has_no_ip_address() {
        let user = ClientAddress::User(1000);
        assert_eq!((user.to_string(), user.ip()), ("unix:uid=1000".to_owned(), None));
        let internet = ClientAddress::Internet("[::1]:7".parse().unwrap());
        assert_eq!((internet.to_string(), internet.ip()), ("[::1]:7".to_owned(), "::1".parse().ok()));
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_read_as_it_is_written(text in "(unix:)?[/.@:a-z0-9\\[\\]\\PC]{0,24}") {
            if let Ok(address) = text.parse::<ListenAddress>() {
                prop_assert_eq!(address.to_string().parse::<ListenAddress>(), Ok(address));
                prop_assert!(address.unix().is_none_or(|path| path.as_path().is_absolute()));
            }
        }
    }
}

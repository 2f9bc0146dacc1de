//! Listening sockets, of the Internet and of files.
//!
//! The standard library's type of a TCP listener stands for both here: what accepts, passes on and closes a
//! listening socket does not ask for its family.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};

use egret_message::{ListenAddress, UnixPath};
use socket2::{Domain, Protocol, SockAddr, Type};

use crate::os;
use crate::os::kernel::{SockRef, Socket, TcpListener};

/// Maximum number of connections that wait to be accepted. The kernel applies its own limit too.
pub const BACKLOG: i32 = 4096;

/// The users who may connect to a Unix socket, as the file's permissions say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnixRights {
    /// The permissions of the file, as of `chmod`. To connect is to write.
    pub mode: u32,
    /// The number of the file's group. `None` for that of this process.
    pub group: Option<u32>,
}

/// Returns the inherited socket with this address, ready to accept clients on. Binds one if there is none.
/// Also returns its real address, and the file that it has made.
pub fn open(
    address: ListenAddress,
    inherited: &[TcpListener],
    rights: Option<UnixRights>,
) -> io::Result<(TcpListener, ListenAddress, Option<SocketFile>)> {
    let (socket, file) = match inherited.iter().find(|socket| is_at(socket, address)) {
        Some(socket) => (adopt(socket)?, None),
        None => bind(address, rights)?,
    };
    let bound = self::address(&socket)?;
    Ok((socket, bound, file))
}

fn is_at(socket: &TcpListener, wanted: ListenAddress) -> bool {
    address(socket).is_ok_and(|address| address == wanted)
}

/// Binds a socket that listens. A Unix socket has a file, which takes the place of one that nobody accepts
/// connections on.
///
/// # Errors
///
/// Fails with `AddrInUse` if another process listens there, and with `AlreadyExists` if the path is that of a
/// file of another kind.
fn bind(address: ListenAddress, rights: Option<UnixRights>) -> io::Result<(TcpListener, Option<SocketFile>)> {
    let (socket, file) = match address {
        ListenAddress::Unix(path) => {
            let (socket, file) = bind_unix(path)?;
            if let Some(rights) = rights {
                file.permit(rights)?;
            }
            (socket, Some(file))
        }
        ListenAddress::Internet(address) => {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
            socket.set_reuse_address(true)?;
            if address.is_ipv6() {
                socket.set_only_v6(false)?;
            }
            prepare(&SockRef::from(&socket))?;
            socket.bind(&address.into())?;
            (socket, None)
        }
    };
    socket.listen(BACKLOG)?;
    if file.as_ref().is_some_and(|file| !file.is_there()) {
        return Err(taken());
    }
    Ok((socket.into(), file))
}

/// Returns a handle of a socket that already listens, ready to accept clients on.
fn adopt(inherited: &TcpListener) -> io::Result<TcpListener> {
    let socket = inherited.try_clone()?;
    prepare(&SockRef::from(&socket))?;
    Ok(socket)
}

/// Sets the options of a listening socket.
pub fn prepare(socket: &SockRef<'_>) -> io::Result<()> {
    if socket.local_addr()?.domain() != Domain::UNIX {
        // Accepted sockets inherit this, which saves a system call for each.
        socket.set_tcp_nodelay(true)?;
        // Inherited too. It limits the unsent data of a slow client, so the amount that the client reads
        // shows soon.
        os::limit_unsent(socket)?;
    }
    socket.set_nonblocking(true)
}

/// Returns the address on which a socket listens.
pub fn address(socket: &TcpListener) -> io::Result<ListenAddress> {
    let address = SockRef::from(socket).local_addr()?;
    if let Some(address) = address.as_socket() {
        return Ok(address.into());
    }
    let path = address.as_pathname().and_then(|path| path.to_str()).and_then(|path| UnixPath::new(path).ok());
    path.map(ListenAddress::Unix).ok_or_else(|| ErrorKind::Unsupported.into())
}

/// The file of a Unix socket that this process listens on. It is removed on drop, unless another file has
/// taken its place.
#[derive(Debug)]
pub struct SocketFile {
    path: UnixPath,
    /// `None` once another process is to remove it.
    identity: Option<FileId>,
}

impl UnixRights {
    fn apply(self, path: &str) -> io::Result<()> {
        if self.group.is_some() {
            chown(path, None, self.group)?;
        }
        fs::set_permissions(path, fs::Permissions::from_mode(self.mode))
    }
}

impl SocketFile {
    /// Returns the file at `path`.
    ///
    /// # Errors
    ///
    /// Fails if there is none, and with `AlreadyExists` if it is no socket.
    pub fn of(path: UnixPath) -> io::Result<Self> {
        let file = fs::symlink_metadata(path.as_path())?;
        if !file.file_type().is_socket() {
            let message = "the path is that of a file of another kind: remove it, or choose another path";
            return Err(io::Error::new(ErrorKind::AlreadyExists, message));
        }
        Ok(Self { path, identity: Some(identity(&file)) })
    }

    /// Gives the file its permissions.
    ///
    /// # Errors
    ///
    /// Fails if another file has taken its place, or if this process is not in the group.
    #[cfg(target_os = "linux")]
    pub fn permit(&self, rights: UnixRights) -> io::Result<()> {
        use std::os::fd::AsRawFd;

        use rustix::fs::{FileType, Mode, OFlags, fstat, open};

        // By its descriptor: where others can write to the directory, another file may take its place.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = open(self.path.as_path(), flags, Mode::empty())?;
        let is_socket = FileType::from_raw_mode(fstat(&file)?.st_mode) == FileType::Socket;
        if !is_socket {
            return Err(taken());
        }
        rights.apply(&format!("/proc/self/fd/{}", file.as_raw_fd()))
    }

    /// Gives the file its permissions.
    ///
    /// # Errors
    ///
    /// Fails if the file is gone, or if this process is not in the group.
    #[cfg(not(target_os = "linux"))]
    pub fn permit(&self, rights: UnixRights) -> io::Result<()> {
        rights.apply(&self.path.to_string())
    }

    /// Leaves the file to another process, and returns its path.
    pub fn leave(mut self) -> UnixPath {
        self.identity = None;
        self.path
    }

    /// Returns `true` if the file is still there.
    fn is_there(&self) -> bool {
        fs::symlink_metadata(self.path.as_path()).is_ok_and(|file| Some(identity(&file)) == self.identity)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_there() {
            // Without permission for it, the file stays, and the next start replaces it.
            let _ = fs::remove_file(self.path.as_path());
        }
    }
}

fn taken() -> io::Error {
    io::Error::new(ErrorKind::AddrInUse, "another process has taken the path")
}

/// Device and number of a file, and its time of creation: numbers are used again.
type FileId = (u64, u64, i64, i64);

fn identity(file: &Metadata) -> FileId {
    (file.dev(), file.ino(), file.mtime(), file.mtime_nsec())
}

/// Binds a Unix socket. Nobody can connect until it listens.
fn bind_unix(path: UnixPath) -> io::Result<(Socket, SocketFile)> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    let address = SockAddr::unix(path.as_path())?;
    prepare(&SockRef::from(&socket))?;
    match socket.bind(&address) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            remove_stale(path, &address)?;
            socket.bind(&address)?;
        }
        bound => bound?,
    }
    Ok((socket, SocketFile::of(path)?))
}

/// Removes the file of a Unix socket on which nobody accepts connections.
fn remove_stale(path: UnixPath, address: &SockAddr) -> io::Result<()> {
    let file = SocketFile::of(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(address) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            drop(file);
            return Ok(());
        }
        // Somebody listens, but has accepted nobody for long.
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        Err(error) => {
            file.leave();
            return Err(error);
        }
        Ok(()) => {}
    }
    file.leave();
    Err(io::Error::new(ErrorKind::AddrInUse, format!("{} accepts connections on it", owner(&socket))))
}

/// Returns the process that listens at the other end, in words.
fn owner(socket: &Socket) -> String {
    match os::peer(socket) {
        Ok(peer) if peer.process > 0 => format!("process {} of user {}", peer.process, peer.user),
        _ => "another process".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;

    use tempfile::{TempDir, tempdir};

    use super::*;
    use crate::config::UnixMode;

    /// Returns an address in the directory, and its path.
    fn at(directory: &TempDir) -> (ListenAddress, &'static Path) {
        let address: ListenAddress =
            format!("unix:{}", directory.path().join("s").display()).parse().unwrap();
        (address, address.unix().unwrap().as_path())
    }

    fn bound(address: ListenAddress) -> io::Result<(TcpListener, Option<SocketFile>)> {
        bind(address, Some(UnixRights { mode: 0o640, group: None }))
    }

    #[test]
    fn a_unix_socket_has_its_permissions_and_is_removed_at_the_end() {
        let directory = tempdir().unwrap();
        let (at, path) = at(&directory);
        let (socket, file) = bound(at).unwrap();
        assert_eq!(address(&socket).unwrap(), at);
        assert_eq!(address(&adopt(&socket).unwrap()).unwrap(), at);
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o7777, 0o640);
        UnixStream::connect(path).unwrap();
        drop((socket, file));
        assert!(!path.exists());
    }

    #[test]
    fn a_mode_is_three_octal_digits_behind_a_zero() {
        for (text, is_private) in [("0600", true), ("0755", true), ("0660", false), ("0602", false)] {
            let mode: UnixMode = text.parse().unwrap();
            assert_eq!((mode.to_string().as_str(), mode.is_private()), (text, is_private));
        }
        for text in ["", "0", "600", "0o60", "0680", "00600", "+600", "4755"] {
            assert!(text.parse::<UnixMode>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_socket_that_nobody_accepts_on_is_replaced() {
        let directory = tempdir().unwrap();
        let (at, path) = at(&directory);
        drop(UnixListener::bind(path).unwrap());
        assert!(path.exists());
        let (_socket, file) = bound(at).unwrap();
        UnixStream::connect(path).unwrap();
        assert_eq!(file.unwrap().leave(), at.unix().unwrap());
        assert!(path.exists(), "it is left to another process");
    }

    #[test]
    fn a_socket_or_file_of_others_stays_and_is_named() {
        let directory = tempdir().unwrap();
        let (at, path) = at(&directory);
        let other = UnixListener::bind(path).unwrap();
        let error = bound(at).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        let named = format!("process {} of user ", std::process::id());
        assert!(error.to_string().contains(&named), "{error}");
        UnixStream::connect(path).unwrap();
        drop(other);
        fs::remove_file(path).unwrap();
        fs::write(path, "text").unwrap();
        assert_eq!(bound(at).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(path).unwrap(), "text");
        fs::remove_file(path).unwrap();
        std::os::unix::fs::symlink("/dev/null", path).unwrap();
        assert_eq!(bound(at).unwrap_err().kind(), ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_file_that_has_taken_the_place_is_not_removed() {
        let directory = tempdir().unwrap();
        let (at, path) = at(&directory);
        let (_socket, file) = bound(at).unwrap();
        // Both exist at once, so the new file has another number.
        let newer = directory.path().join("newer");
        fs::write(&newer, "").unwrap();
        fs::rename(&newer, path).unwrap();
        drop(file);
        assert!(path.exists());
    }
}

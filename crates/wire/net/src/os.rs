//! The calls that differ between systems: a module for each system, with the same functions. Its first lines
//! say what the system lacks.

pub mod kernel;

#[cfg(all(target_os = "linux", not(feature = "simulated")))]
#[path = "os/linux.rs"]
mod system;
#[cfg(all(target_os = "macos", not(feature = "simulated")))]
#[path = "os/macos.rs"]
mod system;
#[cfg(feature = "simulated")]
#[path = "os/simulated.rs"]
mod system;

pub use system::{CLOSE_ON_EXEC, NO_SIGNAL, accept, limit_unsent, peer};

/// The process at the other end of a Unix socket, as it was when it connected or began to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerProcess {
    /// Its number. 0 if this process cannot see it.
    pub process: i32,
    /// The number of its user.
    pub user: u32,
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use rustix::fs::{OFlags, fcntl_getfl};
    use rustix::io::{FdFlags, fcntl_getfd};

    use super::*;

    #[test]
    fn an_accepted_socket_does_not_block_and_no_program_inherits_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = accept(&listener).unwrap();
        assert!(fcntl_getfl(&socket).unwrap().contains(OFlags::NONBLOCK));
        assert!(fcntl_getfd(&socket).unwrap().contains(FdFlags::CLOEXEC));
    }

    #[test]
    fn a_socket_of_this_process_has_it_as_its_peer() {
        let (near, _far) = UnixStream::pair().unwrap();
        let user = rustix::process::geteuid().as_raw();
        let process = std::process::id().cast_signed();
        assert_eq!(peer(&near).unwrap(), PeerProcess { process, user });
    }
}

//! The process at the other end of the channel.
//!
//! Sockets are handed over, so it must be one that could have made them itself: of the same user, in the same
//! network and user namespace. A command in a namespace of its own has the same user, and would leave the
//! namespace by a socket of this one.

use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;

/// A process that may be spoken with.
#[derive(Debug)]
pub struct Peer(#[cfg(target_os = "linux")] std::os::fd::OwnedFd);

impl Peer {
    /// Identifies the process that has connected, or that listens.
    #[cfg(target_os = "linux")]
    pub fn identify(stream: &UnixStream) -> io::Result<Self> {
        linux::identify(stream).map(Self)
    }

    /// Fails: other systems do not tell, and nothing is handed over there.
    #[cfg(not(target_os = "linux"))]
    pub fn identify(_: &UnixStream) -> io::Result<Self> {
        Err(ErrorKind::Unsupported.into())
    }

    /// Fails if the process has ended, so that another one may hold its end of the channel.
    #[cfg(target_os = "linux")]
    pub fn check(&self) -> io::Result<()> {
        linux::check(&self.0)
    }

    /// Fails: there is no peer on other systems.
    #[cfg(not(target_os = "linux"))]
    pub fn check(&self) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }
}

#[cfg(target_os = "linux")]
fn refused(reason: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, reason.into())
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::read_link;
    use std::os::fd::OwnedFd;

    use nix::sys::socket::{getsockopt, sockopt};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};

    use super::{UnixStream, io, refused};

    /// The namespaces that must be the same.
    const NAMESPACES: [&str; 2] = ["net", "user"];

    pub(super) fn identify(stream: &UnixStream) -> io::Result<OwnedFd> {
        let credentials = getsockopt(stream, sockopt::PeerCredentials)?;
        if credentials.uid() != geteuid().as_raw() {
            return Err(refused("it belongs to another user"));
        }
        let pid = Pid::from_raw(credentials.pid()).filter(|_| credentials.pid() > 0);
        let pid = pid.ok_or_else(|| refused("it is in another process namespace"))?;
        let process = match getsockopt(stream, sockopt::PeerPidfd) {
            Ok(process) => process,
            // Older than Linux 6.5. The process connected a moment ago, too short a time to use its id again.
            Err(_) => pidfd_open(pid, PidfdFlags::empty())?,
        };
        for namespace in NAMESPACES {
            let of = |process: &str| read_link(format!("/proc/{process}/ns/{namespace}"));
            let theirs = of(&pid.as_raw_pid().to_string())
                .map_err(|error| refused(format!("its {namespace} namespace is not known: {error}")))?;
            if theirs != of("self")? {
                return Err(refused(format!("it is in another {namespace} namespace")));
            }
        }
        // While the process lives, no other one has its id: the namespaces were its own.
        check(&process)?;
        Ok(process)
    }

    pub(super) fn check(process: &OwnedFd) -> io::Result<()> {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&at_once))? {
            0 => Ok(()),
            _ => Err(refused("it has ended")),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::Command;

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    #[test]
    fn this_process_is_a_peer_of_itself() {
        let (near, _far) = UnixStream::pair().unwrap();
        Peer::identify(&near).unwrap().check().unwrap();
    }

    #[test]
    fn a_process_that_has_ended_is_no_peer_any_more() {
        let mut child = Command::new("true").spawn().unwrap();
        let ended = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        poll(&mut [PollFd::new(&ended, PollFlags::IN)], None).unwrap();
        assert_eq!(linux::check(&ended).unwrap_err().kind(), ErrorKind::PermissionDenied);
        child.wait().unwrap();
    }
}

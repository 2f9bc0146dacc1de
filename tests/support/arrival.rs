//! The time at which bytes arrived at a socket, by the clock of the system. The thread that reads them may
//! run later, which is no time of the sender's.

use std::net::TcpStream;
use std::time::{Duration, SystemTime};

/// Returns the time since the epoch.
pub fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

/// Has the system note when bytes arrive at this socket.
pub fn watch(stream: &TcpStream) {
    #[cfg(target_os = "linux")]
    nix::sys::socket::setsockopt(stream, nix::sys::socket::sockopt::ReceiveTimestampns, &true).unwrap();
    #[cfg(not(target_os = "linux"))]
    let _ = stream;
}

/// Waits for bytes, which stay unread. Returns the time since the epoch at which the first of them arrived,
/// or `None` if the connection has ended.
pub fn of(stream: &TcpStream) -> Option<Duration> {
    noted(stream)
}

#[cfg(not(target_os = "linux"))]
fn noted(stream: &TcpStream) -> Option<Duration> {
    stream.peek(&mut [0]).is_ok_and(|count| count > 0).then(now)
}

#[cfg(target_os = "linux")]
fn noted(stream: &TcpStream) -> Option<Duration> {
    use std::io::IoSliceMut;
    use std::os::fd::AsRawFd;

    use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
    use nix::sys::time::TimeSpec;

    let mut byte = [0];
    let mut bytes = [IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!(TimeSpec);
    let received =
        recvmsg::<()>(stream.as_raw_fd(), &mut bytes, Some(&mut space), MsgFlags::MSG_PEEK).ok()?;
    let mut notes = received.cmsgs().unwrap().filter_map(|note| match note {
        ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
        _ => None,
    });
    (received.bytes > 0).then(|| notes.next().unwrap_or_else(now))
}

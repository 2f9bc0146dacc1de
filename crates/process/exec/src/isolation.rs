//! `egret exec --isolate`: a network namespace from which nothing leads out but Egret's sockets.
//!
//! The process moves to a user and a network namespace of its own. There it makes listening sockets, and
//! hands them to the gateway, which stays outside. A socket belongs for ever to the namespace that it was
//! made in, so the gateway accepts inside and calls outside, and there is nothing in between. A route makes
//! every address local: a connection to any of them arrives at those sockets, and keeps the address that was
//! wanted. Sockets that know no network namespaces are [filtered](super::system_calls).

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use egret_service::run::passed_sockets::{self, Purpose};
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use rustix::net::AddressFamily;
use rustix::process::{getegid, geteuid};
use socket2::{Domain, Protocol, Socket, Type};

use super::netlink::Netlink;
use super::system_calls;

/// The ports whose connections reach the gateway without a proxy: those of HTTP and HTTPS.
const DIRECT_PORTS: [u16; 2] = [80, 443];

/// The port of name servers.
const NAMES_PORT: u16 = 53;

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 4096;

/// A step of the isolation that failed. The command must not run then.
#[derive(Debug, thiserror::Error)]
pub enum IsolationError {
    /// The system forbids the namespaces.
    #[error("--isolate: this system forbids new user and network namespaces: {0}: {advice}", advice = advice(.0))]
    Namespaces(io::Error),
    /// The system restricts what a process may do in its own namespace.
    #[error(
        "--isolate: cannot {0} in a new namespace: {1}: on Ubuntu, AppArmor restricts user namespaces of programs without a profile (`kernel.apparmor_restrict_unprivileged_userns`)"
    )]
    Restricted(&'static str, io::Error),
    /// The gateway did not take the sockets.
    #[error("--isolate: the gateway did not take the sockets: {0}")]
    Gateway(io::Error),
    /// The system does not filter system calls.
    #[error(
        "--isolate: this system does not filter system calls: {0}: the kernel needs CONFIG_SECCOMP_FILTER, and x86_64 or aarch64"
    )]
    Filter(io::Error),
}

/// Returns what a user can do.
fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOSPC) => "raise `user.max_user_namespaces` and `user.max_net_namespaces` (sysctl)",
        Some(Errno::EPERM | Errno::EACCES) => {
            "allow them by `kernel.unprivileged_userns_clone` or `kernel.apparmor_restrict_unprivileged_userns` (sysctl); \
             in a container, by its seccomp profile"
        }
        _ => "the kernel needs CONFIG_USER_NS and CONFIG_NET_NS",
    }
}

/// Isolates this process, which must have one thread, and the command that it becomes. The gateway at the
/// other end of `channel` serves its proxy at `proxy`, outside; inside it is at the same address.
pub fn isolate(channel: &UnixStream, proxy: SocketAddr) -> Result<(), IsolationError> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let flags = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET;
    unshare(flags).map_err(|error| IsolationError::Namespaces(error.into()))?;
    let restricted = |step| move |error: io::Error| IsolationError::Restricted(step, error);
    keep_user(user, group).map_err(restricted("keep the user"))?;
    let netlink = Netlink::open().map_err(restricted("configure the network"))?;
    netlink.start_loopback().map_err(restricted("start the loopback interface"))?;
    netlink.make_every_address_local(AddressFamily::INET).map_err(restricted("set a route"))?;
    // Without this route, or without IPv6, its addresses are unreachable, so nothing gets out either.
    let has_v6 = netlink.make_every_address_local(AddressFamily::INET6).is_ok();
    let sockets = sockets(proxy, has_v6).map_err(restricted("listen"))?;
    passed_sockets::send(channel, &sockets).map_err(IsolationError::Gateway)
}

/// Takes the system calls from this process that would lead out of the namespace. The last step, after which
/// it becomes the command.
pub fn forbid_calls() -> Result<(), IsolationError> {
    system_calls::forbid().map_err(IsolationError::Filter)
}

/// Returns `true` if this process has no network but the loopback interface.
pub fn is_isolated() -> bool {
    // Two lines of headings, then one for each interface (proc_pid_net(5)).
    let interfaces = std::fs::read_to_string("/proc/net/dev").unwrap_or_default();
    let mut names = interfaces.lines().skip(2).filter_map(|line| line.split(':').next());
    !interfaces.is_empty() && names.all(|name| name.trim() == "lo")
}

/// Makes the user and the group the same inside as outside. No others exist there.
fn keep_user(user: u32, group: u32) -> io::Result<()> {
    // Without this, only a privileged process may set the group (user_namespaces(7)).
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Makes the sockets for the gateway.
fn sockets(proxy: SocketAddr, has_v6: bool) -> io::Result<Vec<(Purpose, OwnedFd)>> {
    let mut sockets = vec![(Purpose::Proxy, listener(proxy)?)];
    let all = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    for ip in all.into_iter().take(if has_v6 { 2 } else { 1 }) {
        for port in DIRECT_PORTS {
            sockets.push((Purpose::Direct, listener(SocketAddr::new(ip, port))?));
        }
        let names = SocketAddr::new(ip, NAMES_PORT);
        sockets.push((Purpose::Names, bound(names, Type::DGRAM, Protocol::UDP)?.into()));
        sockets.push((Purpose::NamesOverTcp, listener(names)?));
    }
    Ok(sockets)
}

fn listener(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = bound(address, Type::STREAM, Protocol::TCP)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn bound(address: SocketAddr, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    if address.is_ipv6() {
        // Each family has a socket of its own, so IPv4 works on systems without IPv6 as well.
        socket.set_only_v6(true)?;
    }
    if kind == Type::STREAM {
        socket.set_reuse_address(true)?;
    }
    socket.bind(&address.into()).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => io::Error::new(error.kind(), format!("{address}: {error}")),
        _ => error,
    })?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_to_change() {
        for (code, expected) in [
            (Errno::ENOSPC, "user.max_user_namespaces"),
            (Errno::EPERM, "seccomp"),
            (Errno::EINVAL, "CONFIG_USER_NS"),
        ] {
            let error = IsolationError::Namespaces(io::Error::from(code));
            assert!(error.to_string().contains(expected), "{error}");
        }
        let error = IsolationError::Restricted("set a route", io::Error::from(Errno::EPERM));
        assert!(error.to_string().contains("AppArmor"), "{error}");
    }
}
